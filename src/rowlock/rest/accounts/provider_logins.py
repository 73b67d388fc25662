"""`/api/v1/login`: the ways to log in; and logins at the identity provider, whose ID token `/api/v1/token` exchanges.

The command lines speak to this server only. The server asks the provider and keeps the client secret.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rowlock.accounts.login_limits import LoginLimits
from rowlock.authentication.oidc.logins import LoginPending, OidcLogins, ProviderSession
from rowlock.errors import ApiError, BadRequest
from rowlock.rest.call import RestSettings

T = TypeVar("T")
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
FIELDS = {
    "device_code": ("deviceCode",),
    "refresh_token": ("refreshToken",),
    "authorization_code": ("code", "codeVerifier", "redirectUri", "nonce"),
}
"""Grant type → the fields that it needs."""
_MAX_TEXT = 8 * 1024


def describe_logins(settings: RestSettings) -> dict[str, Any]:
    """GET /login, which needs no token: the ways to log in, without secrets."""
    return {
        "password": settings.accounts is not None and not settings.accounts.is_empty,
        "application": settings.issue_token is not None,
        "oidc": settings.oidc.describe() if settings.oidc else None,
    }


def grant_of(text: object) -> str:
    """The short name of a grant type of the identity provider; "" for other grant types."""
    name = "device_code" if text == _DEVICE_GRANT else text
    return str(name) if name in FIELDS else ""


class ProviderLogins:
    """Logins at the identity provider, for callers without a token."""

    def __init__(self, logins: OidcLogins | None, limits: LoginLimits, clock: Callable[[], float]) -> None:
        self._logins, self._limits, self._clock = logins, limits, clock

    @property
    def is_configured(self) -> bool:
        return self._logins is not None

    async def begin_device(self, address: str) -> dict[str, Any]:
        """POST /login/device: a code to type at the provider. Raises BadRequest, Unavailable, TooManyRequests."""
        return await self._count(address, self._require().begin_device())

    async def begin_browser(self, body: Any, address: str) -> dict[str, Any]:
        """POST /login/browser: the provider's page for a browser that comes back to the command line. Raises BadRequest,
        Unavailable."""
        logins = self._require()
        redirect_uri, state, nonce, challenge = _texts(body, ("redirectUri", "state", "nonce", "codeChallenge"))
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise BadRequest("redirectUri must be on the machine that logs in: http://127.0.0.1:PORT/")
        url = logins.authorization_url(redirect_uri, state, nonce, challenge, offline=True)
        return {"url": await self._count(address, url)}

    async def exchange(self, grant: str, fields: Mapping[str, Any], address: str) -> dict[str, Any]:
        """Exchange the fields of a grant (`FIELDS`) for a token. Raises BadRequest, Unauthorized, Unavailable,
        TooManyRequests."""
        logins, texts = self._require(), _texts(fields, FIELDS[grant])
        session: ProviderSession
        if grant == "device_code":
            session = await self._count(address, logins.poll_device(texts[0]))
        elif grant == "refresh_token":
            session = await self._count(address, logins.renew(texts[0]))
        else:
            session = await self._count(address, logins.exchange_code(*texts))
        seconds = max(0, int(session.expires - self._clock()))
        renewal = {"refreshToken": session.refresh_token} if session.refresh_token else {}
        return {"accessToken": session.token, "expiresIn": seconds, "tokenType": "Bearer", **renewal}

    async def _count(self, address: str, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, a request to the provider, within the limit per address and minute for callers without a token."""
        try:
            self._limits.check(address)
        except ApiError:
            work.close()
            raise
        self._limits.count_failure(address)
        try:
            result = await work
        except LoginPending:
            self._limits.forgive(address)
            raise
        self._limits.forgive(address)
        return result

    def _require(self) -> OidcLogins:
        if self._logins is None:
            raise BadRequest(
                "this server knows no identity provider: `rowlock up --oidc-issuer-url URL --oidc-client-id ID` names one"
            )
        return self._logins


def _texts(body: Any, names: tuple[str, ...]) -> list[str]:
    """The values of these fields, in any spelling of their names. Raises BadRequest."""
    given = {str(key).lower().replace("_", ""): value for key, value in body.items()} if isinstance(body, dict) else {}
    values = [given.get(name.lower()) for name in names]
    if not all(isinstance(value, str) and 0 < len(value) <= _MAX_TEXT for value in values):
        raise BadRequest(f"this login needs {', '.join(names)}: texts of at most {_MAX_TEXT} characters")
    return [str(value) for value in values]
