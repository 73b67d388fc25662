"""The ASGI application for browsers, served over plain HTTP on loopback, beside the API's TLS port.

    /  /assets/…                      the built files            open to every user of this machine
    POST /api/v1/ui/session           a code for a session       once, with the code that `rowlock ui` prints
    GET /api/v1/ui/workloads          all workloads, live      with a session: `feed.py`
    /api/v1/ui/downloads              logs, saved as files     with a session: `downloads.py`
    /api/v1/…                         the REST API               with a session; it acts with the token that began the session
    ws: …/pods/…/exec                 a terminal                 with a session: `open_requests.py`
    /api/v1/ui/login  /oidc/callback  people log in              `login_page.py`

With `rowlock up --ui-address` the same is served over HTTPS at another address, without one-time codes for the owner, whose token is
accepted on loopback only.

Pages of other sites must not get in through their visitor's browser. A request through a name rebound to 127.0.0.1 has the wrong Host;
one from another site, or another port of this machine, has the wrong Origin and lacks the session's key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.browser import open_requests
from rowlock.browser.downloads import DOWNLOADS_PATH, Downloads
from rowlock.browser.event_stream import EventStream
from rowlock.browser.feed import WorkloadFeed
from rowlock.browser.login_page import CALLBACK_PATH, LOGIN_PATH, PROVIDER_PATH, LoginPage, parse_texts, read_json
from rowlock.browser.open_requests import OpenRequests
from rowlock.browser.sessions import CODE_LIFETIME_S, BrowserSession, Sessions
from rowlock.browser.static_files import StaticFiles, load_files
from rowlock.controllers.supervisor import supervise
from rowlock.errors import ApiError, Forbidden, NotFound, Unauthorized, Unsupported
from rowlock.rest.app import RestApi
from rowlock.rest.call import JsonResult, RestCall, error_body, json_response
from rowlock.rest.rights import EVERYBODY, Right

SESSION_PATH = "/api/v1/ui/session"
FEED_PATH = "/api/v1/ui/workloads"
KEY_HEADER = "x-rowlock-key"
HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Accepted names in Host. Any port is accepted, since there may be a tunnel."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_RAW_HEADERS = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


class Elsewhere(NamedTuple):
    """The HTTPS address for other machines: its port and the server's names there, the preferred one first."""

    port: int
    names: tuple[str, ...]


