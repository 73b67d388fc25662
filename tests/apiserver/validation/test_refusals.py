"""What a real API server says of objects that are a little wrong: `refusals.json`, six hundred of them.

Recorded from kube-apiserver 1.34.4 with the training operator 1.9.4: each object was posted with `dryRun=All` and
`fieldValidation=Strict`. A row is the object, the message ("" when it was taken) and, where there were any, the warnings.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.error_contract import without_internals
from tests.evidence import DATA

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.errors import ApiError

ROWS: list[list[Any]] = json.loads((DATA / "refusals.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]['kind']}-{row[0]['metadata']['name'][:20]}")
def test_a_wrong_object_is_answered_as_by_a_real_server(row: list[Any]) -> None:
    given, message, *rest = row
    kind = kinds.by_object(given)
    made = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **given["metadata"]}
    if kind.namespaced:
        made["namespace"] = "default"
    warnings: list[str] = []
    said = ""
    try:
        options = WriteOptions(validation="Strict", warnings=warnings)
        AdmissionChain(clock=lambda: 0.0).create(kind, {**given, "metadata": made}, options)
    except ApiError as error:
        said = error.message
    said, message = without_internals(said), without_internals(message)
    assert (said, sorted(warnings)) == (message, sorted(*rest) if rest else [])
