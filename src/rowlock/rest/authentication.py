"""Who is asking. On one machine the token in the data directory is the key, accepted as it is.

Users of a server that is bound to other addresses have tokens of their own; programs have those of service accounts, or log in as
applications (`applications.py`).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from starlette.requests import Request

from rowlock.api import Api
from rowlock.errors import Unauthorized
from rowlock.rest.rights import Rights


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and what he may do; `rights` None is everything."""

    name: str
    rights: Rights | None = None
    api: Api | None = None
    """The cluster as he may use it, where it is asked with his own credentials."""


TokenAuthenticator = Callable[[str, str], Principal | None]
"""From a token, and the address of ours that it came to, to whoever holds it."""

TokenLookup = Callable[[str], Awaitable[None]]
"""Finds out whose a token is, where only somebody else knows; a `TokenAuthenticator` is asked then. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class Authenticator:
    """The owner's `token` opens it, or one of a user's. `None` leaves it open, for tests; an empty token opens nothing."""

    token: str | None
    user: str
    authenticate_token: TokenAuthenticator | None = None
    """Where there is such a list, it decides about the owner's token too: not every listener accepts that one."""
    look_up_token: TokenLookup | None = None

    async def look_up(self, request: Request) -> None:
        """To be awaited before `authenticate`. Raises ApiError where nobody can say who asks."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if self.look_up_token is None or self.token is None or scheme.lower() != "bearer" or not token.strip():
            return
        if not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            await self.look_up_token(token.strip())

    def authenticate(self, request: Request) -> Principal:
        """Raises Unauthorized."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if self.token is None:
            return Principal(self.user)
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "a token is needed: send `Authorization: Bearer <token>`; it is in the file `token` in the data directory"
            )
        if self.authenticate_token:
            return self._authenticate_token(self.authenticate_token, request, token.strip())
        if not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            raise Unauthorized(
                "the token is not the one of this cluster: read it from the file `token` in the data directory"
            )
        return Principal(self.user)

    def _authenticate_token(self, authenticate_token: TokenAuthenticator, request: Request, token: str) -> Principal:
        address = (request.scope.get("server") or ("",))[0]
        principal = authenticate_token(token, str(address))
        if principal is None:
            raise Unauthorized(
                "this token is not accepted here: the owner's is in the file `token` in the data directory, and counts on"
                " loopback; everybody else asks the owner of the cluster for a token of his own"
            )
        return principal if principal.name else replace(principal, name=self.user)
