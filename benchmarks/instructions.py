"""How many instructions a create costs our process, TLS and the kernel left out: a figure that no neighbour changes.

    python -m benchmarks.instructions [--pods] [--beside DIR]

Seconds of CPU differ by half from minute to minute on a shared machine, and so does every ratio that is to show a
gain of five percent. Instructions under valgrind (`apt-get install valgrind`) differ by less than one percent.
`--beside DIR` counts those of another checkout too, and prints the ratio. The requests go through uvicorn's protocol,
the API server, admission, the store and its journal, by 16 connections that are none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
FEW, MANY = 200, 700
"""Creates of two runs; their difference has neither start nor end in it."""
CLIENTS = 16
TOKEN = "t" * 40
PLACE = "/api/v1/namespaces/bench/"


class Client(asyncio.Transport):
    """A connection without a network: sends its next request when the last one is answered."""

    def __init__(self, requests: Iterator[bytes], over: asyncio.Semaphore) -> None:
        super().__init__()
        self._requests, self._over = requests, over
        self._said = b""
        self.protocol: Any = None

    def send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._over.release()
        else:
            asyncio.get_running_loop().call_soon(self.protocol.data_received, request)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._said += bytes(data)
        head, end, body = self._said.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if not end or not length or len(body) < int(length[1]):
            return
        if not head.startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"refused: {self._said[:300]!r}")
        self._said = b""
        self.send()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        raise RuntimeError("the server hung up")

    def resume_reading(self) -> None:
        """There is nothing to hold back."""


def post(resource: str, obj: dict[str, Any]) -> bytes:
    body = json.dumps(obj).encode()
    lines = [
        f"POST {PLACE}{resource} HTTP/1.1", "Host: 127.0.0.1:6443", f"Authorization: Bearer {TOKEN}",
        "Accept: application/json", "User-Agent: bench/1", "Content-Type: application/json", f"Content-Length: {len(body)}",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def creates(total: int, pods: bool, place: Path) -> None:
    """What is counted."""
    import uvicorn

    from benchmarks.api import config, pod
    from rowlock import kinds
    from rowlock.apiserver.admission.chain import AdmissionChain
    from rowlock.apiserver.server import application
    from rowlock.apiserver.server.settings import ApiServerSettings
    from rowlock.http_server import http_protocol
    from rowlock.storage.store import Store

    store = Store.open(place / "cluster.db", admission=AdmissionChain)
    for kind, name, space in ((kinds.NAMESPACE, "bench", ""), (kinds.SERVICE_ACCOUNT, "default", "bench")):
        meta = {"name": name, **({"namespace": space} if space else {})}
        await store.create(kind, {"apiVersion": "v1", "kind": kind.name, "metadata": meta})
    settings = uvicorn.Config(
        application.ApiServer(store, ApiServerSettings(TOKEN)),
        access_log=False, log_config=None, proxy_headers=False, lifespan="off",
    )  # fmt: skip
    settings.load()
    state, over = uvicorn.server.ServerState(), asyncio.Semaphore(0)
    requests = (post("pods", pod(i)) if pods else post("configmaps", config(f"config-{i}")) for i in range(total))
    clients = [Client(requests, over) for _ in range(CLIENTS)]
    for client in clients:
        client.protocol = http_protocol.HttpProtocol(config=settings, server_state=state, app_state={})
        client.protocol.connection_made(client)
        client.send()
    for _ in clients:
        await over.acquire()
    for client in clients:
        client.protocol.connection_lost(ConnectionResetError("it is over"))
    await store.close()


def instructions(checkout: Path, total: int, pods: bool) -> int:
    """Of a process that makes so many objects."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "valgrind.log"
        tool = [
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={log}",
        ]
        ours = [sys.executable, str(Path(__file__).resolve()), "--count", str(total), *(["--pods"] if pods else [])]
        paths = os.pathsep.join((str(checkout / "src"), str(REPO)))
        env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "1"}
        subprocess.run([*tool, *ours], env=env, check=True, cwd=place)
        found = re.search(r"I +refs: +([\d,]+)", log.read_text())
    assert found, "cachegrind has counted nothing"
    return int(found[1].replace(",", ""))


def each(checkout: Path, pods: bool) -> float:
    few, many = (instructions(checkout, total, pods) for total in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", action="store_true", help="pods instead of ConfigMaps")
    parser.add_argument("--beside", type=Path, help="another checkout of rowlock")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count is not None:
        with tempfile.TemporaryDirectory() as place, closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(creates(options.count, options.pods, Path(place)))
        return 0
    if not shutil.which("valgrind"):
        print("no valgrind here (apt-get install valgrind): nothing is counted", file=sys.stderr)
        return 1
    what = "pod" if options.pods else "ConfigMap"
    mine = each(REPO, options.pods)
    print(f"create of a {what}: {mine:,.0f} instructions")
    if options.beside:
        theirs = each(options.beside.resolve(), options.pods)
        print(f"in {options.beside}: {theirs:,.0f}, {theirs / mine:.3f}×")
    return 0


if __name__ == "__main__":
    sys.exit(main())
