"""Since when all ranks of a job have been in a rendezvous, and which of them are connected."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest
from tests.diagnosis.test_hang import LOAD, look
from tests.diagnosis.test_meeting import INIT

from rowlock.diagnosis.observation import RankObservation
from rowlock.diagnostics import rank_rendezvous
from rowlock.diagnostics.rank_processes import RankProcess, RunningPod
from rowlock.diagnostics.rank_rendezvous import Rendezvouses, agent_traffic
from rowlock.kubelet.pod.facts import Run


def test_time_counts_from_the_first_look_at_all_ranks_together() -> None:
    now = [50.0]
    kept = Rendezvouses(lambda: now[0])

    def seen(*looks: RankObservation, at: float) -> list[float]:
        now[0] = at
        return [each.together for each in asyncio.run(kept.look("j", list(looks), []))]

    both = look(0, INIT), look(1, INIT)
    unknown = [float("inf")] * 2
    assert seen(both[0], look(1, LOAD), at=50.0) == unknown, "rank 1 has not come"
    assert seen(*both, at=60.0) == [0.0, 0.0]
    assert seen(*both, at=90.0) == [30.0, 30.0]
    assert kept.note("j", [both[0], look(1, LOAD)]) and seen(*both, at=95.0) == [35.0, 35.0], "one still waits"
    assert seen(both[0], look(1, INIT, state="T"), at=96.0) == unknown
    assert seen(*both, at=97.0) == [0.0, 0.0], "a stopped rank had left"
    kept.note("j", [look(0, LOAD), look(1, LOAD)])
    assert seen(*both, at=99.0) == [0.0, 0.0], "another rendezvous of the same processes"
    assert seen(both[0], RankObservation("rank 1", "j-1", "n1", 7, stack=INIT), at=99.5) == [0.0, 0.0], (
        "another process"
    )
    kept.forget("j")
    assert seen(*both, at=100.0) == [0.0, 0.0]


def test_ranks_that_stood_still_were_there_at_the_first_of_several_looks() -> None:
    kept = Rendezvouses(lambda: 50.0)
    still = [look(n, INIT, looks=5, watched=4.0) for n in range(2)]
    moved = [look(n, INIT, looks=5, watched=4.0, moved=True) for n in range(2)]
    assert [each.together for each in asyncio.run(kept.look("a", still, []))] == [4.0, 4.0]
    assert [each.together for each in asyncio.run(kept.look("b", moved, []))] == [0.0, 0.0]


def test_a_rank_without_a_connection_to_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_rendezvous, "connected_processes", lambda pids: {101, 102})
    found = asyncio.run(Rendezvouses(lambda: 1.0).look("j", [look(n, INIT) for n in range(3)], []))
    assert [each.is_connected for each in found] == [False, True, True]


@pytest.mark.parametrize(("pods", "traffic"), [(1, 0.0), (2, 1600.0), (6, 14_400.0), (40, 65_536.0)])
def test_traffic_of_torchruns_grows_with_their_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pods: int, traffic: float
) -> None:
    """Ranks are below a torchrun or are one; a rank without one keeps the limit of all."""
    monkeypatch.setattr(rank_rendezvous, "read_command_line", lambda pid: ["python", "/env/bin/torchrun"][: pid % 3])
    monkeypatch.setattr(rank_rendezvous, "_parent", lambda pid: 2)
    runs = [RunningPod({}, {"metadata": {"uid": f"u{n}"}}, cast("Run", None), tmp_path) for n in range(pods)]
    ranks = [RankProcess(f"rank {n}", 3 * n + 1, 1, run) for n, run in enumerate(runs)]
    assert agent_traffic(ranks) == {rank.pid: traffic for rank in ranks}
    monkeypatch.setattr(rank_rendezvous, "_parent", lambda pid: 1)
    assert agent_traffic(ranks) == {}


def test_a_process_knows_its_parent() -> None:
    assert rank_rendezvous._parent(os.getpid()) == os.getppid() and rank_rendezvous._parent(0) == 0
