"""A job of one rank is watched if that rank was told of others: they may never come."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import cast

import pytest
from tests.waiting import until

from rowlock.diagnosis.observation import RankObservation, Verdict
from rowlock.diagnosis.stacks import NO_CALL, NO_FILE
from rowlock.diagnostics.diagnostics import Diagnostics
from rowlock.diagnostics.hang_detector import HangDetector, WatchedJob
from rowlock.diagnostics.rank_processes import read_command_line
from rowlock.diagnostics.rank_rendezvous import expects_others
from rowlock.objects import Object


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        (["/env/bin/torchrun", "--nnodes", "2", "train.py"], {}, True),
        (["/env/bin/torchrun", "--nnodes", "2:4", "train.py"], {}, True),
        (["/env/bin/torchrun", "--nnodes", "1:2", "train.py"], {}, False),
        (["/env/bin/torchrun", "train.py"], {"PET_NNODES": "2"}, True),
        (["/env/bin/torchrun", "train.py"], {"PET_NNODES": "1"}, False),
        (["train.py"], {"WORLD_SIZE": "2"}, True),
        (["train.py"], {"WORLD_SIZE": "1"}, False),
        (["train.py"], {}, False),
    ],
)
def test_who_expects_others(words: list[str], environ: dict[str, str], expected: bool) -> None:
    command = [sys.executable, "-c", "input()", *words]
    kept = {key: value for key, value in os.environ.items() if key not in ("PET_NNODES", "WORLD_SIZE", "TF_CONFIG")}
    with subprocess.Popen(command, env=kept | environ, stdin=subprocess.PIPE) as process:
        until(lambda: words[-1] in read_command_line(process.pid))
        assert expects_others(process.pid) is expected
        process.communicate(b"\n")


@pytest.mark.parametrize(("are_agents", "expected"), [(True, True), (False, False)])
def test_pauses_while_torchrun_was_imported_do_not_delay_the_look(are_agents: bool, expected: bool) -> None:
    """On a busy machine the import is still for long, and a rank must be still for longer than ever before."""
    watched = WatchedJob({}, 0.0, still_since=100.0, longest_stillness=60.0, are_agents=are_agents)
    assert HangDetector(cast(Diagnostics, None))._is_suspicious(watched, 103.0) is expected


class Blind:
    """Diagnostics that find one rank without a stack, and keep the reasons of the events."""

    def __init__(self, reason: str) -> None:
        self.reason, self.events = reason, list[str]()

    async def judge_job(self, job: str) -> tuple[Verdict, list[RankObservation]]:
        look = RankObservation("rank 0", "j-0", "n", blind=self.reason)
        return Verdict("blind", "The ranks' stacks cannot be read."), [look]

    def record_event(self, job: Object, kind: str, reason: str, message: str) -> None:
        self.events.append(reason)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(NO_CALL, []), (f"py-spy: 1: {NO_FILE} (os error 2)", []), ("py-spy is not installed", ["JobStill"])],
)
def test_a_process_that_starts_or_ends_is_not_called_still(reason: str, expected: list[str]) -> None:
    """Starting and ending take long on a busy machine, and py-spy then finds no calls, or not the process's files."""
    watched = WatchedJob({}, 0.0, still_since=time.monotonic() - 60, last_output=1.0)
    diagnostics = Blind(reason)
    for _ in range(2):
        asyncio.run(HangDetector(cast(Diagnostics, diagnostics))._examine_stacks("uid", watched))
    assert diagnostics.events == expected
