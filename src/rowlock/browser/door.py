"""The door for browsers: an ASGI application for a plain-HTTP listener of loopback, beside the API's TLS port.

    /  /assets/…                      the built files            open to whoever is on this machine
    POST /api/v1/ui/session           a code for a session       once, with the code that `rowlock ui` prints
    GET /api/v1/ui/workloads          all workloads, live      with a session: `feed.py`
    /api/v1/…                         the REST API               with a session; it acts with the token of whoever began it
    ws: …/pods/…/exec                 a terminal                 with a session: `terminals.py`

A page of another site must not get in through its visitor's browser. A name that was rebound to 127.0.0.1 has the wrong Host;
another site, or another port of this machine, has the wrong Origin, and does not know the key of the session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rowlock.browser import terminals
from rowlock.browser.event_stream import EventStream
from rowlock.browser.feed import WorkloadFeed
from rowlock.browser.sessions import CODE_LIFETIME_S, Sessions
from rowlock.browser.static_files import StaticFiles, load_files
from rowlock.controllers.supervisor import supervise
from rowlock.errors import ApiError, BadRequest, Forbidden, NotFound, TooLarge, Unauthorized
from rowlock.rest.app import RestApi, error_body, json_response
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.rights import EVERYBODY, Right

SESSION_PATH = "/api/v1/ui/session"
FEED_PATH = "/api/v1/ui/workloads"
KEY_HEADER = "x-rowlock-key"
HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of this machine; the port may be another one, that of a tunnel."""
MAX_EXCHANGE_BYTES = 4 * 1024
"""Bytes of an exchange: nobody knows yet who asks."""
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


