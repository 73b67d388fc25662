"""What kube-controller-manager and kube-apiserver 1.34 were seen to do with batch/v1 Jobs, step by step over HTTP, is what ours do.

The runner plays scheduler and kubelet, so ours are left out. Most cases wait for real seconds: a failure is answered after ten.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import JOB_CASES
from tests.job_cases.play import check, check_all
from tests.operator_cases.cases import Case, Step, load
from tests.operator_cases.playing import server

CASES = [case for file in sorted(JOB_CASES.glob("*.json")) for case in load(file)]
TOGETHER = 24
_FAILED_AT_ONCE = {"active": 1, "ready": 1, "failed": 1}
OURS: dict[str, tuple[int, dict[str, Any], str]] = {
    "indexed / Job / an index fails and is made again": (2, _FAILED_AT_ONCE, "Failed+NoFinalizer"),
    "replacement / Job / a terminating indexed pod beside a ready one": (
        2, {**_FAILED_AT_ONCE, "terminating": 1}, "Running+Terminating+NoFinalizer",
    ),
}  # fmt: skip
"""Where Kubernetes 1.34 refuses its own status and shows the old numbers for ten seconds, ours are right at once: the step, what
the Job says, and pod job-1.1 (docs/design/batch-jobs.md)."""
pytestmark = pytest.mark.timeout(600)


def as_ours(case: Case) -> Case:
    """The case with what rowlock does better."""
    if case.title not in OURS:
        return case
    place, numbers, pod = OURS[case.title]
    step = case.steps[place]
    variants = copy.deepcopy(step.variants)
    for variant in variants:
        variant["Job"]["job"] |= numbers
        variant["pods"]["job-1.1"] = pod
    steps = list(case.steps)
    steps[place] = Step(step.do, variants, step.events, step.maybe)
    return Case(case.family, case.kind, case.name, tuple(steps), case.tags)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with server(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def test_every_recorded_case(kubeconfig: Path) -> None:
    assert len(CASES) > 100
    check_all(kubeconfig, [as_ours(case) for case in CASES], TOGETHER)


def test_a_wrong_record_is_noticed(kubeconfig: Path) -> None:
    """A runner that cannot fail would be worthless."""
    case = next(c for c in CASES if c.title == "completions / Job / one pod")
    first = case.steps[0]
    variants = copy.deepcopy(first.variants)
    for variant in variants:
        variant["Job"]["job"]["active"] = 7
    falsified = Case(case.family, case.kind, case.name, (Step(first.do, variants, first.events),))
    (lines,) = asyncio.run(check(kubeconfig, [falsified], 1)).values()
    assert any(".Job.job.active" in line for line in lines)
