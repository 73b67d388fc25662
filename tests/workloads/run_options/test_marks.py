"""Tags, notes and favourites: what is allowed, and how a job keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.errors import BadRequest
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.run_options.marks import (
    FAVOURITE_ANNOTATION,
    NO_MARKS,
    NOTE_ANNOTATION,
    TAGS_ANNOTATION,
    Marks,
    marks_from_json,
    marks_of,
    parse_marks,
)


def parse(before: Marks = NO_MARKS, **body: Any) -> Marks:
    errors = BodyErrors()
    found = parse_marks(Fields("", body, errors), before)
    errors.raise_if_any()
    return found


def test_absent_fields_stay_as_they_were() -> None:
    before = Marks(("a",), "first", favourite=True)
    assert parse(before) == before
    assert parse(before, tags=[]) == Marks((), "first", favourite=True)
    assert parse(before, note=" ", favourite=False) == Marks(("a",))
    assert parse(tags=["lr=1e-3", "a", "a"]).tags == ("lr=1e-3", "a"), "each once"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"tags": "a"}, "tags: must be a list of words."),
        ({"tags": ["a b"]}, "'a b' is no tag: one has 1 to 63 letters"),
        ({"tags": [""]}, "'' is no tag"),
        ({"tags": ["-a"]}, "'-a' is no tag"),
        ({"tags": ["a\n"]}, "is no tag"),
        ({"tags": ["x" * 64]}, "is no tag"),
        ({"tags": [f"t{n}" for n in range(21)]}, "tags: has 21 tags; 20 are allowed."),
        ({"note": "x" * 2001}, "note: has 2,001 characters; 2,000 are allowed."),
        ({"note": 3}, "note: must be a string"),
        ({"favourite": "yes"}, "favourite: must be true or false"),
    ],
)
def test_what_is_no_mark_is_refused(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(**body)
    assert sentence in str(refused.value)


def test_a_job_keeps_them() -> None:
    marks = Marks(("a", "b/c"), "the first\nthat learned", favourite=True)
    assert marks_of({"metadata": {"annotations": marks.annotations()}}) == marks
    assert marks_from_json(marks._asdict()) == marks and marks_from_json({}) == NO_MARKS
    assert set(NO_MARKS.annotations().values()) == {None}


def test_malformed_annotations_are_left_out() -> None:
    notes = {TAGS_ANNOTATION: "a \x1b[2J b,c a", NOTE_ANNOTATION: "x" * 9000, FAVOURITE_ANNOTATION: "yes"}
    found = marks_of({"metadata": {"annotations": notes}})
    assert found.tags == ("a",) and len(found.note) == 2000 and not found.favourite
