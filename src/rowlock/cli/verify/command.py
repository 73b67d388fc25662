"""`rowlock verify-resume -- python train.py`: checks that a killed run continues bit for bit as if it had not been killed.

It runs the program three times on this machine: to the end; until it kills itself at a random step; and on from the
checkpoint. The program must use `rowlock.runtime.Checkpoint`, which records fingerprints after each step; these are compared.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.interrupts import clean_up_when_told_to_end
from rowlock.cli.output import parse_duration, show, show_json, tell
from rowlock.cli.verify.recordings import (
    Recording,
    RunDifference,
    first_difference,
    ranks_with_other_steps,
    read_recordings,
    unseeded_generators,
)

_LAST_WORDS = 1500
"""Characters of a failed rank's output to show."""


def verify_resume(line: CommandLine) -> int:
    command = [*line.words, *(line.rest or [])]
    if not command:
        raise CommandError("say what to run: `rowlock verify-resume [flags] -- python train.py …`", 2)
    if line.nproc < 1 or line.steps < 4:
        raise CommandError(
            "--nproc must be at least 1, and --steps at least 4: one to save, one to be killed at, two to go on", 2
        )
    if parse_duration(line.timeout, "--timeout") <= 0:
        raise CommandError("--timeout must be longer than 0s: each of the three runs may take so long", 2)
    seed = line.seed if line.seed is not None else time.time_ns() % 100_000
    place = Path(tempfile.mkdtemp(prefix="rowlock-verify-"))
    try:
        with clean_up_when_told_to_end():
            verdict = _Verification(line, command, place, seed).verdict()
    finally:
        if line.keep:
            tell(f"checkpoints, fingerprints and logs are in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    if line.json:
        show_json(verdict)
    return 0 if verdict["exact"] else 1


class _Run(Enum):
    WHOLE = "1/3 (whole)"
    KILLED = "2/3 (killed)"
    RESUMED = "3/3 (resumed)"


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
        reference = self._run(_Run.WHOLE, {"STOP_AT": self._steps})
        self._say(f"1/3 whole: {self._describe(reference)}")
        killed = self._run(_Run.KILLED, {"KILL_AT": self._kill_at})
        self._say(f"2/3 killed after step {self._kill_at}: {self._describe(killed)}")
        loose = unseeded_generators(reference, killed)
        if difference := first_difference(reference, killed, loose):
            raise CommandError(
                f"two runs of the program differ without any resume, first in {difference.name} at step {difference.step} (rank"
                f" {difference.rank}): set the seeds (torch.manual_seed, random.seed) and use deterministic algorithms first"
            )
        resumed = self._run(_Run.RESUMED, {"STOP_AT": self._steps})
        after = min(recording.resumed_after or 0 for recording in resumed.values())
        if not after:
            raise CommandError(
                f"the program began anew after it was killed at step {self._kill_at}: call Checkpoint.load() before the first"
                " step, and begin with the step that it returns"
            )
        self._say(f"3/3 resumed after step {after}: {self._describe(resumed)}")
        if other_steps := ranks_with_other_steps(reference, resumed):
            raise CommandError(
                f"after the resume rank {other_steps[0]} did not take the steps after {after} that it took in the whole run: begin"
                " with the step that Checkpoint.load() returns, and call Checkpoint.step() after the same steps"
            )
        difference = first_difference(reference, resumed, loose)
        last = max((step for recording in resumed.values() for step in recording.steps), default=self._steps)
        self._say(_sentence(difference, after, last))
        return {
            "exact": difference is None, "seed": self._seed, "steps": self._steps, "killedAfter": self._kill_at, "resumedAfter": after,
            "difference": None if difference is None else {
                "step": difference.step, "rank": difference.rank, "name": difference.name, "cause": difference.cause,
                "advice": difference.advice,
            },
        }  # fmt: skip

    def _run(self, run: _Run, settings: Mapping[str, int]) -> dict[int, Recording]:
        """Run the program once and return the recordings of its ranks. Raises CommandError when it does not end as
        expected."""
        record = self._place / run.name.lower()
        record.mkdir()
        directory = self._place / f"checkpoints-{'whole' if run is _Run.WHOLE else 'interrupted'}"
        directory.mkdir(exist_ok=True)  # exists like a job's directory, because the program may write there
        variables = {f"ROWLOCK_VERIFY_{key}": str(value) for key, value in settings.items()}
        variables |= {
            "ROWLOCK_VERIFY_RECORD": str(record),
            "ROWLOCK_VERIFY_EVERY": str(self._every),
            "ROWLOCK_CHECKPOINT_DIR": str(directory),
        }
        try:
            codes = run_ranks(self._command, self._world_size, variables, record, self._timeout)
        except OSError as error:
            raise CommandError(f"{self._command[0]} cannot be started: {error.strerror}", 127) from None
        recordings = read_recordings(record, self._world_size)
        if not (self._was_killed(codes, recordings) if run is _Run.KILLED else set(codes) == {0}):
            raise CommandError(self._describe_failure(run, codes, record, recordings))
        return recordings

    def _was_killed(self, codes: Sequence[int | None], recordings: Mapping[int, Recording]) -> bool:
        """Whether a rank reached the step of the kill and no rank succeeded. Other exit codes say nothing: the other ranks fail
        or hang when one is gone, and a shell or torchrun ends with a code of its own."""
        return 0 not in codes and any(self._kill_at in recording.steps for recording in recordings.values())

    def _describe_failure(
        self, run: _Run, codes: list[int | None], record: Path, recordings: Mapping[int, Recording]
    ) -> str:
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
        what = f"did not end in {self._timeout:g} s (--timeout)" if codes[rank] is None else f"ended with {codes[rank]}"
        return f"rank {rank} {what} in run {run.value}; its last words:\n{log or '(nothing)'}"

    def _describe(self, recordings: Mapping[int, Recording]) -> str:
        steps = sorted({step for r in recordings.values() for step in r.steps})
        others = f" on {len(recordings)} ranks" if len(recordings) > self._world_size else ""
        return f"steps {steps[0]} to {steps[-1]}{others}" if steps else "no step"

    def _say(self, text: str) -> None:
        if not self._quiet:
            show(text)


def _sentence(difference: RunDifference | None, after: int, last: int) -> str:
    if difference is None:
        return (
            f"Exact: steps {after + 1} to {last} are the same bit by bit: weights, optimizer, random numbers and data."
        )
    others = f" ({difference.others} more differ)" if difference.others else ""
    return f"NOT exact: {difference.name} differs first, at step {difference.step}, rank {difference.rank}{others}: {difference.advice}."


_POLL_INTERVAL = 0.02
_END_TIMEOUT = 10.0
"""Seconds between SIGTERM and SIGKILL for remaining ranks, and seconds that ranks get to end after another rank has failed."""


def run_ranks(
    command: Sequence[str], world_size: int, variables: Mapping[str, str], logs: Path, timeout: float
) -> list[int | None]:
    """Run a program as `world_size` ranks until all have ended. Returns their exit codes, None for a rank that was killed because
    another rank had failed. Each rank's output goes to `logs/rank-N.log`. Raises FileNotFoundError when the program does not
    exist."""
    logs.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world_size):
            environment = {**os.environ, **variables, **_rank_variables(rank, world_size, port)}
            with (logs / f"rank-{rank}.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        _wait(processes, time.monotonic() + timeout)
        return [process.poll() for process in processes]
    finally:
        _end(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait until all have ended, one has failed and the others had `_END_TIMEOUT` to notice, or the deadline has passed."""
    grace = 0.0
    while (codes := [process.poll() for process in processes]).count(None):
        now = time.monotonic()
        if any(codes) and not grace:
            grace = now + _END_TIMEOUT
        if now > deadline or (grace and now > grace):
            return
        time.sleep(_POLL_INTERVAL)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the remaining processes: SIGTERM, then SIGKILL. Another Ctrl-C meanwhile kills them at once."""
    try:
        _send(signal.SIGTERM, processes)
    finally:
        _send(signal.SIGKILL, processes)


def _send(number: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _END_TIMEOUT
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, number)
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _rank_variables(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
