"""The command lines over a real cluster, with what the tests of the embedded engine know (`Served`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.engines.played_kubelet import PlayedKubelet, played_kubelet
from tests.engines.real_engine import PATIENCE, RealEngine, now_heard_of
from tests.rest.served import Served

T = TypeVar("T")


class RealServed(Served):
    """Nodes have a kubelet that the test plays: what it reports goes to the API server, which asks it for logs."""

    patience = PATIENCE

    def __init__(
        self, engine: RealEngine, kubelet: PlayedKubelet, data: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        super().__init__(engine.lend_directory(data), capsys)
        self.loop.close()
        self.engine, self.loop, self.store = engine, engine.loop, engine.kube
        self.kubelet_address = kubelet.address
        kubelet.logs, kubelet.endless = self.logs, self.endless

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        return self.engine.do(work)

    def heartbeat(self) -> dict[str, Any]:
        return now_heard_of()

    def node(self, called: str, gpus: int = 0, card_memory: int = 0) -> None:
        """And wait until the server knows of it."""
        super().node(called, gpus, card_memory)
        self.engine.await_node(called)


@contextmanager
def real_served(engine: RealEngine, data: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Served]:
    """With the project `default`, which an embedded cluster has from the beginning."""
    with played_kubelet(engine.kubeconfig.parent / "keys") as kubelet:
        engine.cluster.api("POST", "/api/v1/org-unit/projects", {"name": "default"})
        yield RealServed(engine, kubelet, data, capsys)
        engine.sweep()
