"""What an application of a real cluster shows for itself: a token of the cluster as its secret, and the name of that token's user."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import msgspec

UNLIMITED_SECONDS = 3600
"""For how long a token is given that says nothing of its end. Then the application asks again, and gets the same one if it still counts."""
MAX_SECONDS = 10 * 365 * 24 * 3600
MAX_TOKEN, MAX_NAME = 8 * 1024, 253
_SERVICE_ACCOUNT = "system:serviceaccount:"


class _Claims(msgspec.Struct):
    exp: float | None = None


def is_token(text: str) -> bool:
    """Whether a text can go to the cluster as a bearer token, in a header."""
    return 0 < len(text) <= MAX_TOKEN and text.isascii() and text.isprintable() and " " not in text


def is_name_of(client_id: str, user: str) -> bool:
    """Whether a client id names the cluster's user `user`; `NAMESPACE:NAME` stands for a service account."""
    return client_id in (user, user.removeprefix(_SERVICE_ACCOUNT))


def seconds_left(token: str, now: float) -> int:
    """For how many seconds a token counts that the cluster has accepted. Only the cluster can check it; here the end is read that a
    JWT names. `now`: seconds since 1970."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims = msgspec.json.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except ValueError:  # no JWT
        return UNLIMITED_SECONDS
    return UNLIMITED_SECONDS if claims.exp is None else int(min(max(claims.exp - now, 0), MAX_SECONDS))
