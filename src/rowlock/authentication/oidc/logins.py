"""Logins at the identity provider: of browsers (code with PKCE), of a command line (device code, or a code at its own address), renewals.

Each ends in a verified ID token. The client secret, if there is one, is sent only to the provider.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from rowlock.authentication.oidc.id_tokens import IdTokens
from rowlock.authentication.oidc.provider import OidcProvider
from rowlock.authentication.oidc.provider_requests import ProviderAnswer, refusal_of
from rowlock.authentication.users import User
from rowlock.errors import BadRequest, Unauthorized

LOGIN_LIFETIME_S = 600.0
"""Seconds within which a browser must return from the provider."""
MAX_LOGINS = 1_000
"""Most pending logins; beyond it the oldest is dropped."""


class LoginPending(BadRequest):
    """The user has not approved the login at the provider yet: poll again."""

    reason = "AuthorizationPending"


class LoginTooFast(LoginPending):
    """Poll less often: add five seconds to the interval (RFC 8628)."""

    reason = "SlowDown"


class ProviderSession(NamedTuple):
    """The user, the ID token, when it expires (Unix seconds), and the refresh token ("" if there is none)."""

    user: User
    token: str
    expires: float
    refresh_token: str


class BrowserRedirect(NamedTuple):
    """Where to send a browser, and the secret that it keeps in a cookie until it returns."""

    url: str
    browser_secret: str


@dataclass(slots=True)
class _Login:
    browser_digest: bytes
    verifier: str
    nonce: str
    redirect_uri: str
    began: float


class OidcLogins:
    """Logins at one provider. `clock` gives Unix seconds."""

    def __init__(self, provider: OidcProvider, tokens: IdTokens, clock: Callable[[], float] = time.time) -> None:
        self._provider, self._tokens, self._clock = provider, tokens, clock
        self._logins: dict[str, _Login] = {}

    @property
    def label(self) -> str:
        return self._provider.settings.label

    def describe(self) -> dict[str, Any]:
        """The provider's public settings, for the login page."""
        settings = self._provider.settings
        return {
            "name": settings.label, "issuer": settings.issuer, "clientId": settings.client_id,
            "logoutUrl": self.logout_url() or None,
        }  # fmt: skip

    def logout_url(self, return_to: str = "") -> str:
        """The provider's logout page (RP-initiated logout); "" if it has none. The page asks for confirmation, because no ID token is sent
        as a hint: URLs end up in logs, and rowlock accepts the ID token as a bearer token until it expires."""
        endpoint = self._provider.known_address("end_session_endpoint")
        if not endpoint:
            return ""
        query = {"client_id": self._provider.settings.client_id}
        if return_to:
            query["post_logout_redirect_uri"] = return_to
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    # ------------------------------------------------------------ browsers

    async def begin(self, redirect_uri: str) -> BrowserRedirect:
        """Start a login: the URL at which the user logs in to the provider, and the browser's secret. Raises Unavailable."""
        verifier, nonce, state, browser_secret = (secrets.token_urlsafe(32) for _ in range(4))
        url = await self.authorization_url(redirect_uri, state, nonce, challenge_of(verifier))
        now = self._clock()
        self._logins = {key: one for key, one in self._logins.items() if now - one.began < LOGIN_LIFETIME_S}
        while len(self._logins) >= MAX_LOGINS:
            del self._logins[next(iter(self._logins))]
        self._logins[state] = _Login(_digest(browser_secret), verifier, nonce, redirect_uri, now)
        return BrowserRedirect(url, browser_secret)

    async def authorization_url(
        self, redirect_uri: str, state: str, nonce: str, challenge: str, *, offline: bool = False
    ) -> str:
        """The URL of the provider's login page, with these parameters. Raises Unavailable, BadRequest."""
        endpoint = await self._provider.address("authorization_endpoint")
        query = {
            "response_type": "code", "client_id": self._provider.settings.client_id, "redirect_uri": redirect_uri,
            "scope": self._provider.scopes(offline=offline), "state": state, "nonce": nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        return f"{endpoint}?{urlencode(query)}"

    async def finish(self, query: Mapping[str, str], browser_secret: str, redirect_uri: str) -> ProviderSession:
        """Complete a login when the browser returns. Each login can be completed once. Raises Unauthorized, Unavailable."""
        login = self._logins.pop(query.get("state", ""), None)
        if login is None or self._clock() - login.began >= LOGIN_LIFETIME_S:
            raise Unauthorized("this login is not known, or took longer than ten minutes: sign in again")
        if not hmac.compare_digest(login.browser_digest, _digest(browser_secret)):
            raise Unauthorized("this login was begun in another browser: sign in again")
        if query.get("error"):
            raise Unauthorized(f"{self.label} refused: {refusal_of(ProviderAnswer(0, dict(query)))}")
        if query.get("iss", self._provider.settings.issuer) != self._provider.settings.issuer:  # RFC 9207
            raise Unauthorized("another provider has answered: sign in again")
        if redirect_uri != login.redirect_uri:
            raise Unauthorized("the provider sent the browser to another address: sign in again")
        return await self.exchange_code(query.get("code", ""), login.verifier, redirect_uri, login.nonce)

    # ------------------------------------------------------------ tokens

    async def exchange_code(self, code: str, verifier: str, redirect_uri: str, nonce: str) -> ProviderSession:
        """Exchange an authorization code for tokens. Raises Unauthorized, Unavailable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        return await self._session(await self._ask(form), nonce)

    async def renew(self, refresh_token: str) -> ProviderSession:
        """Use a refresh token. Raises Unauthorized if the provider refuses it, Unavailable if the provider does not answer."""
        answer = await self._ask({"grant_type": "refresh_token", "refresh_token": refresh_token})
        return await self._session(answer, None, refresh_token)

    async def begin_device(self) -> dict[str, Any]:
        """Start a device login: the code that the user types at the provider. Raises Unavailable, BadRequest."""
        endpoint = await self._provider.address("device_authorization_endpoint")
        answer = await self._provider.requests.post(endpoint, {"scope": self._provider.scopes(offline=True)})
        body = answer.body
        texts = [body.get(name) for name in ("device_code", "user_code", "verification_uri")]
        if answer.status != 200 or not all(isinstance(text, str) and text for text in texts):
            raise BadRequest(f"{self.label} begins no device login: {refusal_of(answer)}")
        whole = body.get("verification_uri_complete")
        for url in (texts[2], whole):
            if url is not None and urlsplit(str(url)).scheme not in ("https", "http"):
                raise BadRequest(f"{self.label} names no web page for the device login")
        return {
            "deviceCode": texts[0], "userCode": texts[1], "verificationUri": texts[2], "verificationUriComplete": whole,
            "expiresIn": _seconds(body, "expires_in", 600), "interval": max(1, min(_seconds(body, "interval", 5), 60)),
        }  # fmt: skip

    async def poll_device(self, device_code: str) -> ProviderSession:
        """The session of a device login. Raises LoginPending until the user has approved it; Unauthorized, Unavailable."""
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        answer = await self._ask({"grant_type": grant, "device_code": device_code})
        if answer.body.get("error") == "authorization_pending":
            raise LoginPending(f"nobody has agreed at {self.label} yet")
        if answer.body.get("error") == "slow_down":
            raise LoginTooFast(f"{self.label} wants to be asked less often")
        return await self._session(answer, None)

    async def _ask(self, form: dict[str, str]) -> ProviderAnswer:
        return await self._provider.requests.post(await self._provider.address("token_endpoint"), form)

    async def _session(self, answer: ProviderAnswer, nonce: str | None, refresh_token: str = "") -> ProviderSession:
        if answer.status != 200:
            raise Unauthorized(f"{self.label} refused: {refusal_of(answer)}")
        token, renewed = answer.body.get("id_token"), answer.body.get("refresh_token")
        if not isinstance(token, str) or not token:
            raise Unauthorized(f"{self.label} gave no ID token: log in again")
        await self._tokens.look_up(token)
        claims = self._tokens.check(token, nonce)
        user = self._tokens.user_of(claims)
        return ProviderSession(
            user, token, float(claims["exp"]), renewed if isinstance(renewed, str) else refresh_token
        )


def challenge_of(verifier: str) -> str:
    """The PKCE code challenge (S256) of a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _seconds(body: Mapping[str, Any], name: str, usual: int) -> int:
    value = body.get(name)
    return int(value) if isinstance(value, int | float) and 0 < value < 86_400 else usual
