"""What a record says of secrets, however many there are: an attacker chooses how many, and the event loop pays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowlock.archive.redaction import MOST_WORK, NOT_KEPT, redact, secret_values


def job(values: list[str], typed: str = "") -> dict[str, Any]:
    env = [{"name": f"A_{i}_KEY", "value": value} for i, value in enumerate(values)] + [{"name": "X", "value": typed}]
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "annotations": {"asked": json.dumps({"env": values}), "half": "\x00"}},
        "spec": {"command": ["train", *values[:10]], "replicas": 2, "env": env},
    }


@pytest.mark.parametrize("count", [1, 40, 3_000])
def test_none_is_kept_however_many_there_are(count: int) -> None:
    values = [f'sec"ret-{i:05}' for i in range(count)]
    record = job(values, f"--key={values[0]}")
    before = json.dumps(record)
    kept = redact(record, secret_values(record))
    assert json.dumps(record) == before
    text = json.dumps(kept)
    assert not any(f"ret-{i:05}" in text for i in range(count))
    assert kept["kind"] == "PyTorchJob" and kept["metadata"]["name"] == "j" and kept["spec"]["replicas"] == 2


def test_what_would_cost_too_much_is_left_out_and_not_searched() -> None:
    values = [f"value-{i:06}" for i in range(20_000)]
    record = job(values)
    assert len(values) * len(json.dumps(values)) > 100 * MOST_WORK  # minutes of the event loop
    kept = redact(record, secret_values(record))
    assert kept["spec"] == {"command": [], "replicas": 2, "env": []} and kept["metadata"]["annotations"] == {}


def test_texts_stay_in_their_places() -> None:
    record = {
        "a": ["", "x", {"b": ("kept-value", 1, None)}],
        "env": [{"name": "T_TOKEN", "value": "kept-value"}],
        "c": "é\x00",
    }
    kept = redact(record, ["kept-value"])
    assert kept == {
        "a": ["", "x", {"b": [NOT_KEPT, 1, None]}],
        "env": [{"name": "T_TOKEN", "value": NOT_KEPT}],
        "c": "é\x00",
    }
