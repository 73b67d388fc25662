"""A submit whose answer is lost is sent again by the command lines and by both Python clients, as the same submit: there is one job.

Between them and a real server lies a road that reads the server's answer, and hangs up or says 503 in its place.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from tests.rest.conftest import served as served
from tests.rest.served import Served

import rowlock
from rowlock import kinds, objects, submit_fields
from rowlock.workloads.objects import WORKLOAD_ID

HANG_UP = b""
AWAY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LossyRoad:
    """A TCP proxy to the server. Of the answers to submits, the first ones are replaced by what `losses` says."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.losses: list[bytes] = []
        self.keys: list[str] = []
        """The keys of the submits that came by; "" for one without."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return  # the test is over
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        """One request at a time, as these clients send them."""
        with near, socket.create_connection(("127.0.0.1", self._port)) as far:
            while request := self._read_message(near):
                far.sendall(request)
                answer = self._read_message(far)
                if re.match(rb"POST /api/v1/workloads/\w+[ ?](?!dryRun)", request):
                    key = re.search(rb"(?i)\r\nidempotency-key: ([^\r]*)", request)
                    self.keys.append(key[1].decode() if key else "")
                    if self.losses:
                        near.sendall(self.losses.pop(0))
                        return
                near.sendall(answer)

    @staticmethod
    def _read_message(end: socket.socket) -> bytes:
        """A whole request or answer with a Content-Length; b"" when the connection has ended."""
        read = b""
        while (head := read.partition(b"\r\n\r\n"))[1] == b"" or len(head[2]) < content_length(head[0]):
            part = end.recv(65536)
            if not part:
                return b""
            read += part
        return read


def content_length(head: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(found[1]) if found else 0


@pytest.fixture
def road(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyRoad]:
    """All that looks for the server takes it."""
    monkeypatch.setattr(submit_fields, "PAUSES_S", (0.0, 0.0, 0.0))
    state = json.loads((tmp_path / "server.json").read_text())
    made = LossyRoad(int(state["url"].rpartition(":")[2]))
    state["url"] = f"http://127.0.0.1:{made.listener.getsockname()[1]}"
    (tmp_path / "server.json").write_text(json.dumps(state))
    (tmp_path / "ca.crt").write_bytes(Path(certifi.where()).read_bytes())
    yield made
    made.listener.close()


def jobs(served: Served) -> list[str]:
    """Names; every one has an id that was made of a key."""
    found = list(served.store.view.all(kinds.PYTORCHJOB))
    assert all(uuid.UUID(objects.labels(job)[WORKLOAD_ID]).version == 5 for job in found)
    return [objects.name(job) for job in found]


LINES = [
    "rowlock run --detach --name one -- true",
    "runai submit one -i i",
    "runai submit-dist pytorch one --workers=1 -i i",
    "runai training pytorch submit one --workers=1 -i i",
    "runai workspace submit one -i i",
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_whose_answer_is_lost_submits_once(served: Served, road: LossyRoad, line: str) -> None:
    road.losses = [HANG_UP, AWAY, HANG_UP]
    code, _, err = served.run(line)
    assert code == 0 and "The submit is sent again in 0 s: " in err, err
    assert jobs(served) == ["one"] and len(road.keys) == 4
    assert len(set(road.keys)) == 1 and uuid.UUID(road.keys[0])
    assert served.run(line.replace("one", "two"))[0] == 0 and road.keys[-1] != road.keys[0], "it is another submit"


def test_a_made_up_name_is_made_up_once(served: Served, road: LossyRoad) -> None:
    road.losses = [HANG_UP]
    out = served.ok("runai training pytorch submit --name-prefix pre --workers=1 -i i")
    (name,) = jobs(served)
    assert name.startswith("pre-") and name in out


def test_why_it_is_sent_again_is_said_once(served: Served, road: LossyRoad) -> None:
    why = "the credentials of this server do not count any more: write new ones into the kubeconfig"
    body = json.dumps({"code": 503, "message": why})
    refused = f"HTTP/1.1 503 x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    road.losses = [refused] * 3
    code, _, err = served.run("runai submit one -i i")
    again = [line for line in err.splitlines() if line.startswith("The submit is sent again")]
    assert code == 0 and again == [f"The submit is sent again in 0 s: {why}", *["The submit is sent again in 0 s."] * 2]


def test_a_command_line_gives_up_and_says_so(served: Served, road: LossyRoad) -> None:
    road.losses = [HANG_UP] * 9
    code, _, err = served.run("runai submit one -i i")
    assert code == 1 and "does not answer (connection closed)" in err.splitlines()[-1]
    assert len(road.keys) == 4 and jobs(served) == ["one"]


def test_a_refused_submit_is_not_sent_again(served: Served, road: LossyRoad) -> None:
    served.ok("runai submit one -i i")
    code, _, err = served.run("runai submit one -i i")
    assert code == 1 and "sent again" not in err and len(road.keys) == 2


def test_a_server_that_is_not_there_is_asked_once(served: Served, road: LossyRoad) -> None:
    road.listener.close()
    code, _, err = served.run("runai submit one -i i --name-prefix x")
    assert code != 0 and "sent again" not in err


def test_a_python_program_whose_answer_is_lost_submits_once(served: Served, road: LossyRoad, tmp_path: Path) -> None:
    road.losses = [HANG_UP, AWAY, HANG_UP]
    with rowlock.Client(data_dir=tmp_path) as client:
        job = client.submit("one", "true", nnodes=2)
        assert jobs(served) == ["one"] and job.name == "one" and len(road.keys) == 4
        assert len(set(road.keys)) == 1 and uuid.UUID(road.keys[0])
        with pytest.raises(rowlock.RequestRefused, match="already"):
            client.submit("one", "true", nnodes=2)
        assert len(road.keys) == 5, "a refusal is the answer"
        client.submit("two", "true", idempotency_key="mine")
        client.submit("two", "true", idempotency_key="mine")
        assert road.keys[-2:] == ["mine", "mine"] and sorted(jobs(served)) == ["one", "two"]


def test_a_program_with_an_event_loop_submits_once(served: Served, road: LossyRoad, tmp_path: Path) -> None:
    road.losses = [AWAY, HANG_UP]

    async def submit() -> str:
        async with rowlock.AsyncClient(data_dir=tmp_path) as client:
            return (await client.submit("one", "true")).name

    assert asyncio.run(submit()) == "one" and jobs(served) == ["one"] and len(set(road.keys)) == 1
    assert len(road.keys) == 3


def test_a_python_program_is_told_in_the_end(served: Served, road: LossyRoad, tmp_path: Path) -> None:
    with rowlock.Client(data_dir=tmp_path) as client:
        road.losses = [HANG_UP] * 4
        with pytest.raises(rowlock.ServerUnreachable, match="cannot be reached"):
            client.submit("one", "true")
        road.losses = [AWAY] * 4
        with pytest.raises(rowlock.RequestRefused) as refusal:
            client.submit("one", "true")
        assert refusal.value.status == 503 and len(road.keys) == 8
