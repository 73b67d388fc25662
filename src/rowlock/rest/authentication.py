"""Authentication by bearer token. The owner's token is in the data directory.

On a server with several users each has a token; programs use tokens of service accounts, or log in as applications
(`applications.py`).
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
    """The caller and the caller's rights; `rights` None means all."""

    name: str
    rights: Rights | None = None
    api: Api | None = None
    """The cluster with the caller's own credentials; None when the server's are used."""


TokenAuthenticator = Callable[[str, str], Principal | None]
"""(token, local address of the request) → user."""

TokenLookup = Callable[[str], Awaitable[None]]
"""Looks a token up at a remote authority, before the `TokenAuthenticator` is called. Raises ApiError."""


UNKNOWN_TOKEN = (
    "this token is not accepted here: the owner's is in the file `token` in the data directory, and counts on loopback; everybody else"
    " asks the owner of the cluster for a token"
)


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Accepts the owner's `token` and the users' tokens. `None` accepts every request, for tests; an empty token matches
    nothing."""

    token: str | None
    user: str
    authenticate_token: TokenAuthenticator | None = None
    """If set, it also decides about the owner's token, because not every listener accepts that one."""
    look_up_token: TokenLookup | None = None
    unknown_token: str = UNKNOWN_TOKEN
    """Error message for a token that `authenticate_token` does not know."""

    async def look_up(self, request: Request) -> None:
        """Look up the token of a request; await this before `authenticate`. Raises ApiError when the authority does not
        answer."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if self.look_up_token is None or self.token is None or scheme.lower() != "bearer" or not token.strip():
            return
        if not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            await self.look_up_token(token.strip())

    def authenticate(self, request: Request) -> Principal:
        """The caller. Raises Unauthorized."""
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
            raise Unauthorized(self.unknown_token)
        return principal if principal.name else replace(principal, name=self.user)
