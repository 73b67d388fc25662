"""The table of frameworks: how each of Run:ai's words maps onto a Kubeflow job kind.

One row per framework; nobody else spells a replica key or a container name. `lead_role` is the replica that `--workers`
does not count: the master that trains as rank 0, TensorFlow's chief, MPI's launcher.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.kinds import JAXJOB, MPIJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object


@dataclass(frozen=True, slots=True)
class FrameworkMapping:
    """One row. `is_lead_optional` says whether a job without the lead replica makes sense."""

    name: str
    kind: Kind
    replicas: str
    container: str
    lead_role: str
    restart_policy: str
    is_lead_optional: bool = True
    aliases: tuple[str, ...] = ()


PYTORCH = FrameworkMapping(
    "PyTorch", PYTORCHJOB, "pytorchReplicaSpecs", "pytorch", "Master", "OnFailure", True, ("torch",)
)
TF = FrameworkMapping("TF", TFJOB, "tfReplicaSpecs", "tensorflow", "Chief", "Never", True, ("tensorflow",))
MPI = FrameworkMapping("MPI", MPIJOB, "mpiReplicaSpecs", "mpi", "Launcher", "Never", False)
XGBOOST = FrameworkMapping("XGBoost", XGBOOSTJOB, "xgbReplicaSpecs", "xgboost", "Master", "Never", False, ("xgb",))
JAX = FrameworkMapping("JAX", JAXJOB, "jaxReplicaSpecs", "jax", "", "Never")
FRAMEWORKS: tuple[FrameworkMapping, ...] = (PYTORCH, TF, MPI, XGBOOST, JAX)

_BY_NAME = {word.lower(): f for f in FRAMEWORKS for word in (f.name, f.kind.name, *f.aliases)}
_BY_KIND = {f.kind: f for f in FRAMEWORKS}
LEAD_ROLES = frozenset({"Master", "Chief", "Launcher"})
"""Replica roles that are a job's chief pod, in any kind."""


def by_name(word: str) -> FrameworkMapping | None:
    """`PyTorch`, `pytorch`, `TFJob`, `tensorflow`: the words people use, in any case."""
    return _BY_NAME.get(word.lower())


def nearest_name(word: str) -> str:
    """The framework most like `word`, for a refusal."""
    matches = difflib.get_close_matches(word.lower(), _BY_NAME, 1, 0.4)
    return _BY_NAME[matches[0]].name if matches else PYTORCH.name


def by_kind(kind: Kind) -> FrameworkMapping | None:
    return _BY_KIND.get(kind)


def replica_specs(job: Object) -> Mapping[str, Any]:
    """The `...ReplicaSpecs` of a job of any kind, {} when it has none."""
    for field, value in (job.get("spec") or {}).items():
        if field.endswith("ReplicaSpecs") and isinstance(value, Mapping):
            return value
    return {}


def desired_pods(job: Object) -> int:
    """How many pods the job asks for, master and launcher included."""
    return sum(1 if spec.get("replicas") is None else int(spec["replicas"]) for spec in replica_specs(job).values())
