"""A connection on which every request carries one user's token."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import aiohttp

from rowlock.errors import Unauthorized
from rowlock.kube.config import ClientConfig
from rowlock.kube.connection import Connection, Request
from rowlock.kube.rate_limit import Limits


class UserConnection:
    """A `Connection` with one user's token. It has no state: `base` is shared by all users and has no credentials."""

    def __init__(self, base: Connection, token: str) -> None:
        self._base, self._token = base, token

    @property
    def limits(self) -> Limits:
        return self._base.limits

    def renew_connections(self) -> None:
        """As `Connection.renew_connections`, for all users."""
        self._base.renew_connections()

    async def close(self) -> None:
        """Does nothing, because the connections are shared."""

    async def send(self, request: Request, warnings: list[str] | None = None) -> Any:
        """As `Connection.send`."""
        return await self._base.send(replace(request, token=self._token), warnings)

    async def fetch(self, request: Request, warnings: list[str] | None = None) -> bytes:
        """As `Connection.fetch`."""
        return await self._base.fetch(replace(request, token=self._token), warnings)

    def stream(self, request: Request, *, endless: bool = False) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """As `Connection.stream`."""
        return self._base.stream(replace(request, token=self._token), endless=endless)

    async def client_config(self, refused: ClientConfig | None = None) -> ClientConfig:
        """As `Connection.client_config`. Raises Unauthorized where it was refused: only the user can get another token."""
        if refused is not None:
            raise Unauthorized("the cluster does not accept your token any more: log in again")
        return replace(await self._base.client_config(), token=self._token)
