"""How the subjects are made: a store in memory, our server as a process, a real control plane as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.storage.store import Store

REPO = Path(__file__).resolve().parents[2]
RUNNING = "ROWLOCK_REAL_CLUSTER_KUBECONFIG"
"""Names the kubeconfig of a real cluster that runs already: a developer's shortcut."""


def open_store() -> Store:
    """The store with all that it is given in production."""
    return Store.open(None, admission=lambda _: AdmissionChain(), patches=Patcher())


@contextmanager
def embedded_server(directory: Path, program: str = "tests.conformance.embedded", *flags: str) -> Iterator[Path]:
    """Our server on a free port; answers the kubeconfig's path."""
    directory.chmod(0o700)  # as a data directory must be that holds other files, too: our output lies in it
    command = [sys.executable, "-m", program, "--data-dir", str(directory), *flags]
    with (directory / "output").open("wb") as output:
        server = subprocess.Popen(command, cwd=REPO, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 90
        while not (directory / "server.json").exists():
            said = (directory / "output").read_text()
            assert server.poll() is None, f"the server ended at once: {said[-2000:]}"
            assert time.monotonic() < deadline, f"the server does not answer: {said[-2000:]}"
            time.sleep(0.02)
        yield directory / "kubeconfig"
    finally:
        server.terminate()
        try:
            server.wait(200)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def real_cluster_missing(operator: bool = False) -> str:
    """Why there is no real cluster (with the training operator) to test against; "" when there is one."""
    if os.environ.get(RUNNING):
        return ""
    place = Path(_script("where").stdout.strip())
    if (place / "kube-apiserver").exists() and (not operator or (place / "training-operator.v1").exists()):
        return ""
    return "no kube-apiserver has been built: run `make real-cluster` (needs Go), or set ROWLOCK_REAL_CLUSTER_BIN"


@contextmanager
def real_cluster(directory: Path, *flags: str) -> Iterator[Path]:
    """etcd, kube-apiserver and controller-manager; answers the kubeconfig's path."""
    running = os.environ.get(RUNNING)
    if running:
        yield Path(running)
        return
    try:
        done = _script("up", str(directory), *flags)
        assert done.returncode == 0, done.stderr
        yield Path(done.stdout.strip())
    finally:
        _script("down", str(directory))


def _script(*args: str) -> subprocess.CompletedProcess[str]:
    program = REPO / "scripts" / "real_cluster"
    return subprocess.run([sys.executable, str(program), *args], text=True, capture_output=True, timeout=180)
