"""Our server's words beside a real kube-apiserver's, request by request; and the record beside the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.answers import CASES, GOLDEN, Server
from tests.differential.picture import compared
from tests.error_contract import without_internals_below

RECORD: dict[str, list[dict[str, Any]]] = json.loads(GOLDEN.read_text())
DIFFERENT: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("different.json").read_text())
"""Cases that we answer otherwise: why; and where, in meaning (status, reason, object) and in words, place by place."""


Play = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def ours(embedded: Path) -> Iterator[Play]:
    """Each case is played once for both questions."""
    server = Server(embedded)
    yield cache(lambda case: server.play(CASES[case]))
    server.close()


@pytest.fixture(scope="module")
def real(real_kubeconfig: Path) -> Iterator[Server]:
    server = Server(real_kubeconfig)
    yield server
    server.close()


def meaning(answers: list[dict[str, Any]]) -> list[Any]:
    """A refusal without its words; anything else in full."""
    kept = []
    for answer in answers:
        body = answer["body"]
        refused = answer["status"] >= 400
        reason = body.get("reason") if isinstance(body, dict) else None
        kept.append((answer["status"], reason) if refused else (answer["status"], answer["type"], body))
    return kept


def _differences(level: str, case: str, record: Any, ours: Any) -> None:
    """There are those that are listed, and no others: a difference that has gone is taken out of the list."""
    found = compared("", *json.loads(json.dumps([record, ours])))
    assert found == DIFFERENT.get(case, {}).get(level, [])


@pytest.mark.parametrize("case", CASES)
def test_we_mean_what_the_real_one_means(case: str, ours: Play) -> None:
    _differences("meaning", case, meaning(RECORD[case]), meaning(ours(case)))


@pytest.mark.parametrize("case", CASES)
def test_we_say_it_in_the_real_ones_words(case: str, ours: Play) -> None:
    _differences("words", case, without_internals_below(RECORD[case]), without_internals_below(ours(case)))


def test_every_listed_difference_is_one_of_a_case_and_has_a_reason() -> None:
    assert set(DIFFERENT) <= set(CASES)
    assert all(given["why"] and given["meaning"] + given["words"] for given in DIFFERENT.values())


@pytest.mark.real
@pytest.mark.parametrize("case", CASES)
def test_the_record_is_true(case: str, real: Server) -> None:
    assert real.play(CASES[case]) == RECORD[case]
