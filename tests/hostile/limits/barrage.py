"""Shots at a live server, one after the other; what each cost its event loop, its memory, and another tenant."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.end_to_end.cluster import REPO
from tests.hostile.limits.shots import SPACE, Shot

PATIENCE = 180.0  # seconds for the server to start, and for one answer
QUIET = 0.3  # seconds without a long turn after which a shot is over
FORGETS = 30.0  # seconds after which the server has given back what it does not use
SETTLED = 0.25  # seconds that what follows a shot may take to begin
NEIGHBOUR = "neighbour"


@dataclass
class Impact:
    """What one shot cost."""

    shot: Shot
    code: int
    turn: float = 0.0
    """The longest turn of the loop, in seconds of its processor."""
    where: str = ""
    failure: str = ""
    """A bug that it met; "" = none."""
    growth: int = 0
    """Resident bytes that the server has more than before."""
    resident: int = 0
    """Resident bytes after it."""

    def add(self, turn: dict[str, Any]) -> None:
        """Take a turn of the loop, as a line of the notes has it, into account."""
        if turn["cpu"] > self.turn:
            self.turn, self.where = turn["cpu"], turn["where"]

    def __str__(self) -> str:
        return f"{self.turn * 1000:6.0f} ms {self.growth >> 20:5d} MiB {self.code} {self.shot.what}\n        {self.failure or self.where}"


@dataclass
class Neighbour(threading.Thread):
    """Another tenant: asks for its objects again and again."""

    ask: Any
    answers: list[tuple[float, float]] = field(default_factory=list)
    """When (monotonic seconds), and how long it took."""

    def __post_init__(self) -> None:
        super().__init__(name="neighbour", daemon=True)
        self._ended = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        while not self._ended.wait(0.05):
            began = time.monotonic()
            code, _ = self.ask("GET", f"/api/v1/namespaces/{NEIGHBOUR}/configmaps?limit=5")
            if code == 200:
                self.answers.append((began, time.monotonic() - began))

    def stop(self) -> None:
        self._ended.set()
        self.join()


class Barrage:
    """A server under fire; `impacts` is what was measured."""

    def __init__(self, directory: Path) -> None:
        self.data, self.notes = directory / "data", directory / "turns.jsonl"
        self.impacts: list[Impact] = []
        self.codes: Counter[int] = Counter()
        self._log = directory / "server.log"
        self._seen, self._id = 0, ""
        self.process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def server(self) -> Iterator[None]:
        argv = [sys.executable, "-m", "tests.hostile.limits.measured_server", str(self.notes), "--data-dir", str(self.data), "--simulated-gpus", "4"]  # fmt: skip
        self.notes.touch()
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                argv, cwd=REPO, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            self._wait_until_ready()
            yield
        finally:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
            self.process.kill()
            self.process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.ask("GET", "/readyz")[0] != 200:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"the server does not start: {self.last_words()}")
            time.sleep(0.05)
        for space in (SPACE, NEIGHBOUR):
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def ask(
        self, verb: str, path: str, body: Any = None, media: str = "application/json", user: str = ""
    ) -> tuple[int, bytes]:
        """The code and the body of the answer; 0 when there is none."""
        try:
            facts = json.loads((self.data / "server.json").read_text())
            token = (self.data / "token").read_text().strip()
            tls = ssl.create_default_context(cafile=str(self.data / "ca.crt"))
            connection = http.client.HTTPSConnection(
                facts["url"].removeprefix("https://"), timeout=PATIENCE, context=tls
            )
        except (OSError, ValueError):
            return 0, b""
        payload = None if body is None else json.dumps(body).encode()
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": media}
            connection.request(verb, path, payload, headers | ({"Impersonate-User": user} if user else {}))
            with connection.getresponse() as answer:  # it keeps the socket where the server closes the connection
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def fire(self, shot: Shot) -> Impact:
        before = self.resident()
        self.take_late_turns()
        code, said = self.ask(
            shot.verb, shot.path.replace("{id}", self._id or "none"), shot.body, shot.media, shot.user
        )
        if shot.names_id:
            self._id = _id_of(said)
        self.codes[code] += 1
        impact = Impact(shot, code)
        if code == 500 and b"failed unexpectedly" in said:  # others are a real server's own
            impact.failure = said.decode(errors="replace")[:300]
        elif not code:
            impact.failure = "no answer"
        time.sleep(SETTLED)
        quiet = time.monotonic()
        while time.monotonic() - quiet < QUIET:
            for turn in self._new_turns():
                quiet = time.monotonic()
                impact.add(turn)
            time.sleep(0.02)
            if self.process.poll() is not None:
                raise AssertionError(f"{shot.what}: the server ended\n{self.last_words()}")
        impact.resident = self.resident()
        impact.growth = impact.resident - before
        self.impacts.append(impact)
        return impact

    def take_late_turns(self) -> None:
        """What follows a shot only after a while is its impact, too; the last shot's is."""
        for turn in self._new_turns():
            if self.impacts:
                self.impacts[-1].add(turn)

    def clear(self) -> None:
        """Nothing of the shots is left in the namespace."""
        from tests.hostile.limits.shots import SMALL, collection

        for kind in reversed(SMALL):  # what makes others first
            if kind.namespaced:
                code, said = self.ask("GET", collection(kind))
                for item in json.loads(said)["items"] if code == 200 else ():
                    at = f"{collection(kind)}/{item['metadata']['name']}"
                    if item["metadata"].get("finalizers"):
                        self.ask("PATCH", at, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
                    self.ask("DELETE", at, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def threads(self) -> int:
        return int(psutil.Process(self.process.pid).num_threads())

    def settle(self) -> int:
        """Resident bytes, once all is cleared and the server has had time to give memory back: the least of half a minute."""
        self.clear()
        least, end = self.resident(), time.monotonic() + FORGETS
        while time.monotonic() < end:
            time.sleep(1)
            least = min(least, self.resident())
        return least

    def resident(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def _new_turns(self) -> list[dict[str, Any]]:
        with open(self.notes, encoding="utf-8") as file:
            file.seek(self._seen)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._seen += len(whole.encode())
        return [json.loads(line) for line in whole.splitlines()]


def _id_of(answer: bytes) -> str:
    """The id in an answer of the REST API; "" if it has none."""
    try:
        said = json.loads(answer)
    except ValueError:
        return ""
    return str(said.get("id") or "") if isinstance(said, dict) else ""
