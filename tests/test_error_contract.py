"""What is left out of comparisons with a real API server is Go's insides and nothing else."""

from __future__ import annotations

import json

import pytest
from tests.error_contract import INTERNALS, Internal, without_internals
from tests.evidence import DATA

GO = (
    "json:", "Go ", "invalid character", "parsing time", "unexpected end", "scheme.go", "unknown conversion", "value: {\"",
)  # fmt: skip
"""Words of which each recorded sentence has some that is changed at all."""


@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: internal.name)
def test_both_sides_become_the_same(internal: Internal) -> None:
    assert internal.real != internal.ours
    assert without_internals(internal.real) == without_internals(internal.ours)


def test_sentences_for_people_stay_as_they_are() -> None:
    sentences = [row[1] for row in json.loads((DATA / "refusals.json").read_text())]
    changed = [text for text in sentences if without_internals(text) != text]
    assert changed and all(any(word in text for word in GO) for text in changed)
    assert len(changed) < len(sentences) / 40


@pytest.mark.parametrize(
    "text",
    [
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field Pod.x of type string',
        'Pod "p" is invalid: spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"',
        'Invalid value: "map": must be no more than 63 characters',
        "Operation cannot be fulfilled on leases \"l\": Precondition failed: UID in precondition: a, UID in object meta: b",
        'failed to create typed patch object (a/b; /v1, Kind=Pod): .spec.colour: field not declared in schema',
        'parsing time "2024-13-02T03:04:05Z": month out of range',
        'spec.containers[0].ports[1]: Duplicate value: {"containerPort":80,"protocol":"TCP"}',
    ],
)  # fmt: skip
def test_what_people_read_is_compared_to_the_letter(text: str) -> None:
    assert without_internals(text) == text


def test_a_dump_ends_where_the_sentence_begins() -> None:
    real = (
        'patch: Invalid value: "map[spec:map[renewTime:noon]]": parsing time "noon" as "2006-01-02T15:04:05.000000Z07:00":'
        ' cannot parse "noon" as "2006"'
    )
    ours = (
        'patch: Invalid value: "Lease": parsing time "noon": not an RFC 3339 time such as 2006-01-02T15:04:05.000000Z'
    )
    assert without_internals(real) == without_internals(ours) == 'patch: Invalid value: OBJECT: parsing time "noon"'
