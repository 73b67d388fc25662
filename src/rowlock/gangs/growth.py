"""Clusters that grow: whether something may bring nodes for pods that no node of now could hold.

Karpenter's nodes have its label. The cluster autoscaler keeps a ConfigMap with its status in kube-system. Both add nodes for pods with the
condition PodScheduled=False and the reason Unschedulable, which rowlock's scheduler writes as kube-scheduler does. What cannot be seen, a
project's namespace can say by an annotation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rowlock.api import Api
from rowlock.errors import ApiError, Cause
from rowlock.kinds import CONFIG_MAP
from rowlock.objects import Object, labels, name
from rowlock.objects import annotations as annotations_of
from rowlock.selectors import FieldSelector, Term
from rowlock.workloads.feasibility import NO_GPU

MAY_WAIT_ANNOTATION = "rowlock.dev/may-wait"
"""On a project's namespace: "true" = its jobs may wait for nodes that are not there yet; "false" = they may not, whatever is installed."""
_KARPENTER_LABELS = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
_AUTOSCALER_PLACE, _AUTOSCALER_STATUS = "kube-system", "cluster-autoscaler-status"


async def find_growth(api: Api, nodes: Iterable[Object], namespace: Object | None) -> str:
    """What may bring nodes, as the subject of a sentence; "" if nothing is known to. `namespace`: that of the project."""
    choice = annotations_of(namespace).get(MAY_WAIT_ANNOTATION) if namespace is not None else None
    if namespace is not None and choice == "true":
        return f"the administrator of namespace {name(namespace)} ({MAY_WAIT_ANNOTATION})"
    if choice == "false":
        return ""
    if any(label in labels(node) for node in nodes for label in _KARPENTER_LABELS):
        return "Karpenter"
    only = FieldSelector((Term("metadata.name", "=", frozenset({_AUTOSCALER_STATUS})),))
    try:
        found = await api.list(CONFIG_MAP, _AUTOSCALER_PLACE, fields=only, limit=1)
    except ApiError:
        return ""  # who may not look does not know of it
    return "the cluster autoscaler" if found.items else ""


def waiting_notice(cause: Cause, growth: str) -> str:
    """What the user of an accepted submit is told. `cause`: why no node of now could hold it."""
    return f"{_first_sentence(cause)}: it waits until {growth} brings a node that can hold it."


def refusal(cause: Cause, namespace: str) -> Cause:
    """The cause as a real cluster's: its nodes are nobody's on this machine, and may be more tomorrow."""
    text = f"{_first_sentence(cause)}. Ask for none." if cause.message == NO_GPU else cause.message
    hint = f"Where nodes are added for pods that wait: `kubectl annotate namespace {namespace} {MAY_WAIT_ANNOTATION}=true`."
    return replace(cause, message=f"{text} {hint}")


def _first_sentence(cause: Cause) -> str:
    return cause.message.partition(". ")[0].rstrip(".")
