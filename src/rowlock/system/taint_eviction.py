"""Evicts pods from a node with a `NoExecute` taint that they do not tolerate.

The rules are those of kube-controller-manager's taint-eviction-controller: at once without a toleration, after the shortest
`tolerationSeconds` of the tolerations that apply, never when none of them sets a limit. A pod is marked with the condition
`DisruptionTarget` and deleted with its own grace period; its owner decides whether another one takes its place.
The taint `node.kubernetes.io/unschedulable` follows `kubectl cordon`, as in the node lifecycle controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Decision,
    Delete,
    DeleteOptions,
    Patch,
    Record,
    View,
    Write,
)
from rowlock.kinds import NODE, POD, Kind
from rowlock.objects import Key, Object
from rowlock.system.pod_garbage_collector import mark_disrupted

NO_EXECUTE = "NoExecute"


class TaintEviction:
    """One key per pod."""

    name = "taint-eviction-controller"
    kinds: tuple[Kind, ...] = (NODE, POD)

    def __init__(self) -> None:
        self._tolerated_since: dict[str, float] = {}
        """uid of a pod → when its toleration period began (seconds since the epoch). Lost at a restart, as upstream, which gives a pod more
        time, never less."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NODE:
            if no_execute_taints(change.object) == no_execute_taints(change.old or {}):
                return ()
            node = objects.name(change.object)
            return [objects.key(pod) for pod in view.all(POD) if objects.dig(pod, "spec.nodeName") == node]
        pod = change.object
        if change.type == "Deleted":
            self._tolerated_since.pop(objects.uid(pod), None)
            return ()
        return (objects.key(pod),) if _taints_of_node(view, pod) else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pod = view.get(POD, *key)
        if pod is None or objects.is_deleting(pod):
            return NOTHING
        taints, uid = _taints_of_node(view, pod), objects.uid(pod)
        if not taints:
            return self._cancel(pod)
        seconds = tolerated_seconds(taints, objects.dig(pod, "spec.tolerations") or ())
        if seconds is None:
            self._tolerated_since.pop(uid, None)
            return NOTHING
        remaining = self._tolerated_since.setdefault(uid, now) + seconds - now
        return Decision(requeue_after=remaining) if remaining > 0 else Decision(tuple(_evict(pod, now)))

    def _cancel(self, pod: Object) -> Decision:
        if self._tolerated_since.pop(objects.uid(pod), None) is None:
            return NOTHING
        return Decision((_event(pod, "Cancelling deletion of Pod"),))


def no_execute_taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The taints of a node that its running pods must tolerate."""
    return [taint for taint in objects.dig(node, "spec.taints") or () if taint.get("effect") == NO_EXECUTE]


def tolerated_seconds(taints: Sequence[Mapping[str, Any]], tolerations: Sequence[Mapping[str, Any]]) -> float | None:
    """How long a pod with these tolerations may stay, in seconds: 0 = not at all, None = for ever."""
    limits: list[float] = []
    for taint in taints:
        toleration = next((t for t in tolerations if _tolerates(t, taint)), None)
        if toleration is None:
            return 0.0
        if toleration.get("tolerationSeconds") is not None:
            limits.append(max(0.0, float(toleration["tolerationSeconds"])))
    return min(limits) if limits else None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """`Toleration.ToleratesTaint` of k8s.io/api/core/v1."""
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _taints_of_node(view: View, pod: Object) -> list[Mapping[str, Any]]:
    node = view.get(NODE, "", objects.dig(pod, "spec.nodeName") or "")
    return no_execute_taints(node) if node is not None else []


def _evict(pod: Object, now: float) -> Iterable[Write]:
    yield _event(pod, "Marking for deletion Pod")
    yield mark_disrupted(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now)
    yield Delete(POD, *objects.key(pod), DeleteOptions(uid=objects.uid(pod)))


def _event(pod: Object, words: str) -> Record:
    text = f"{words} {objects.namespace(pod)}/{objects.name(pod)}"
    return Record(pod, "Normal", "TaintManagerEviction", text, TaintEviction.name)


UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


class UnschedulableTaint:
    """One key per node."""

    name = "unschedulable-taint"
    kinds: tuple[Kind, ...] = (NODE,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (objects.key(change.object),)

    def decide(self, view: View, key: Key, now: float) -> Decision:
        node = view.get(NODE, "", key.name)
        if node is None:
            return NOTHING
        spec = node.get("spec") or {}
        taints = list(spec.get("taints") or ())
        other_taints = [t for t in taints if t.get("key") != UNSCHEDULABLE_TAINT]
        if bool(spec.get("unschedulable")) == (len(other_taints) < len(taints)):
            return NOTHING
        if spec.get("unschedulable"):
            other_taints.append(
                {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": objects.timestamp(now)}
            )
        patch = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": other_taints or None},
        }
        return Decision((Patch(NODE, "", key.name, patch),))
