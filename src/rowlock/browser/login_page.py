"""Logins of people in a browser: by password, at the identity provider, or with a token of a real cluster. Each begins a session.

    GET  /api/v1/ui/login           the ways to log in            open
    POST /api/v1/ui/login           name and password → session   open; rate limited as every login
    POST /api/v1/ui/login           token of a real cluster → session   open; the cluster names its user
    POST /api/v1/ui/login/oidc      → the provider's page         open
    GET  /oidc/callback             back from there → a one-time code in the fragment of the page's address

The provider redirects the browser back from another site, so the request carries no session. State, a separate cookie and PKCE's
verifier prove that the same browser began the login.
"""

from __future__ import annotations

import asyncio
import hmac
import html
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rowlock.authentication.oidc.logins import LOGIN_LIFETIME_S, OidcLogins
from rowlock.browser.sessions import BrowserLogin, BrowserSession, Sessions
from rowlock.errors import ApiError, BadRequest, TooManyRequests, Unauthorized, Unavailable, Unsupported
from rowlock.http_server.connection_limits import client_of
from rowlock.http_server.request_body import decode_json, read_body
from rowlock.rest.app import RestApi
from rowlock.rest.call import json_response

LOGIN_PATH, PROVIDER_PATH, CALLBACK_PATH = "/api/v1/ui/login", "/api/v1/ui/login/oidc", "/oidc/callback"
MAX_EXCHANGE_BYTES = 4 * 1024
"""Most bytes of a login's body, which is read before authentication."""
RENEW_EARLY_S, RENEW_AGAIN_S = 60.0, 10.0
"""Seconds before its expiry at which a provider's token is renewed, and seconds between two attempts."""
_STARTS_PER_MINUTE = 60
"""Logins at the provider begun per minute, over all browsers, since those on loopback share an address."""


