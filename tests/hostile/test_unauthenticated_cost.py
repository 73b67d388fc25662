"""What bytes of a client without a token cost the server: memory at most ten times their size, and a millisecond of the event loop
a KiB; beside what each connection costs, of which there is a limit (docs/limits.md, *What a byte costs*).

A server process of its own is measured: the peak of its resident memory, and the CPU time of the event loop's thread until it has
answered somebody else. Neither depends on what else the machine does. The first round of a case is not measured: what
is imported or made once is no cost of a byte.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.end_to_end.cluster import Cluster, lent

from rowlock.accounts import passwords

KIB, MIB = 1 << 10, 1 << 20
MEMORY_PER_BYTE = 10
SECONDS_PER_KIB = 0.001
MEMORY_PER_CONNECTION = 128 * KIB
"""Bytes: OpenSSL's state above all. As many connections as there may be of one client (docs/limits.md) have a GiB at most."""
SECONDS_PER_CONNECTION = 0.004
"""Of CPU time: a TLS handshake is a signature and a key exchange, whatever the client sends."""
SLACK = 4 * MIB
"""Bytes that an allocator takes at once, or has not given back yet."""


@dataclass
class Attacker:
    """Connections without a token to one server, held until the end."""

    address: tuple[str, int]
    door: tuple[str, int]
    """The web UI's, which is plain HTTP."""
    tls: ssl.SSLContext
    held: contextlib.ExitStack
    sent: int = 0
    connections: int = 0

    def plain(self, payload: bytes) -> socket.socket:
        connection = self.held.enter_context(socket.create_connection(self.address, timeout=200))
        self.connections += 1
        self._send(connection, payload)
        return connection

    def browse(self, payload: bytes) -> socket.socket:
        """A request to the web UI, by the name that it answers to."""
        connection = self.held.enter_context(socket.create_connection(self.door, timeout=200))
        self.connections += 1
        self._send(connection, payload.replace(b"Host: x", b"Host: localhost"))
        return connection

    def encrypted(self, payload: bytes) -> ssl.SSLSocket:
        bare = socket.create_connection(self.address, timeout=200)
        connection = self.held.enter_context(self.tls.wrap_socket(bare, server_hostname=self.address[0]))
        self.connections += 1
        self._send(connection, payload)
        return connection

    def _send(self, connection: socket.socket, payload: bytes) -> None:
        """What the server does not take within a second counts as not sent."""
        connection.settimeout(1.0)
        with contextlib.suppress(OSError):
            for start in range(0, len(payload), 16 * KIB):
                piece = payload[start : start + 16 * KIB]
                connection.sendall(piece)
                self.sent += len(piece)


def request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", "")).encode()


CHUNKED = "Transfer-Encoding: chunked"
TOKEN = request("POST /api/v1/token", CHUNKED, "Content-Type: application/json")
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: " + "a" * 22 + "==",
)
EXEC = "GET /api/v1/namespaces/default/pods/p/exec?command=sh"


PIPELINED = 15  # requests on a connection, few enough that all of them are answered
LOGIN_JSON = b'{"grantType": "client_credentials", "clientId": "somebody", "clientSecret": "guess"}'
PASSWORD_JSON = b'{"grantType": "password", "username": "somebody", "password": "guess"}'
LOGIN_FORM = b"grant_type=client_credentials&client_id=somebody&client_secret=guess"


def forged_token(issuer: str) -> str:
    """A JWT as the server makes them, signed by somebody else: to find that out costs two point multiplications."""
    key = ec.generate_private_key(ec.SECP256R1())
    claims = {"iss": issuer, "sub": "app:somebody", "aud": [issuer], "exp": 4_000_000_000, "iat": 0, "nbf": 0}
    return jwt.encode(claims, key, "ES256")


FORGED = forged_token("rowlock")
FORGED_ACCOUNT = forged_token("https://kubernetes.default.svc")


def login(path: str, media: str, body: bytes) -> bytes:
    return request(f"POST {path}", f"Content-Type: application/{media}", f"Content-Length: {len(body)}") + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def repeat(count: int, one: Callable[[Attacker], object]) -> Callable[[Attacker], None]:
    def attack(attacker: Attacker) -> None:
        for _ in range(count):
            one(attacker)

    return attack


