"""Mistakes of a body are told, and cost no more than that: whoever sends them chooses how many and how long they are."""

from __future__ import annotations

import difflib
import time
from typing import Any

import pytest

from rowlock.errors import BadRequest
from rowlock.workloads.assets.expansion import expand_submit
from rowlock.workloads.body_fields import MOST_CAUSES, MOST_ITEMS, BodyErrors, Fields, did_you_mean
from rowlock.workloads.submission import parse_submission


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters that were compared."""
    counted: list[int] = []
    real = difflib.get_close_matches

    def count(word: str, choices: Any, *rest: Any) -> list[str]:
        counted.append(len(word) * len(list(choices)))
        return real(word, choices, *rest)

    monkeypatch.setattr(difflib, "get_close_matches", count)
    return counted


def test_a_hundred_mistakes_are_enough(comparisons: list[int]) -> None:
    errors = BodyErrors()
    Fields("spec", {f"imag{number}": 1 for number in range(50_000)}, errors).allow_only("image", "images")
    with pytest.raises(BadRequest) as raised:
        errors.raise_if_any()
    assert len(raised.value.causes) == len(comparisons) == MOST_CAUSES and len(raised.value.message) < 20_000


def test_like_names_are_looked_for_in_a_bounded_way(comparisons: list[int]) -> None:
    assert did_you_mean("projekt-7", [f"project-{number}" for number in range(100_000)]) == ' Did you mean "project-7"?'
    assert did_you_mean("x" * 100_000, ["image"]) == ""
    assert max(comparisons) <= 100 * 500


@pytest.mark.parametrize("value", ["x" * 100_000, ["x"] * 100_000, {"x": "y" * 100_000}, [["x" * 100_000]]])
def test_a_long_value_is_not_repeated(value: Any) -> None:
    errors = BodyErrors()
    fields = Fields("", {"a": value}, errors)
    fields.choice("a", "b", "c"), fields.flag("a"), fields.integer("a"), fields.parsable_text("a", _refuse)
    assert errors.causes and max(len(cause.message) for cause in errors.causes) < 500
    assert (
        "'xxx" in errors.causes[0].message
        or "entries" in errors.causes[0].message
        or "{'x'" in errors.causes[0].message
    )


def _refuse(text: str) -> None:
    raise BadRequest("no")


def test_all_lists_of_a_body_have_a_limit_together() -> None:
    errors = BodyErrors()
    body = Fields("spec", {"many": [{}] * (MOST_ITEMS - 1), "few": [{}], "more": [{"a": 1}]}, errors)
    assert len(body.items("many")) == MOST_ITEMS - 1 and len(body.items("few")) == 1 and not errors.causes
    assert body.items("more") == []
    assert [(cause.field, cause.reason) for cause in errors.causes] == [("spec.more", "max")]


@pytest.mark.parametrize(
    "spec",
    [
        {"storage": {"emptyDirVolume": [{"path": f"/{number}"} for number in range(200_000)]}},
        {"storage": {kind: [{"path": f"/{kind}{n}"} for n in range(4_900)] for kind in ("emptyDirVolume", "git")}},
        {"ports": [{"container": number} for number in range(1, 65_536)] * 3},
        {"environmentVariables": [{"name": "A", "value": "b"}] * 100_000},
    ],
    ids=["volumes", "two lists of volumes", "ports", "variables"],
)
def test_a_submit_that_was_made_to_be_slow_is_not(spec: dict[str, Any]) -> None:
    """Four MiB of volumes were compared with each other on the event loop, for a quarter of an hour."""
    began = time.process_time()
    with pytest.raises(BadRequest, match="all lists of a request may have 5,000 together"):
        parse_submission({"name": "x", "projectId": "1", "spec": {"image": "i", **spec}})
    assert time.process_time() - began < 2


def test_a_submit_names_no_more_data_sources_than_it_may() -> None:
    """Each is looked for among all assets."""
    body = {"name": "x", "projectId": "1", "spec": {}, "assets": {"datasources": [{"id": "x"}] * 100_000}}
    began = time.process_time()
    with pytest.raises(BadRequest, match="all lists of a request may have 5,000 together"):
        expand_submit(body, "Distributed", lambda kind, word: None)
    assert time.process_time() - began < 2