class LoginPage:
    """The browser logins of one server."""

    def __init__(self, rest_api: RestApi, sessions: Sessions, clock: Callable[[], float]) -> None:
        self._rest_api, self._sessions, self._clock = rest_api, sessions, clock
        self._accounts, self._provider = rest_api.settings.accounts, rest_api.settings.oidc
        self._starts: list[float] = []

    def describe(self, *, is_local: bool) -> dict[str, Any]:
        """The ways to log in that the page offers. Does not reveal whether a certain account exists."""
        provider = {"name": self._provider.label} if self._provider else None
        has_accounts = self._accounts is not None and not self._accounts.is_empty
        return {"password": has_accounts, "oidc": provider, "code": is_local, "token": self._takes_tokens}

    @property
    def _takes_tokens(self) -> bool:
        """Whether people log in with tokens of a real cluster, the only way there."""
        return self._rest_api.settings.dialect is not None

    async def log_in(self, request: Request) -> BrowserSession:
        """Begin a session for a name and password, or a token of a real cluster. Raises BadRequest, Unauthorized, TooManyRequests, Unavailable."""
        body = await read_json(request)
        if self._takes_tokens:
            (token,) = parse_texts(body, ("token",))
            return await self._log_in_with_token(request, token.strip())
        name, password = parse_texts(body, ("username", "password"))
        issue = self._rest_api.settings.issue_user_token
        if self._accounts is None or issue is None:
            raise BadRequest("this server keeps no passwords")
        address = request.client.host if request.client else ""
        known = name if self._accounts.get(name) else ""  # an unknown name is not logged: it may be a mistyped password
        try:
            account = await self._accounts.authenticate(name, password, client_of(address))
            if account is None:
                raise Unauthorized("The user name or the password is wrong.")
        except ApiError as error:
            self._rest_api.record_login(known, address, LOGIN_PATH, error.code)
            raise
        self._rest_api.record_login(known, address, LOGIN_PATH, 200)
        issued = await issue(account)
        return self._sessions.begin(BrowserLogin(issued.token))

    async def _log_in_with_token(self, request: Request, token: str) -> BrowserSession:
        settings, address = self._rest_api.settings, request.client.host if request.client else ""
        assert settings.look_up_token and settings.authenticate_token, "a real cluster is asked for its users"
        try:
            if not is_owner_token(token, settings.token):
                await settings.look_up_token(token)
            user = settings.authenticate_token(token, str((request.scope.get("server") or ("",))[0]))
            if user is None:
                raise Unauthorized(
                    "The cluster does not know this token, or it has ended: `kubectl create token NAME` prints a new one."
                )
        except ApiError as error:
            self._rest_api.record_login("", address, LOGIN_PATH, error.code)
            raise
        self._rest_api.record_login(user.name or settings.user, address, LOGIN_PATH, 200)
        return self._sessions.begin(BrowserLogin(token))

    # ------------------------------------------------------------ the identity provider

    async def leave_for_provider(self, request: Request, cookie_name: str) -> Response:
        """The URL of the provider's login page, with a cookie for the return. Raises BadRequest, TooManyRequests, Unavailable."""
        await read_json(request)
        now = self._clock()
        self._starts = [start for start in self._starts if now - 60 < start <= now]
        if len(self._starts) >= _STARTS_PER_MINUTE:
            raise TooManyRequests("very many people sign in just now: try again in a minute", retry_after=60)
        self._starts.append(now)
        redirect = await self._require_provider().begin(_redirect_uri(request))
        response = json_response(200, {"url": redirect.url})
        response.set_cookie(
            cookie_name,
            redirect.browser_secret,
            max_age=int(LOGIN_LIFETIME_S),
            path=_base(request) + CALLBACK_PATH,
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="lax",  # it must be sent on the redirect from the provider; alone it grants nothing
        )
        return response

    async def return_from_provider(self, request: Request, cookie_name: str, cookie: str) -> Response:
        """Redirect to the page with a one-time code, or answer with a page that describes the error."""
        address = request.client.host if request.client else ""
        try:
            if request.method != "GET":
                raise Unsupported("the provider sends browsers here with GET")
            found = await self._require_provider().finish(dict(request.query_params), cookie, _redirect_uri(request))
        except ApiError as error:
            self._rest_api.record_login("", address, CALLBACK_PATH, error.code)
            response: Response = HTMLResponse(_problem_page(error.message), error.code)
        else:
            self._rest_api.record_login(found.user.name, address, CALLBACK_PATH, 200)
            code = self._sessions.issue_code(found.token, expires=found.expires, refresh_token=found.refresh_token)
            response = RedirectResponse(f"{_base(request)}/#code={code}", 303)
        response.delete_cookie(cookie_name, path=_base(request) + CALLBACK_PATH, httponly=True, samesite="lax")
        return response

    def provider_logout_url(self, request: Request) -> str | None:
        """The provider's logout page, which then redirects back here; None if it has none."""
        if self._provider is None:
            return None
        return self._provider.logout_url(f"{request.url.scheme}://{request.headers['host']}{_base(request)}/") or None

    async def renew(self, login: BrowserLogin) -> None:
        """Renew the token in the background if it expires soon; wait for that if it has expired. Raises Unavailable."""
        now = self._clock()
        if not login.refresh_token or now < login.expires - RENEW_EARLY_S:
            return
        if (login.renewal is None or login.renewal.done()) and now >= login.renew_after:
            login.renew_after = now + RENEW_AGAIN_S
            login.renewal = asyncio.create_task(self._renew(login))
        if now >= login.expires and login.renewal is not None:
            await asyncio.shield(login.renewal)
            if self._clock() >= login.expires:
                raise Unavailable(
                    "your session cannot be renewed: the identity provider does not answer; try again in a moment"
                )

    async def _renew(self, login: BrowserLogin) -> None:
        try:
            session = await self._require_provider().renew(login.refresh_token)
        except Unauthorized:
            login.refresh_token, login.expires = "", self._clock()
        except ApiError:
            return  # the provider is unreachable: try again later
        else:
            login.token, login.expires, login.refresh_token = session.token, session.expires, session.refresh_token

    def _require_provider(self) -> OidcLogins:
        if self._provider is None:
            raise BadRequest("this server knows no identity provider: `rowlock up --oidc-issuer-url URL` names one")
        return self._provider


async def read_json(request: Request) -> Any:
    """Read a small JSON body. Its content type forces a CORS preflight on other sites. Raises BadRequest, TooLarge."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise BadRequest('a code is exchanged as JSON: {"code": "…"} with content-type application/json')
    raw = await read_body(request, MAX_EXCHANGE_BYTES, f"a login has less than {MAX_EXCHANGE_BYTES} bytes")
    return decode_json(raw)


def parse_texts(body: Any, names: tuple[str, ...]) -> list[str]:
    """These string fields of the body. Raises BadRequest."""
    values = [body.get(name) if isinstance(body, dict) else None for name in names]
    if not all(isinstance(value, str) for value in values):
        fields = ", ".join(f'"{name}": "…"' for name in names)
        raise BadRequest(f"what is exchanged for a session is {{{fields}}}")
    return [str(value) for value in values]


def is_owner_token(token: str, owner_token: str | None) -> bool:
    """Whether it is the server's own token, which no real cluster knows."""
    return owner_token is not None and hmac.compare_digest(token.encode(), owner_token.encode())


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _redirect_uri(request: Request) -> str:
    """The redirect URI, which must be registered at the provider exactly. The Host header has been checked."""
    return f"{request.url.scheme}://{request.headers['host']}{_base(request)}{CALLBACK_PATH}"


def _problem_page(message: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sign in: rowlock</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"></head>'
        f"<body><main><h1>You are not signed in</h1><p>{html.escape(message)}</p>"
        '<p><a href="../">Back to the login page</a></p></main></body></html>\n'
    )
