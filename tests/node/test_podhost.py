"""The pod host as the server meets it: one that cannot start is one sentence, not a loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rowlock.cluster.node import podhost
from rowlock.cluster.node.processes import PodHost
from rowlock.errors import Unavailable


def test_a_pod_host_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podhost, "BOOT", "raise SystemExit('no such thing')")

    async def connect() -> None:
        host = PodHost(tmp_path)
        try:
            await host.connect("none")
        finally:
            await host.close()

    with pytest.raises(Unavailable, match=r"podhost\.log says why"):
        asyncio.run(connect())
    assert "no such thing" in (tmp_path / "podhost.log").read_text()
