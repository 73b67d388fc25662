"""What the real Training Operator was seen to do, step by step over HTTP, is what our server does: all recorded cases.

The runner plays scheduler and kubelet, so ours are left out. The cases mostly wait (a state must last a moment to
count), so many are played at a time. A few depend on real time (deadlines, seconds to live) and may be late on a
machine that is busy: those that fail are played once more, alone, and the output says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.evidence import operator_case_files
from tests.operator_cases.__main__ import check
from tests.operator_cases.cases import Case, Step, load
from tests.operator_cases.playing import server

CASES = [case for file in operator_case_files() for case in load(file)]
TOGETHER = 24  # cases at a time: 30 s on two cores, of which the cases compute 20
AGAIN = 20  # more failures than this are no accident
ON_THE_REAL_ONE = ("clean", "deletion")
"""Families that are played on the real operator, too: the record is still what it says."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with server(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def differing(kubeconfig: Path, cases: Sequence[Case], together: int) -> dict[str, list[str]]:
    found = asyncio.run(check(kubeconfig, cases, together))
    assert set(found) == {case.title for case in cases}
    return {title: lines for title, lines in found.items() if lines}


def judge(kubeconfig: Path, cases: Sequence[Case], together: int, tries: int = 1) -> None:
    """`tries`: how often a case that failed beside others is played alone; the real operator is late on a busy machine."""
    wrong = differing(kubeconfig, cases, together)
    if len(wrong) <= AGAIN:
        for case in [case for case in cases if case.title in wrong]:
            print(f"failed while {together} cases ran at a time; once more, alone: {case.title}")
            for _ in range(tries):
                wrong |= differing(kubeconfig, [case], 1) or {case.title: []}
                if not wrong[case.title]:
                    break
    print(f"{len(cases)} cases")
    assert not any(wrong.values()), "\n".join(f"{t}\n  " + "\n  ".join(w) for t, w in wrong.items() if w)


def test_every_recorded_case_of_the_real_operator(kubeconfig: Path) -> None:
    judge(kubeconfig, CASES, TOGETHER)


@pytest.mark.real
def test_the_real_operator_does_as_recorded(tmp_path: Path) -> None:
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    with real_cluster(tmp_path, "--operator") as real:
        judge(real, [case for case in CASES if case.family in ON_THE_REAL_ONE], 8, tries=3)


# ---------------------------------------------------------------- a runner that cannot fail would be worthless


def falsified(how: str) -> Case:
    """A recorded case whose record says something that does not happen."""
    case = next(c for c in CASES if c.kind == "PyTorchJob" and [*c.steps[0].do] == ["create"] and len(c.steps) > 1)
    first, *rest = case.steps
    record: dict[str, Any] = json.loads(json.dumps(first.json()))
    for variant in record["variants"]:
        (name, job), *_ = variant["jobs"].items()
        pod = next(iter(variant["pods"]))
        detail = variant["new"][f"Pod/{pod}"]
        match how:
            case "a condition's message":
                job["conditions"][0][3] += "!"
            case "a missing condition":
                job["conditions"].append(["Running", "True", "JobRunning", "it runs"])
            case "a surplus condition":
                job["conditions"].clear()
            case "a field":
                job["startTime"] = not job["startTime"]
            case "another job":
                variant["jobs"][name + "-2"] = job
            case "a pod's phase":
                variant["pods"][pod] = "Running"
            case "a missing pod":
                variant["pods"]["job-worker-9"] = "Pending"
            case "a surplus pod":
                del variant["pods"][pod]
            case "an environment variable":
                detail["spec"]["containers"][0]["env"][0]["value"] = "no"
            case "a surplus label":
                detail["labels"].popitem()
            case "another service":
                variant["others"].append("Service/no")
            case "an answer":
                variant["answers"].append("Warning: no")
            case "a missing event":
                record["events"].append("Normal Never Said")
            case "a surplus event":
                record["events"] = record["events"][:-1]
    parts = {key: tuple(record.get(key, ())) for key in ("variants", "events", "maybe")}
    return Case(case.family, case.kind, how, (Step(record["do"], **parts), *rest))


FALSE = (
    "a condition's message", "a missing condition", "a surplus condition", "a field", "another job", "a pod's phase",
    "a missing pod", "a surplus pod", "an environment variable", "a surplus label", "another service", "an answer",
    "a missing event", "a surplus event",
)  # fmt: skip


def test_what_is_not_as_recorded_is_found(kubeconfig: Path) -> None:
    cases = [falsified(how) for how in ("nothing", *FALSE)]
    unrecorded = Case("false", "PyTorchJob", "no record", (Step(cases[0].steps[0].do),))
    wrong = differing(kubeconfig, [*cases, unrecorded], TOGETHER)
    found = {title.rpartition(" / ")[2] for title in wrong}
    assert found == {*FALSE, "no record"}


def test_a_refused_job_is_compared_by_what_the_server_says(kubeconfig: Path) -> None:
    case = next(c for c in CASES if "admit" in c.steps[0].do and c.steps[0].variants[0]["answers"])
    (step,) = case.steps
    changed = [{**variant, "answers": [variant["answers"][0] + "?"]} for variant in step.variants]
    silent = [{**variant, "answers": []} for variant in step.variants]
    cases = [
        Case("false", case.kind, name, (Step(step.do, tuple(variants)),))
        for name, variants in (("changed", changed), ("silent", silent))
    ]
    assert set(differing(kubeconfig, cases, 2)) == {case.title for case in cases}
