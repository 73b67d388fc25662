"""What JobSet's webhook adds to pods of sets: a label with their priority, and exclusive placement.

With exclusive placement (annotation `alpha.jobset.sigs.k8s.io/exclusive-topology: <node label>`) each Job has a rack, or another topology
domain, for itself: pod 0 has an anti-affinity to pods of other Jobs, and the other pods must go to its domain. With the annotation
`alpha.jobset.sigs.k8s.io/node-selector` beside it (any value) nodes have been labelled for the Jobs beforehand: `place_by_node_labels`
selects them by label, and the webhook adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowlock.objects import Object, dig, labels, meta
from rowlock.objects import annotations as annotations_of
from rowlock.training.jobset.model import NAME_KEY, PREFIX

EXCLUSIVE_KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_KEY = "alpha.jobset.sigs.k8s.io/node-selector"
_NAMESPACED_JOB_KEY, _TAINT_KEY = "alpha.jobset.sigs.k8s.io/namespaced-job", "alpha.jobset.sigs.k8s.io/no-schedule"
JOB_KEY, PRIORITY_KEY = f"{PREFIX}job-key", f"{PREFIX}priority"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
REFUSAL = 'admission webhook "vpod.kb.io" denied the request: follower pod node selector not set'


def is_of_set(pod: Object) -> bool:
    return NAME_KEY in annotations_of(pod)


def exclusive_marks(*sources: Mapping[str, str]) -> dict[str, str]:
    """The annotations about exclusive placement for a Job and its pods. `sources`: annotations of the set and of the replicated job; a later
    one wins."""
    marks: dict[str, str] = {}
    for source in sources:
        if EXCLUSIVE_KEY in source:
            marks |= {key: source[key] for key in (EXCLUSIVE_KEY, NODE_SELECTOR_KEY) if key in source}
    return marks


def place_by_node_labels(pod_spec: Object, space: str, job: str) -> Object:
    """The pod spec of a Job that runs on the nodes labelled with `<namespace>_<Job>`, and tolerates their taint."""
    toleration = {"key": _TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
    return {
        **pod_spec,
        "nodeSelector": {**(pod_spec.get("nodeSelector") or {}), _NAMESPACED_JOB_KEY: f"{space}_{job}"},
        "tolerations": [*(pod_spec.get("tolerations") or ()), toleration],
    }


def admit_pod(pod: Object, leaders_domain: Callable[[str], str | None]) -> Object | None:
    """A new pod of a set with the webhook's additions; None if it must wait until pod 0 of its Job has a node. `leaders_domain`: label →
    its value on the node of pod 0, or None while that pod has no node."""
    if NODE_SELECTOR_KEY in annotations_of(pod):
        return pod
    marked = {**labels(pod), PRIORITY_KEY: str(dig(pod, "spec.priority", 0))}
    pod = {**pod, "metadata": {**meta(pod), "labels": marked}}
    topology = annotations_of(pod).get(EXCLUSIVE_KEY)
    if not topology:
        return pod
    spec = dict(pod.get("spec") or {})
    if annotations_of(pod).get(COMPLETION_INDEX, "0") == "0":
        spec["affinity"] = {**(spec.get("affinity") or {}), **_keeping_away(pod, topology)}
    else:
        domain = leaders_domain(topology)
        if domain is None:
            return None
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), topology: domain}
    return {**pod, "spec": spec}


def _keeping_away(pod: Object, topology: str) -> Object:
    own, required = labels(pod).get(JOB_KEY, ""), "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = dig(pod, "spec.affinity", {})
    together = [{"key": JOB_KEY, "operator": "In", "values": [own]}]
    apart = [
        {"key": JOB_KEY, "operator": "Exists"},
        {"key": JOB_KEY, "operator": "NotIn", "values": [own]},
        {"key": PRIORITY_KEY, "operator": "In", "values": [labels(pod)[PRIORITY_KEY]]},
    ]
    found: Object = {}
    for part, wanted in (("podAffinity", together), ("podAntiAffinity", apart)):
        term = {"labelSelector": {"matchExpressions": wanted}, "topologyKey": topology}
        given = affinity.get(part) or {}
        found[part] = {**given, required: [*(given.get(required) or ()), term]}
    return found
