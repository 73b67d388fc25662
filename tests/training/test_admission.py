"""The webhooks' sentences: every recorded answer to a creation or update, and what no recording shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.evidence import operator_case_files

from rowlock.kinds import JAXJOB, JOBS, MPIJOB, PADDLEJOB, POD, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object
from rowlock.training.admission.webhooks import denial_message, review_job
from rowlock.training.model import FIXED

ADMITTED = [
    case
    for file in operator_case_files()
    for case in json.loads(file.read_text())["cases"]
    if "admit" in case["steps"][0]["do"]
    # a 422 comes from the API server's schema, before the webhook is asked
    and not any(": 422 " in a for a in case["steps"][0]["variants"][0]["answers"])
]
ONE = {"containers": [{"name": "pytorch", "image": "i"}]}


def tidy(text: str) -> str:
    """Lists of errors and of supported values in a fixed order, as the recordings have them."""
    head, bracket, rest = text.partition("[spec")
    if bracket and not head.rstrip().endswith(("spec", "Specs")) and text.endswith("]"):
        parts = re.split(r", (?=(?:spec|metadata)[.\[])", "spec" + rest[:-1])
        text = head + "[" + ", ".join(sorted(parts)) + "]"
    return text


@pytest.mark.parametrize("case", ADMITTED, ids=lambda c: f"{c['family']}-{c['kind']}-{c['name']}")
def test_recorded_answers(case: Any) -> None:
    do, answers = case["steps"][0]["do"], case["steps"][0]["variants"][0]["answers"]
    kind = next(k for k in JOBS if k.name == case["kind"])
    old, new = (do["admit"], do["update"]) if "update" in do else (None, drop_nulls(do["admit"]))
    result = review_job(kind, old, new)
    said = [tidy(denial_message(kind, result))] if result.errors else []
    refused = [tidy(a.partition(": 403 Forbidden: ")[2]) for a in answers if "403" in a]
    assert said == refused
    warned = [a.removeprefix("Warning: ") for a in answers if a.startswith("Warning: spec.")]
    assert list(result.warnings) == warned


def drop_nulls(obj: Any) -> Any:
    """As the API server does before a webhook sees the object."""
    if isinstance(obj, dict):
        return {k: drop_nulls(v) for k, v in obj.items() if v is not None}
    return [drop_nulls(v) for v in obj] if isinstance(obj, list) else obj


def job(spec: Object | None, name: str = "job") -> Object:
    return {"metadata": {"name": name}, **({} if spec is None else {"spec": spec})}


@pytest.mark.parametrize(
    ("kind", "field"),
    [(PYTORCHJOB, "pytorch"), (TFJOB, "tf"), (XGBOOSTJOB, "xgb"), (PADDLEJOB, "paddle"), (JAXJOB, "jax")],
)
def test_a_job_without_a_spec(kind: Kind, field: str) -> None:
    required = f"spec.{field}ReplicaSpecs: Required value: must be required"
    master = (f"spec.{field}ReplicaSpecs[Master]: Required value: must be present",) if kind is XGBOOSTJOB else ()
    assert review_job(kind, None, job(None)).errors == (required, *master)


def test_kinds_without_a_webhook_are_admitted() -> None:
    assert not review_job(MPIJOB, None, job({}, "0.bad")).message
    assert not review_job(POD, None, job({})).errors


def test_both_ways_to_give_the_number_of_processes() -> None:
    spec = {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}
    spec |= {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": ONE}}}}
    found = review_job(PYTORCHJOB, None, job(spec))
    assert found.message == "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
    assert found.warnings == ("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",)


def test_an_empty_map_of_replicas_passes() -> None:
    assert not review_job(PYTORCHJOB, None, job({"pytorchReplicaSpecs": {}})).errors


def test_the_manager_of_a_pytorchjob_is_fixed_only_where_asked() -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": ONE}}}}
    new = {**spec, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    assert not review_job(PYTORCHJOB, job(spec), job(new)).errors
    assert review_job(PYTORCHJOB, job(spec), job(new), FIXED).errors == (
        'spec.runPolicy.managedBy: Invalid value: "kueue.x-k8s.io/multikueue": field is immutable',
    )
