"""The corpus itself: every program has a header that says what is right, and answers are judged by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.diagnosis.corpus import RIGHT, SILENT, STARTS, VAGUE, WRONG, Program, judge, read_corpus, read_program
from tests.diagnosis.verdicts import manifest

CORPUS = read_corpus()
HANG = Program(Path("hangs/a.py"), "hangs", who=("rank 1",), says=("rank 1", ("b.py:3", "b.py:4")), never=("lost",))
FAILURE = Program(Path("failures/a.py"), "failures", who=("rank 1",), says=("ValueError",))
HEALTHY = Program(Path("healthy/a.py"), "healthy")


@pytest.mark.parametrize("program", CORPUS, ids=lambda p: p.name)
def test_a_header_says_what_is_right(program: Program) -> None:
    assert program.start in STARTS
    assert bool(program.says) == (program.kind != "healthy")
    assert program.ranks > 0 and "{program}" in program.command
    assert program.start != "run" or not (program.pod or program.container)
    assert program.kind != "hangs" or program.after


def test_names_are_those_of_one_program() -> None:
    assert len({program.name for program in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize(
    "text", ["print(1)\n", "# /// verdict\n# whom = 1\n# ///\n", '# /// verdict\n# says = ["{no}"]\n# ///\n']
)
def test_a_header_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ValueError, match=r"a\.py"):
        read_program(tmp_path / "a.py")


def said(sentence: str, kind: str = "still", culprits: tuple[str, ...] = ("rank 1",)) -> dict[str, Any]:
    return {"sentence": sentence, "verdict": {"kind": kind, "culprits": list(culprits)}, "incidents": []}


def failed(sentence: str) -> dict[str, Any]:
    return {"sentence": sentence, "verdict": None, "incidents": [{}]}


@pytest.mark.parametrize(
    ("program", "answer", "events", "word"),
    [
        (HANG, said("rank 1 sleeps at b.py:4"), [], RIGHT),
        (HANG, said("rank 1 sleeps"), [], VAGUE),
        (HANG, said("rank 1 at b.py:3", "moving", ()), [], SILENT),
        (HANG, said("rank 1 at b.py:3", "behind", ("rank 0",)), [], WRONG),
        (HANG, said("rank 1 at b.py:3: it was lost"), [], WRONG),
        (HANG, said("rank 1 at b.py:3"), ["a message was lost"], WRONG),
        (FAILURE, failed("rank 1 (pod a, node b) ended: ValueError"), [], RIGHT),
        (FAILURE, failed("rank 0 (pod a, node b) ended: ValueError"), [], WRONG),
        (FAILURE, failed("rank 1 (pod a, node b) ended"), [], VAGUE),
        (FAILURE, {"sentence": "It completed.", "verdict": None, "incidents": []}, [], SILENT),
        (HEALTHY, said("Nothing hangs", "moving", ()), [], RIGHT),
        (HEALTHY, said("rank 1 is slow", "slow"), [], RIGHT),
        (HEALTHY, said("rank 1 keeps", "behind"), [], WRONG),
        (HEALTHY, said("Nothing hangs", "moving", ()), ["rank 1 keeps"], WRONG),
        (HEALTHY, {**said("It completed, but", "moving", ()), "remarks": [{"kind": "alone"}]}, [], WRONG),
        (HEALTHY, failed("rank 1 (pod a, node b) ended"), [], WRONG),
    ],
)  # fmt: skip
def test_answers_are_judged(program: Program, answer: dict[str, Any], events: list[str], word: str) -> None:
    assert judge(program, answer, events).word == word


def test_a_manifest_has_the_ranks_of_the_header() -> None:
    job = Program(Path("a.py"), "hangs", start="PyTorchJob", ranks=3, pod={"activeDeadlineSeconds": 4})
    specs = manifest(job, "a", ["python", "a.py"], {"SCRATCH": "/s"})["spec"]["pytorchReplicaSpecs"]
    assert {name: spec["replicas"] for name, spec in specs.items()} == {"Master": 1, "Worker": 2}
    assert all(spec["template"]["spec"]["activeDeadlineSeconds"] == 4 for spec in specs.values())
