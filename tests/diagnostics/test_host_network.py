"""Ranks without a network of their own: what they send and receive, and who has visited them, though the machine's counters are everybody's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.diagnostics.test_remarks import rank

from rowlock.diagnostics import process_sockets, rank_connections
from rowlock.diagnostics.process_sockets import bytes_of_sockets, shares_host_network, visited_ports
from rowlock.diagnostics.rank_activity import read_activity
from rowlock.diagnostics.rank_connections import Meeting
from rowlock.kube_evidence import rank_probe

TALKS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(server.getsockname())
far, _ = server.accept()
print(flush=True)
for line in sys.stdin:
    if line.startswith("close"):
        near.close(), far.close()
    else:
        near.sendall(bytes(int(line)))
        left = int(line)
        while left:
            left -= len(far.recv(left))
    print(flush=True)
"""


def start_talker() -> subprocess.Popen[bytes]:
    program = subprocess.Popen([sys.executable, "-c", TALKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    return program


def is_visited(program: subprocess.Popen[bytes]) -> bool:
    (visited,) = visited_ports(program.pid, set(process_sockets.socket_inodes(program.pid))).values()
    return visited


@contextmanager
def talker() -> Iterator[subprocess.Popen[bytes]]:
    """A program that listens on a port which no other program of this machine has used in the last minute."""
    while is_visited(program := start_talker()):
        program.communicate(timeout=200)
    with program:
        yield program
        program.communicate(timeout=200)


def tell(program: subprocess.Popen[bytes], words: str) -> None:
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(f"{words}\n".encode())
    program.stdin.flush()
    program.stdout.readline()


def test_bytes_on_the_connections_of_a_rank_are_its_own() -> None:
    """Which no read call shows, for most programs use recv."""
    with talker() as program, talker() as other:
        assert shares_host_network(program.pid)
        before, activity = bytes_of_sockets(program.pid), read_activity(program.pid)
        tell(other, "70000")
        assert bytes_of_sockets(program.pid) == before
        tell(program, "50000")
        assert bytes_of_sockets(program.pid) == before + 100_000, "both ends are its own"
        assert rank_probe.socket_bytes([program.pid]) == bytes_of_sockets(program.pid), "in a container's own view"
        assert read_activity(program.pid).transferred - activity.transferred >= 100_000
    assert bytes_of_sockets(program.pid) == 0, "it has ended"


def test_where_the_kernel_does_not_answer_bytes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no netlink here")

    with talker() as program:
        tell(program, "5000")
        monkeypatch.setattr(process_sockets, "_bytes_of_connections", refuse)
        assert bytes_of_sockets(program.pid) == 0


def test_a_connection_that_is_over_is_seen_for_a_while() -> None:
    with talker() as program:
        assert not is_visited(program)
        tell(program, "close")
        assert is_visited(program)
        assert visited_ports(program.pid, set()) == {}


def test_ranks_that_meet_for_moments_in_the_machines_network_are_not_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_connections, "_train_apart", lambda ranks: True)
    monkeypatch.setattr(rank_connections, "MIN_SECONDS", 0.0)
    with talker() as program, talker() as other:
        ranks: list[Any] = [
            SimpleNamespace(**vars(rank(one.pid, name)), name=name) for one, name in ((program, "a"), (other, "b"))
        ]
        meeting = Meeting()
        for _ in range(5):
            meeting.look(ranks)
        assert meeting.remark is not None
        meeting.settle(at_end=False)
        assert meeting.remark is not None
        meeting.settle(at_end=True)
        assert meeting.remark is None, "somebody may have come since the last look: nothing counts that"
        meeting = Meeting()
        meeting.look(ranks)
        tell(program, "close")
        meeting.look(ranks)
        assert meeting.has_met