CASES: dict[str, Callable[[Attacker], object]] = {
    "no handshake": repeat(60, lambda a: a.plain(os.urandom(16 * KIB))),
    "half a handshake": repeat(60, lambda a: a.plain(b"\x16\x03\x01\x40\x00\x01" + b"\x00" * 8 * KIB)),
    "a handshake": repeat(60, lambda a: a.encrypted(b"")),
    "half a head": repeat(30, lambda a: a.encrypted(b"GET / HTTP/1.1\r\nx: " + b"y" * 60 * KIB)),
    "many headers": repeat(30, lambda a: a.encrypted(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 190)),
    "many parameters": repeat(30, lambda a: a.encrypted(request("GET /api?" + "a&" * 28 * KIB))),
    "pipelined": repeat(8, lambda a: a.encrypted(request("GET /api/v1/pods") * 3000)),
    "answered": repeat(30, lambda a: a.encrypted(request("GET /api/v1/pods") * PIPELINED)),
    "pipelined, many headers": repeat(8, lambda a: a.encrypted((b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 190 + b"\r\n") * 100)),
    "a declared body": repeat(4, lambda a: a.encrypted(request("POST /api", f"Content-Length: {4 * MIB}") + bytes(3 * MIB))),
    "a chunked body": repeat(4, lambda a: a.encrypted(request("POST /api", CHUNKED) + chunk(bytes(64 * KIB)) * 48)),
    "tiny chunks": repeat(4, lambda a: a.encrypted(request("POST /api", CHUNKED) + chunk(b"x") * 50_000)),
    "trailers": repeat(8, lambda a: a.encrypted(request("POST /api", CHUNKED) + b"0\r\n" + b"a: b\r\n" * 10_000)),
    "half a body for a token": repeat(4, lambda a: a.encrypted(TOKEN + chunk(bytes(64 * KIB)) * 48)),
    "a body for a token": lambda a: a.encrypted(TOKEN + chunk(b"[" + b"{}," * 900_000 + b"{}]") + b"0\r\n\r\n"),
    "a small body for a token": repeat(
        30, lambda a: a.encrypted(TOKEN + chunk(b"[" + b"{}," * 5_000 + b"{}]") + b"0\r\n\r\n")
    ),
    "logins": repeat(30, lambda a: a.encrypted(login("/api/v1/token", "json", LOGIN_JSON) * PIPELINED)),
    "logins by form": repeat(30, lambda a: a.encrypted(login("/api/v2/token", "x-www-form-urlencoded", LOGIN_FORM) * PIPELINED)),
    "forged tokens": repeat(30, lambda a: a.encrypted(request("GET /api/v1/pods", f"Authorization: Bearer {FORGED}") * PIPELINED)),
    "forged tokens of accounts": repeat(30, lambda a: a.encrypted(request("GET /api/v1/pods", f"Authorization: Bearer {FORGED_ACCOUNT}") * PIPELINED)),
    "forged tokens for REST": repeat(30, lambda a: a.encrypted(request("GET /api/v1/clusters", f"Authorization: Bearer {FORGED}") * PIPELINED)),
    "logins with broken text": repeat(30, lambda a: a.encrypted(login("/api/v1/token", "json", b'{"grantType": "password", "username": "\xed"}') * PIPELINED)),
    "odd paths": repeat(30, lambda a: a.encrypted(request("GET /api/v1/workloads/" + "%ED%A0%80/" * 100) * PIPELINED)),
    "codes for the web UI": repeat(30, lambda a: a.browse(login("/api/v1/ui/session", "json", b'{"code": "guess"}') * PIPELINED)),
    "cookies for the web UI": repeat(30, lambda a: a.browse(request("GET /api/v1/workloads", "Cookie: " + "a=b;" * 2000))),
    "files of the web UI": repeat(30, lambda a: a.browse(request("GET /") * PIPELINED)),
    "half a head for the web UI": repeat(30, lambda a: a.browse(b"GET / HTTP/1.1\r\nx: " + b"y" * 60 * KIB)),
    "a websocket": repeat(30, lambda a: a.encrypted(request(EXEC, *UPGRADE) + b"\x82\x7e\x40\x00" + bytes(16 * KIB))),
    "a websocket, many headers": repeat(30, lambda a: a.encrypted(request(EXEC, *UPGRADE, *["a:"] * 150))),
    "passwords": repeat(30, lambda a: a.encrypted(login("/api/v1/token", "json", PASSWORD_JSON) * PIPELINED)),  # the last: hashes go on for a while
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("cost")) as made:
        made.up("--without", "kubelet,scheduler")
        yield made