class BrowserDoor:
    """The browser application of one server; `port` is its port on loopback."""

    def __init__(
        self,
        rest_api: RestApi,
        owner_token: str,
        port: int,
        *,
        version: str = "",
        elsewhere: Elsewhere | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = Sessions(owner_token, clock)
        self._logins, self._open = LoginPage(rest_api, self._sessions, clock), OpenRequests()
        self._downloads = Downloads(clock, KEY_HEADER)
        self._rest_api, self._elsewhere = rest_api, elsewhere
        self._port, self._version = port, version
        self._files = StaticFiles(load_files())
        self._feed = WorkloadFeed(rest_api.cache, rest_api.api, clock, rest_api.events)
        own = (
            rest_api.route("GET", SESSION_PATH, EVERYBODY, self._show_session),
            rest_api.route("GET", FEED_PATH, Right("list", "list"), self._follow_workloads),
            rest_api.route("POST", DOWNLOADS_PATH, EVERYBODY, self._downloads.issue),
        )
        self._rest = Starlette(routes=[*own, *rest_api.routes])
        self.code_route = rest_api.route("POST", "/api/v1/ui/codes", EVERYBODY, self._issue_code)
        """A route for the API's own port, where `rowlock ui` requests a code."""
        self.exec_app: ASGIApp | None = None
        """The Kubernetes API, which authorizes and runs terminals; None if it is not served."""

    @property
    def url(self) -> str:
        """The page's URL on this machine."""
        return f"http://127.0.0.1:{self._port}/"

    @property
    def other_urls(self) -> list[str]:
        """The page's URLs for other machines."""
        names, port = (self._elsewhere.names, self._elsewhere.port) if self._elsewhere else ((), 0)
        return [f"https://{f'[{name}]' if ':' in name else name}:{port}/" for name in names]

    def cookie_name(self, scope: Scope) -> str:
        """Contains the port, because cookies are shared by all ports of a machine, and it may run several servers."""
        is_elsewhere = self._elsewhere is not None and _is_secure(scope)
        return f"rowlock-{self._elsewhere.port if self._elsewhere and is_elsewhere else self._port}"

    async def run(self) -> None:
        """Background work; runs as a task of the server."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervise("what open pages are told", self._feed.review))
            tasks.create_task(supervise("the ends of sessions", self._open.review))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] == "websocket":
            return await self._answer_websocket(scope, receive, send, path)
        request = Request(scope, receive)
        is_api = path.startswith("/api/")
        try:
            self._check_host(request)
            if path == CALLBACK_PATH:
                name = self._login_cookie_name(scope)
                cookie = _find_cookie(request, name)
                response: Response | None = await self._logins.return_from_provider(request, name, cookie)
            elif not is_api:
                response = self._files.answer(request, path)
            else:
                _check_origin(request)
                response = await self._answer_api(request, scope, receive, _with_headers(send), path)
        except ApiError as error:
            response = (
                json_response(error.code, error_body(error))
                if is_api
                else PlainTextResponse(error.message + "\n", error.code)
            )
        if response is not None:
            response.headers.update({"cache-control": "no-store", **_HEADERS, **dict(response.headers)})
            await response(scope, receive, send)

    async def _answer_websocket(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Serve a terminal, the only use of websockets here."""
        connection = HTTPConnection(scope)
        try:
            self._check_host(connection)
            _check_origin(connection, is_required=True)  # browsers send it; websockets have no CORS preflight
            if self.exec_app is None or not open_requests.EXEC_PATH.fullmatch(path):
                raise NotFound("websockets are spoken here for terminals alone: /api/v1/namespaces/…/pods/…/exec")
            api, cookie, key = self.exec_app, self._read_cookie(connection), open_requests.offered_key(scope)
            session, token = await self._session_token(cookie, key)
        except ApiError as error:
            return await open_requests.refuse(error, receive, send)

        async def serve(inner: Scope, receive: Receive, send: Send) -> None:
            await open_requests.serve_exec(api, token, {**inner, "path": path}, receive, send)

        await self._open.serve(session, serve, scope, receive, send, check=self._session_check(cookie, key, scope))

    async def _answer_api(
        self, request: Request, scope: Scope, receive: Receive, send: Send, path: str
    ) -> Response | None:
        """The answer; None if it has been sent already. Raises ApiError."""
        if path in (LOGIN_PATH, PROVIDER_PATH):
            return await self._answer_login(request, path)
        if path == SESSION_PATH and request.method == "POST":
            (code,) = parse_texts(await read_json(request), ("code",))
            return self._session_answer(request, self._sessions.exchange(code))
        cookie, key = self._read_cookie(request), request.headers.get(KEY_HEADER, "")
        if path == SESSION_PATH and request.method == "DELETE":
            is_of_provider = self._sessions.is_of_provider(cookie)
            self._open.end(self._sessions.end(cookie, key))
            url = self._logins.provider_logout_url(request) if is_of_provider else None
            response = json_response(200, {"message": "The session is over.", "providerLogoutUrl": url})
            self._set_cookie(response, request, "", 0)
            return response
        if path.startswith(f"{DOWNLOADS_PATH}/") and request.method == "GET":
            download = self._downloads.redeem(path.removeprefix(f"{DOWNLOADS_PATH}/"))
            key, scope, send = download.key, download.request_scope(scope), download.attach(send)
        session, token = await self._session_token(cookie, key)
        kept = [(name, value) for name, value in scope["headers"] if name not in (b"authorization", b"cookie")]
        headers = [*kept, (b"authorization", f"Bearer {token}".encode())]
        check = self._session_check(cookie, key, scope)
        await self._open.serve(session, self._rest, {**scope, "headers": headers}, receive, send, check=check)
        return None

    async def _answer_login(self, request: Request, path: str) -> Response:
        if path == PROVIDER_PATH and request.method == "POST":
            return await self._logins.leave_for_provider(request, self._login_cookie_name(request.scope))
        if path == LOGIN_PATH and request.method == "POST":
            return self._session_answer(request, await self._logins.log_in(request))
        if path == LOGIN_PATH and request.method == "GET":
            return json_response(200, self._logins.describe(is_local=not _is_secure(request.scope)))
        raise Unsupported(f"{path} knows no {request.method}")

    # ------------------------------------------------------------ sessions

    async def _session_token(self, cookie: str, key: str) -> tuple[str, str]:
        """The name of a session, and its current token. Raises Unauthorized, Unavailable."""
        session, login = self._sessions.login_of(cookie, key)
        await self._logins.renew(login)
        return session, login.token

    def _session_check(self, cookie: str, key: str, scope: Scope) -> Callable[[], Awaitable[None]]:
        """A function that raises Unauthorized once the session or its token has ended."""
        address = str((scope.get("server") or ("",))[0])

        async def check() -> None:
            _, token = await self._session_token(cookie, key)
            await self._rest_api.check_token(token, address)

        return check

    def _session_answer(self, request: Request, session: BrowserSession) -> Response:
        response = json_response(200, {"key": session.key, "seconds": session.seconds})
        self._set_cookie(response, request, session.cookie, session.seconds)
        return response

    def _set_cookie(self, response: Response, request: Request, value: str, seconds: int) -> None:
        path = request.scope.get("root_path", "") + "/"
        name, is_secure = self.cookie_name(request.scope), _is_secure(request.scope)
        response.set_cookie(name, value, max_age=seconds, path=path, httponly=True, samesite="strict", secure=is_secure)

    def _login_cookie_name(self, scope: Scope) -> str:
        return self.cookie_name(scope).replace("rowlock-", "rowlock-login-")

    def _read_cookie(self, request: HTTPConnection) -> str:
        """The session cookie. Parsed by hand, since other servers of this machine may have set malformed cookies. Raises Unauthorized."""
        if value := _find_cookie(request, self.cookie_name(request.scope)):
            return value
        raise Unauthorized("there is no session here: sign in, or let `rowlock ui` print an address that begins one")

    def _check_host(self, request: HTTPConnection) -> None:
        """Raises Forbidden if the Host header is not one of the server's names, as after DNS rebinding."""
        host = request.headers.get("host", "")
        name = (host if host.endswith("]") else host.rpartition(":")[0] or host).lower()
        others = self._elsewhere.names if self._elsewhere and _is_secure(request.scope) else ()
        if name not in HOSTS and name.strip("[]") not in [other.lower() for other in others]:
            known = ", ".join([*sorted(HOSTS), *others])
            hint = "; `rowlock up --tls-san NAME` adds one" if others else ""
            raise Forbidden(f"the web UI answers to {known}, not to {name[:80]!r}: open it by one of these{hint}")

    async def _issue_code(self, call: RestCall) -> Any:
        """POST /api/v1/ui/codes: the page's URL with a one-time code for the caller."""
        call.validate_query()
        token = call.request.headers.get("authorization", "").partition(" ")[2].strip()
        code = self._sessions.issue_code(token)
        return JsonResult(201, {"url": f"{self.url}#code={code}", "seconds": int(CODE_LIFETIME_S)})

    async def _show_session(self, call: RestCall) -> Any:
        """GET /api/v1/ui/session: the user and the server. `isReal`: it works on a Kubernetes cluster, whose pods run images."""
        call.validate_query()
        settings = call.context.settings
        return {
            "user": call.user,
            "version": self._version,
            "cluster": settings.cluster_name,
            "isReal": settings.dialect is not None,
            "time": call.context.clock(),
        }

    async def _follow_workloads(self, call: RestCall) -> Any:
        """GET /api/v1/ui/workloads: a stream of rows, resumed after the event in the header Last-Event-ID."""
        call.validate_query()
        last_event = call.request.headers.get("last-event-id", "")
        return EventStream(self._feed.open(call.context.cache, call.rights, last_event))


def _is_secure(scope: Scope) -> bool:
    return scope["scheme"] in ("https", "wss")


def _find_cookie(request: HTTPConnection, name: str) -> str:
    """The cookie's value; "" if it is not set."""
    for pair in request.headers.get("cookie", "").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip()
    return ""


def _check_origin(request: HTTPConnection, *, is_required: bool = False) -> None:
    """Raises Forbidden for a request from another site's page (cross-site request forgery)."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    own = f"{'https' if _is_secure(request.scope) else 'http'}://{request.headers['host']}"
    if origin not in ((own,) if is_required else (None, own)) or site not in ("same-origin", "none"):
        raise Forbidden("this request comes from another site's page: only the web UI's own pages may ask here")


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            extra = [*_RAW_HEADERS, (b"cache-control", b"no-store")]
            message = {**message, "headers": [*message["headers"], *(h for h in extra if h[0] not in own)]}
        await send(message)

    return send_with_headers
