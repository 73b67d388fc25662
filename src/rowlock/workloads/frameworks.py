"""Run:ai's words for frameworks and Kubeflow's job kinds behind them.

The kinds themselves (replica types, container, restart policy) are defined in `training/frameworks/`; here are the kinds
that can be submitted and the names accepted for them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rowlock import objects
from rowlock.kinds import BATCH_JOB, JAXJOB, JOB_SET, MPIJOB, PYTORCHJOB, TFJOB, TRAIN_JOB, XGBOOSTJOB, Kind
from rowlock.objects import Object
from rowlock.training.framework import Framework
from rowlock.training.frameworks import registry
from rowlock.training.jobset.model import pods_at_a_time, replicas
from rowlock.training.model import EVALUATOR, PS, WORKER
from rowlock.training.trainjob.model import DATASET_STEP, MODEL_STEP, STEP_LABEL, TRAINER_STEP

FRAMEWORKS: tuple[Framework, ...] = tuple(
    registry.FRAMEWORKS[kind] for kind in (PYTORCHJOB, TFJOB, MPIJOB, XGBOOSTJOB, JAXJOB)
)
"""The frameworks that Run:ai can submit. (PaddleJobs are created through the Kubernetes API only.)"""
PYTORCH, MPI = registry.FRAMEWORKS[PYTORCHJOB], registry.FRAMEWORKS[MPIJOB]
_ALIASES = {"torch": PYTORCHJOB, "tensorflow": TFJOB, "xgb": XGBOOSTJOB}
_BY_NAME = {word.lower(): f for f in FRAMEWORKS for word in (f.name, f.kind.name)}
_BY_NAME |= {word: registry.FRAMEWORKS[kind] for word, kind in _ALIASES.items()}
_BY_KIND = {f.kind: f for f in FRAMEWORKS}
_MAIN_CONTAINERS = {(f.kind.name, f.kind.api_version): f.container for f in registry.FRAMEWORKS.values()}
"""By kind and API version: the name of the container whose exit code its operator reads."""
_SETS = frozenset((kind.name, kind.api_version) for kind in (JOB_SET, TRAIN_JOB))

LEAD_ROLES = tuple(dict.fromkeys(role for f in registry.FRAMEWORKS.values() for role in f.lead_roles))
"""Replica types of the chief pod, over all kinds."""
ROLES = (*LEAD_ROLES, PS, WORKER, EVALUATOR)
"""Replica types of all kinds, leading ones first: the order in which a workload's pods are listed."""


def by_name(word: str) -> Framework | None:
    """The framework for a word such as `PyTorch`, `TFJob` or `tensorflow`, in any case; None if unknown."""
    return _BY_NAME.get(word.lower())


def nearest_name(word: str) -> str:
    """The name of the framework most similar to `word`, for an error message."""
    if known := by_name(word):
        return known.name
    matches = difflib.get_close_matches(word.lower(), _BY_NAME, 1, 0.4)
    return _BY_NAME[matches[0]].name if matches else PYTORCH.name


def by_kind(kind: Kind) -> Framework | None:
    """The framework of a job kind; None for a kind that Run:ai cannot submit."""
    return _BY_KIND.get(kind)


