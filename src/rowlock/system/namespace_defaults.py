"""What Kubernetes puts into every namespace and onto every cordoned node by itself; three small controllers, pure.

`NamespaceDefaults` gives a namespace its service account `default` and the ConfigMap `kube-root-ca.crt`, so that clients
that wait for them go on. `UnschedulableTaint` keeps the taint `node.kubernetes.io/unschedulable` in step with `kubectl cordon`.
`FirstConsumerEvents` says once of a new volume claim that it is bound when a pod first uses it. On a real cluster the controller
manager does all three.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.api import NOTHING, Change, Controller, Create, Decision, Patch, Record, View
from rowlock.kinds import CONFIG_MAP, EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object

DEFAULT_SERVICE_ACCOUNT, ROOT_CA_CONFIG_MAP = "default", "kube-root-ca.crt"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


def controllers(ca_certificate: str = "") -> tuple[Controller, ...]:
    """`ca_certificate` is the cluster's CA certificate (PEM)."""
    return (NamespaceDefaults(ca_certificate), UnschedulableTaint(), FirstConsumerEvents())


class NamespaceDefaults:
    """One key per namespace."""

    name = "namespace-furnishing"
    kinds: tuple[Kind, ...] = (NAMESPACE, SERVICE_ACCOUNT, CONFIG_MAP)

    def __init__(self, ca_certificate: str = "") -> None:
        self._ca_certificate = ca_certificate

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NAMESPACE:
            return (objects.key(change.object),)
        if change.type == "Deleted" and objects.name(change.object) in (DEFAULT_SERVICE_ACCOUNT, ROOT_CA_CONFIG_MAP):
            return (Key("", objects.namespace(change.object)),)
        return ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        namespace = view.get(NAMESPACE, "", key.name)
        if namespace is None or objects.is_deleting(namespace):
            return NOTHING
        defaults: tuple[tuple[Kind, str, dict[str, Any]], ...] = (
            (SERVICE_ACCOUNT, DEFAULT_SERVICE_ACCOUNT, {}),
            (
                CONFIG_MAP,
                ROOT_CA_CONFIG_MAP,
                {"data": {"ca.crt": self._ca_certificate}} if self._ca_certificate else {},
            ),
        )
        missing = [item for item in defaults if view.get(item[0], key.name, item[1]) is None]
        return Decision(tuple(Create(kind, _object(kind, key.name, name, more)) for kind, name, more in missing))


def _object(kind: Kind, namespace: str, name: str, content: dict[str, Any]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content}


class UnschedulableTaint:
    """One key per node."""

    name = "cordon-taints"
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


class FirstConsumerEvents:
    """One key per claim. What was said already is in the cluster's Events: a restart does not repeat it."""

    name = "persistentvolume-controller"
    kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (objects.key(change.object),) if change.type == "Added" else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        claim = view.get(PERSISTENT_VOLUME_CLAIM, *key)
        if claim is None or objects.is_deleting(claim) or objects.phase(claim) != "Pending":
            return NOTHING
        reported_uids = (objects.dig(event, "involvedObject.uid") for event in view.all(EVENT, key.namespace))
        if objects.uid(claim) in reported_uids:
            return NOTHING
        text = "waiting for first consumer to be created before binding"
        return Decision((Record(claim, "Normal", "WaitForFirstConsumer", text, self.name),))
