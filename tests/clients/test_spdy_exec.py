"""exec over SPDY/3.1, as clients before websockets have it: who closes what, and how a program's end is told.

The client is written here by hand: real ones do not leave in the middle of a word.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.apiserver.streams import test_spdy as spdy_client
from tests.clients.test_streaming import Place, connected
from tests.conformance.subjects import embedded_server
from tests.processes import running
from tests.waiting import PATIENCE, until

from rowlock.apiserver.streams import spdy

ERROR, STDIN, STDOUT, STDERR, RESIZE = 1, 3, 5, 7, 9
"""The numbers of our streams."""
NAMES = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "stderr": STDERR}
TERMINAL = {"error": ERROR, "stdin": STDIN, "stdout": STDOUT, "resize": RESIZE}
GOAWAY = 7
"""The type of the frame that says goodbye."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")
    where = tmp_path_factory.mktemp("spdy")
    with embedded_server(where, "rowlock.serve", "--network", "rewrite"), connected(where) as made:
        made.start("shell", "sleep", "100000")
        try:
            yield made
        finally:
            made.core.delete_collection_namespaced_pod(made.namespace, grace_period_seconds=0)
            until(lambda: not made.core.list_namespaced_pod(made.namespace).items, "all pods to be gone")


class Exec:
    """A client of one program; what it has been told so far, by stream."""

    def __init__(self, connection: ssl.SSLSocket, streams: dict[str, int]) -> None:
        self.connection, self.frames = connection, spdy_client.Client()
        self.said = dict.fromkeys(streams.values(), b"")
        self.ended: set[int] = set()
        self.control: list[bytes] = []
        self._buffer = b""
        for name, number in streams.items():
            connection.sendall(self.frames.open(number, streamtype=name))

    def type(self, words: bytes, *, last: bool = False) -> None:
        self.connection.sendall(spdy.encode_data(STDIN, words, last=last))

    def listen(self) -> bool:
        """Takes what comes; False when the server has closed the connection."""
        try:
            piece = self.connection.recv(65536)
        except (ConnectionError, ssl.SSLEOFError):
            return False
        self._buffer += piece
        while len(self._buffer) >= 8 and len(self._buffer) >= (size := 8 + int.from_bytes(self._buffer[5:8], "big")):
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            if frame[0] >> 7:
                self.control.append(frame)
                continue
            number = int.from_bytes(frame[:4], "big")
            self.said[number] += frame[8:]
            self.ended |= {number} if frame[4] & 1 else set()
        return bool(piece)

    def hear(self, words: bytes, stream: int = STDOUT) -> None:
        while words not in self.said[stream]:
            assert self.listen(), f"closed before {words!r} was said: {self.said}"

    def hear_end(self) -> None:
        """Until the server has ended each of its streams."""
        while not {ERROR, STDOUT} <= self.ended:
            assert self.listen(), f"closed without a word: {self.said}"

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.said[ERROR]))


@contextmanager
def entered(place: Place, script: str, *, tty: bool = False, pod: str = "shell", path: str = "exec") -> Iterator[Exec]:
    """A client of a shell script in a pod."""
    streams = TERMINAL if tty else NAMES
    flags = [("command", word) for word in ("sh", "-c", script)] if path == "exec" else []
    flags += [("tty" if name == "resize" else name, "1") for name in streams if name != "error"]
    where = f"/api/v1/namespaces/{place.namespace}/pods/{pod}/{path}?{urlencode(flags)}"
    with upgraded(place, where) as connection:
        yield Exec(connection, streams)


