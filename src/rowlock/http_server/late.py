"""Lazy imports on a thread, for parts that few servers need and that take long to import."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A part of the server that is imported at its first use."""

    def __init__(self, load: Callable[[], T]) -> None:
        """`load` imports the part and returns it; it runs in a thread."""
        self._load = load
        self.loaded: T | None = None
        """None before the first use."""

    async def get(self) -> T:
        """The part, imported on a thread if needed, without blocking the event loop."""
        if self.loaded is None:
            self.loaded = await asyncio.to_thread(self._load)
        return self.loaded


def _import_websockets() -> type[asyncio.Protocol]:
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol


WEBSOCKETS = Late(_import_websockets)
