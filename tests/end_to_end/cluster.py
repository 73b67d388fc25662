"""A cluster as a user sees it: through commands, in a data directory of its own."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE, until

BIN = Path(sys.executable).parent
REPO = Path(__file__).resolve().parents[2]


@dataclass
class Cluster:
    """The embedded cluster in a data directory of its own, seen as a user sees it: through commands."""

    data: Path
    env: dict[str, str]

    def run(self, *argv: str, code: int | None = 0, timeout: float = 240, cwd: Path = REPO) -> str:
        """Run a command; its output (stdout, then stderr). `code=None` accepts any exit code."""
        try:
            done = subprocess.run(
                argv, env=self.env, text=True, capture_output=True, timeout=timeout, cwd=cwd, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as late:
            said = b"".join(part for part in (late.stdout, late.stderr) if part).decode(errors="replace")
            pytest.fail(f"{argv} had not ended after {timeout} s; its last words:\n{said[-3000:]}\n{self.last_words()}")
        if code is not None and done.returncode != code:
            pytest.fail(f"{argv} exited with {done.returncode}\n{done.stdout}{done.stderr}\n{self.last_words()}")
        return done.stdout + done.stderr

    def last_words(self) -> str:
        """What the server logged last, for a test that fails."""
        log = self.data / "server.log"
        return "--- server.log\n" + (log.read_text(errors="replace")[-3000:] if log.exists() else "")

    def json(self, *argv: str) -> Any:
        done = subprocess.run(argv, env=self.env, text=True, capture_output=True, timeout=240, cwd=REPO)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def up(self, *flags: str) -> None:
        self.run("rowlock", "up", "-d", *flags)

    def door(self, path: str) -> tuple[str, str, Path]:
        """Where this path is answered: the address, the owner's token, and the file of the authority."""
        facts = json.loads((self.data / "server.json").read_text())
        return facts["url"], (self.data / "token").read_text().strip(), self.data / "ca.crt"

    def api(self, verb: str, path: str, body: Any = None, *, token: str = "") -> Any:
        """One request to the Kubernetes API, as the owner or with a token; PATCH takes a merge patch. The answer as JSON, the test
        fails on anything but success."""
        url, owner, authority = self.door(path)
        form = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        request = urllib.request.Request(
            url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=verb,
            headers={"Authorization": f"Bearer {token or owner}", "Content-Type": form},
        )
        tls = ssl.create_default_context(cafile=str(authority))
        try:
            with urllib.request.urlopen(request, context=tls, timeout=200) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{verb} {path}: {error.code} {error.read().decode(errors='replace')}")

    @property
    def pid(self) -> int:
        return int(json.loads((self.data / "server.json").read_text())["pid"])

    def until(
        self,
        condition: Callable[[], object],
        what: str | Callable[[], str],
        seconds: float = PATIENCE,
        every: float = 0.05,
    ) -> None:
        """Poll until `condition()` is true; the test fails with `what`, or what it returns then, when it is not in time. `every`: the
        seconds between two polls; more where a poll leaves something behind."""
        until(condition, what, seconds, every)


def make(data: Path, home: Path) -> Cluster:
    env = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "ROWLOCK_DATA_DIR": str(data),
        "KUBECONFIG": str(data / "kubeconfig"),
    }
    return Cluster(data, env)


@contextmanager
def lent(home: Path) -> Iterator[Cluster]:
    """A cluster below `home` that is not started yet (call `up`), and is down afterwards."""
    made = make(home / "data", home)
    try:
        yield made
    finally:
        subprocess.run([BIN / "rowlock", "down", "--yes"], env=made.env, capture_output=True, timeout=200)
