"""The assembly: one embedded cluster and its faces (Kubernetes API, REST) on one HTTPS port.

The only module that knows both a cluster and its faces. When everything answers it writes `server.json`, the
kubeconfig and the token into the data directory; SIGTERM and SIGINT end it in order. Pods go on without it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvicorn

from rowlock import __version__, kinds, objects
from rowlock.cluster.api import apiserver, secure, sockets, users, wire
from rowlock.cluster.local import ClusterSettings, LocalCluster
from rowlock.cluster.node.kubelet import KubeletSettings
from rowlock.cluster.storage.store import Store
from rowlock.errors import ApiError, Internal
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.snapshot import Snapshot
from rowlock.server.app import Face
from rowlock.server.auth import Guest, Guests
from rowlock.server.call import Settings


def secret(path: Path) -> str:
    """The token in the file; made once, for its owner's eyes only."""
    with suppress(FileNotFoundError):
        return path.read_text().strip()
    made = secrets.token_urlsafe(32)
    _write(path, made + "\n", 0o600)
    return made


def _write(path: Path, text: str, mode: int) -> None:
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    new.replace(path)


def kubeconfig(url: str, ca: Path, token: str) -> str:
    """A kubeconfig as JSON, which is YAML too. The namespace is the default project's."""
    context = {"cluster": "rowlock", "user": "rowlock", "namespace": "runai-default"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rowlock",
            "clusters": [{"name": "rowlock", "cluster": {"server": url, "certificate-authority": str(ca)}}],
            "contexts": [{"name": "rowlock", "context": context}],
            "users": [{"name": "rowlock", "user": {"token": token}}],
        },
        indent=2,
    )


def _say_what_goes_on(cluster: LocalCluster) -> None:
    """Ctrl-C ends the server, not the jobs; a person should not have to guess that."""
    running = sum(objects.phase(pod) == "Running" for pod in cluster.store.view.all(kinds.POD))
    if running:
        pods, it = ("1 pod runs", "it") if running == 1 else (f"{running} pods run", "them")
        print(f"rowlock stops; {pods} on: `rowlock up` finds {it} again, `rowlock down` then stops {it}", flush=True)


def _planned(scheduler: Scheduler, store: Store) -> Snapshot:
    """What the scheduler would plan from at this moment."""
    return scheduler.snapshot(store.view, time.time())


def _guests(doors: apiserver.Settings) -> Guests | None:
    """The same people at the REST API's door; None where there is nobody but the owner."""
    if not doors.tokens:
        return None
    keys = users.Keys(doors.token, doors.tokens, guarded=doors.guarded)

    def guest(token: str, address: str) -> Guest | None:
        user = keys.user(token, address)
        if user is None:
            return None
        return Guest("" if user is users.ADMIN else user.name, user.reads, user.master)

    return guest


