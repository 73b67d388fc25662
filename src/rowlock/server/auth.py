"""Who is asking. On one machine the token in the data directory is the key, accepted as it is.

A server that is bound to other addresses has users with tokens of their own; `Guests` knows them. Applications (client
id and secret) are not there yet: `/api/v1/token` has nothing to exchange and says so.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.requests import Request

from rowlock.errors import BadRequest, Forbidden, Unauthorized


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody who has a token of his own, and what his groups let him do."""

    name: str
    reads: bool
    writes: bool

    def check(self, method: str) -> None:
        """Raises Forbidden."""
        if not (self.writes or (self.reads and method in ("GET", "HEAD"))):
            verb = "change anything" if self.reads else "read anything"
            raise Forbidden(
                f"{self.name} may not {verb} here: a user's rights come from the groups in the server's --users file"
            )


Guests = Callable[[str, str], Guest | None]
"""From a token, and the address of ours that it came to, to whoever holds it."""


@dataclass(frozen=True, slots=True)
class Door:
    """`token` opens it, or a guest's; "" leaves it open (tests). Who comes in with `token` is `user`."""

    token: str
    user: str
    guests: Guests | None = None
    """Where there is such a list, it knows the owner too: he may not come in by every door."""

    def enter(self, request: Request) -> str:
        """The user's name. Raises Unauthorized, Forbidden."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not self.token:
            return self.user
        if scheme.lower() != "bearer" or not given:
            raise Unauthorized(
                "a token is needed: send `Authorization: Bearer <token>`; it is in the data directory's file `token`"
            )
        if self.guests:
            return self._guest(self.guests, request, given.strip())
        if not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            raise Unauthorized("the token is not this cluster's: read it again from the data directory's file `token`")
        return self.user

    def _guest(self, guests: Guests, request: Request, token: str) -> str:
        address = (request.scope.get("server") or ("",))[0]
        guest = guests(token, str(address))
        if guest is None:
            raise Unauthorized("nobody may come in here with that token: ask whoever runs the server for one of yours")
        guest.check(request.method)
        return guest.name or self.user

    def exchange(self, body: Any) -> NoReturn:
        """`POST /api/v1/token`: there are no applications to exchange credentials of."""
        given = {str(k).lower(): v for k, v in body.items()} if isinstance(body, dict) else {}
        wanted = str(given.get("granttype") or given.get("grant_type") or "client_credentials")
        raise BadRequest(
            f"this cluster has no applications, so {wanted!r} has nothing to exchange: send "
            f"{'your own token' if self.guests else 'the token of the data directory'} as `Authorization: Bearer <token>`"
        )
