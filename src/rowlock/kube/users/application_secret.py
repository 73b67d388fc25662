"""Credentials of an application on a real cluster: a token of the cluster as its secret, and the name of the token's user as its id."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import msgspec

UNLIMITED_SECONDS = 3600
"""Lifetime reported for a token without an expiry. Then the application logs in again, and gets the same token if it is still valid."""
MAX_SECONDS = 10 * 365 * 24 * 3600
MAX_TOKEN, MAX_NAME = 8 * 1024, 253
_SERVICE_ACCOUNT = "system:serviceaccount:"


class _Claims(msgspec.Struct):
    exp: float | None = None


def is_token(text: str) -> bool:
    """Whether a text can be sent to the cluster as a bearer token in a header."""
    return 0 < len(text) <= MAX_TOKEN and text.isascii() and text.isprintable() and " " not in text


def is_name_of(client_id: str, user: str) -> bool:
    """Whether a client id names the cluster's user `user`; `NAMESPACE:NAME` stands for a service account."""
    return client_id in (user, user.removeprefix(_SERVICE_ACCOUNT))


def seconds_left(token: str, now: float) -> int:
    """Seconds until an accepted token expires, by a JWT's `exp` claim; `UNLIMITED_SECONDS` without one. The token is not verified: only the
    cluster can do that. `now`: seconds since the epoch."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except ValueError:  # not a JWT
        return UNLIMITED_SECONDS
    return UNLIMITED_SECONDS if claims.exp is None else int(min(max(claims.exp - now, 0), MAX_SECONDS))
