"""Compares two recordings of a run: finds the first difference, and what the program forgot to save."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_ADVICE = {
    "inputs": "the model got other data: the order of samples is not restored. Give the Checkpoint the sampler (ResumableSampler),"
    " and iterate with `sampler.batches(loader)`",
    "random": "the random numbers are others: something draws from them in another order after a resume",
    "object": "this object does not come back as it was",
    "effect": "this object came back as it was, and something that it works on did not: name everything that has a state"
    " (optimizer, scheduler, scaler, averaged weights) to the Checkpoint",
    "optimizer": "the state of the optimizer is another one: give it to the Checkpoint",
    "module": "the same data and random numbers led to other weights: name everything that has a state"
    " (optimizer, scheduler, scaler, averaged weights) to the Checkpoint",
    "schedule": "the learning rate or another number of the optimizer is another one: give the scheduler to the Checkpoint",
}
_ORDER = ("inputs", "schedule", "object", "effect", "random", "optimizer", "module")
"""Groups of fingerprints in the order of causes before effects."""


@dataclass
class Recording:
    """The recording of one rank: fingerprints of each step, and the state after a resume."""

    steps: dict[int, dict[str, str]] = field(default_factory=dict)
    resumed_after: int | None = None
    resumed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunDifference:
    """The first difference between two runs."""

    rank: int
    step: int
    name: str
    """The fingerprint that differs (`model.0.weight`, `inputs`, ...): the first in the order of causes."""
    cause: str
    """The key of the advice for this difference."""
    others: int
    """Other fingerprints that differ at this step."""

    @property
    def advice(self) -> str:
        return _ADVICE[self.cause]


def read_recording(path: Path) -> Recording:
    """Read a rank's recording. Its last line may be cut off by the kill."""
    recording = Recording()
    if not path.exists():
        return recording
    for text in path.read_text().splitlines():
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            continue
        if "resumed" in line:
            recording.resumed_after, recording.resumed = int(line["resumed"]), line["fingerprints"]
        else:
            recording.steps[int(line["step"])] = {"inputs/inputs": line["inputs"], **line["fingerprints"]}
    return recording


def read_recordings(directory: Path, world_size: int) -> dict[int, Recording]:
    """{rank: recording} of `world_size` ranks, and of further ranks if the program has started more itself (torchrun)."""
    ranks = {int(path.stem.removeprefix("rank-")) for path in directory.glob("rank-*.jsonl")}
    return {rank: read_recording(directory / f"rank-{rank}.jsonl") for rank in sorted(ranks | set(range(world_size)))}


def first_difference(
    reference: Mapping[int, Recording], other: Mapping[int, Recording], ignored: Collection[str] = ()
) -> RunDifference | None:
    """The difference at the earliest step of all ranks; None when the recordings agree. `ignored` fingerprints are not
    compared."""
    found = [
        d for rank in reference.keys() & other.keys() for d in _differences(rank, reference[rank], other[rank], ignored)
    ]
    return min(found, key=lambda d: (d.step, _ORDER.index(d.cause), d.rank), default=None)


def ranks_with_other_steps(reference: Mapping[int, Recording], resumed: Mapping[int, Recording]) -> list[int]:
    """Ranks whose steps after their resume are not exactly the steps that they took after that point in the whole run."""
    return [
        rank for rank in sorted(reference.keys() | resumed.keys())
        if rank not in reference or rank not in resumed
        or [step for step in sorted(reference[rank].steps) if step > (resumed[rank].resumed_after or 0)]
        != sorted(resumed[rank].steps)
    ]  # fmt: skip


def unseeded_generators(reference: Mapping[int, Recording], other: Mapping[int, Recording]) -> frozenset[str]:
    """Random number generators whose state differs between two runs of the program: the program does not seed them."""
    found: set[str] = set()
    for rank in reference.keys() & other.keys():
        for step in reference[rank].steps.keys() & other[rank].steps.keys():
            wanted, seen = reference[rank].steps[step], other[rank].steps[step]
            found |= {name for name in wanted if _cause(name) == "random" and wanted[name] != seen.get(name)}
    return frozenset(found)


def _differences(
    rank: int, reference: Recording, other: Recording, ignored: Collection[str]
) -> Iterable[RunDifference]:
    """The first difference of one rank, right after its resume or at the earliest step; empty when there is none."""
    after = other.resumed_after
    if after is not None and after in reference.steps:
        at_once = {name: text for name, text in reference.steps[after].items() if not name.startswith("inputs/")}
        if difference := _compare(rank, after, at_once, other.resumed, ignored):
            return [difference]
    for step in sorted(other.steps.keys() & reference.steps.keys()):
        if difference := _compare(rank, step, reference.steps[step], other.steps[step], ignored):
            is_effect = difference.cause == "object" and after is not None
            return [replace(difference, cause="effect") if is_effect else difference]
    return []


def _compare(
    rank: int, step: int, wanted: Mapping[str, str], found: Mapping[str, str], ignored: Collection[str]
) -> RunDifference | None:
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name) and name not in ignored]
    if not names:
        return None
    first = min(names, key=lambda name: _ORDER.index(_cause(name)))
    return RunDifference(rank, step, first.partition("/")[2], _cause(first), len(names) - 1)


def _cause(name: str) -> str:
    category, _, path = name.partition("/")
    return "schedule" if category == "optimizer" and ".param_groups" in path else category
