"""How a watch ends whose time is up."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.waiting import PATIENCE

from rowlock.apiserver.endpoints import watches


class _EndlessLines:
    def __init__(self, *_: object) -> None: ...

    async def next(self, _: object) -> bytes:
        return b"{}\n"


def test_a_client_that_reads_nothing_is_cut_off_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "_WatchStream", _EndlessLines)
    monkeypatch.setattr(watches, "END_TIMEOUT_S", 0.01)

    async def body() -> None:
        is_cut, sent = asyncio.Event(), list[Any]()

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) > 1:  # what the client has not read fills the connection
                await is_cut.wait()

        call: Any = SimpleNamespace(
            number=lambda _: 0.01, warnings=[], pass_on=lambda _: False, cut=lambda: is_cut.set()
        )
        forever: Any = asyncio.Event().wait
        async with asyncio.timeout(PATIENCE):
            await watches.watch(call, forever, send, None, None)  # type: ignore[arg-type] # no line is made of them
        assert is_cut.is_set()

    asyncio.run(body())
