"""Logs of many ranks in one stream: their order, what is held of them at once, and what becomes of the others when one breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.api import LogOptions
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import NotFound, Unavailable
from rowlock.rest.log_streams import lines as log_lines
from rowlock.rest.log_streams import logs as log_streams
from rowlock.rest.log_streams.lines import LineTag, merge_by_time, merge_options
from rowlock.rest.log_streams.logs import _LogSource
from rowlock.rest.run_history import past_logs
from rowlock.workloads import pods as ranks


async def lines_of(texts: list[bytes]) -> AsyncIterator[bytes]:
    for text in texts:
        yield text


async def merge(logs: list[list[bytes]]) -> list[bytes]:
    streams = [(log[0], LineTag(f"rank {n}"), lines_of(log[1:])) for n, log in enumerate(logs) if log]
    return [line async for line in merge_by_time(streams, timestamps=True)]


def merge_naively(logs: list[list[bytes]]) -> list[bytes]:
    """The next line is each time the earliest of the first ones; of several, that of the first log."""
    left, merged = [(n, list(log)) for n, log in enumerate(logs) if log], []
    while left:
        number, log = min(left, key=lambda item: item[1][0].split(b" ")[0])
        merged.append(b"[rank %d] " % number + log.pop(0))
        left = [item for item in left if item[1]]
    return merged


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_one_time_come_in_the_order_of_their_logs(seed: int) -> None:
    """Few times for many lines; some logs are empty, and in some a line is older than the one before it."""
    rng = random.Random(seed)
    logs = [
        [b"2026-01-01T00:00:%02d.0Z line %d\n" % (rng.randrange(4), i) for i in range(rng.randrange(6))]
        for _ in range(9)
    ]
    assert asyncio.run(merge(logs)) == merge_naively(logs)


def test_a_line_costs_a_look_at_itself_and_not_at_all_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, stamp_of = 0, log_lines._stamp_of

    def counted(line: bytes) -> bytes:
        nonlocal looks
        looks += 1
        return stamp_of(line)

    monkeypatch.setattr(log_lines, "_stamp_of", counted)
    logs = [[b"2026-01-01T00:00:0%d.0Z x\n" % i for i in range(5)] for _ in range(200)]
    assert len(asyncio.run(merge(logs))) == looks == 1000


def test_other_tasks_have_their_turns_while_logs_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "TurnBudget", lambda: TurnBudget(0.0))

    async def play() -> int:
        turns, over = 0, False

        async def beat() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        await merge([[b"2026-01-01T00:00:00.0Z x\n"] * 100])
        over = True
        await beating
        return turns

    assert asyncio.run(play()) >= 99


@pytest.mark.parametrize("count", [1, 2, 32, 400, 2000, 100_000])
def test_the_more_logs_are_merged_the_less_is_read_of_each_at_once(count: int) -> None:
    options = merge_options(LogOptions(tail=7), count)
    assert options.timestamps and options.tail == 7
    assert 4096 <= options.read_size <= LogOptions().read_size
    assert count > 2000 or options.read_size * count <= 8 << 20


# ---------------------------------------------------------------- of a job


ReadLog = Callable[[str, LogOptions], AsyncIterator[bytes]]


def job_of(workers: int) -> dict[str, Any]:
    return {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "n", "uid": "j"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}},
    }


def running_workload(workers: int) -> Any:
    status = {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    pods = [{**stub, "status": status} for stub in ranks.gone_pods(job_of(workers), [])]
    for number, pod in enumerate(pods):
        pod["metadata"]["uid"] = f"u{number}"
    return SimpleNamespace(job=job_of(workers), pods=pods)


def source_of(workload: Any, read_log: ReadLog, phase: Callable[[], str] = lambda: "Running") -> _LogSource:
    api: Any = SimpleNamespace(log=lambda namespace, pod, options: read_log(pod, options))

    async def wait_until(uid: str, condition: Callable[[], bool], timeout: float | None) -> None:
        while not condition():
            await asyncio.sleep(0)

    cache: Any = SimpleNamespace(
        workload=lambda uid: workload, status=lambda uid: SimpleNamespace(phase=phase()), wait_until=wait_until
    )
    return _LogSource(api, cache, "j", lambda: 0.0)


async def read_ranks(workers: int, read_log: ReadLog) -> list[bytes]:
    workload = running_workload(workers)
    return [line async for line in source_of(workload, read_log).read_all(workload, LogOptions())]


async def read_lives(workers: int, read_log: ReadLog) -> list[bytes]:
    job, api = job_of(workers), source_of(None, read_log).api
    lives = {
        f"j-worker-{number}": past_logs.Life(f"j-worker-{number}", f"u{number}", "c", 0, 0.0)
        for number in range(workers)
    }
    reader = past_logs._LifeReader(api, None, "n")
    return [line async for line in past_logs._merge(reader, job, lives, LogOptions())]


@pytest.mark.parametrize("read_job", [read_ranks, read_lives])
def test_the_logs_of_a_large_job_are_merged_in_little_memory(
    read_job: Callable[[int, ReadLog], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the names of its ranks are not worked out for each rank anew."""
    asked, worked_out, gone_pods = 0, 0, ranks.gone_pods

    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        nonlocal asked
        asked += options.read_size
        yield b"2026-01-01T00:00:00.0Z of %s\n" % pod.encode()

    def counted(job: Any, pods: Any) -> Any:
        nonlocal worked_out
        worked_out += 1
        return gone_pods(job, pods)

    monkeypatch.setattr(ranks, "gone_pods", counted)
    assert len(asyncio.run(read_job(400, read_log))) == 400
    assert asked <= 8 << 20
    assert worked_out <= 2


