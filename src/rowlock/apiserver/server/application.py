"""The Kubernetes API over HTTP: authentication and routing. An ASGI application and its routes.

    /api /apis              discovery, objects         a token is needed
    /openapi/v2 /openapi/v3 schemas                    a token is needed
    /version /healthz …     version, health            open
Paths are split by hand, without patterns: the hot path is a few dictionary look-ups.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from rowlock import kinds
from rowlock.apiserver.endpoints import (
    computed_kinds,
    deletes,
    events,
    reviews,
    subresources,
    token_requests,
    verbs,
    watches,
)
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import WRONG_METHOD, Call, Target, path_not_found, wants_yaml
from rowlock.apiserver.http.responses import (
    INTERNAL_ERROR_MESSAGE,
    Reply,
    answer_error,
    answer_object,
    websocket_send,
    yaml_send,
)
from rowlock.apiserver.server.non_resource import is_open, serve_non_resource
from rowlock.apiserver.server.settings import ApiServerSettings, RequestObserver
from rowlock.authentication import token_review
from rowlock.authentication.users import TokenAuthenticator, User
from rowlock.authorization import impersonation
from rowlock.authorization.authorizer import Authorizer
from rowlock.authorization.open_requests import LongRunningRequests
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.errors import (
    ApiError,
    BadRequest,
    Internal,
    TooLarge,
    Unauthorized,
    Unsupported,
    not_found,
)
from rowlock.http_server.late import Late
from rowlock.storage.store import Store

if TYPE_CHECKING:
    from rowlock.apiserver.streams.websockets import StreamingRuntime

log = logging.getLogger(__name__)


def _import_pod_streams() -> ModuleType:
    from rowlock.apiserver.streams import pod_streams

    return pod_streams


_POD_STREAMS = Late(_import_pod_streams)
NO_KUBELET_MESSAGE = "this cluster was started without a kubelet: no pod runs here"


class ApiServer:
    """The ASGI application."""

    def __init__(
        self,
        store: Store,
        settings: ApiServerSettings,
        streaming_runtime: StreamingRuntime | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._store, self._settings, self._streaming_runtime = store, settings, streaming_runtime
        self._authorizer = authorizer or RbacAuthorizer(store.view)
        self._authenticator = TokenAuthenticator(
            settings.token,
            settings.tokens,
            loopback_only=settings.owner_loopback_only,
            service_accounts=settings.find_token_user,
        )
        self._observer = settings.observer
        self._review_token = token_review.token_reviewer(settings.service_accounts, self._authenticator)
        self._long_running = LongRunningRequests(
            settings.watch_limit, None if self._observer is None else self._observer.count_long_running
        )
        self._computed_kinds = computed_kinds.ComputedKinds(store, self._long_running)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_websocket := scope["type"] == "websocket":
            await receive()
            scope, send = {**scope, "method": "GET"}, websocket_send(send)
        warnings: list[str] = []
        headers = dict(scope["headers"])
        exchange = (scope.get("extensions") or _NO_EXTENSIONS).get("rowlock")
        reply = Reply(send, exchange.answer if exchange is not None else None)
        began = time.perf_counter()
        call: Call | None = None
        if b"yaml" in headers.get(b"accept", b"") and wants_yaml(headers[b"accept"].decode("latin-1")):
            reply = Reply(yaml_send(send), None)
        try:
            call = await self._read_call(scope, receive, headers)
            warnings = call.warnings
            if is_websocket and not _POD_STREAM_PATH.fullmatch(call.path):
                raise path_not_found()
            await self._route(call, receive, reply)
        except ApiError as error:
            if not reply.started:
                await answer_error(reply, error, warnings)
            elif is_websocket:
                await _close_websocket(send, error.message)
            elif call is not None:  # nobody may take what was sent for the whole
                call.cut()
                await asyncio.sleep(0)  # the protocol knows by then
        except Exception as error:
            if reply.started and call is not None and call.stream_scope and isinstance(error, OSError):
                return  # the client of a stream has disconnected
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not reply.started:
                await answer_error(reply, Internal(INTERNAL_ERROR_MESSAGE), warnings)
            elif is_websocket:
                await send({"type": "websocket.close", "code": 1011, "reason": INTERNAL_ERROR_MESSAGE})
        finally:
            if self._settings.audit is not None:
                self._settings.audit(scope, call, reply.code)
            if self._observer is not None:
                self._observe(self._observer, call, scope["method"], reply.code, time.perf_counter() - began)

    @staticmethod
    def _observe(observer: RequestObserver, call: Call | None, method: str, code: int, seconds: float) -> None:
        """Count a finished request: without an answer it was upgraded (101), or its client has disconnected (499, as in nginx)."""
        if call is None:
            return observer.count_request(method, None, code or 499, seconds)
        observer.count_request(call.verb or method, call.target, code or (101 if call.stream_scope else 499), seconds)

    # ------------------------------------------------------------ who

    async def _read_call(self, scope: Scope, receive: Receive, headers: Mapping[bytes, bytes]) -> Call:
        path = scope["path"]
        call = Call(
            scope["method"], path, requests.parse_query(scope["query_string"]), headers, User("", ()), self._authorizer
        )
        extensions = scope.get("extensions") or _NO_EXTENSIONS
        if scope["type"] == "websocket" or "rowlock.take_over" in extensions:
            call.stream_scope = scope
        exchange = extensions.get("rowlock")
        if exchange is not None:
            call.pass_on, call.cut = exchange.pass_on, exchange.cut
        if not is_open(path):
            address = (scope.get("server") or ("",))[0]
            call.identify = partial(
                self._identify, headers, address, scope["headers"]
            )  # which does not refer to the call
            call.user, call.impersonator = await call.identify()
        if call.method in ("POST", "PUT", "PATCH", "DELETE"):
            body = exchange.body() if exchange is not None else None
            if body is None:
                body = await self._read_body(call, receive)
            elif len(body) > self._settings.body_limit:
                raise _too_large_error(self._settings.body_limit)
            call.body = body
        return call

    async def _identify(
        self, headers: Mapping[bytes, bytes], address: str, all_headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[User, str]:
        """The user who sends the request, or the one that it impersonates and who does so ("" = nobody). Raises Unauthorized,
        Forbidden."""
        if self._settings.id_tokens is not None and (token := _provided_token(headers)):
            await self._settings.id_tokens.look_up(token)
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        user = self._authenticator.authenticate(token.strip(), address) if kind.lower() == "bearer" else None
        if user is None:
            raise Unauthorized("Unauthorized")
        if b"impersonate-user" in headers or b"impersonate-group" in headers:
            return impersonation.impersonate(self._authorizer, user, all_headers), user.name
        return user, ""

    async def _read_body(self, call: Call, receive: Receive) -> bytes:
        limit = self._settings.body_limit
        declared = call.header(b"content-length")
        if declared.isascii() and declared.isdigit() and (len(declared) > len(str(limit)) or int(declared) > limit):
            raise _too_large_error(limit)
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
            if len(body) > limit:
                raise _too_large_error(limit)
        return body

    # ------------------------------------------------------------ where

    async def _route(self, call: Call, receive: Receive, send: Send) -> None:
        parts = call.path.rstrip("/").split("/")[1:]
        head = parts[0] if parts else ""
        if head == "api" and len(parts) > 2 and parts[1] == "v1":
            return await self._serve_resource(call, receive, send, ("", "v1"), parts[2:])
        if head == "apis" and len(parts) > 3:
            return await self._serve_resource(call, receive, send, (parts[1], parts[2]), parts[3:])
        if call.method not in ("GET", "HEAD"):
            raise Unsupported(WRONG_METHOD) if parts in _READ_ONLY_PATHS else path_not_found()
        await serve_non_resource(call, send, self._settings, parts)

    async def _serve_resource(
        self, call: Call, receive: Receive, send: Send, version: tuple[str, str], rest: list[str]
    ) -> None:
        if (
            version[0] in _UNSTORED_PATH_PARTS or not _UNSTORED_PATH_PARTS.isdisjoint(rest)
        ) and await self._serve_unstored(call, receive, send, version, rest):
            return
        await self._serve_object(call, receive, send, requests.parse_target(*version, rest))

    async def _serve_unstored(
        self, call: Call, receive: Receive, send: Send, version: tuple[str, str], rest: list[str]
    ) -> bool:
        """Serve resources that are not stored objects. False when the path is one of a stored object."""
        core = version == ("", "v1")
        place = (*version, rest[-1])
        if place in reviews.REVIEWS and call.method == "POST" and len(rest) in (1, 3):
            reviews.authorize_review(call, place, rest[1] if len(rest) == 3 else "")
            await request_body.convert_large_body(call)
            review = reviews.review(call, place, request_body.decode_body(call), self._review_token)
            await answer_object(send, review, code=201)
        elif version == (events.GROUP, events.VERSION):
            await events.serve_events(
                call,
                send,
                self._store,
                rest,
                lambda call, send: self._serve_resource(call, receive, send, ("", "v1"), rest),
            )
        elif (computed := computed_kinds.match_path(version, rest)) is not None:
            await self._computed_kinds.serve(call, receive, send, computed)
        elif core and len(rest) == 3 and rest[0] == "namespaces" and rest[2] == "bindings":
            await self._serve_object(call, receive, send, Target(kinds.POD, rest[1], "", "binding"))
        elif rest[0] == "watch" and rest[1:]:
            target = requests.watch_target(call, requests.parse_target(*version, rest[1:]))
            await self._serve_object(call, receive, send, target)
        else:
            return False
        return True

    async def _serve_object(self, call: Call, receive: Receive, send: Send, target: Target) -> None:
        verb = requests.verb_of(call, target.name, target.subresource)
        call.verb, call.target = verb, target
        call.require(verb, target)
        if target.subresource not in _STREAMING_SUBRESOURCES:
            # refuse before writing if the client does not accept any form of the answer
            requests.negotiate_form(call.header(b"accept"), for_list=verb == "list")
            await request_body.convert_large_body(call)
        if target.subresource:
            return await self._serve_subresource(call, receive, send, target)
        if verb == "watch":
            with self._long_running.hold(call, verb, target):
                return await watches.watch(call, receive, send, self._store, target)
        await _VERB_HANDLERS[verb](call, send, self._store, target)

    async def _serve_pod_stream(self, call: Call, receive: Receive, send: Send, target: Target) -> None:
        """exec, attach and port-forward."""
        pod = await subresources.get_connectable_pod(call, self._store, target)
        if not call.header(b"upgrade"):
            raise BadRequest("Upgrade request required")
        if call.stream_scope is None:
            raise Unsupported(f"websockets and SPDY/3.1 are spoken here, not {call.header(b'upgrade')}")
        if self._streaming_runtime is None:
            raise Unsupported(NO_KUBELET_MESSAGE)
        pod_streams = await _POD_STREAMS.get()
        call.verb = "connect"
        with self._long_running.hold(call, call.verb, target):
            await pod_streams.serve_pod_stream(call.stream_scope, receive, send, self._streaming_runtime, pod)

    async def _serve_subresource(self, call: Call, receive: Receive, send: Send, target: Target) -> None:
        sub, store = target.subresource, self._store
        if sub not in target.kind.subresources:
            kind = target.kind
            if target.resource in subresources.UNSUPPORTED:
                raise Unsupported(subresources.UNSUPPORTED[target.resource])
            raise not_found(kind.plural, target.name, kind.group) if kind.custom else path_not_found()
        if sub == "log" and call.method == "GET":
            call.verb = "connect"  # as kube-apiserver reports it
            watch = self._long_running.hold(call, call.verb, target)
            with watch if call.flag("follow") else nullcontext():
                return await subresources.log(call, receive, send, store, target)
        if sub in _POST_SUBRESOURCES:
            if call.method != "POST":
                raise Unsupported(WRONG_METHOD)
            return await _POST_SUBRESOURCES[sub](call, send, store, target)
        if sub == "token" and (tokens := self._settings.service_accounts) is not None:
            if call.method != "POST":
                raise Unsupported(WRONG_METHOD)
            return await token_requests.create_token(call, send, store, target, tokens)
        if sub == "scale" and call.method in ("GET", "PUT", "PATCH"):
            return await subresources.scale(call, send, store, target)
        if call.method in _OBJECT_SUBRESOURCES.get(sub, ()):
            verb = {"GET": verbs.get, "PUT": verbs.update, "PATCH": verbs.patch}[call.method]
            return await verb(call, send, store, target)
        if sub in subresources.CONNECT_SUBRESOURCES:
            return await self._serve_pod_stream(call, receive, send, target)
        raise Unsupported(subresources.UNSUPPORTED.get(target.resource) or WRONG_METHOD)


async def _close_websocket(send: Send, reason: str) -> None:
    with suppress(OSError, RuntimeError):  # it is closed already
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": reason[:_LONGEST_CLOSE_REASON]})


def _provided_token(headers: Mapping[bytes, bytes]) -> str:
    """A bearer token that may be from an identity provider (a JWT); "" for any other."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" and token.lstrip().startswith(b"eyJ") else ""


