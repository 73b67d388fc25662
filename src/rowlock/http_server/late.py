"""What few servers need, and what takes long to import: imported for the first who needs it, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A part of the server that comes with its first use."""

    def __init__(self, load: Callable[[], T]) -> None:
        """`load` imports it; it runs in a thread."""
        self._load = load
        self.loaded: T | None = None
        """None before the first use."""

    async def get(self) -> T:
        """Imports it if need be: others are served meanwhile."""
        if self.loaded is None:
            self.loaded = await asyncio.to_thread(self._load)
        return self.loaded


def _import_websockets() -> type[asyncio.Protocol]:
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol


WEBSOCKETS = Late(_import_websockets)
