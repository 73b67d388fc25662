"""Checks by a dry run of one pod per replica type whether the API server would accept a job's pods, so that no job is created
that can never get pods.

Temporary obstacles, such as a quota that is used up, are no reason to refuse the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Create, WriteOptions
from rowlock.errors import ApiError, BadRequest, Cause, Invalid
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.training.framework import Framework
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.job import reconcile
from rowlock.training.model import TYPE_LABEL, WORKER
from rowlock.training.reconcile_context import Observed

_FIELDS = (
    ("metadata.labels", "labels"), ("metadata.annotations", "annotations"), ("spec.tolerations", "tolerations"),
    ("spec.nodeSelector", "nodeType"), ("spec.affinity", "nodeAffinityRequired"), ("spec.initContainers", "storage"),
    ("spec.volumes", "storage"), ("volumeMounts", "storage"), ("env[", "environmentVariables"), ("ports[", "ports"),
    ("readinessProbe", "probes"), ("securityContext", "security"), ("resources.", "compute.extendedResources"),
    ("image", "image"),
)  # fmt: skip
"""Part of a field path in a pod → the field of a submit that it comes from."""


async def check_pods(call: RestCall, job: Object, body: Mapping[str, Any]) -> None:
    """Raises BadRequest, naming fields of the submit's `body`, for a job whose pods would be refused."""
    master_spec = body.get("masterSpec") or {}
    causes: dict[Cause, None] = {}
    for replica_type, cause in await pod_causes(call, job):
        field = next((name for part, name in _FIELDS if part in cause.field), "")
        is_of_master = replica_type != WORKER and field.partition(".")[0] in master_spec
        section = "masterSpec" if is_of_master else "spec"
        path = f"{section}.{field}" if field else section
        causes[Cause("format", f"no pod can be made with it: {cause.message}", path)] = None
    if causes:
        raise BadRequest("; ".join(f"{cause.field}: {cause.message}" for cause in causes), causes=list(causes))


async def pod_causes(call: RestCall, job: Object) -> list[tuple[str, Cause]]:
    """What the API server would refuse in the job's pods: (replica type, cause). [] on a real cluster, where a caller who may create
    jobs may lack the right to create pods."""
    causes: list[tuple[str, Cause]] = []
    if call.context.settings.dialect is not None:
        return causes
    for pod in _sample_pods(FRAMEWORKS[kinds.by_object(job)], job, call.context.clock()):
        try:
            await call.context.api.create(kinds.POD, pod, options=WriteOptions(dry_run=True))
        except Invalid as error:
            replica_type = objects.labels(pod)[TYPE_LABEL].capitalize()
            causes += [(replica_type, cause) for cause in error.causes]
        except ApiError:
            continue  # a quota, an existing pod, a missing right: the pod itself may be valid
    return causes


def _sample_pods(framework: Framework, job: Object, now: float) -> Iterator[Object]:
    """One pod of each replica type, as the operator would create it; the others differ only in their index."""
    replicas = objects.dig(job, f"spec.{framework.replicas}") or {}
    few = {name: {**replica, "replicas": min(1, replica.get("replicas") or 0)} for name, replica in replicas.items()}
    policy = {**(objects.dig(job, "spec.runPolicy") or {}), "suspend": False}
    metadata = {"uid": objects.uid(job) or "trial", **job["metadata"], "creationTimestamp": objects.timestamp(now)}
    small = {**job, "metadata": metadata, "spec": {**job["spec"], "runPolicy": policy, framework.replicas: few}}
    for write in reconcile(framework, Observed(small), now).writes:
        if isinstance(write, Create) and write.kind == kinds.POD:
            yield write.object
