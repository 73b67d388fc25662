"""Pods on nodes whose kubelet does not answer: nothing is known of them, and what was known is old. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowlock import objects
from rowlock.diagnosis.observation import Verdict
from rowlock.diagnosis.root_cause import format_duration, join_names
from rowlock.objects import Object
from rowlock.workloads import pods as ranks


def silent_nodes(nodes: Iterable[Object]) -> dict[str, Object]:
    """Name of a node that is not ready → its condition."""
    found = {objects.name(node): objects.condition(node, "Ready") for node in nodes}
    return {name: ready for name, ready in found.items() if ready is not None and ready.get("status") != "True"}


def silence_verdict(job: Object, pods: Sequence[Object], silent: dict[str, Object], now: float) -> Verdict:
    """The verdict on running pods that are all on `silent` nodes."""
    names = sorted({str(objects.dig(pod, "spec.nodeName")) for pod in pods})
    told = [_node_clause(name, silent[name], now) for name in names]
    culprits = tuple(ranks.rank_label(job, pod) for pod in pods)
    run = "runs" if len(culprits) == 1 else "run"
    sentence = f"{join_names(told)}: nothing is known of {join_names(culprits)}, which {run} there."
    return Verdict("lost", sentence[0].upper() + sentence[1:], culprits)


def _node_clause(name: str, ready: Object, now: float) -> str:
    since = objects.seconds(ready.get("lastTransitionTime"))
    duration = f" for {format_duration(now - since)}" if 0 < since < now else ""
    why = (
        "its kubelet is silent"
        if ready.get("status") == "Unknown"
        else ready.get("message") or ready.get("reason") or ""
    )
    return f"node {name} has not been ready{duration}" + (f" ({why})" if why else "")
