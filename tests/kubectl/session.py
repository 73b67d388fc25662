"""Plays a walk: runs kubectl in a fresh namespace and a working folder of its own, one step after the other."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.kubectl.steps import Command, Own, Raw, Result, Step, Walk

PATIENCE = 90.0
"""Seconds for one command."""
APART = 0.3
"""Seconds between two tries of a step that waits (`until`)."""
PAUSE = 1.5
"""Seconds that a command is left alone before each command of `during`."""
_FORWARDED = re.compile(r"Forwarding from \S*:(\d+) ->")


@dataclass
class Session:
    """kubectl with a kubeconfig that points at the walk's namespace, in the walk's folder."""

    walk: Walk
    kubectl: str
    folder: Path
    namespace: str
    words: dict[str, str] = field(default_factory=dict)
    """What `${NS}`, `${NODE}`, `${SERVER}` and the names given by `let` stand for."""

    @property
    def here(self) -> Path:
        return self.folder / "work"

    @property
    def env(self) -> dict[str, str]:
        own = {"KUBECONFIG": str(self.folder / "kubeconfig"), "KUBECACHEDIR": str(self.folder / "cache")}
        return {**os.environ, **own, "HOME": str(self.folder), "LC_ALL": "C", "TZ": "UTC"}

    def filled(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace(f"${{{word}}}", value)
        return text

    def argv(self, command: Command) -> list[str]:
        return [self.filled(word) for word in (shlex.split(command) if isinstance(command, str) else command)]

    def ask(self, command: Command) -> subprocess.CompletedProcess[str]:
        """A command beside the walk."""
        return subprocess.run(
            [self.kubectl, *self.argv(command)], env=self.env, cwd=self.here, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        )  # fmt: skip

    # ------------------------------------------------------------ the namespace

    def enter(self) -> None:
        for word, command in (
            ("NODE", "get nodes -o 'jsonpath={.items[0].metadata.name}'"),
            ("SERVER", "config view --minify -o 'jsonpath={.clusters[0].cluster.server}'"),
        ):
            self.words[word] = self.ask(command).stdout.strip()
        self.words["NODE"] = self.words["NODE"] or "no-node"
        for name, text in self.walk.files.items():
            (self.here / name).parent.mkdir(parents=True, exist_ok=True)
            (self.here / name).write_text(self.filled(text))
        self._all(self.walk.after)  # what a run that was broken off has left in the whole cluster
        made = self.ask(["create", "namespace", self.namespace])
        if made.returncode:
            raise RuntimeError(f"the walk cannot have a namespace: {made.stderr.strip()}")
        self.ask(["config", "set-context", "--current", "--namespace", self.namespace])
        self._await_account()
        self._all(self.walk.before)

    def leave(self) -> None:
        self._all(self.walk.after)
        self.ask(["delete", "namespace", self.namespace, "--wait=false"])

    def _all(self, commands: list[Command]) -> None:
        for command in commands:
            self.ask(command)

    def _await_account(self) -> None:
        """Pods are refused before their namespace has its service account; some servers have none."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            got = self.ask("get serviceaccount default")
            if got.returncode == 0 or "doesn't have a resource type" in got.stderr:
                return

    # ------------------------------------------------------------ one step

    def play(self, step: Step) -> Result:
        """The step's answer, as it is compared. A step that breaks has an answer, too."""
        try:
            for word, command in step.let.items():
                self.words[word] = self.ask(command).stdout.strip()
            own = Own(self.namespace, str(self.folder), self.words["NODE"])
            return step.normal(self._until(step), self.argv(step.run), own, self.filled)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return {"exit": f"the runner broke: {type(error).__name__}: {error}", "stdout": [], "stderr": []}

    def _until(self, step: Step) -> Raw:
        deadline = time.monotonic() + step.within
        while True:
            raw = self.once(step)
            if not step.until or re.search(step.until, raw.seen, re.MULTILINE):
                return raw
            if time.monotonic() > deadline:
                late = f"\nNOT REACHED within {step.within:g} s: {step.until}"
                return Raw(raw.exit, raw.stdout, raw.stderr + late)
            time.sleep(APART)

    def once(self, step: Step) -> Raw:
        """What is printed goes to files: nobody has to read along, whoever is killed has said what it said."""
        with _scratch(self.folder) as out, _scratch(self.folder) as err, _scratch(self.folder) as given:
            if step.stdin is not None:
                given.write(self.filled(step.stdin).encode())
                given.seek(0)
            process = subprocess.Popen(
                [self.kubectl, *self.argv(step.run)], cwd=self.here, stdout=out, stderr=err, start_new_session=True,
                env=self.env | {name: self.filled(value) for name, value in step.env.items()},
                stdin=subprocess.DEVNULL if step.stdin is None else given,
            )  # fmt: skip
            try:
                for command in step.during:
                    time.sleep(PAUSE)
                    self.ask(command)
                fetched = _fetch(step.http, lambda: _text(out)) if step.http else ""
                code = _wait(process, step)
            finally:
                _kill(process)
            stdout, stderr = _text(out) + fetched, _text(err)
        if not step.pipe:
            return Raw(code, stdout, stderr, stdout + stderr)
        shell = ["sh", "-c", step.pipe]
        piped = subprocess.run(
            shell, input=stdout, capture_output=True, text=True, cwd=self.here, env=self.env, timeout=PATIENCE
        )
        return Raw(piped.returncode, piped.stdout, stderr + piped.stderr, stdout + stderr)


def _wait(process: subprocess.Popen[bytes], step: Step) -> int | str:
    """The exit code; `stopped` for a command that is meant to be ended, `timeout` for one that hangs."""
    meant = step.stop_after is not None or bool(step.http)
    try:
        return process.wait((step.stop_after or 0) if meant else PATIENCE)
    except subprocess.TimeoutExpired:
        return "stopped" if meant else "timeout"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """What still runs, with the programs that it started (an editor, diff)."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _scratch(folder: Path) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file


def _text(file: IO[bytes]) -> str:
    """All that is in it. Read at a place of its own: the writer's place is the same file description's."""
    text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _fetch(path: str, printed: Callable[[], str]) -> str:
    """Through the port that the command forwards."""
    deadline = time.monotonic() + 60
    while not (port := _FORWARDED.search(printed())):
        if time.monotonic() > deadline:
            return "no port was forwarded\n"
        time.sleep(0.05)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=200) as answer:
            return f"HTTP {answer.status} {answer.read().decode()}\n"
    except (urllib.error.URLError, OSError) as error:
        return f"HTTP failed: {type(error).__name__}\n"


@contextmanager
def opened(walk: Walk, kubeconfig: Path, kubectl: str) -> Iterator[Session]:
    """The walk's namespace and folder; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="walk-"))
    try:
        (folder / "work").mkdir()
        shutil.copy(kubeconfig, folder / "kubeconfig")
        namespace = "walk-" + "".join(secrets.choice("bcdfghjkmnpqrstvwxz") for _ in range(6))
        session = Session(walk, shutil.which(kubectl) or kubectl, folder, namespace, {"NS": namespace})
        session.enter()
        try:
            yield session
        finally:
            session.leave()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
