"""A connection on which every request carries one user's token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

import aiohttp

from rowlock.errors import ApiError, Unauthorized
from rowlock.kube.config import ClientConfig
from rowlock.kube.connection import Connection, Request
from rowlock.kube.rate_limit import Limits


class TokenReviews(Protocol):
    """Knows whether a token is still valid; implemented by `ClusterUsers`."""

    async def explain_refusal(self, token: str, error: Unauthorized) -> ApiError:
        """The error to raise for a user's request that was refused with `error`. Raises ApiError if the cluster does not answer."""

    async def wait_until_refused(self, token: str) -> str:
        """Wait until the cluster no longer accepts the token, and return the error message."""


class UserConnection:
    """A `Connection` with one user's token. It has no state: `base` is shared by all users and has no credentials. Each request raises
    Unauthorized, with what to do, if the cluster does not accept the token."""

    def __init__(self, base: Connection, token: str, reviews: TokenReviews) -> None:
        self._base, self._token, self._reviews = base, token, reviews

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
        try:
            return await self._base.send(replace(request, token=self._token), warnings)
        except Unauthorized as error:
            raise await self._reviews.explain_refusal(self._token, error) from error

    async def fetch(self, request: Request, warnings: list[str] | None = None) -> bytes:
        """As `Connection.fetch`."""
        try:
            return await self._base.fetch(replace(request, token=self._token), warnings)
        except Unauthorized as error:
            raise await self._reviews.explain_refusal(self._token, error) from error

    @asynccontextmanager
    async def stream(self, request: Request, *, endless: bool = False) -> AsyncIterator[aiohttp.ClientResponse]:
        """As `Connection.stream`."""
        async with AsyncExitStack() as stack:
            answer = self._base.stream(replace(request, token=self._token), endless=endless)
            try:
                response = await stack.enter_async_context(answer)
            except Unauthorized as error:
                raise await self._reviews.explain_refusal(self._token, error) from error
            yield response

    async def wait_until_refused(self) -> str:
        """Wait until the cluster no longer accepts the token, and return the error message. Needed because an API server does not end open
        streams then."""
        return await self._reviews.wait_until_refused(self._token)

    async def client_config(self, refused: ClientConfig | None = None) -> ClientConfig:
        """As `Connection.client_config`. Raises ApiError if `refused` is given: only the user can get another token."""
        if refused is not None:
            raise await self._reviews.explain_refusal(self._token, Unauthorized("a stream was refused"))
        return replace(await self._base.client_config(), token=self._token)