def forget_peak(server: psutil.Process) -> None:
    """The kernel begins anew with the peak of the resident memory."""
    (Path("/proc") / str(server.pid) / "clear_refs").write_text("5")


def peak_bytes(server: psutil.Process) -> int:
    status = (Path("/proc") / str(server.pid) / "status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) * KIB


def loop_seconds(server: psutil.Process) -> float:
    """CPU time of the thread that the event loop runs in: who waits for it is everybody. Passwords are hashed in two others, and
    their number is limited (docs/limits.md). Unlike the time on a clock it is the server's own, whatever else this machine does."""
    first = next(thread for thread in server.threads() if thread.id == server.pid)
    return float(first.user_time + first.system_time)


FLOOR, TIMES_THE_FLOOR = "answered", 10.0
"""The case that others are weighed against where the machine is slow: requests that are answered with 401."""
_ROUNDS = 3
"""Neighbours make the same work cost more (caches, turbo): the cheapest of these counts."""


@contextlib.contextmanager
def attacking(cluster: Cluster) -> Iterator[Attacker]:
    server = json.loads((cluster.data / "server.json").read_text())
    host, _, port = server["url"].removeprefix("https://").rpartition(":")
    door_port = int(server["ui"].rstrip("/").rpartition(":")[2])
    tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
    with contextlib.ExitStack() as held:
        yield Attacker((host, int(port)), ("127.0.0.1", door_port), tls, held)


@dataclass(frozen=True)
class Cost:
    """What an attack cost the server: bytes it grew by, seconds of its event loop."""

    grown: int
    seconds: float
    sent: int
    connections: int

    def __str__(self) -> str:
        return f"{self.sent / KIB:.0f} KiB on {self.connections} connections"


def cost_of(case: str, cluster: Cluster, server: psutil.Process) -> Cost:
    cluster.api("GET", "/api/v1/namespaces/default")  # until what came before is done with
    forget_peak(server)
    memory, before = peak_bytes(server), loop_seconds(server)
    with attacking(cluster) as attacker:
        CASES[case](attacker)
        cluster.api("GET", "/api/v1/namespaces/default")  # others are answered meanwhile
        grown = peak_bytes(server) - memory
    seconds = loop_seconds(server) - before
    cost = Cost(grown, seconds, attacker.sent, attacker.connections)
    print(f"{case}: {cost}: {grown / KIB:.0f} KiB, {seconds * 1000:.0f} ms")
    return cost


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of another process")
@pytest.mark.parametrize("case", CASES)
def test_a_byte_without_a_token_is_cheap(cluster: Cluster, case: str) -> None:
    server = psutil.Process(cluster.pid)
    cost_of(case, cluster, server)  # to warm up
    rounds: list[float] = []
    for _ in range(_ROUNDS):
        cost = cost_of(case, cluster, server)
        rounds.append(cost.seconds)
        hashes = passwords.WORKERS * passwords.MEMORY_KIB * KIB if case == "passwords" else 0
        allowed = SLACK + hashes + MEMORY_PER_BYTE * cost.sent + MEMORY_PER_CONNECTION * cost.connections
        assert cost.grown <= allowed, f"{cost} cost {cost.grown / MIB:.1f} MiB of memory"
        limit = SECONDS_PER_KIB * cost.sent / KIB + SECONDS_PER_CONNECTION * cost.connections
        if cost.seconds <= limit:
            return
    # A machine that is slow now is slow for everything: the cheapest answer there is, as often, on as many connections.
    floor = cost_of(FLOOR, cluster, server)
    assert min(rounds) <= TIMES_THE_FLOOR * floor.seconds * cost.connections / floor.connections, (
        f"{cost} cost {min(rounds):.2f} s of CPU time or more, {_ROUNDS} times, and not {limit:.2f} s;"
        f" {floor.seconds:.2f} s are what 401 costs on {floor.connections}"
    )
