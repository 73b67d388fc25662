"""What is measured all the time: does the server answer, how fast, and with how much memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.hostile.soak.bystander import longest_stretch

LONGEST_ANSWER = 2.0  # seconds
PROCESSOR_PER_ANSWER = 0.1  # seconds of processor that an answer may need, the server's other work before it included
PROCESSOR_PER_COMMAND = 0.4  # and a command of ours, with the start of its interpreter
GROWTH = 1.2  # times the memory of the plateau
_INTERVAL = 0.25


@dataclass
class Watcher(threading.Thread):
    """Asks the server for three things again and again, over a connection of its own each time."""

    data: Path
    slow: list[tuple[float, float, str]] = field(default_factory=list)
    """Answers that took longer than `LONGEST_ANSWER`: begin (monotonic), seconds, what was asked."""
    doing: str = ""
    """The action of the soak that goes on."""
    failed: list[str] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    """When (monotonic seconds), resident bytes of the server."""

    def __post_init__(self) -> None:
        super().__init__(name="watcher", daemon=True)
        self._ended, self._excused = threading.Event(), 0

    __hash__ = threading.Thread.__hash__

    @contextlib.contextmanager
    def excuse(self) -> Iterator[None]:
        """While the server is down on purpose nothing is asked of it."""
        self._excused += 1
        try:
            yield
        finally:
            self._excused -= 1

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        requests = ("GET /livez", "GET /api/v1/namespaces/runai-default/pods?limit=50", "GET /api/v1/nodes")
        while not self._ended.wait(_INTERVAL):
            for request in requests:
                before, doing = self._excused, self.doing
                if before:
                    break
                began = time.monotonic()
                try:
                    pid = self.ask(*request.split(" "))
                except (OSError, http.client.HTTPException, ValueError) as error:
                    if not self._excused:
                        self.failed.append(f"{request}: {type(error).__name__}: {error}")
                    break
                took = time.monotonic() - began
                if self._excused:
                    break
                self.answers.append(took)
                if took > LONGEST_ANSWER:
                    self.slow.append((began, took, f"{request} in {doing}, until {self.doing}"))
            else:
                with contextlib.suppress(psutil.Error):
                    self.memory.append((time.monotonic(), psutil.Process(pid).memory_info().rss))

    def ask(self, verb: str, path: str) -> int:
        """The pid of the server that has answered. Raises ValueError for any answer but 200."""
        server = json.loads((self.data / "server.json").read_text())
        address = server["url"].removeprefix("https://")
        tls = ssl.create_default_context(cafile=str(self.data / "ca.crt"))
        connection = http.client.HTTPSConnection(address, timeout=30, context=tls)
        token = (self.data / "token").read_text().strip()
        try:
            connection.request(verb, path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"{answer.status} {body[:200]!r}")
        return int(server["pid"])

    def median_memory(self, begin: float, end: float) -> float:
        """Median resident bytes between two moments (monotonic seconds); 0 when nothing was measured."""
        samples = [size for when, size in self.memory if begin <= when <= end]
        return statistics.median(samples) if samples else 0.0

    def complaints(self, stretches: list[tuple[float, float, float]]) -> list[str]:
        """Answers that came late though a bystander of the same moment had its processor, and those that failed."""
        return [*too_slow(self.slow, PROCESSOR_PER_ANSWER, stretches), *self.failed]


def too_slow(
    took: list[tuple[float, float, str]], processor: float, stretches: list[tuple[float, float, float]]
) -> list[str]:
    """Sentences for what took longer than `LONGEST_ANSWER`, and longer than `processor` seconds would have taken a bystander.

    `took` are begin, seconds and what it was.
    """
    said = []
    for begin, seconds, what in took:
        stretch = longest_stretch(stretches, begin, begin + seconds)
        if seconds > max(LONGEST_ANSWER, processor * stretch):
            said.append(f"{seconds:.1f} s for {what}, while others waited {stretch:.1f} times as long as they worked")
    return said
