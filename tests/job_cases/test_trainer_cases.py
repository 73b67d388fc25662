"""What the controllers of JobSet 0.12 and Kubeflow Trainer 2.3 were seen to do, step by step over HTTP, is what ours do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import TRAINER_CASES
from tests.job_cases.play import check_all
from tests.operator_cases.cases import Case, Step, load
from tests.operator_cases.playing import server

TOGETHER = 24
pytestmark = pytest.mark.timeout(600)


INSTEAD: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("instead.json").read_text())
"""Title of a case → number of a step → what is right there. The real Trainer cannot suspend or resume a TrainJob with volume claims: its
second apply is refused, the status says Suspended and pods run on (docs/design/trainer.md). Ours stops them. Seen in a server of
ours, and compared by hand with the record of a TrainJob without claims that is suspended."""


def recorded(name: str) -> list[Case]:
    return [as_ours(case) for case in load(TRAINER_CASES / f"{name}.json")]


def as_ours(case: Case) -> Case:
    """The case with what rowlock does better."""
    steps = list(case.steps)
    for number, right in INSTEAD.get(case.title, {}).items():
        place = int(number) - 1
        steps[place] = Step(steps[place].do, tuple(right["variants"]), tuple(right["events"]))
    return Case(case.family, case.kind, case.name, tuple(steps), case.tags)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with server(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_every_recorded_set(kubeconfig: Path) -> None:
    cases = recorded("jobset") + recorded("jobset-more")
    assert len(cases) == 38 + 11
    check_all(kubeconfig, cases, TOGETHER)


def test_every_recorded_trainjob(kubeconfig: Path) -> None:
    cases = recorded("trainjob") + recorded("trainjob-more")
    assert len(cases) == 52 + 15 and INSTEAD.keys() <= {case.title for case in cases}
    check_all(kubeconfig, cases, TOGETHER)


@pytest.mark.parametrize(("name", "count"), [("jobset-admission", 34), ("trainjob-admission", 54)])
def test_every_recorded_answer(kubeconfig: Path, name: str, count: int) -> None:
    """What the webhooks and the schemas say and keep, as clients get it: codes, reasons, sentences and Warning headers."""
    cases = recorded(name)
    assert len(cases) == count
    check_all(kubeconfig, cases, TOGETHER)
