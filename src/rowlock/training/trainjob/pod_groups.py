"""`podGroupPolicy` of a runtime → the PodGroup of coscheduling or Volcano, and the labels or annotations of its pods.

Trainer writes them for those schedulers, and other programs read them. Our scheduler ignores them: it uses the gangs of
`training/jobset/gangs.py`, which can also be complete in jobs with initializers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from rowlock.kinds import COSCHEDULING_POD_GROUP, VOLCANO_POD_GROUP, Kind
from rowlock.objects import Object, dig, namespace, owner_reference
from rowlock.objects import annotations as annotations_of
from rowlock.objects import labels as labels_of
from rowlock.quantity import canonicalize, parse, render
from rowlock.training.trainjob.model import ReplicatedJob, TrainPlan, pod_spec

COSCHEDULING_LABEL, VOLCANO_ANNOTATION = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
TIMEOUT = 60


def mark_gang(plan: TrainPlan, policy: Mapping[str, Any]) -> None:
    """Mark pods with their PodGroup's name, for the schedulers that the policy names."""
    for job in plan.jobs:
        metadata = job["template"]["spec"]["template"].setdefault("metadata", {})
        if "coscheduling" in policy:
            metadata["labels"] = {**(metadata.get("labels") or {}), COSCHEDULING_LABEL: plan.name}
        if "volcano" in policy:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), VOLCANO_ANNOTATION: plan.name}


def make_pod_groups(
    plan: TrainPlan, policy: Mapping[str, Any], annotations: Mapping[str, str]
) -> Iterator[tuple[Kind, Object]]:
    """A PodGroup for each scheduler that the policy names. `annotations`: those of the runtime's template."""
    gang: Object = {"minMember": sum(_pods(job) for job in plan.jobs)}
    if resources := _requests(plan):
        gang["minResources"] = resources
    if "coscheduling" in policy:
        timeout = (policy["coscheduling"] or {}).get("scheduleTimeoutSeconds", TIMEOUT)
        yield COSCHEDULING_POD_GROUP, _object(plan, COSCHEDULING_POD_GROUP, {**gang, "scheduleTimeoutSeconds": timeout})
    if "volcano" in policy:
        classes = (pod_spec(job).get("priorityClassName") for job in plan.jobs)
        wishes = {
            "queue": annotations.get(QUEUE_ANNOTATION),
            "priorityClassName": next(filter(None, classes), None),
            "networkTopology": (policy["volcano"] or {}).get("networkTopology"),
        }
        yield VOLCANO_POD_GROUP, _object(plan, VOLCANO_POD_GROUP, {**gang, **{k: v for k, v in wishes.items() if v}})


def named_groups(jobset: Object | None) -> Iterator[Kind]:
    """The kinds of PodGroups that pods of the set name."""
    templates = [dig(job, "template.spec.template", {}) for job in dig(jobset, "spec.replicatedJobs", None) or ()]
    if any(COSCHEDULING_LABEL in labels_of(template) for template in templates):
        yield COSCHEDULING_POD_GROUP
    if any(VOLCANO_ANNOTATION in annotations_of(template) for template in templates):
        yield VOLCANO_POD_GROUP


def _object(plan: TrainPlan, kind: Kind, spec: Object) -> Object:
    metadata = {
        "name": plan.name,
        "namespace": namespace(plan.trainjob),
        "ownerReferences": [owner_reference(plan.trainjob)],
    }
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def _pods(job: ReplicatedJob) -> int:
    return int(job.get("replicas", 1)) * int(job["template"]["spec"]["parallelism"])


def _requests(plan: TrainPlan) -> dict[str, str]:
    """The total requests of all pods. As in Trainer, limits do not count as requests."""
    total = dict[str, Decimal]()
    is_binary = dict[str, bool]()
    for job in plan.jobs:
        for resource, amount in _requests_of_pod(pod_spec(job)).items():
            total[resource] = total.get(resource, Decimal(0)) + parse(amount) * _pods(job)
            is_binary[resource] = is_binary.get(resource, True) and amount.endswith("i")
    return {resource: render(amount, binary=is_binary[resource]) for resource, amount in sorted(total.items())}


def _requests_of_pod(spec: Mapping[str, Any]) -> dict[str, str]:
    """A pod's requests: the sum of its containers, or the largest init container if that is more."""
    parts = [[_container_requests(one) for one in spec.get(part) or ()] for part in ("containers", "initContainers")]
    wanted = dict[str, str]()
    for resource in {key for part in parts for one in part for key in one}:
        together = sum((parse(one.get(resource, "0")) for one in parts[0]), Decimal(0))
        before = max((parse(one.get(resource, "0")) for one in parts[1]), default=Decimal(0))
        texts = [one[resource] for part in parts for one in part if resource in one]
        wanted[resource] = render(max(together, before), binary=all(text.endswith("i") for text in texts))
    return wanted


def _container_requests(container: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: canonicalize(amount) for key, amount in ((container.get("resources") or {}).get("requests") or {}).items()
    }