@contextmanager
def upgraded(place: Place, path: str) -> Iterator[ssl.SSLSocket]:
    """A connection after its upgrade to SPDY/3.1."""
    host, _, port = place.url.removeprefix("https://").partition(":")
    tls = ssl.create_default_context(cafile=str(place.data / "ca.crt"))
    head = [
        f"POST {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {(place.data / 'token').read_text().strip()}",
        "Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "X-Stream-Protocol-Version: v3.channel.k8s.io", "Content-Length: 0", "", "",
    ]  # fmt: skip
    with (
        socket.create_connection((host, int(port)), PATIENCE) as plain,
        tls.wrap_socket(plain, server_hostname=host) as made,
    ):
        made.sendall("\r\n".join(head).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += made.recv(1)
        assert answer.startswith(b"HTTP/1.1 101 ") and b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in answer
        yield made


def test_bytes_and_pings_go_both_ways(place: Place) -> None:
    with entered(place, "read a; echo $a; echo oops >&2; exit 4") as client:
        client.connection.sendall(ping := spdy.encode_ping(9))
        client.type(b"hello\n")
        client.type(b"", last=True)
        client.hear_end()
        assert (client.said[STDOUT], client.said[STDERR]) == (b"hello\n", b"oops\n")
        assert ping in client.control and STDERR in client.ended


@pytest.mark.parametrize(
    ("script", "causes"),
    [
        ("exit 0", None),
        ("exit 4", [{"reason": "ExitCode", "message": "4"}]),
        ("exit 255", [{"reason": "ExitCode", "message": "255"}]),
        ("kill -TERM $$", [{"reason": "ExitCode", "message": "143"}]),
        ("kill -KILL $$", [{"reason": "ExitCode", "message": "137"}]),
    ],
)
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
def test_how_a_program_ended_is_told(place: Place, script: str, causes: Any, tty: bool) -> None:
    with entered(place, script, tty=tty) as client:
        client.hear_end()
        assert client.status["status"] == ("Failure" if causes else "Success")
        assert client.status.get("details", {}).get("causes") == causes
        assert causes is None or client.status["reason"] == "NonZeroExitCode"


def test_a_program_that_is_not_there(place: Place) -> None:
    flags = urlencode([("command", "/no/such/program"), ("stdout", "1"), ("stderr", "1")])
    where = f"/api/v1/namespaces/{place.namespace}/pods/shell/exec?{flags}"
    with upgraded(place, where) as connection:
        client = Exec(connection, {name: NAMES[name] for name in ("error", "stdout", "stderr")})
        client.hear_end()
        assert client.status["reason"] == "InternalError" and "no such file or directory" in client.status["message"]


def test_the_input_ends_when_its_stream_does_and_the_program_goes_on(place: Place) -> None:
    with entered(place, "cat; echo over; sleep 0.2; echo later; exit 3") as client:
        client.type(b"some")
        client.type(b"thing\n", last=True)
        client.hear_end()
        assert client.said[STDOUT] == b"something\nover\nlater\n"
        assert client.status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize("how", ["close", "abort", "garbage", "goaway"])
def test_a_client_that_leaves_takes_its_program_along(place: Place, how: str) -> None:
    mark = f"100000.{os.getpid()}"
    with entered(place, f"echo begun; exec sleep {mark}") as client:
        client.hear(b"begun\n")
        until(lambda: running("sleep", mark), "the program to run")
        if how == "abort":  # a reset instead of an end
            client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "garbage":
            client.connection.sendall(b"\xff" * 64)
        elif how == "goaway":
            client.connection.sendall(spdy_client.control(GOAWAY, struct.pack(">II", STDERR, 0)))
            client.connection.close()
        else:
            client.connection.close()
        until(lambda: not running("sleep", mark), "the program to end")
    with entered(place, "echo still here") as client:
        client.hear(b"still here\n")


def test_a_pod_that_goes_ends_its_programs_and_says_so(place: Place) -> None:
    place.start("leaving", "sleep", "100000")
    with entered(place, "echo in; exec sleep 100000", pod="leaving") as client:
        client.hear(b"in\n")
        place.delete("leaving")
        client.hear_end()
        assert client.status["details"]["causes"] == [{"reason": "ExitCode", "message": "137"}]


def test_a_client_that_never_closes_is_closed(place: Place) -> None:
    """The last word has been said: what a client keeps open then is given back."""
    with entered(place, "echo done") as client:
        client.hear_end()
        while client.listen():
            pass


def test_attach_ends_with_the_program(place: Place) -> None:
    place.start("teller", "sh", "-c", "read a; echo got $a", stdin=True, stdinOnce=True)
    with entered(place, "", pod="teller", path="attach") as client:
        client.type(b"it\n", last=True)
        client.hear(b"got it\n")
        client.hear_end()
        assert client.status["status"] == "Success"
