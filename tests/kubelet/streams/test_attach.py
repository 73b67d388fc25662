"""The way to a program's stdin: a program that reads nothing, or a pod that listens there itself, holds nobody up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rowlock.kubelet.shim.stdio import Stdio
from rowlock.kubelet.streams.attach import AttachSession


async def no_output() -> AsyncIterator[bytes]:
    yield b""


def attach(path: Path) -> AttachSession:
    session = AttachSession(no_output(), 0, tty=False)
    session.open_input(path)
    return session


@pytest.fixture
def program_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The stdin of a program that reads nothing yet; clients connect at `in.0`."""
    fork, pids = os.fork, list[int]()

    def counted_fork() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(os, "fork", counted_fork)
    console = Stdio({"stdin": True})
    console.listen(str(tmp_path / "in.0"))
    yield console._child_fds[0]
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
    console.close_child_fds()
    os.close(console.output_fd)


def test_clients_are_let_in_while_the_program_reads_nothing(tmp_path: Path, program_stdin: int) -> None:

    async def body() -> bytes:
        first = attach(tmp_path / "in.0")
        writing = asyncio.create_task(first.write(b"a" * 500_000))
        others: list[AttachSession] = []
        async with asyncio.timeout(200):
            while len(others) < 30:  # far more than wait in the backlog
                try:
                    others.append(attach(tmp_path / "in.0"))
                except BlockingIOError:  # the forwarder is about to accept
                    await asyncio.sleep(0.001)
        for other in others:
            await other.write(b"b")
        received = b""
        while len(received) < 500_030:
            received += await asyncio.to_thread(os.read, program_stdin, 1 << 16)
        await writing
        for session in (first, *others):
            await session.close()
        return received

    received = asyncio.run(asyncio.wait_for(body(), 200))
    assert received.count(b"a") == 500_000 and received.count(b"b") == 30


def test_a_pod_that_listens_there_and_accepts_nobody_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "in.0"))
        listener.listen(0)

        async def body() -> None:
            sessions: list[AttachSession] = []
            with pytest.raises(BlockingIOError):
                while len(sessions) < 10:
                    sessions.append(attach(tmp_path / "in.0"))
            for session in sessions:
                await session.close()

        asyncio.run(body())
