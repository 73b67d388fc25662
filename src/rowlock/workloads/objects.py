"""A `Submission` in a project → the job object that the operator understands.

The walk's row 3: pure and by table. The workload's id is made by the caller and lives in a label, because the pods'
environment names it (`JOB_UUID`) before the job exists; it stays the same when the job is suspended and resumed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rowlock.objects import Object
from rowlock.workloads.compute import Compute, plain
from rowlock.workloads.frameworks import MPI, PYTORCH
from rowlock.workloads.projects import Project
from rowlock.workloads.spec import Role, Submission

WORKLOAD_ID = "rowlock.dev/workload-id"
REQUEST = "rowlock.dev/request"
"""The annotation that keeps the request's body, so that it can be shown as it was sent."""
CREATED_BY = "rowlock.dev/created-by"
SOURCE = "rowlock.dev/source"
PRIORITY = "rowlock.dev/priority"
COMMAND = "runai-cli-command"
INHERIT_ENV = "rowlock.dev/inherit-env"

_DOWNWARD = {
    "POD_INDEX": "metadata.labels['training.kubeflow.org/replica-index']",
    "POD_UUID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}


@dataclass(frozen=True, slots=True)
class Author:
    """Who submits, through what, and the id that the workload gets."""

    id: str
    user: str
    source: str = "Other"


def to_job(asked: Submission, project: Project, author: Author) -> Object:
    """The job object; the project gives its namespace and queue."""
    framework = asked.framework
    replicas: dict[str, Any] = {}
    if asked.lead:
        replicas[framework.lead] = _replica(asked, asked.master, project, author, lead=True)
    if asked.workers:
        replicas["Worker"] = _replica(asked, asked.worker, project, author, lead=False)
    spec: dict[str, Any] = {"runPolicy": _run_policy(asked), framework.replicas: replicas}
    if framework is PYTORCH:
        spec |= _pytorch(asked)
    if framework is MPI:
        spec["slotsPerWorker"] = asked.run.slots
    return {
        "apiVersion": framework.kind.api_version,
        "kind": framework.kind.name,
        "metadata": {
            "name": asked.name,
            "namespace": project.namespace,
            "labels": _labels(asked, project, author) | {WORKLOAD_ID: author.id},
            "annotations": _annotations(asked, author),
        },
        "spec": spec,
    }


def _labels(asked: Submission, project: Project, author: Author) -> dict[str, str]:
    """`project` carries the mangled name, as queues do: the name itself may hold what labels may not."""
    made = {
        "project": project.queue,
        "release": asked.name,
        "workloadName": asked.name,
        "runai/queue": project.queue,
        "kai.scheduler/queue": project.queue,
    }
    if author.user:
        made["user"] = label_value(author.user)
    if asked.run.priority:
        made["priorityClassName"] = asked.run.priority
    if asked.run.pool:
        made["kai.scheduler/node-pool"] = asked.run.pool
    if asked.run.preemptibility:
        made["kai.scheduler/preemptibility"] = asked.run.preemptibility
    return made


def label_value(text: str) -> str:
    """The text as a label may carry it: `ana@example.com` → `ana-example.com`."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:63].strip("-_.")


def _annotations(asked: Submission, author: Author) -> dict[str, str]:
    made = {
        REQUEST: json.dumps(asked.body, separators=(",", ":"), ensure_ascii=False),
        CREATED_BY: author.user,
        SOURCE: author.source,
    }
    if asked.command:
        made[COMMAND] = asked.command
    return made


def _run_policy(asked: Submission) -> dict[str, Any]:
    run = asked.run
    made: dict[str, Any] = {"backoffLimit": run.backoff_limit}
    if run.clean_pods:
        made["cleanPodPolicy"] = run.clean_pods
    if run.ttl is not None:
        made["ttlSecondsAfterFinished"] = run.ttl
    return made


def _pytorch(asked: Submission) -> dict[str, Any]:
    run = asked.run
    made: dict[str, Any] = {"nprocPerNode": run.nproc} if run.nproc else {}
    if run.min_replicas is not None or run.max_replicas is not None:
        most = run.max_replicas if run.max_replicas is not None else max(asked.pods, run.min_replicas or 0)
        least = run.min_replicas if run.min_replicas is not None else min(asked.pods, most)
        made["elasticPolicy"] = {"minReplicas": least, "maxReplicas": most, "rdzvBackend": "c10d"}
    return made


def _replica(asked: Submission, role: Role, project: Project, author: Author, *, lead: bool) -> dict[str, Any]:
    """One entry of the replica specs. MPI's workers only wait to be reached: the launcher has the command."""
    idle = asked.framework is MPI and not lead
    container: dict[str, Any] = {"name": asked.framework.container, "image": image_reference(role.image)}
    if role.pull:
        container["imagePullPolicy"] = role.pull
    if role.command and not idle:
        container["command"] = list(role.command)
    if role.args and not idle:
        container["args"] = list(role.args)
    if role.working_dir:
        container["workingDir"] = role.working_dir
    container["env"] = _environment(asked, role, project, author)
    container |= {name: True for name, on in (("stdin", role.stdin), ("tty", role.tty)) if on}
    if resources := role.compute.resources():
        container["resources"] = resources
    return {
        "replicas": 1 if lead else asked.workers,
        "restartPolicy": role.restart or asked.framework.restart,
        "template": {
            "metadata": _pod_metadata(asked, role, project, author),
            "spec": _pod_spec(asked, role, container),
        },
    }


def image_reference(image: str) -> str:
    """Seed 002 writes `/kubeflow/…`: a reference cannot begin with a slash, so it goes."""
    return image.lstrip("/")


def _pod_metadata(asked: Submission, role: Role, project: Project, author: Author) -> dict[str, Any]:
    annotations = dict(role.annotations) | role.compute.annotations()
    if author.user:
        annotations["user"] = author.user
    if asked.command:
        annotations[COMMAND] = asked.command
    if asked.run.inherit_env:
        annotations[INHERIT_ENV] = asked.run.inherit_env
    return {"labels": dict(role.labels) | _labels(asked, project, author), "annotations": annotations}


def _pod_spec(asked: Submission, role: Role, container: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [container]}
    if role.node_type:
        spec["nodeSelector"] = {"run.ai/type": role.node_type}
    if asked.run.grace is not None:
        spec["terminationGracePeriodSeconds"] = asked.run.grace
    if role.compute.large_shm:
        container["volumeMounts"] = [{"name": "dshm", "mountPath": "/dev/shm"}]
        spec["volumes"] = [{"name": "dshm", "emptyDir": {"medium": "Memory"}}]
    return spec


def _environment(asked: Submission, role: Role, project: Project, author: Author) -> list[dict[str, Any]]:
    """The user's variables last, so that they win over ours of the same name."""
    ours = {
        "RUNAI_PROJECT": project.name,
        "RUNAI_JOB_NAME": asked.name,
        "RUNAI_JOB_UUID": author.id,
        "JOB_NAME": asked.name,
        "jobName": asked.name,
        "JOB_UUID": author.id,
        "jobUUID": author.id,
        "RUNAI_NUM_OF_GPUS": _gpus(role.compute),
    }
    if role.compute.portion is not None:
        ours["GPU_PORTION"] = plain(role.compute.portion)
    if asked.framework is MPI:
        ours["RUNAI_MPI_NUM_WORKERS"] = str(asked.workers)
    theirs = {variable["name"] for variable in role.env}
    made: list[dict[str, Any]] = [{"name": n, "value": v} for n, v in ours.items() if n not in theirs]
    for name, path in _DOWNWARD.items():
        if name not in theirs:
            made.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return made + [dict(variable) for variable in role.env]


def _gpus(compute: Compute) -> str:
    return plain(compute.gpus)
