"""A cluster to measure and a small client for it: one keep-alive connection, watches as iterators. Stdlib only."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

BIN = Path(sys.executable).parent
PODS = "/api/v1/namespaces/runai-default/pods"
JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs"


class _WholeRequests(http.client.HTTPSConnection):
    """Sends a request's head and body together, as kubectl and other Go programs do; http.client sends them one by one."""

    _held: bytes | None = None

    def request(self, *arguments: Any, **options: Any) -> None:
        self._held = b""
        try:
            super().request(*arguments, **options)
            whole = self._held
        finally:
            self._held = None
        super().send(whole)

    def send(self, data: Any) -> None:
        if self._held is None:
            super().send(data)
        else:
            self._held += data


class Client:
    """The Kubernetes API of one embedded cluster."""

    def __init__(self, data: Path) -> None:
        facts = json.loads((data / "server.json").read_text())
        self.data, self.pid = data, int(facts["pid"])
        self._url = urllib.parse.urlsplit(facts["url"])
        self._tls = ssl.create_default_context(cafile=str(data / "ca.crt"))
        self._headers = {"Authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        assert self._url.hostname
        made = _WholeRequests(self._url.hostname, self._url.port, context=self._tls, timeout=300)
        made.connect()
        return made

    def call(self, verb: str, path: str, body: Any = None) -> Any:
        response = self._answer(verb, path, json.dumps(body) if body is not None else None)
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{verb} {path}: {response.status} {text[:500]!r}")
        return json.loads(text)

    def patch(self, path: str, changes: Any) -> Any:
        """A merge patch."""
        response = self._answer("PATCH", path, json.dumps(changes), "application/merge-patch+json")
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"PATCH {path}: {response.status} {text[:500]!r}")
        return json.loads(text)

    def _answer(
        self, verb: str, path: str, body: str | None, content: str = "application/json"
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, "Content-Type": content}
        try:
            self._connection.request(verb, path, body, headers)
            return self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):  # idle for so long that the server closed it
            self._connection = self._connect()
            self._connection.request(verb, path, body, headers)
            return self._connection.getresponse()

    @contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """A connection of its own for a watch or a followed log."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise RuntimeError(f"GET {path}: {response.status} {response.read()[:300]!r}")
            yield response
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPSConnection:
        """One of your own, open already."""
        return self._connect()

    def follow(self, connection: http.client.HTTPSConnection, path: str) -> bytes:
        """The first byte of a followed log, asked for again until the container has started."""
        while True:
            connection.request("GET", path + "?follow=true", headers=self._headers)
            response = connection.getresponse()
            if response.status == 200:
                return response.read(1)
            response.read()

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[dict[str, Any]]]:
        since = self.call("GET", path + "?limit=1")["metadata"]["resourceVersion"]
        with self.stream(f"{path}?watch=1&resourceVersion={since}") as response:
            yield (json.loads(line) for line in iter(response.readline, b""))

    def memory(self) -> float:
        """Resident MiB of the server process."""
        return psutil.Process(self.pid).memory_info().rss / 2**20


@contextmanager
def running(*flags: str, data: Path | None = None) -> Iterator[Client]:
    """A cluster with these `rowlock up` flags: in this directory, which stays; else a fresh one, whose files go when the program ends."""
    is_fresh = data is None
    data = data or Path(tempfile.mkdtemp(prefix="rowlock-bench-"))
    env = {**os.environ, "ROWLOCK_DATA_DIR": str(data), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["rowlock", "up", "-d", *flags], env=env, check=True, stdout=subprocess.DEVNULL)
    try:
        yield Client(data)
    finally:
        subprocess.run(["rowlock", "down", "--yes"], env=env, check=False, stdout=subprocess.DEVNULL)
        # Not yet: for minutes after, ext4 without a journal looks at each inode that was freed whenever it makes a file.
        if is_fresh:
            atexit.register(shutil.rmtree, data, ignore_errors=True)


def pod(name: str, *command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def job(
    name: str, workers: int, *command: str, env: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """A PyTorchJob of one master and `workers` workers that all run `command`."""
    container: dict[str, Any] = {"name": "pytorch", "image": "host", "command": list(command)}
    if env:
        container["env"] = [{"name": k, "value": v} for k, v in env.items()]
    template: dict[str, Any] = {"spec": {"containers": [container]}}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    replicas: dict[str, Any] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
    if workers:
        replicas["Worker"] = {"replicas": workers, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def until_finished(events: Iterator[dict[str, Any]], names: set[str], good: str = "Succeeded") -> float:
    """Wait until every job in `names` has the condition of a good end; the moment of the last (monotonic). Raises when one failed."""
    left = set(names)
    for event in events:
        found = event["object"]
        if found["metadata"]["name"] not in left:
            continue
        true = {c["type"] for c in found.get("status", {}).get("conditions") or () if c["status"] == "True"}
        if "Failed" in true:
            raise RuntimeError(f"{found['metadata']['name']} failed: {found['status']['conditions'][-1]['message']}")
        if good in true:
            left.discard(found["metadata"]["name"])
            if not left:
                return time.monotonic()
    raise RuntimeError("the watch ended early")
