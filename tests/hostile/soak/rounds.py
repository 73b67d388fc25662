"""What is done in a round, drawn at random: submit, follow, suspend, kill, fill the disk, step the clock, …"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.end_to_end.cluster import Cluster
from tests.hostile.soak.faults import InjectedFaults
from tests.hostile.soak.measures import Watcher
from tests.hostile.soak.workload import KINDS, LINES, MARK, Job, Program, job_object, jobs_path

MAX_JOBS = 24
BURNING_RANKS = 40
RAW_CONNECTIONS = 300
FEW_DESCRIPTORS = 384  # so that the silent connections are more than the server holds (docs/limits.md)
MEMORY_PER_BYTE = 10  # of what a client without a token sends
SHORT_JOBS = 6
EVENT_TTL = 120.0  # seconds: an hour of them would be all that is to be seen of the server's memory
DISK_FULL_SECONDS = 4.0
START_SECONDS = 60.0
_PROGRAMS: tuple[Program, ...] = ("lines", "lines", "fails", "runs")


class Refused(Exception):
    """The API's answer was no success: (code, text)."""


@dataclass
class Soak:
    """A cluster, its jobs, and what was found wrong."""

    cluster: Cluster
    watcher: Watcher
    faults: InjectedFaults
    dice: random.Random
    mark: str
    small_disk: bool
    """The data directory lies on a file system of its own that may be filled."""
    jobs: dict[str, Job] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    """Action → how often."""
    command_seconds: list[tuple[float, float, str]] = field(default_factory=list)
    """Begin (monotonic), seconds, which."""
    number: int = 0

    # ------------------------------------------------------------ tools

    def api(self, verb: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """One request; the answer as JSON. Raises Refused; OSError while nobody listens."""
        data = self.cluster.data
        url = json.loads((data / "server.json").read_text())["url"]
        headers = {"Authorization": f"Bearer {(data / 'token').read_text().strip()}", "Content-Type": content}
        payload = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data=payload, method=verb, headers=headers)
        tls = ssl.create_default_context(cafile=str(data / "ca.crt"))
        try:
            with urllib.request.urlopen(request, context=tls, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")[:500]) from None

    def command(self, *argv: str, code: int | None = 0, timed: bool = True) -> str:
        """Run a command of ours; it must answer in time and with this exit code."""
        began = time.monotonic()
        done = subprocess.run(argv, env=self.cluster.env, text=True, capture_output=True, timeout=180)
        took = time.monotonic() - began
        if timed:
            self.command_seconds.append((began, took, f"`{' '.join(argv[:2])}`"))
        if code is not None and done.returncode != code:
            self.complain(f"{' '.join(argv)} exited with {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout

    def complain(self, text: str) -> None:
        print(f"  WRONG: {text}", flush=True)
        self.complaints.append(text)

    def until(self, condition: Callable[[], object], what: str, seconds: float = 90.0) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                self.complain(f"not within {seconds:g} s: {what}")
                return False
            time.sleep(0.1)
        return True

    def processes(self) -> list[psutil.Process]:
        """Every process of a job of ours, by its environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def start(self, descriptors: int = 0) -> None:
        """`rowlock up -d` again, and wait until it answers; with a limit of its open files, if that is not 0."""
        # 64 CPUs, so that forty ranks fit at once
        flags = ("--cpus-per-node", "64", "--event-ttl", f"{EVENT_TTL:g}s")
        argv = ["rowlock", "up", "-d", *flags]
        if descriptors:
            argv = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *argv]
        self.command(*argv, timed=False)
        self.until(self.answers, "the server to answer after its start", START_SECONDS)

    def revive(self) -> None:
        """A server that has ended by itself is wrong; its last words are printed, and it is started again."""
        if not self.answers() and not self.answers():
            log = self.cluster.data / "server.log"
            words = log.read_text(errors="replace")[-3000:] if log.exists() else "it has no log"
            self.complain(f"the server does not answer; its last words:\n{words}")
            with self.watcher.excuse():
                self.start()

    def answers(self) -> bool:
        try:
            self.api("GET", "/api/v1/namespaces/runai-default")
        except (OSError, Refused, ValueError):
            return False
        return True

    def draw_job(self) -> Job | None:
        return self.dice.choice(list(self.jobs.values())) if self.jobs else None

    def submit_job(self, kind: str, program: Program, ranks: int = 1) -> Job | None:
        """One job; None when the server refused it with a sentence."""
        self.number += 1
        job = Job(f"soak-{self.number}", kind, program)
        try:
            self.api("POST", jobs_path(kind), job_object(job, self.mark, ranks=ranks))
        except Refused as refusal:
            if refusal.args[0] not in (507, 429, 403, 500, 503) or '"message"' not in refusal.args[1]:
                self.complain(f"{job.name} was refused without a reason: {refusal}")
            return None
        self.jobs[job.name] = job
        return job

    # ------------------------------------------------------------ actions

    def submit(self) -> None:
        """A job of a kind and a program."""
        if len(self.jobs) < MAX_JOBS:
            kind = self.dice.choice(sorted(KINDS))
            program: Program = self.dice.choice(_PROGRAMS)
            self.submit_job(kind, program, 2 if kind == "MPIJob" else self.dice.choice((1, 1, 2, 3)))

    def delete(self) -> None:
        if job := self.draw_job():
            self.command("rowlock", "delete", job.name, "--yes")
            del self.jobs[job.name]

    def suspend_and_resume(self) -> None:
        if job := self.draw_job():
            job.disturbed = True
            for suspend in (True, False):
                try:
                    patch = {"spec": {"runPolicy": {"suspend": suspend}}}
                    self.api("PATCH", job.path, patch, "application/merge-patch+json")
                except Refused as refusal:
                    self.complain(f"{job.name} cannot be suspended or resumed: {refusal}")

    def follow(self) -> None:
        """The whole log of a job, while it runs or after it."""
        if job := self.submit_job("PyTorchJob", "lines"):
            said = self.command("rowlock", "logs", "-f", job.name, timed=False)
            lines = [line.removeprefix("[rank 0] ") for line in said.splitlines()]
            if lines != [f"line {n}" for n in range(LINES)]:
                self.complain(f"the log of {job.name} has {len(lines)} lines, not {LINES}: {said[-300:]!r}")

    def read(self) -> None:
        """The commands that a user types most."""
        for argv in (["rowlock", "list"], ["rowlock", "status"], ["runai", "list", "jobs"]):
            self.command(*argv)
        if job := self.draw_job():
            self.command("rowlock", "describe", job.name)

    def kill_rank(self) -> None:
        """A program gets SIGKILL."""
        if running := self.processes():
            for job in self.jobs.values():
                job.disturbed = True  # nobody knows whose it is
            with contextlib.suppress(psutil.Error):
                self.dice.choice(running).kill()

    def stop_rank(self) -> None:
        """A program is stopped while py-spy is slow, and its job is suspended meanwhile."""
        self.faults.set(py_spy_delay=3.0)
        running = self.processes()
        if running:
            victim = self.dice.choice(running)
            with contextlib.suppress(psutil.Error):
                victim.suspend()
            self.suspend_and_resume()
            with contextlib.suppress(psutil.Error):
                victim.resume()
            for one in self.jobs.values():
                one.disturbed = True
        self.faults.set()

    def step_clock(self) -> None:
        """The clock goes an hour back or forth, and is right again after a moment."""
        self.faults.set(clock_offset=self.dice.choice((-3600.0, 3600.0)))
        self.submit()
        time.sleep(1.0)
        self.faults.set()

    def burn(self) -> None:
        """Forty ranks that want a processor each."""
        self.submit_job("PyTorchJob", "burns", BURNING_RANKS)

    def hold_connections(self) -> None:
        """Hundreds of connections that say nothing; then the server must answer others, and again afterwards."""
        with self._silent_connections():
            time.sleep(1.0)

    def use_up_descriptors(self) -> None:
        """A server that may open few files, and more silent connections than it holds: it must answer, and take a job."""
        self._restart(FEW_DESCRIPTORS)
        with self._silent_connections():
            if self.submit_job("PyTorchJob", "lines") is None:
                self.complain("no job was accepted while hundreds of silent connections were open")
            time.sleep(1.0)
        self._restart()

    @contextlib.contextmanager
    def _silent_connections(self) -> Iterator[None]:
        server = json.loads((self.cluster.data / "server.json").read_text())
        host, _, port = server["url"].removeprefix("https://").rpartition(":")
        held: list[socket.socket] = []
        try:
            for _ in range(RAW_CONNECTIONS):
                with contextlib.suppress(OSError):  # refused is an answer, too
                    held.append(socket.create_connection((host, int(port)), timeout=2))
            yield
        finally:
            for connection in held:
                connection.close()

    def send_much(self) -> None:
        """Sixteen MiB of requests whose answers nobody reads, without a token: they must not stay in memory."""
        process, sent = psutil.Process(self.cluster.pid), 0
        before = process.memory_info().rss
        server = json.loads((self.cluster.data / "server.json").read_text())
        host, _, port = server["url"].removeprefix("https://").rpartition(":")
        tls = ssl.create_default_context(cafile=str(self.cluster.data / "ca.crt"))
        request = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n" * 4096
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as raw:
            with tls.wrap_socket(raw, server_hostname=host) as connection:
                connection.settimeout(2)
                for _ in range(100):
                    connection.sendall(request)
                    sent += len(request)
        grown = process.memory_info().rss - before
        if grown > MEMORY_PER_BYTE * max(sent, 1 << 20):
            self.complain(f"{sent / 2**20:.1f} MiB of requests without a token cost {grown / 2**20:.1f} MiB of memory")

    def kill_server(self) -> None:
        """`kill -9`, and it starts again."""
        self._restart()

    def _restart(self, descriptors: int = 0) -> None:
        with self.watcher.excuse():
            for job in self.jobs.values():
                if job.program == "burns":
                    job.disturbed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.cluster.pid, signal.SIGKILL)
            self.start(descriptors)

    def kill_pod_host(self) -> None:
        """The process that starts pods dies amid short pods; the pods that run go on, new ones start, and all of them end well."""
        for number in range(SHORT_JOBS):
            self.submit_job("PyTorchJob", "short")
            if number == SHORT_JOBS // 2:
                self._kill_pod_host()

    def _kill_pod_host(self) -> None:
        for process in psutil.Process(self.cluster.pid).children():
            with contextlib.suppress(psutil.Error):
                if any("pod_host" in word for word in process.cmdline()):
                    process.kill()

    def fill_disk(self) -> None:
        """No room for some seconds. Jobs are accepted or refused with a sentence; afterwards everything works again."""
        if not self.small_disk:
            return
        for job in self.jobs.values():
            job.disturbed = True
        with full_disk(self.cluster.data):
            end = time.monotonic() + DISK_FULL_SECONDS
            while time.monotonic() < end:
                if submitted := self.submit_job("PyTorchJob", "lines"):
                    submitted.disturbed = True
                time.sleep(0.5)
        self.until(self._accepts, "a write to succeed again after the disk was full")
        self.until(self._is_ready, "the server to say that it is ready again after the disk was full")

    def _is_ready(self) -> bool:
        try:
            self.watcher.ask("GET", "/readyz")
        except ValueError:
            return False
        return True

    def _accepts(self) -> bool:
        job = self.submit_job("PyTorchJob", "lines")
        return job is not None

    def remove_directories(self) -> None:
        """Somebody removes what the kubelet keeps of the pods' logs."""
        for job in self.jobs.values():
            job.disturbed = True
        subprocess.run(["rm", "-rf", str(self.cluster.data / "logs")], check=False)


@contextlib.contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """The file system of a directory has no room within; its owner has written a big file."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    try:
        yield
    finally:
        filler.unlink()


CALM: tuple[tuple[str, int], ...] = (
    ("submit", 8),
    ("delete", 4),
    ("follow", 2),
    ("read", 3),
    ("suspend_and_resume", 2),
    ("kill_rank", 2),
    ("burn", 1),
    ("step_clock", 1),
    ("stop_rank", 1),
    ("hold_connections", 1),
    ("send_much", 1),
)
"""Action → how often it is drawn, where the server goes on."""
ROUGH: tuple[tuple[str, int], ...] = (
    *CALM,
    ("kill_server", 2),
    ("kill_pod_host", 1),
    ("use_up_descriptors", 1),
    ("fill_disk", 1),
    ("remove_directories", 1),
)


def play(soak: Soak, seconds: float, actions: tuple[tuple[str, int], ...]) -> None:
    """Each action once, however long that takes, in an order that is drawn; then actions at random, for so many seconds."""
    end = time.monotonic() + seconds
    names, weights = [name for name, _ in actions], [weight for _, weight in actions]
    pending = sorted(names, key=lambda _: soak.dice.random())
    while pending or time.monotonic() < end:
        action = pending.pop() if pending else soak.dice.choices(names, weights)[0]
        soak.watcher.doing = action
        soak.done[action] = soak.done.get(action, 0) + 1
        try:
            getattr(soak, action)()
        except (OSError, Refused, subprocess.TimeoutExpired) as error:
            soak.complain(f"{action}: {type(error).__name__}: {error}")
        soak.revive()
        time.sleep(soak.dice.uniform(0.0, 0.5))  # the machine's users think, too