def main_container_name(job: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """The name of the pod's container that trains: the one whose exit code the job's operator reads (`pytorch` of a PyTorchJob) if the
    pod has it, else the first; "" for a pod without containers."""
    names = [str(each.get("name")) for each in objects.dig(pod, "spec.containers", [])]
    by_operator = _MAIN_CONTAINERS.get((str(job.get("kind")), str(job.get("apiVersion"))), "")
    return by_operator if by_operator in names else next(iter(names), "")


def is_batch_job(job: Mapping[str, Any]) -> bool:
    """Whether it is a batch/v1 Job, which has one pod template and no replica types."""
    return job.get("kind") == BATCH_JOB.name and job.get("apiVersion") == BATCH_JOB.api_version


def is_set(job: Mapping[str, Any]) -> bool:
    """Whether it is a JobSet or a TrainJob, whose pods are created by Jobs."""
    return (job.get("kind"), job.get("apiVersion")) in _SETS


def has_jobs(job: Mapping[str, Any]) -> bool:
    """Whether its pods are created by batch/v1 Jobs (it is one, or a set). Their failed pods are kept beside the replacements."""
    return is_batch_job(job) or is_set(job)


def replicated_job(job: Object, name: str) -> Mapping[str, Any]:
    """The set's replicated job with this name; {} if there is none."""
    return next((one for one in _replicated_jobs(job) if one.get("name") == name), {})


def pods_per_job(replicated: Mapping[str, Any]) -> int:
    """How many pods each Job of a replicated job runs at a time."""
    return pods_at_a_time(objects.dig(replicated, "template.spec", {}))


def ranked_job(job: Object) -> str:
    """The name of a set's replicated job whose pods are ranks: the only one besides those that fetch the data and the model; "" if
    there are several, or if its pods are not indexed."""
    working = [one for one in _replicated_jobs(job) if not is_initializer(one)]
    is_indexed = len(working) == 1 and objects.dig(working[0], "template.spec.completionMode", "Indexed") == "Indexed"
    return str(working[0].get("name")) if is_indexed else ""


def _order_in_job(replicated: Mapping[str, Any]) -> int:
    step = _step_of(replicated)
    return 2 if step in (DATASET_STEP, MODEL_STEP) else int(step != TRAINER_STEP)


def _step_of(replicated: Mapping[str, Any]) -> str:
    """Which step of a TrainJob a replicated job is; "" if it is none."""
    return str(objects.dig(replicated, "template.metadata.labels", {}).get(STEP_LABEL) or "")


def is_initializer(replicated: Mapping[str, Any]) -> bool:
    """Whether a replicated job fetches the data or the model of a TrainJob, before the others start."""
    return _step_of(replicated) in (DATASET_STEP, MODEL_STEP)


def _replicated_jobs(job: Object) -> list[Mapping[str, Any]]:
    return list(objects.dig(job, "spec.replicatedJobs", None) or ())


def is_suspended(job: Object) -> bool:
    """Whether the job's spec says that it is suspended."""
    return bool(objects.dig(job, "spec.runPolicy.suspend", False) or objects.dig(job, "spec.suspend", False))


def succeeded_condition(job: Object) -> str:
    """The condition type with which a job of this kind reports success."""
    if is_set(job):
        return "Completed" if job.get("kind") == JOB_SET.name else "Complete"
    return "Complete" if is_batch_job(job) else "Succeeded"


def replica_specs(job: Object) -> Mapping[str, Any]:
    """The `...ReplicaSpecs` of a job of any kind; {} if it has none. For a batch/v1 Job: one entry of workers, as many as run at
    a time. For a set: one entry per replicated job, first the one that trains, last those that fetch its data and model."""
    if is_batch_job(job):
        spec = job.get("spec") or {}
        return {WORKER: {"replicas": pods_at_a_time(spec), "template": spec.get("template") or {}}}
    if is_set(job):
        return {
            str(one.get("name")): {
                "replicas": replicas(one) * pods_per_job(one),
                "template": objects.dig(one, "template.spec.template", {}),
            }
            for one in sorted(_replicated_jobs(job), key=_order_in_job)
        }
    for field, value in (job.get("spec") or {}).items():
        if field.endswith("ReplicaSpecs") and isinstance(value, dict | Mapping):
            return value
    return {}


RESUME_ANNOTATION = "rowlock.dev/resume-from"
"""Pod annotation: the uid of an earlier job from whose checkpoint directory it resumes."""


def checkpoints_owner(job: Object) -> str:
    """The uid under which a job's checkpoints are stored: its own, or that of the job it resumes from."""
    for spec in replica_specs(job).values():
        template = spec.get("template") if isinstance(spec, Mapping) else None
        notes = objects.annotations(template) if isinstance(template, Mapping) else {}
        if resumed := str(notes.get(RESUME_ANNOTATION) or ""):
            return resumed
    return objects.uid(job)


def checkpoint_writers(owner: str, jobs: Iterable[Object]) -> Iterator[Object]:
    """The jobs that are neither finished nor suspended and write to the checkpoint directory of the job with the uid `owner`."""
    for job in jobs:
        is_over = objects.is_condition_true(job, succeeded_condition(job)) or objects.is_condition_true(job, "Failed")
        if not (is_over or is_suspended(job)) and checkpoints_owner(job) == owner:
            yield job


def shared_checkpoints_sentence(other: Object) -> str:
    """Error message for a job whose checkpoint directory is in use by `other`."""
    name = objects.name(other)
    return (
        f"the checkpoints it would go on from are those in which {name} ({objects.uid(other)[:8]}) writes now, and two jobs would "
        f"overwrite each other's: wait until {name} is over, or stop it (`rowlock suspend {name}`, `rowlock delete {name}`)"
    )


def desired_pods(job: Object) -> int:
    """How many pods the job requests, including master and launcher."""
    return sum(1 if spec.get("replicas") is None else int(spec["replicas"]) for spec in replica_specs(job).values())