def _too_large_error(limit: int) -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {limit}")


VerbHandler = Callable[[Call, Send, Store, Target], Awaitable[None]]
_POLICY_VIOLATION, _LONGEST_CLOSE_REASON = 1008, 120  # RFC 6455: a reason has 123 bytes at most
_NO_EXTENSIONS: Mapping[str, Any] = {}

_UNSTORED_PATH_PARTS = frozenset(
    {events.GROUP, "bindings", "watch", *(place[0] for place in reviews.REVIEWS)} | computed_kinds.PLURALS
)
"""Groups and path parts of resources that are not, or may not be, stored objects."""
_READ_ONLY_PATHS = (["version"], ["api"], ["api", "v1"])
_POD_STREAM_PATH = re.compile("/api/v1/namespaces/[^/]+/pods/[^/]+/(exec|attach|portforward)/*")
_STREAMING_SUBRESOURCES = frozenset({"log", "exec", "attach", "portforward"})
_OBJECT_SUBRESOURCES = {
    "status": ("GET", "PUT", "PATCH"),
    "finalize": ("PUT",),
    "ephemeralcontainers": ("GET", "PUT", "PATCH"),
}
"""Subresources through which the object itself is read and written, and their methods."""
_POST_SUBRESOURCES: dict[str, VerbHandler] = {"binding": subresources.bind, "eviction": subresources.evict}
_VERB_HANDLERS: dict[str, VerbHandler] = {
    "get": verbs.get,
    "list": verbs.list_,
    "create": verbs.create,
    "update": verbs.update,
    "patch": verbs.patch,
    "delete": deletes.delete,
    "deletecollection": deletes.delete_collection,
}


class PathDispatcher:
    """Dispatches requests for common Kubernetes paths directly to the API server, and others to the routes of `fallback`."""

    def __init__(self, kubernetes: ASGIApp, fallback: ASGIApp) -> None:
        self._kubernetes, self._fallback = kubernetes, fallback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["path"].split("/", 4)
        core = len(parts) > 3 and parts[1] == "api" and parts[2] == "v1" and parts[3] in _CORE_RESOURCES
        app = self._kubernetes if core or parts[1:2] == ["apis"] else self._fallback
        await app(scope, receive, send)


_CORE_RESOURCES = frozenset({"watch", *(kind.plural for kind in kinds.KINDS if not kind.group)})


def application(
    rest_routes: Sequence[BaseRoute],
    store: Store,
    settings: ApiServerSettings,
    streaming_runtime: StreamingRuntime | None = None,
    authorizer: Authorizer | None = None,
) -> ASGIApp:
    """The application that `assembly.py` serves: the REST routes, and the API server for all other paths."""
    api_routes = [Mount("/", app=ApiServer(store, settings, streaming_runtime, authorizer))]
    return PathDispatcher(api_routes[0].app, Starlette(routes=[*rest_routes, *api_routes]))
