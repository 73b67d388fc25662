"""This machine's address in the engine's network: whose network it is in, and why there is none. In real engines: tests/containers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until_async

from rowlock.errors import Unavailable
from rowlock.kubelet.network.pod_network import NetworkChoice, PodNetwork
from rowlock.kubelet.runtime import engine_gateway
from rowlock.kubelet.runtime.engine_gateway import EngineGateway
from rowlock.kubelet.shim.engine_client import Engine


class PodHost:
    """Refuses sockets, as where a namespace cannot be entered."""

    disconnected = asyncio.Event()

    async def request_socket(self, op: str, **request: Any) -> socket.socket:
        raise Unavailable(f"{op} of process {request['pid']}: Operation not permitted")

    async def ask(self, op: str, **request: Any) -> dict[str, Any]:
        raise NotImplementedError


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A socket at which this process listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        yield Engine(str(tmp_path / "sock"))


def gateway(place: Path, engine: Engine | None, prefix: str) -> EngineGateway:
    network = PodNetwork(place, None, NetworkChoice("rewrite", ""), lambda pod: True)  # type: ignore[arg-type] # nothing is looked up
    if prefix:
        network.set_engine_prefix(prefix)
    return EngineGateway(network, PodHost(), lambda: engine, 0)


def test_an_engine_in_this_network_has_its_bridge_here(tmp_path: Path, engine: Engine) -> None:
    async def whole() -> None:
        with await gateway(tmp_path, engine, "127.9").listen(0) as listener:
            assert listener.getsockname()[0] == "127.9.0.1"
            with socket.create_connection(listener.getsockname(), timeout=200):
                pass

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("shares", "prefix", "problem"),
    [
        (True, "", "the engine has no network for pods yet"),
        (True, "192.0", "Cannot assign requested address"),  # of a virtual machine: 192.0.0.1 is nobody's
        (False, "127.9", "Operation not permitted"),
    ],
)
def test_what_is_in_the_way_is_said(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, shares: bool, prefix: str, problem: str
) -> None:
    monkeypatch.setattr(engine_gateway, "_shares_network", lambda pid: shares)

    async def whole() -> None:
        made = gateway(tmp_path, engine, prefix)
        made.network.engine_network_made.set()
        task = asyncio.create_task(made.run())
        await made.wait_until_tried()
        await until_async(lambda: problem in made.network.engine_problem, lambda: made.network.engine_problem)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(whole())


def test_an_engine_that_has_gone_is_no_process(tmp_path: Path) -> None:
    with pytest.raises(OSError) as gone:
        asyncio.run(gateway(tmp_path, Engine(str(tmp_path / "none")), "127.9").listen(0))
    assert gone.value.errno == errno.ENOENT
