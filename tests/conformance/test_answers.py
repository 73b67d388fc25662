"""Our server's words beside a real kube-apiserver's, request by request; and the record beside the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.answers import CASES, GOLDEN, Server
from tests.error_contract import without_internals_below

RECORD: dict[str, list[dict[str, Any]]] = json.loads(GOLDEN.read_text())
DIFFERENT: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("different.json").read_text())
"""Cases that we answer otherwise, and what is different: in meaning (status, reason, object) or in words only."""


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


def _expected(case: str, level: str, request: pytest.FixtureRequest) -> None:
    if case in DIFFERENT[level]:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[level][case], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_we_mean_what_the_real_one_means(case: str, ours: Play, request: pytest.FixtureRequest) -> None:
    _expected(case, "meaning", request)
    assert meaning(ours(case)) == meaning(RECORD[case])


@pytest.mark.parametrize("case", [case for case in CASES if case not in DIFFERENT["meaning"]])
def test_we_say_it_in_the_real_ones_words(case: str, ours: Play, request: pytest.FixtureRequest) -> None:
    _expected(case, "words", request)
    assert without_internals_below(ours(case)) == without_internals_below(RECORD[case])


@pytest.mark.real
@pytest.mark.parametrize("case", CASES)
def test_the_record_is_true(case: str, real: Server) -> None:
    assert real.play(CASES[case]) == RECORD[case]