class BrowserDoor:
    """One server's door; `port` is that of its listener."""

    def __init__(
        self,
        rest_api: RestApi,
        owner_token: str,
        port: int,
        *,
        version: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = Sessions(owner_token, clock)
        self._port, self._version = port, version
        self._files = StaticFiles(load_files())
        self._feed = WorkloadFeed(rest_api.cache, rest_api.api, clock)
        own = (
            rest_api.route("GET", SESSION_PATH, EVERYBODY, self._show_session),
            rest_api.route("GET", FEED_PATH, Right("list", "list"), self._follow_workloads),
        )
        self._rest = Starlette(routes=[*own, *rest_api.routes])
        self.code_route = rest_api.route("POST", "/api/v1/ui/codes", EVERYBODY, self._issue_code)
        """For the API's own port: `rowlock ui` asks it for a code."""
        self.exec_app: ASGIApp | None = None
        """The API, for terminals: it asks for rights and runs the programs. None where it is not served."""

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._port}/"

    @property
    def cookie_name(self) -> str:
        """With the port: cookies are those of a machine, and it may run several servers."""
        return f"rowlock-{self._port}"

    async def run(self) -> None:
        """The work beside the answers. One task of the server's TaskGroup."""
        await supervise("what open pages are told", self._feed.review)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] == "websocket":
            return await self._answer_websocket(scope, receive, send, path)
        request = Request(scope, receive)
        is_api = path.startswith("/api/")
        try:
            _check_host(request)
            if not is_api:
                response: Response | None = self._files.answer(request, path)
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
        """A terminal; nothing else speaks websockets here."""
        connection = HTTPConnection(scope)
        try:
            _check_host(connection)
            _check_origin(connection, is_required=True)  # browsers send it with every websocket, and ask nobody before
            if self.exec_app is None or not terminals.EXEC_PATH.fullmatch(path):
                raise NotFound("websockets are spoken here for terminals alone: /api/v1/namespaces/…/pods/…/exec")
            token = self._sessions.token_of(self._read_cookie(connection), terminals.offered_key(scope))
        except ApiError as error:
            return await terminals.refuse(error, receive, send)
        await terminals.serve_exec(self.exec_app, token, {**scope, "path": path}, receive, send)

    async def _answer_api(
        self, request: Request, scope: Scope, receive: Receive, send: Send, path: str
    ) -> Response | None:
        """The answer; None when it has been sent."""
        if path == SESSION_PATH and request.method == "POST":
            return await self._exchange(request)
        cookie, key = self._read_cookie(request), request.headers.get(KEY_HEADER, "")
        if path == SESSION_PATH and request.method == "DELETE":
            self._sessions.end(cookie, key)
            response = json_response(200, {"message": "The session is over."})
            self._set_cookie(response, request, "", 0)
            return response
        token = self._sessions.token_of(cookie, key)
        kept = [(name, value) for name, value in scope["headers"] if name not in (b"authorization", b"cookie")]
        headers = [*kept, (b"authorization", f"Bearer {token}".encode())]
        await self._rest({**scope, "headers": headers}, receive, send)
        return None

    # ------------------------------------------------------------ sessions

    async def _exchange(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise BadRequest('a code is exchanged as JSON: {"code": "…"} with content-type application/json')
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_EXCHANGE_BYTES:
                raise TooLarge(f"a code has less than {MAX_EXCHANGE_BYTES} bytes")
        session = self._sessions.exchange(_parse_code(bytes(body)))
        response = json_response(200, {"key": session.key, "seconds": session.seconds})
        self._set_cookie(response, request, session.cookie, session.seconds)
        return response

    def _set_cookie(self, response: Response, request: Request, value: str, seconds: int) -> None:
        path = request.scope.get("root_path", "") + "/"
        response.set_cookie(self.cookie_name, value, max_age=seconds, path=path, httponly=True, samesite="strict")

    def _read_cookie(self, request: HTTPConnection) -> str:
        """Ours alone: other servers of this machine have set others, odd and long ones perhaps."""
        for pair in request.headers.get("cookie", "").split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == self.cookie_name:
                return value.strip()
        raise Unauthorized("there is no session here: `rowlock ui` prints an address that begins one")

    async def _issue_code(self, call: RestCall) -> Any:
        """POST /api/v1/ui/codes: an address with a code for whoever asks."""
        call.validate_query()
        token = call.request.headers.get("authorization", "").partition(" ")[2].strip()
        code = self._sessions.issue_code(token)
        return JsonResult(201, {"url": f"{self.url}#code={code}", "seconds": int(CODE_LIFETIME_S)})

    async def _show_session(self, call: RestCall) -> Any:
        """GET /api/v1/ui/session: who is here, and where."""
        call.validate_query()
        cluster = call.context.settings.cluster_name
        return {"user": call.user, "version": self._version, "cluster": cluster, "time": call.context.clock()}

    async def _follow_workloads(self, call: RestCall) -> Any:
        """GET /api/v1/ui/workloads: a stream of rows, from the event on that the header Last-Event-ID names."""
        call.validate_query()
        last_event = call.request.headers.get("last-event-id", "")
        return EventStream(self._feed.open(call.context.cache, call.rights, last_event))


def _parse_code(raw: bytes) -> str:
    try:
        body = msgspec.json.decode(raw)
    except ValueError as error:  # msgspec.DecodeError, or a text that is no UTF-8
        raise BadRequest(f"the body is not JSON: {error}") from None
    code = body.get("code") if isinstance(body, dict) else None
    if not isinstance(code, str):
        raise BadRequest('a code is exchanged as {"code": "…"}')
    return code


def _check_host(request: HTTPConnection) -> None:
    """Raises Forbidden for a name that is not this machine's: one that was rebound to it, or is about to be."""
    host = request.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() not in HOSTS:
        raise Forbidden(
            f"the web UI answers to {', '.join(sorted(HOSTS))}, not to {name[:80]!r}: open it by one of these"
        )


def _check_origin(request: HTTPConnection, *, is_required: bool = False) -> None:
    """Raises Forbidden for a request that another page makes through its visitor's browser."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    own = f"http://{request.headers['host']}"
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