@pytest.mark.parametrize("read_job", [read_ranks, read_lives])
@pytest.mark.parametrize("read_before", [0, 2])
def test_where_one_log_breaks_a_line_says_so_and_the_others_are_whole(
    read_job: Callable[[int, ReadLog], Any], read_before: int
) -> None:
    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        for second in range(4):
            if pod == "j-worker-1" and second == read_before:
                raise OSError(5, "Input/output error")
            yield b"2026-01-01T00:00:0%d.0Z line %d\n" % (second, second)

    lines = asyncio.run(read_job(3, read_log))
    assert lines.count(b"rowlock: the log of rank 1 ends here: [Errno 5] Input/output error\n") == 1
    for rank, count in ((0, 4), (1, read_before), (2, 4)):
        assert [line for line in lines if line.startswith(b"[rank %d] " % rank)] == [
            b"[rank %d] line %d\n" % (rank, second) for second in range(count)
        ]


def test_where_no_log_can_be_read_that_is_the_answer() -> None:
    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        raise Unavailable("the cluster is away")
        yield b""

    with pytest.raises(Unavailable, match="the cluster is away"):
        asyncio.run(read_ranks(3, read_log))


# ---------------------------------------------------------------- followed


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
        (RuntimeError(), "RuntimeError"),
        (Unavailable("the cluster is away"), "the cluster is away"),
        (NotFound("the pod is gone"), ""),
    ],
)
def test_a_rank_whose_log_breaks_is_named_and_the_others_go_on(error: Exception, told: str) -> None:
    """A pod that went before it was read is no news."""
    broken = asyncio.Event()

    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        if pod == "j-worker-1":
            yield b"first\n"
            broken.set()
            raise error
        await broken.wait()
        for _ in range(10):  # longer than the other one's end
            await asyncio.sleep(0)
        yield b"later\n"

    async def play() -> list[bytes]:
        source = source_of(running_workload(3), read_log, lambda: "Failed" if broken.is_set() else "Running")
        return [line async for line in source.follow_all(LogOptions(follow=True))]

    lines = asyncio.run(asyncio.wait_for(play(), 200))
    words = [f"rowlock: the log of rank 1 ends here: {told}\n".encode()] if told else []
    assert lines[:-2] == [b"[rank 1] first\n", *words]
    assert sorted(lines[-2:]) == [b"[rank 0] later\n", b"[rank 2] later\n"]


@pytest.mark.parametrize("is_full", [False, True])
def test_who_follows_hears_of_an_error_of_the_follower_itself(monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    """Also when he has not yet taken the lines before it."""
    if is_full:
        monkeypatch.setattr(log_streams, "_QUEUE_SIZE", 1)
    written = asyncio.Event()

    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        yield b"first\n"
        written.set()
        await asyncio.Event().wait()

    def phase() -> str:
        if written.is_set():
            raise RuntimeError("a bug")
        return "Running"

    async def play() -> list[bytes]:
        source = source_of(running_workload(1), read_log, phase)
        return [line async for line in source.follow_all(LogOptions(follow=True))]

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(asyncio.wait_for(play(), 200))
    assert caught.group_contains(RuntimeError, match="a bug")


def test_a_reader_who_goes_while_the_queue_is_full_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "_QUEUE_SIZE", 1)

    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        while True:
            yield b"more\n"

    async def play() -> None:
        following = source_of(running_workload(2), read_log).follow_all(LogOptions(follow=True))
        await anext(following)
        await following.aclose()  # type: ignore[attr-defined] # it is a generator

    asyncio.run(asyncio.wait_for(play(), 200))


@pytest.mark.parametrize("breaks", [False, True])
def test_who_follows_gets_the_lines_of_removed_ranks(breaks: bool) -> None:
    async def read_log(pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        yield b"here\n"

    async def earlier() -> AsyncIterator[bytes]:
        yield b"[rank 1] gone\n"
        if breaks:
            raise OSError(5, "Input/output error")

    async def play() -> list[bytes]:
        source = source_of(running_workload(1), read_log, lambda: "Failed")
        return [line async for line in source.follow_all(LogOptions(follow=True), earlier())]

    said = [b"rowlock: the log of the removed ranks ends here: [Errno 5] Input/output error\n"] if breaks else []
    assert asyncio.run(asyncio.wait_for(play(), 200)) == [b"[rank 1] gone\n", *said, b"[rank 0] here\n"]