def settle_memory() -> None:
    """Everything made at start stays: the collector need not look at it, nor look often. Full collections of a large
    heap were pauses of 0.1-0.5 s."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
    # The thread that writes the journal has nothing to do but to wait for the disk: it shall not wait 5 ms for the loop.
    sys.setswitchinterval(0.001)


class Server:
    """One embedded cluster and its faces on one HTTPS port."""

    def __init__(self, options: argparse.Namespace, papers: subprocess.Popen[bytes]) -> None:
        self.options, self._papers = options, papers
        self.data: Path = options.data_dir.absolute()
        self.stopping = asyncio.Event()

    def cluster(self) -> LocalCluster:
        return LocalCluster(self.settings())

    def settings(self) -> ClusterSettings:
        """The flags as the cluster wants them. Waits for the child that sees to the certificates."""
        options = self.options
        without = frozenset(part for part in options.without.split(",") if part)
        kubelet = KubeletSettings(
            data_dir=self.data,
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            simulated_gpus=options.simulated_gpus,
            cpus_per_node=options.cpus_per_node,
            network=options.network,
            runtime=options.runtime,
            restart_backoff=options.restart_backoff,
            warm_start=options.warm_start == "auto",
            log_limit=options.log_limit,
            keep_checkpoints=options.keep_checkpoints,
        )
        if self._papers.wait():
            raise Internal(f"the certificates in {self.data} could not be made or read; the lines above say why")
        authority = (self.data / "ca.crt").read_text()
        more = {"parity": options.parity, "half_life": options.half_life}
        return ClusterSettings(self.data, kubelet, without, options.pretend_nodes, authority, **more)

    async def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        bound = sockets.listening(self.options.port, self.data, sockets.elsewhere(self.options.bind))
        async with self.cluster() as cluster:
            await self._serve(cluster, bound)

    async def _serve(self, cluster: LocalCluster, bound: list[socket.socket]) -> None:
        token = secret(self.data / "token")
        doors = self._doors(token)
        planned = None if cluster.scheduler is None else partial(_planned, cluster.scheduler, cluster.store)
        inquest = cluster.inquest.why if cluster.inquest else None
        face = Face(
            cluster.store,
            Settings(token=token, version=__version__, guests=_guests(doors)),
            planned=planned,
            inquest=inquest,
            lacks=cluster.kubelet.runtime.lacks if cluster.kubelet else None,
            said=cluster.inquest.said if cluster.inquest else None,
        )
        entrance = cluster.kubelet.entrance if cluster.kubelet else None
        app = apiserver.application(face.routes, cluster.store, doors, entrance)
        tls = secure.context(self.data / "server.crt", self.data / "server.key")
        config = uvicorn.Config(
            app, log_level="warning", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=2, access_log=False, timeout_keep_alive=120,
            http=wire.protocol(tls), proxy_headers=False, server_header=False,
            ws_ping_interval=30, ws_ping_timeout=None, ws_per_message_deflate=False,
        )  # fmt: skip
        web = uvicorn.Server(config)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(cluster.run()), tasks.create_task(face.run())]
            serving = tasks.create_task(web._serve(bound))
            while not web.started:
                await asyncio.sleep(0.002)
            settle_memory()
            self._announce(bound, self.data / "ca.crt", token)
            await self.stopping.wait()
            _say_what_goes_on(cluster)
            web.should_exit = True
            await serving
            for task in work:
                task.cancel()

    def _doors(self, token: str) -> apiserver.Settings:
        """Who may come in where. Bound elsewhere, the owner's token is for loopback alone."""
        options = self.options
        known = users.read(options.users) if options.users else {}
        return apiserver.Settings(token=token, tokens=known, guarded=bool(sockets.elsewhere(options.bind)))

    def _announce(self, bound: list[socket.socket], ca: Path, token: str) -> None:
        """Files that say how to reach us; `server.json` last, because `rowlock up -d` waits for it."""
        port = bound[0].getsockname()[1]
        url = f"https://{sockets.HOST}:{port}"
        others = sockets.named(sockets.elsewhere(self.options.bind), self.options.tls_san)
        _write(self.data / "kubeconfig", kubeconfig(url, ca, token), 0o600)
        facts = {
            "pid": os.getpid(),
            "url": url,
            "others": [f"https://{f'[{name}]' if ':' in name else name}:{port}" for name in others],
            "started": time.time(),
            "version": __version__,
            "kubeconfig": str(self.data / "kubeconfig"),
            "flags": {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.options).items()},
        }
        _write(self.data / "server.json", json.dumps(facts, indent=2) + "\n", 0o644)
        print(f"rowlock serves {url} (kubeconfig: {self.data / 'kubeconfig'})", flush=True)


def serve(options: argparse.Namespace, papers: subprocess.Popen[bytes]) -> int:
    """The life of the server. `papers` is the child that sees to the certificates."""
    try:
        asyncio.run(Server(options, papers).run())
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        what = f"port {options.port} is taken" if options.port and error.errno == 98 else str(error)
        print(f"error: {what}: choose another with --port, or leave it out", file=sys.stderr)
        return 1
    return 0
