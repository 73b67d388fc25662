"""Whom `benchmarks/api.py` asks: the whole embedded cluster, and beside it a real kube-apiserver with etcd.

Both are reached over HTTPS with a bearer token, on the same machine and the same disk, and both answer a write when it
is on that disk (etcd's fsync; ours is SQLite's, `synchronous=FULL`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.cluster import Client, running

REPO = Path(__file__).resolve().parents[1]
SCRIPT = REPO / "scripts" / "real_cluster"
SCHEDULER_QPS = 5000
"""Requests a second that kube-scheduler's client may make: more than it can, so that not the limit is measured."""


@dataclass(frozen=True)
class Peer:
    """One API server: where it is, who may come in, and which processes it is made of."""

    name: str
    host: str
    port: int
    authority: Path
    token: str
    processes: Callable[[], list[psutil.Process]]

    def memory(self) -> float:
        """Resident MiB of all its processes together."""
        return sum(p.memory_info().rss for p in self.processes()) / 2**20

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        times = [p.cpu_times() for p in self.processes()]
        return sum(t.user + t.system for t in times)


@contextmanager
def embedded() -> Iterator[Peer]:
    """A fresh `rowlock up`: API server, store, operators, scheduler, kubelet."""
    with running() as client:
        yield ours(client)


def ours(client: Client) -> Peer:
    facts = json.loads((client.data / "server.json").read_text())
    url = urllib.parse.urlsplit(facts["url"])
    server = psutil.Process(client.pid)
    assert url.hostname and url.port
    token = (client.data / "token").read_text().strip()
    return Peer(
        "rowlock", url.hostname, url.port, client.data / "ca.crt", token,
        lambda: [server, *server.children(recursive=True)],
    )  # fmt: skip


def write_kubeconfig(peer: Peer, path: Path) -> Path:
    """The kubeconfig by which rowlock reaches an API server as its benchmark does."""
    cluster = {"server": f"https://{peer.host}:{peer.port}", "certificate-authority": str(peer.authority)}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": peer.token}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
    return path


def missing() -> str:
    """Why there is no real API server to stand beside; "" when there is one."""
    done = subprocess.run([sys.executable, str(SCRIPT), "where"], capture_output=True, text=True, check=True)
    if all((Path(done.stdout.strip()) / name).exists() for name in ("kube-apiserver", "etcd")):
        return ""
    return "no kube-apiserver and etcd are built here (`make real-cluster` builds them): rowlock's figures stand alone"


@contextmanager
def real(*parts: str) -> Iterator[Peer]:
    """etcd, kube-apiserver and controller-manager (and `parts`, as `--scheduler`), with the state in a fresh directory."""
    place = Path(tempfile.mkdtemp(prefix="real-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        stack.callback(subprocess.run, [sys.executable, str(SCRIPT), "down", str(place)], check=False)
        command = [sys.executable, str(SCRIPT), "up", str(place), *parts]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        config = json.loads((place / "kubeconfig").read_text())
        cluster = config["clusters"][0]["cluster"]
        url = urllib.parse.urlsplit(cluster["server"])
        assert url.hostname and url.port
        pids = [entry["pid"] for entry in json.loads((place / "pids.json").read_text())]
        found = [psutil.Process(int(pid)) for pid in pids]
        yield Peer(
            "kube-apiserver + etcd", url.hostname, url.port, Path(cluster["certificate-authority"]),
            config["users"][0]["user"]["token"], lambda: found,
        )  # fmt: skip
