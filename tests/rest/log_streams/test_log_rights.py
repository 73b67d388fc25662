"""A log that is followed ends when its reader loses the right to read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rowlock.api import LOG, Api, LogOptions
from rowlock.errors import Forbidden
from rowlock.rest import rights
from rowlock.rest.rights import AuthorizedApi, Rights


class Endless:
    """An `Api` with one log that never ends."""

    keeps_order, is_closed = True, False

    async def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"tick\n"
        finally:
            self.is_closed = True


class Revocable:
    user_name, allowed = "ana", True

    def allows(self, verb: str, kind: Any, namespace: str = "", *, name: str = "", subresource: str = "") -> bool:
        assert (verb, kind.plural, namespace, name, subresource) == ("get", "pods", "team", "p", "log")
        return self.allowed


def test_a_followed_log_ends_with_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "LOG_REVIEW_S", 0.0)

    async def body() -> None:
        source, reader = Endless(), Revocable()
        log = AuthorizedApi(cast(Api, source), cast(Rights, reader)).log("team", "p")
        assert [await anext(log) for _ in range(3)] == [b"tick\n"] * 3
        reader.allowed = False
        with pytest.raises(Forbidden, match='user "ana" cannot get resource "pods/log"'):
            await anext(log)
        assert source.is_closed

    asyncio.run(body())
