"""What a JobSet creates: its headless Service, its volume claims, and its Jobs with JobSet's labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from rowlock.kinds import BATCH_JOB, PERSISTENT_VOLUME_CLAIM, SERVICE
from rowlock.objects import Object, dig, name, namespace, owner_reference, uid
from rowlock.objects import annotations as annotations_of
from rowlock.training.jobset.model import (
    NAME_KEY,
    PREFIX,
    REPLICATED_JOB_KEY,
    RESTART_KEY,
    Json,
    has_host_names,
    replicas,
    subdomain,
)
from rowlock.training.jobset.pod_webhook import (
    NODE_SELECTOR_KEY,
    exclusive_marks,
    place_by_node_labels,
)

DEFAULT_GROUP = "default"


def service_of(jobset: Object) -> Object:
    """The headless Service, which gives the set's pods DNS names."""
    spec: Json = {
        "clusterIP": "None",
        "selector": {NAME_KEY: name(jobset)},
        "publishNotReadyAddresses": bool(dig(jobset, "spec.network.publishNotReadyAddresses", True)),
    }
    metadata = {
        "name": subdomain(jobset),
        "namespace": namespace(jobset),
        "ownerReferences": [owner_reference(jobset)],
    }
    return {"apiVersion": SERVICE.api_version, "kind": SERVICE.name, "metadata": metadata, "spec": spec}


def claims_of(jobset: Object) -> Iterator[Object]:
    """The volume claims of the set. Those with the retention policy Retain have no owner."""
    for policy in dig(jobset, "spec.volumeClaimPolicies", None) or ():
        is_kept = dig(policy, "retentionPolicy.whenDeleted", "Delete") == "Retain"
        for template in policy.get("templates") or ():
            own = template.get("metadata") or {}
            metadata: Json = {
                "name": f"{own.get('name')}-{name(jobset)}",
                "namespace": namespace(jobset),
                "labels": {**(own.get("labels") or {}), NAME_KEY: name(jobset)},
                **({"annotations": own["annotations"]} if own.get("annotations") else {}),
                **({} if is_kept else {"ownerReferences": [owner_reference(jobset)]}),
            }
            yield {
                "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
                "kind": PERSISTENT_VOLUME_CLAIM.name,
                "metadata": metadata,
                "spec": template.get("spec") or {},
            }


def job_name(jobset: Object, replicated_job: Mapping[str, Any], index: int) -> str:
    return f"{name(jobset)}-{replicated_job['name']}-{index}"


class SetNumbers:
    """The numbers of a set that its Jobs have in labels, counted once: a set may have thousands of replicated jobs."""

    def __init__(self, jobset: Object) -> None:
        self._jobset = jobset
        self._jobs: list[Json] = list(dig(jobset, "spec.replicatedJobs", None) or ())
        self._before, self._before_in_group = list[int](), list[int]()
        self._total, self._totals = 0, dict[str, int]()
        for job in self._jobs:
            count, group = replicas(job), _group_of(job)
            self._before.append(self._total)
            self._before_in_group.append(self._totals.get(group, 0))
            self._total += count
            self._totals[group] = self._totals.get(group, 0) + count

    def job_of(self, position: int, index: int, restarts: int) -> Object:
        """The Job of replica `index` of the replicated job at `position` in the spec."""
        jobset, replicated_job = self._jobset, self._jobs[position]
        marks = self._marks(position, index, restarts)
        template = replicated_job.get("template") or {}
        own, spec = template.get("metadata") or {}, template.get("spec") or {}
        pods = spec.get("template") or {}
        pod_metadata, pod_spec = pods.get("metadata") or {}, dict(pods.get("spec") or {})
        if has_host_names(jobset):
            pod_spec["subdomain"] = subdomain(jobset)
        if volumes := _claim_volumes(jobset, pod_spec):
            pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), *volumes]
        exclusive = exclusive_marks(annotations_of(jobset), own.get("annotations") or {})
        if NODE_SELECTOR_KEY in exclusive:
            pod_spec = place_by_node_labels(pod_spec, namespace(jobset), job_name(jobset, replicated_job, index))
        noted = {**marks, **exclusive}
        metadata = {
            "name": job_name(jobset, replicated_job, index),
            "namespace": namespace(jobset),
            "labels": {**(own.get("labels") or {}), **marks},
            "annotations": {**(own.get("annotations") or {}), **noted},
            "ownerReferences": [owner_reference(jobset)],
        }
        pod_marks = {
            "labels": {**(pod_metadata.get("labels") or {}), **marks},
            "annotations": {**(pod_metadata.get("annotations") or {}), **noted},
        }
        job_spec = {
            **spec,
            "suspend": bool(dig(jobset, "spec.suspend", False)),
            "template": {**pods, "metadata": {**pod_metadata, **pod_marks}, "spec": pod_spec},
        }
        return {"apiVersion": BATCH_JOB.api_version, "kind": BATCH_JOB.name, "metadata": metadata, "spec": job_spec}

    def _marks(self, position: int, index: int, restarts: int) -> dict[str, str]:
        """The labels and annotations (the same keys) of a Job and its pods that say which part of the set they are."""
        jobset, job = self._jobset, self._jobs[position]
        key = hashlib.sha1(f"{namespace(jobset)}/{job_name(jobset, job, index)}".encode(), usedforsecurity=False)
        marks = {
            NAME_KEY: name(jobset),
            f"{PREFIX}jobset-uid": uid(jobset),
            REPLICATED_JOB_KEY: job["name"],
            f"{PREFIX}replicatedjob-replicas": str(replicas(job)),
            f"{PREFIX}job-index": str(index),
            f"{PREFIX}job-global-index": str(self._before[position] + index),
            f"{PREFIX}global-replicas": str(self._total),
            f"{PREFIX}group-name": _group_of(job),
            f"{PREFIX}group-replicas": str(self._totals[_group_of(job)]),
            f"{PREFIX}job-group-index": str(self._before_in_group[position] + index),
            f"{PREFIX}job-key": key.hexdigest(),
            RESTART_KEY: str(restarts),
        }
        if coordinator := dig(jobset, "spec.coordinator", None):
            host = f"{name(jobset)}-{coordinator['replicatedJob']}-{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}"
            marks[f"{PREFIX}coordinator"] = f"{host}.{subdomain(jobset)}"
        return marks


def _group_of(job: Mapping[str, Any]) -> str:
    return str(job.get("groupName") or DEFAULT_GROUP)


def _claim_volumes(jobset: Object, pod_spec: Mapping[str, Any]) -> list[Json]:
    mounted = {
        mount.get("name")
        for part in ("containers", "initContainers")
        for container in pod_spec.get(part) or ()
        for mount in container.get("volumeMounts") or ()
    }
    return [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name(jobset)}"}}
        for policy in dig(jobset, "spec.volumeClaimPolicies", None) or ()
        for template in policy.get("templates") or ()
        if (claim := name(template)) in mounted
    ]
