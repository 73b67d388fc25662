"""Run:ai's words for frameworks and Kubeflow's job kinds behind them.

What a kind is (its replica types, its container, its restart policy) stands in `training/frameworks/` and nowhere else;
here are the kinds that can be submitted and the words that people use for them.
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
from rowlock.training.model import EVALUATOR, PS, WORKER
from rowlock.training.trainjob.model import DATASET_STEP, MODEL_STEP, STEP_LABEL

FRAMEWORKS: tuple[Framework, ...] = tuple(
    registry.FRAMEWORKS[kind] for kind in (PYTORCHJOB, TFJOB, MPIJOB, XGBOOSTJOB, JAXJOB)
)
"""What Run:ai can submit. (PaddleJobs are created through the Kubernetes API only.)"""
PYTORCH, MPI = registry.FRAMEWORKS[PYTORCHJOB], registry.FRAMEWORKS[MPIJOB]
_ALIASES = {"torch": PYTORCHJOB, "tensorflow": TFJOB, "xgb": XGBOOSTJOB}
_BY_NAME = {word.lower(): f for f in FRAMEWORKS for word in (f.name, f.kind.name)}
_BY_NAME |= {word: registry.FRAMEWORKS[kind] for word, kind in _ALIASES.items()}
_BY_KIND = {f.kind: f for f in FRAMEWORKS}
_SETS = frozenset((kind.name, kind.api_version) for kind in (JOB_SET, TRAIN_JOB))

LEAD_ROLES = tuple(dict.fromkeys(role for f in registry.FRAMEWORKS.values() for role in f.lead_roles))
"""Replica types that are a job's chief pod, in any kind."""
ROLES = (*LEAD_ROLES, PS, WORKER, EVALUATOR)
"""Replica types of all kinds, the leading ones first: the order in which a workload's pods are shown."""


def by_name(word: str) -> Framework | None:
    """`PyTorch`, `pytorch`, `TFJob`, `tensorflow`: the words people use, in any case."""
    return _BY_NAME.get(word.lower())


def nearest_name(word: str) -> str:
    """The framework most like `word`, for a refusal."""
    if known := by_name(word):
        return known.name
    matches = difflib.get_close_matches(word.lower(), _BY_NAME, 1, 0.4)
    return _BY_NAME[matches[0]].name if matches else PYTORCH.name


def by_kind(kind: Kind) -> Framework | None:
    """The framework of a job kind; None for a kind that Run:ai cannot submit."""
    return _BY_KIND.get(kind)


def is_batch_job(job: Mapping[str, Any]) -> bool:
    """Whether it is a batch/v1 Job, which has one pod template and no replica types."""
    return job.get("kind") == BATCH_JOB.name and job.get("apiVersion") == BATCH_JOB.api_version


def is_set(job: Mapping[str, Any]) -> bool:
    """Whether it is a JobSet or a TrainJob, whose pods Jobs make."""
    return (job.get("kind"), job.get("apiVersion")) in _SETS


def has_jobs(job: Mapping[str, Any]) -> bool:
    """Whether batch/v1 Jobs make its pods: it is one itself, or a set. Failed pods stay there, beside those in their places."""
    return is_batch_job(job) or is_set(job)


def replicated_job(job: Object, name: str) -> Mapping[str, Any]:
    """The replicated job of this name of a set, {} when there is none."""
    return next((one for one in _replicated_jobs(job) if one.get("name") == name), {})


def pods_per_job(replicated: Mapping[str, Any]) -> int:
    """How many pods each Job of a replicated job has at a time."""
    return _pods_at_a_time(objects.dig(replicated, "template.spec", {}))


def ranked_job(job: Object) -> str:
    """The replicated job of a set whose pods are ranks: the only one beside those that fetch the data and the model; "" where
    there are several, or its pods have no numbers."""
    working = [one for one in _replicated_jobs(job) if not is_initializer(one)]
    is_indexed = len(working) == 1 and objects.dig(working[0], "template.spec.completionMode", "Indexed") == "Indexed"
    return str(working[0].get("name")) if is_indexed else ""


def is_initializer(replicated: Mapping[str, Any]) -> bool:
    """Whether a replicated job fetches the data or the model of a TrainJob, before the others start."""
    step = objects.dig(replicated, "template.metadata.labels", {}).get(STEP_LABEL)
    return step in (DATASET_STEP, MODEL_STEP)


def _replicated_jobs(job: Object) -> list[Mapping[str, Any]]:
    return list(objects.dig(job, "spec.replicatedJobs", None) or ())


def _pods_at_a_time(spec: Mapping[str, Any]) -> int:
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def is_suspended(job: Object) -> bool:
    """Whether its pods are to be gone until it is resumed."""
    return bool(objects.dig(job, "spec.runPolicy.suspend", False) or objects.dig(job, "spec.suspend", False))


def succeeded_condition(job: Object) -> str:
    """The type of the condition that says that a job of this kind has done its work."""
    if is_set(job):
        return "Completed" if job.get("kind") == JOB_SET.name else "Complete"
    return "Complete" if is_batch_job(job) else "Succeeded"


def replica_specs(job: Object) -> Mapping[str, Any]:
    """The `...ReplicaSpecs` of a job of any kind, {} when it has none. A batch/v1 Job has workers: as many as run at a time.
    A set has its replicated jobs."""
    if is_batch_job(job):
        spec = job.get("spec") or {}
        return {WORKER: {"replicas": _pods_at_a_time(spec), "template": spec.get("template") or {}}}
    if is_set(job):
        return {
            str(one.get("name")): {
                "replicas": int(one.get("replicas", 1)) * pods_per_job(one),
                "template": objects.dig(one, "template.spec.template", {}),
            }
            for one in _replicated_jobs(job)
        }
    for field, value in (job.get("spec") or {}).items():
        if field.endswith("ReplicaSpecs") and isinstance(value, dict | Mapping):
            return value
    return {}


RESUME_ANNOTATION = "rowlock.dev/resume-from"
"""Of a pod: the uid of an earlier job, in whose checkpoint directory it goes on."""


def checkpoints_owner(job: Object) -> str:
    """The uid under which the checkpoints of a job are kept: its own, or that of the job it goes on from."""
    for spec in replica_specs(job).values():
        template = spec.get("template") if isinstance(spec, Mapping) else None
        notes = objects.annotations(template) if isinstance(template, Mapping) else {}
        if resumed := str(notes.get(RESUME_ANNOTATION) or ""):
            return resumed
    return objects.uid(job)


def checkpoint_writers(owner: str, jobs: Iterable[Object]) -> Iterator[Object]:
    """The jobs that run, or may begin to, and write in the checkpoint directory of the job with the uid `owner`."""
    for job in jobs:
        is_over = objects.is_condition_true(job, succeeded_condition(job)) or objects.is_condition_true(job, "Failed")
        if not (is_over or is_suspended(job)) and checkpoints_owner(job) == owner:
            yield job


def shared_checkpoints_sentence(other: Object) -> str:
    """Why a job cannot have the checkpoint directory in which `other` writes."""
    name = objects.name(other)
    return (
        f"the checkpoints it would go on from are those in which {name} ({objects.uid(other)[:8]}) writes now, and two jobs would "
        f"overwrite each other's: wait until {name} is over, or stop it (`rowlock suspend {name}`, `rowlock delete {name}`)"
    )


def desired_pods(job: Object) -> int:
    """How many pods the job asks for, master and launcher included."""
    return sum(1 if spec.get("replicas") is None else int(spec["replicas"]) for spec in replica_specs(job).values())
