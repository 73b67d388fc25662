"""A real registry for tests: the CNCF's own program, built once from its published Go module, in the engine's network.

The program lies in `${XDG_CACHE_HOME:-~/.cache}/rowlock/registry/<version>`; what is there is never built again.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.containers import base

VERSION = "3.0.0"
MODULE = "github.com/distribution/distribution/v3/cmd/registry"
PORT = 5000
"""Of a network namespace that is the engine's alone, so nobody else has it."""
HOST = f"127.0.0.1:{PORT}"
USER, PASSWORD = "rower", "open sesame"
HTPASSWD = f"{USER}:$2b$04$2HOl2DPrxTRt3jiLMfaRPek20pXM6zA2lhEyOr7enVyhLWQXcMoHy\n"
"""PASSWORD as bcrypt has it."""
_PATIENCE, _BUILD_SECONDS = 30.0, 900.0


def program() -> Path:
    """The registry, built if need be (minutes on a slow machine); skips the test where it cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    made = cache / "rowlock" / "registry" / VERSION / "registry"
    if made.exists():
        return made
    if not shutil.which("go"):
        pytest.skip("Go is not installed, and the registry is not built: install Go 1.23 or newer")
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _build(made)
    return made


def _build(made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".new-") as place:
        env = {**os.environ, "GOBIN": place, "CGO_ENABLED": "0"}
        words = ["go", "install", f"{MODULE}@v{VERSION}"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS)
        if done.returncode:
            pytest.skip(f"the registry cannot be built here: {done.stderr.strip().splitlines()[-1][-300:]}")
        (Path(place) / "registry").replace(made)


@contextmanager
def serving(registry: Path, home: Path, engine_pid: int, *, private: bool = False) -> Iterator[None]:
    """The program `registry` at HOST, as the engine sees it; a private one lets USER in alone."""
    where = ["nsenter", f"--net=/proc/{engine_pid}/ns/net"]
    subprocess.run([*where, "ip", "link", "set", "lo", "up"], check=True)
    (home / "htpasswd").write_text(HTPASSWD)
    rules = {"auth": {"htpasswd": {"realm": "boats", "path": str(home / "htpasswd")}}} if private else {}
    config = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(home / "store")}}, **rules}
    (home / "config.json").write_text(json.dumps({**config, "http": {"addr": HOST}}))
    with (home / "log").open("ab") as log:
        words = [*where, str(registry), "serve", str(home / "config.json")]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        ask = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"
        deadline = time.monotonic() + _PATIENCE
        while subprocess.run([*where, "python3", "-c", ask], capture_output=True, check=False).returncode:
            assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()[-2000:]
        yield
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def docker_config(directory: Path, user: str = USER, password: str = PASSWORD) -> dict[str, object]:
    """What `docker login` leaves in that directory, and how a Secret has it."""
    found = {"auths": {HOST: {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}}}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(found))
    return dict(found)


def publish(name: str, config: Path) -> str:
    """Pushes a small image made of this machine's shell, and takes it out of the engine; its digest."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "bin").mkdir()
        shell = Path(shutil.which("sh") or "/bin/sh")
        shutil.copy(shell, root / "bin" / "sh")
        base.copy_libraries(root, [shell])
        with subprocess.Popen(["tar", "-C", directory, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(["docker", "import", "-", name], stdin=tar.stdout, check=True, capture_output=True)
    words = ["docker", "--config", str(config), "push", name]
    subprocess.run(words, check=True, capture_output=True, timeout=_PATIENCE)
    words = ["docker", "inspect", "--format", "{{index .RepoDigests 0}}", name]
    digest = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().partition("@")[2]
    unpublish(name)
    return digest


def unpublish(name: str) -> None:
    """Out of the engine, so that it must be pulled."""
    subprocess.run(["docker", "rmi", "-f", name], check=False, capture_output=True)
