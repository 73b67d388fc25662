"""The door: choose a cluster, start what must run there, serve it over HTTPS until told to stop.

    python -m rowlock.serve --data-dir D [--port P] [--nodes N] …      (what `rowlock up` runs)

The only module that knows both a cluster and its faces. When everything answers it writes `server.json`, the
kubeconfig and the token into the data directory; SIGTERM and SIGINT end it in order. Pods go on without it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from rowlock import __version__
from rowlock.cluster import apiserver, certificates, wire
from rowlock.cluster.kubelet import KubeletSettings
from rowlock.cluster.local import PARTS, ClusterSettings, LocalCluster
from rowlock.errors import ApiError
from rowlock.server.app import Face, Settings

HOST = "127.0.0.1"
log = logging.getLogger("rowlock.serve")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags of `rowlock up`, which has checked them already."""
    parser = argparse.ArgumentParser(prog="python -m rowlock.serve", description="Serve an embedded cluster.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0 = the port of last time if it is free, else any")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--pretend-nodes", type=int, default=0)
    parser.add_argument("--gpus-per-node", type=int, default=None)
    parser.add_argument("--simulated-gpus", type=int, default=0)
    parser.add_argument("--cpus-per-node", type=float, default=None)
    parser.add_argument("--network", choices=("auto", "namespaces", "rewrite"), default="auto")
    parser.add_argument("--restart-backoff", type=float, default=10.0, help="seconds before a second restart")
    parser.add_argument("--without", default="", help=f"comma-separated parts to leave out: {', '.join(sorted(PARTS))}")
    return parser.parse_args(argv)


def listening(port: int, data: Path) -> socket.socket:
    """A bound socket. Raises OSError when an explicit port is taken."""
    last = 0
    if not port:
        with suppress(OSError, ValueError, KeyError):
            last = int(json.loads((data / "server.json").read_text())["url"].rpartition(":")[2])
    for wanted in dict.fromkeys((port or last, 0) if not port else (port,)):
        # With the protocol spelled out: asyncio switches Nagle's algorithm off only where it reads IPPROTO_TCP, and with
        # it on every answer in two pieces (a log, a watch) waits 40 ms for the client's delayed ACK.
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((HOST, wanted))
        except OSError:
            made.close()
            if port:
                raise
            continue
        return made
    raise OSError("no port is free")


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


def settle_memory() -> None:
    """Everything made at start stays: the collector need not look at it, nor look often. Full collections of a large
    heap were pauses of 0.1-0.5 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Server:
    """One embedded cluster and its faces on one HTTPS port."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data: Path = options.data_dir.absolute()
        self.stopping = asyncio.Event()

    def cluster(self) -> LocalCluster:
        options = self.options
        without = frozenset(part for part in options.without.split(",") if part)
        kubelet = KubeletSettings(
            data_dir=self.data,
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            simulated_gpus=options.simulated_gpus,
            cpus_per_node=options.cpus_per_node,
            network=options.network,
            restart_backoff=options.restart_backoff,
        )
        authority = certificates.ensure(self.data).ca.read_text()
        return LocalCluster(ClusterSettings(self.data, kubelet, without, authority))

    async def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        sock = listening(self.options.port, self.data)
        async with self.cluster() as cluster:
            await self._serve(cluster, sock)

    async def _serve(self, cluster: LocalCluster, sock: socket.socket) -> None:
        token = secret(self.data / "token")
        papers = certificates.ensure(self.data)
        face = Face(cluster.store, Settings(token=token, version=__version__))
        app = Starlette(routes=[*face.routes, *apiserver.routes(cluster.store, apiserver.Settings(token=token))])
        config = uvicorn.Config(
            app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2, access_log=False, timeout_keep_alive=120,
            ssl_certfile=str(papers.certificate), ssl_keyfile=str(papers.key), http=wire.Protocol,
        )  # fmt: skip
        web = uvicorn.Server(config)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(cluster.run()), tasks.create_task(face.run())]
            serving = tasks.create_task(web._serve([sock]))
            while not web.started:
                await asyncio.sleep(0.002)
            settle_memory()
            self._announce(sock, papers.ca, token)
            await self.stopping.wait()
            web.should_exit = True
            await serving
            for task in work:
                task.cancel()

    def _announce(self, sock: socket.socket, ca: Path, token: str) -> None:
        """Files that say how to reach us; `server.json` last, because `rowlock up -d` waits for it."""
        url = f"https://{HOST}:{sock.getsockname()[1]}"
        _write(self.data / "kubeconfig", kubeconfig(url, ca, token), 0o600)
        facts = {
            "pid": os.getpid(),
            "url": url,
            "started": time.time(),
            "version": __version__,
            "kubeconfig": str(self.data / "kubeconfig"),
            "flags": {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.options).items()},
        }
        _write(self.data / "server.json", json.dumps(facts, indent=2) + "\n", 0o644)
        print(f"rowlock serves {url} (kubeconfig: {self.data / 'kubeconfig'})", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 after an orderly stop, 1 with one sentence when it cannot start."""
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s %(message)s")
    unknown = {part for part in options.without.split(",") if part} - PARTS
    if unknown:
        print(f"error: --without takes {', '.join(sorted(PARTS))}, not {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    try:
        asyncio.run(Server(options).run())
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        what = f"port {options.port} is taken" if options.port and error.errno == 98 else str(error)
        print(f"error: {what}: choose another with --port, or leave it out", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
