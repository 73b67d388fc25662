"""What a job says to the scheduler beside its gang: how close together, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.kinds import PYTORCHJOB
from rowlock.training.defaults import parse_job
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.model import Job
from rowlock.training.pod_group import MAX_RUNTIME_ANNOTATION, group_of, group_spec


def job(policy: dict[str, Any] | None = None, **annotations: str) -> Job:
    master = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
    spec = {"pytorchReplicaSpecs": {"Master": master}, **({"runPolicy": policy} if policy else {})}
    notes = {k.replace("__", "/").replace("_", "-"): v for k, v in annotations.items()}
    meta = {"name": "j", "namespace": "n", "uid": "u", "annotations": notes}
    return parse_job(
        FRAMEWORKS[PYTORCHJOB], {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
    )


def test_levels_become_the_groups_constraint() -> None:
    asked = job(kai_scheduler="")
    assert "topologyConstraint" not in group_spec(asked, None, ())
    notes = {
        "kai.scheduler/topology": "dc",
        "kai.scheduler/topology-required-placement": "block",
        "kai.scheduler/topology-preferred-placement": "rack",
    }
    wish = {**asked.object, "metadata": {**asked.object["metadata"], "annotations": notes}}
    found = group_spec(parse_job(FRAMEWORKS[PYTORCHJOB], wish), None, ())["topologyConstraint"]
    assert found == {"topology": "dc", "requiredTopologyLevel": "block", "preferredTopologyLevel": "rack"}


@pytest.mark.parametrize(
    ("made", "lasts"),
    [(job(), None), (job({"activeDeadlineSeconds": 90}), "90s"), (job(rowlock="x"), None)],
    ids=["nothing", "deadline", "another note"],
)
def test_a_deadline_is_a_declaration(made: Job, lasts: str | None) -> None:
    assert group_of(made, {})["metadata"]["annotations"].get(MAX_RUNTIME_ANNOTATION) == lasts


@pytest.mark.parametrize(
    ("declared", "lasts"), [("30s", "30s"), ("abc", "90s"), ("1d12h", "90s"), ("0s", "90s"), ("", "90s")]
)
def test_a_declaration_that_can_be_read_stands_before_the_deadline(declared: str, lasts: str) -> None:
    made = job({"activeDeadlineSeconds": 90})
    noted = {**made.object, "metadata": {**made.object["metadata"], "annotations": {MAX_RUNTIME_ANNOTATION: declared}}}
    found = group_of(parse_job(FRAMEWORKS[PYTORCHJOB], noted), {})
    assert found["metadata"]["annotations"][MAX_RUNTIME_ANNOTATION] == lasts
