"""A sweep for tests: two learning rates and two seeds of one small job."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.rest.sweeps.request import parse_request
from rowlock.sweeps.sweep import Sweep, SweepSubmitter, to_object
from rowlock.sweeps.template import make_markers, mark_body
from rowlock.workloads.objects import Submitter, to_job
from rowlock.workloads.projects import Project
from rowlock.workloads.submission import parse_submission

KEY = b"the key of this server"
NAMESPACE = "runai-team-a"
SWEEP_ID = "0a0b0c0d-0000-4000-8000-00000000abcd"
COMMAND = ["python", "train.py", "--lr", "{lr}", "--out={index}"]


def project() -> Project:
    unlimited = Decimal(-1)
    return Project("1", "team-a", NAMESPACE, "team-a", "default", "2026-01-02T03:04:05Z", unlimited, unlimited)


def make_sweep(*, is_owner: bool = True, **fields: Any) -> Sweep:
    """The sweep `tune`; `fields` replace those of the request."""
    spec = {"image": "i", "distributedFramework": "PyTorch", "noWorkers": True, "command": COMMAND}
    body = {
        "name": "tune",
        "parameters": {"lr": "0.1,0.2", "seed": "1..2"},
        "workload": {"projectId": "team-a", "spec": spec},
        **fields,
    }
    request = parse_request(body)
    markers = make_markers(SWEEP_ID, request.names)
    marked, _ = mark_body(request.workload, request.names, markers)
    template = to_job(parse_submission(marked), project(), Submitter(SWEEP_ID, "ana"))
    return Sweep(
        request.name, SWEEP_ID, request.search, request.seed, request.max_parallel, request.names, request.grid,
        () if request.grid else request.points, template, markers, SweepSubmitter("ana", ("team",), is_owner), "rowlock sweep",
        request.metric, request.is_max, request.stop_first, request.samples, request.space,
    )  # fmt: skip


def config_map(sweep: Sweep, annotations: Mapping[str, str] | None = None) -> Object:
    """Its ConfigMap, as the store has it."""
    made = to_object(sweep, NAMESPACE, KEY)
    return {**made, "metadata": {**made["metadata"], "uid": "uid-of-the-sweep", "annotations": dict(annotations or {})}}


def ended(job: Object, condition: str = "Succeeded") -> Object:
    return {**job, "status": {"conditions": [{"type": condition, "status": "True"}]}}


def variables(job: Object) -> dict[str, str]:
    """The variables of the first container that the sweep sets."""
    env = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template.spec.containers")[0]["env"]
    return {one["name"]: one["value"] for one in env if one["name"].startswith("ROWLOCK_SWEEP")}
