"""The corpus of programs on which verdicts are tried: what stands in a program's header, and whether an answer is right.

A program is a file below `programs/healthy`, `programs/hangs` or `programs/failures`. Its header is a block of comments between
`# /// verdict` and `# ///`, in TOML: how it is started, when to ask, and what the answer must name and must not name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
KINDS = ("healthy", "hangs", "failures")
STARTS = ("run", "PyTorchJob", "XGBoostJob", "TFJob", "MPIJob", "JAXJob")
PATIENCE = 30.0
"""Seconds after the last movement within which a hang must be named."""
_BLOCK = re.compile(r"^# /// verdict\n((?:#.*\n)+?)# ///$", re.M)
_MARK = re.compile(r"\{(\w+)\}")
_NAMED = re.compile(r"(.+?)(?: \(pid \d+\))? \(pod ")
_PID = re.compile(r" \(pid \d+\)$")
RIGHT, VAGUE, SILENT, WRONG = "right", "vague", "silent", "wrong"


@dataclass(frozen=True)
class Program:
    """One program and its right answer; the fields are those of the header."""

    path: Path
    kind: str
    needs: tuple[str, ...] = ()
    """Modules without which it cannot run: they name its framework."""
    start: str = "run"
    ranks: int = 2
    """Pods; of an MPIJob, workers."""
    nproc: int = 1
    """`run` alone: processes in each pod."""
    command: str = "python {program}"
    after: str = ""
    """A hang: a line that a rank writes when it is about to hang. A healthy one: when the first look is taken. "" = once it runs."""
    everyone: bool = False
    """All ranks must have written that line: on a busy machine some still import what others wait with."""
    seconds: float = 8.0
    """How long after that line the first question comes."""
    who: tuple[str, ...] = ()
    """The ranks that are at fault: an answer may name these, and no other. Of a failure the first one must be one of these."""
    says: tuple[Any, ...] = ()
    """Words that must stand in the sentence; of a list one is enough. `{here}` is the file and line that end with `# here`."""
    never: tuple[str, ...] = ()
    """Words that must not stand in it, nor in an event."""
    env: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the pods' spec, and of their container (not with `run`)."""
    container: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "Never"
    short: bool = False
    """It belongs to the part that runs in CI."""

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Outcome:
    """`word`: right, vague (nobody wrong is named, but not all that must be), silent or wrong; `why`: what is missing or false."""

    word: str
    why: str = ""


def read_program(path: Path) -> Program:
    """A program by its header. Raises ValueError with a sentence for a header that is not one."""
    text = path.read_text()
    block = _BLOCK.search(text)
    if block is None:
        raise ValueError(f"{path} has no block `# /// verdict` … `# ///`")
    header = tomllib.loads("\n".join(line[2:] for line in block[1].splitlines()))
    known = {each.name for each in fields(Program)} - {"path", "kind"}
    if unknown := header.keys() - known:
        raise ValueError(f"{path}: unknown fields {sorted(unknown)}; known are {sorted(known)}")
    header["says"] = [_fill(path, text, words) for words in header.get("says", ())]
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in header.items()}
    return Program(path, next((each.name for each in path.parents if each.name in KINDS), ""), **values)


def _fill(path: Path, text: str, words: Any) -> Any:
    """The words of `says` with files and lines in the place of marks. Raises ValueError for a mark that is on no line."""
    if not isinstance(words, str):
        return [_fill(path, text, each) for each in words]

    def place(mark: re.Match[str]) -> str:
        for number, line in enumerate(text.splitlines(), 1):
            if line.endswith(f"# {mark[1]}"):
                return f"{path.name}:{number}"
        raise ValueError(f"{path}: no line ends with `# {mark[1]}`")

    return _MARK.sub(place, words)


def read_corpus() -> list[Program]:
    """All programs, in the order of their names."""
    files = (path for kind in KINDS for path in sorted((PROGRAMS / kind).rglob("*")))
    return [read_program(path) for path in files if path.is_file() and path.suffix in (".py", ".sh")]


def judge(program: Program, answer: Mapping[str, Any], events: Sequence[str] = ()) -> Outcome:
    """Whether an answer of `why` is the right one. `events`: the messages of JobHangs, JobStill and RankFailed."""
    sentence = str(answer["sentence"])
    if false := [word for word in program.never if word in sentence or any(word in each for each in events)]:
        return Outcome(WRONG, f"it says {false}")
    verdict = answer.get("verdict") or {}
    if program.kind == "healthy":
        return _judge_healthy(answer, verdict, events)
    if program.kind == "failures":
        first = _NAMED.match(sentence)
        named = [first[1]] if first else []
        is_silent = not answer.get("incidents")
    else:
        named = [_PID.sub("", rank) for rank in verdict.get("culprits") or ()]
        is_silent = verdict.get("kind", "moving") in ("moving", "slow", "blind")
    if strangers := [rank for rank in named if rank not in program.who]:
        return Outcome(WRONG, f"it blames {strangers}")
    missing = [words for words in program.says if not any(word in sentence for word in _either(words))]
    if is_silent and (missing or program.kind == "hangs"):
        return Outcome(SILENT)
    if missing:
        return Outcome(VAGUE, f"it lacks {missing}")
    return Outcome(RIGHT)


def _judge_healthy(answer: Mapping[str, Any], verdict: Mapping[str, Any], events: Sequence[str]) -> Outcome:
    if events:
        return Outcome(WRONG, f"an event says: {events[0]}")
    if answer.get("incidents"):
        return Outcome(WRONG, "it says that a rank failed")
    if verdict and verdict["kind"] not in ("moving", "slow", "blind", "absent"):
        return Outcome(WRONG, f"it says {verdict['kind']}")
    if any(remark["kind"] == "alone" for remark in answer.get("remarks") or ()):
        return Outcome(WRONG, "it says that the ranks never met")
    return Outcome(RIGHT)


def _either(words: object) -> Sequence[str]:
    return [words] if isinstance(words, str) else [str(word) for word in words]  # type: ignore[attr-defined] # a list of TOML
