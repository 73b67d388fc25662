"""Who is asking. On one machine the token in the data directory is the key, accepted as it is.

Users, applications (client id and secret) and roles come with servers that are bound to other addresses; until then
`/api/v1/token` has nothing to exchange and says so.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.requests import Request

from rowlock.errors import BadRequest, Unauthorized


@dataclass(frozen=True, slots=True)
class Door:
    """`token` opens it; "" leaves it open (tests). Everybody who comes in is `user`."""

    token: str
    user: str

    def enter(self, request: Request) -> str:
        """The user's name. Raises Unauthorized."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not self.token:
            return self.user
        if scheme.lower() != "bearer" or not given:
            raise Unauthorized(
                "a token is needed: send `Authorization: Bearer <token>`; it is in the data directory's file `token`"
            )
        if not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            raise Unauthorized("the token is not this cluster's: read it again from the data directory's file `token`")
        return self.user

    def exchange(self, body: Any) -> NoReturn:
        """`POST /api/v1/token`: there are no applications to exchange credentials of."""
        given = {str(k).lower(): v for k, v in body.items()} if isinstance(body, dict) else {}
        wanted = str(given.get("granttype") or given.get("grant_type") or "client_credentials")
        raise BadRequest(
            f"this cluster has no users or applications, so {wanted!r} has nothing to exchange: "
            "send the data directory's token as `Authorization: Bearer <token>`"
        )
