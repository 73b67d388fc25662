"""A node for tests: a real store in memory, a real kubelet, a real pod host, real processes."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.waiting import PATIENCE, until_async

from rowlock import kinds
from rowlock.api import DELETE, DeleteOptions, LogOptions
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.runtime.processes import kill_strays
from rowlock.kubelet.shim import cgroups
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.worker.kubelet import Kubelet, start_kubelet
from rowlock.kubelet.worker.settings import KubeletSettings
from rowlock.objects import Object, dig, phase
from rowlock.storage.store import Store


def remove_pod(directories: PodDirectories, card: PodCard) -> None:
    """As the kubelet does it, whose pod has gone."""
    if directories.retire(card):
        directories.remove_retired(card.uid)


@dataclass
class Way:
    """How pods run in these tests: as processes, unless `tests/containers` says otherwise."""

    image: str = "rowlock.dev/host"
    settings: dict[str, Any] = field(default_factory=dict)
    shared: str = ""
    """The test's directory, where pods must mount it to see it."""


WAY = Way()


def pod(name: str, script: str, policy: str = "Never", **more: Any) -> Object:
    """A pod of one container that runs a shell script with the host's programs."""
    container = {
        "name": "main",
        "image": WAY.image,
        "command": ["sh", "-c", script],
        **more.pop("container", {}),
    }
    spec = {"restartPolicy": policy, "containers": [container], **more.pop("spec", {})}
    if WAY.shared:
        spec["volumes"] = [*spec.get("volumes", ()), {"name": "test", "hostPath": {"path": WAY.shared}}]
        mounts = [*container.get("volumeMounts", ()), {"name": "test", "mountPath": WAY.shared}]
        spec["containers"] = [
            {**each, "volumeMounts": mounts} if each is container else each for each in spec["containers"]
        ]
    meta = {"name": name, "namespace": "default", **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def shim_request(directory: Path, argv: list[str], **more: Any) -> ShimRequest:
    """The first run of a container whose facts lie in `directory`."""
    defaults: dict[str, Any] = {"env": {}, "cwd": "/", "hint": "u-1/main", "wake_path": str(directory / "wake")}
    return ShimRequest(directory=str(directory), number=0, argv=argv, **{**defaults, **more})


async def until(true: Callable[[], Any], what: str | Callable[[], str] = "") -> None:
    """Polls a condition; fails with a sentence when it does not come true in time."""
    await until_async(true, what or f"{true}")


class Node:
    """The store and one kubelet after the other on the same directory."""

    def __init__(self, data: Path, store: Store, settings: KubeletSettings) -> None:
        self.data, self.store, self.settings = data, store, settings
        self.kubelet: Kubelet
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.kubelet = await start_kubelet(self.store, self.store.view, self.settings)
        self._task = asyncio.create_task(self.kubelet.run(self.store.changes()))
        await asyncio.sleep(0)  # a task that is cancelled before it began cleans up nothing

    async def stop(self) -> None:
        """The server goes; as after kill -9 nothing is told to pods."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def name(self) -> str:
        return next(iter(self.kubelet.nodes))

    async def add(self, *pods: Object, bind: bool = True) -> None:
        for made in pods:
            await self.store.create(kinds.POD, made)
        for made in pods if bind else ():
            await self.store.bind("default", made["metadata"]["name"], self.name)

    def pod(self, name: str) -> Object:
        return self.store.view.get(kinds.POD, "default", name) or {}

    def state(self, name: str, path: str = "state") -> Any:
        """Of the first container: `state.running`, `restartCount`, …"""
        return dig((dig(self.pod(name), "status.containerStatuses") or [{}])[0], path)

    async def phase(self, name: str, *wanted: str) -> None:
        await until(
            lambda: phase(self.pod(name)) in wanted, f"{name} to be {wanted}; it is {self.pod(name).get('status')}"
        )

    async def ended(self, *names: str) -> None:
        for name in names:
            await self.phase(name, "Succeeded", "Failed")

    async def log(self, name: str, **options: Any) -> str:
        pieces = [piece async for piece in self.kubelet.logs.read_log("default", name, LogOptions(**options))]
        return b"".join(pieces).decode()

    async def said(self, name: str, text: str) -> None:
        """Waits until the log holds `text`."""
        end = time.monotonic() + PATIENCE
        while text not in await self.log(name):
            assert time.monotonic() < end, f"{name} never said {text!r}"
            await asyncio.sleep(0.002)

    async def told(self, name: str, text: str) -> None:
        """Waits until an event of the pod holds `text`."""
        await until(
            lambda: any(text in message for *_, message in self.events(name)),
            lambda: f"{text!r} in {self.events(name)}",
        )

    async def delete(self, name: str, options: DeleteOptions = DELETE) -> None:
        await self.store.delete(kinds.POD, "default", name, options=options)
        await until(lambda: not self.pod(name), f"{name} to be gone")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        found = [e for e in self.store.view.all(kinds.EVENT, "default") if e["involvedObject"]["name"] == name]
        return [(e["type"], e["reason"], e["message"]) for e in found]


@contextlib.asynccontextmanager
async def node(data: Path, **settings: Any) -> AsyncIterator[Node]:
    """A node at work; when it ends, nothing of it runs any more."""
    store = Store.open(None)
    for name in ("default", "other"):
        await store.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    made = Node(
        data,
        store,
        KubeletSettings(
            **{"data_dir": data, "network": "rewrite", "restart_backoff": 0.05, **WAY.settings, **settings}
        ),
    )
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        _sweep(data)
        await store.close()


def _sweep(data: Path) -> None:
    """Kills what this test started: shims by their facts (their programs die with them), the pod host."""
    for path in _starts(data):
        facts = untrusted.read_object(str(path)) or {}
        shim = untrusted.integer_of(facts, "shim")
        if shim and ticks(shim) == facts.get("shim_ticks"):
            with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                os.kill(shim, signal.SIGKILL)
    kill_strays((path.name for path in data.glob("pods/*")), PodDirectories(data).identity)
    for path in data.glob("pods/*"):
        cgroups.remove_pod_groups(path.name)
    for process in [p for p in psutil.process_iter(["cmdline"]) if _belongs(p, data)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _starts(data: Path) -> list[Path]:
    """Facts of every start; a directory may be going away in a thread that the kubelet has left behind."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return [path for path in data.glob("pods/*/*/start.*") if path.exists()]


def _belongs(process: psutil.Process, data: Path) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if "podhost.main" in " ".join(process.info["cmdline"] or ()):
            return os.readlink(f"/proc/{process.pid}/fd/1") == str(data / "podhost.log")
    return False


Body = Callable[[Node], Awaitable[None]]


def on_node(data: Path, body: Body, **settings: Any) -> None:
    """Runs one test's body on a node."""

    async def whole() -> None:
        async with node(data, **settings) as made:
            await body(made)

    asyncio.run(whole())
