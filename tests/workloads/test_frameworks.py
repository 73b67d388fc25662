"""Run:ai's framework words over the operator's table: one source, nothing forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.kinds import JOBS
from rowlock.scheduling.model.from_objects import LEADER_ROLES
from rowlock.training.frameworks import registry
from rowlock.workloads import frameworks, pods


def test_every_replica_type_has_its_place() -> None:
    roles = {role for framework in registry.FRAMEWORKS.values() for role in framework.roles}
    assert set(frameworks.ROLES) == roles and len(frameworks.ROLES) == len(roles)
    assert set(registry.FRAMEWORKS) == set(JOBS)


def test_lead_roles_are_replica_types_and_the_scheduler_knows_them() -> None:
    for framework in registry.FRAMEWORKS.values():
        assert set(framework.lead_roles) <= set(framework.roles)
        assert framework.lead_role or not framework.needs_lead
    assert {role.lower() for role in frameworks.LEAD_ROLES} == LEADER_ROLES


@pytest.mark.parametrize(
    ("word", "kind"),
    [("torch", "PyTorchJob"), ("PyTorch", "PyTorchJob"), ("TFJob", "TFJob"), ("tf", "TFJob"),
     ("tensorflow", "TFJob"), ("xgb", "XGBoostJob"), ("MPI", "MPIJob"), ("jax", "JAXJob")],
)  # fmt: skip
def test_words_people_use(word: str, kind: str) -> None:
    framework = frameworks.by_name(word)
    assert framework and framework.kind.name == kind and frameworks.by_kind(framework.kind) is framework


def test_paddle_cannot_be_submitted() -> None:
    assert frameworks.by_name("paddle") is None
    assert frameworks.nearest_name("pytorhc") == "PyTorch"


def pod(role: str, index: int = 0) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}
    return {"metadata": {"name": f"j-{role}-{index}", "labels": labels}}


def test_pods_are_shown_with_the_leader_first() -> None:
    unsorted = [pod("worker", 1), pod("evaluator"), pod("worker"), pod("ps"), pod("chief")]
    names = [p["metadata"]["name"] for p in pods.sort_by_rank(unsorted)]
    assert names == ["j-chief-0", "j-ps-0", "j-worker-0", "j-worker-1", "j-evaluator-0"]
    chief = pods.chief_pod(unsorted[:4])
    assert chief and chief["metadata"]["name"] == "j-worker-0"


def test_only_pods_of_equal_rank_are_called_ranks() -> None:
    ranked = {kind.name for kind in JOBS if pods.has_ranked_pods({"kind": kind.name})}
    assert ranked == {"PyTorchJob", "XGBoostJob", "JAXJob", "PaddleJob"}
