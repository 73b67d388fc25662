"""What the real Training Operator was seen to do, step by step over HTTP, is what our server does: all recorded cases.

The runner plays scheduler and kubelet, so ours are left out. The cases mostly wait (a state must last a moment to
count), so many are played at a time. A few depend on real time (deadlines, seconds to live) and may be late on a
machine that is busy: those that fail are played once more, alone, and the output says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, make
from tests.evidence import BESIDE, operator_case_files

RUNNER = BESIDE / "tools" / "operator_cases.py"
CASES = operator_case_files()
TOGETHER = 24  # cases at a time: 30 s on two cores, of which the cases compute 20
AGAIN = 20  # more failures than this are no accident
pytestmark = [
    pytest.mark.skipif(
        not RUNNER.exists(), reason="the runner of the recorded operator cases is not beside this repository"
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = make(tmp_path / "data", tmp_path)
    try:
        made.up("--without", "kubelet,scheduler")
        yield made
    finally:
        made.run("rowlock", "down", "--yes", code=None)


def played(cluster: Cluster, jobs: int, only: str = "") -> str:
    kubeconfig = str(cluster.data / "kubeconfig")
    options = ["--kubeconfig", kubeconfig, "--jobs", str(jobs), *(["--only", only] if only else [])]
    return cluster.run(sys.executable, str(RUNNER), "check", *map(str, CASES), *options, code=None, timeout=500)


def titles() -> list[str]:
    found = [case for file in CASES for case in json.loads(file.read_text())["cases"]]
    return [f"{case['family']} / {case['kind']} / {case['name']}" for case in found]


def failures(output: str) -> dict[str, str]:
    """Case -> what differed. A line begins with `FAIL`, the title and perhaps tags; what differed is indented."""
    known = sorted(titles(), key=len, reverse=True)  # a title may begin another
    found: dict[str, str] = {}
    for block in output.split("\nFAIL ")[1:]:
        lines = block.splitlines()
        title = next(t for t in known if lines[0].startswith(t))
        differences = [line for line in lines[1:] if line.startswith("     ")]
        found[title] = "\n".join([f"FAIL {lines[0]}", *differences])
    return found


def test_every_recorded_case_of_the_real_operator(cluster: Cluster) -> None:
    output = "\n" + played(cluster, TOGETHER)
    verdict = output.strip().splitlines()[-1]
    failed = failures(output)
    if 0 < len(failed) <= AGAIN:
        for title in list(failed):
            print(f"failed while {TOGETHER} cases ran at a time; once more, alone: {title}")
            if again := failures("\n" + played(cluster, 1, title)).get(title):
                failed[title] = again
            else:
                del failed[title]
        verdict = f"{len(titles()) - len(failed)} passed, {len(failed)} failed"
    print(verdict)
    assert not failed, "\n".join([*failed.values(), verdict])
    assert verdict == f"{len(titles())} passed, 0 failed"


def test_failures_are_read_from_the_runners_output() -> None:
    some = titles()[0]
    output = f"\nok   other\nFAIL {some} Q3\n     step 1: create\n       .pods: x\nok   {some}\n2 passed, 1 failed"
    assert failures(output) == {some: f"FAIL {some} Q3\n     step 1: create\n       .pods: x"}
    assert failures("\nok   a\n1 passed, 0 failed") == {}
