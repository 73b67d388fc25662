"""`rowlock verify-resume -- python train.py`: checks that a killed run resumes bit for bit as if it had not been killed.

It runs the program three times on this machine: to the end; until it kills itself at a random step; and on from the
checkpoint. The program must use `rowlock.runtime.Checkpoint`, which records fingerprints after each step; these are compared.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import parse_duration, show, show_json, tell
from rowlock.cli.verify.local_ranks import run_ranks
from rowlock.cli.verify.recordings import (
    Recording,
    RunDifference,
    first_difference,
    read_recording,
    unseeded_generators,
)

_KILLED = -9
_LAST_WORDS = 1500
"""Characters of a failed rank's output to show."""


def verify_resume(line: CommandLine) -> int:
    """Prove that a killed training program resumes exactly."""
    command = [*line.words, *(line.rest or [])]
    if not command:
        raise CommandError("say what to run: `rowlock verify-resume [flags] -- python train.py …`", 2)
    if line.nproc < 1 or line.steps < 4:
        raise CommandError(
            "--nproc must be at least 1, and --steps at least 4: one to save, one to be killed at, two to go on", 2
        )
    seed = line.seed if line.seed is not None else time.time_ns() % 100_000
    place = Path(tempfile.mkdtemp(prefix="rowlock-verify-"))
    try:
        verdict = _Verification(line, command, place, seed).verdict()
    finally:
        if line.keep:
            tell(f"checkpoints, fingerprints and logs are in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    if line.json:
        show_json(verdict)
    return 0 if verdict["exact"] else 1


class _Verification:
    def __init__(self, line: CommandLine, command: list[str], place: Path, seed: int) -> None:
        self._command, self._place, self._seed = command, place, seed
        self._world_size, self._steps, self._quiet = line.nproc, line.steps, line.json
        self._timeout = parse_duration(line.timeout, "--timeout")
        draw = random.Random(seed)
        self._every = max(1, self._steps // 5)
        self._kill_at = draw.randint(self._every + 1, self._steps - 1)

    def verdict(self) -> dict[str, object]:
        """Run the program three times and compare. Returns the verdict as JSON. Raises CommandError when nothing can be
        compared."""
        ranks = f"{self._world_size} rank{'s' if self._world_size > 1 else ''}"
        self._say(
            f"seed {self._seed}: {self._steps} steps on {ranks}, a checkpoint every {self._every}, killed after {self._kill_at}"
        )
        reference = self._run("whole", "whole", {"STOP_AT": self._steps}, 0)
        self._say(f"1/3 whole: {_describe(reference)}")
        killed = self._run("killed", "interrupted", {"KILL_AT": self._kill_at}, _KILLED)
        self._say(f"2/3 killed after step {self._kill_at}: {_describe(killed)}")
        loose = unseeded_generators(reference, killed)
        if difference := first_difference(reference, killed, loose):
            raise CommandError(
                f"two runs of the program differ without any resume, first in {difference.name} at step {difference.step} (rank"
                f" {difference.rank}): set the seeds (torch.manual_seed, random.seed) and use deterministic algorithms first"
            )
        resumed = self._run("resumed", "interrupted", {"STOP_AT": self._steps}, 0)
        after = resumed[0].resumed_after
        if not after:
            raise CommandError(
                f"the program began anew after it was killed at step {self._kill_at}: call Checkpoint.load() before the first"
                " step, and begin with the step that it returns"
            )
        self._say(f"3/3 resumed after step {after}: {_describe(resumed)}")
        difference = first_difference(reference, resumed, loose)
        self._say(_sentence(difference, after, self._steps))
        return {
            "exact": difference is None, "seed": self._seed, "steps": self._steps, "killedAfter": self._kill_at, "resumedAfter": after,
            "difference": None if difference is None else {
                "step": difference.step, "rank": difference.rank, "name": difference.name, "cause": difference.cause,
                "advice": difference.advice,
            },
        }  # fmt: skip

    def _run(self, name: str, checkpoints: str, settings: Mapping[str, int], wanted: int) -> dict[int, Recording]:
        """Run the program once and return the recordings of its ranks. Raises CommandError when it does not end as
        expected."""
        record = self._place / name
        record.mkdir()
        variables = {f"ROWLOCK_VERIFY_{key}": str(value) for key, value in settings.items()}
        variables |= {
            "ROWLOCK_VERIFY_RECORD": str(record),
            "ROWLOCK_VERIFY_EVERY": str(self._every),
            "ROWLOCK_CHECKPOINT_DIR": str(self._place / f"checkpoints-{checkpoints}"),
        }
        try:
            codes = run_ranks(self._command, self._world_size, variables, record, self._timeout)
        except OSError as error:
            raise CommandError(f"{self._command[0]} cannot be started: {error.strerror}", 127) from None
        recordings = {rank: read_recording(record / f"rank-{rank}.jsonl") for rank in range(self._world_size)}
        if codes != [wanted] * self._world_size:
            raise CommandError(self._describe_failure(codes, record, recordings))
        return recordings

    def _describe_failure(self, codes: list[int | None], record: Path, recordings: Mapping[int, Recording]) -> str:
        if set(codes) == {0} and not any(r.steps for r in recordings.values()):
            return (
                "the program ended and never called Checkpoint.step(): make a rowlock.runtime.Checkpoint and call its step()"
                " after every optimizer step (docs/resume.md)"
            )
        if set(codes) == {0}:
            last = max(step for r in recordings.values() for step in r.steps)
            return (
                f"the program ended after step {last}, before the kill after step {self._kill_at}: choose fewer --steps"
            )
        rank = next((n for n, code in enumerate(codes) if code not in (0, None)), 0)
        log = (record / f"rank-{rank}.log").read_text(errors="replace")[-_LAST_WORDS:].strip()
        what = "did not end in time (--timeout)" if codes[rank] is None else f"ended with {codes[rank]}"
        return f"rank {rank} {what}; its last words:\n{log or '(nothing)'}"

    def _say(self, text: str) -> None:
        if not self._quiet:
            show(text)


def _describe(recordings: Mapping[int, Recording]) -> str:
    steps = sorted({step for r in recordings.values() for step in r.steps})
    return f"steps {steps[0]} to {steps[-1]}" if steps else "no step"


def _sentence(difference: RunDifference | None, after: int, last: int) -> str:
    if difference is None:
        return (
            f"Exact: steps {after + 1} to {last} are the same bit by bit: weights, optimizer, random numbers and data."
        )
    others = f" ({difference.others} more differ)" if difference.others else ""
    return f"NOT exact: {difference.name} differs first, at step {difference.step}, rank {difference.rank}{others}: {difference.advice}."
