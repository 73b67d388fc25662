"""The Kubernetes API of the real cluster at our address: reads, streams of pods and creates, which commands need besides the REST API.

An ASGI application. `rowlock status`, `runai list nodes` and the like read nodes, pods and events through it, and `runai workload submit
-f` creates the objects beside a job. kubectl uses its own kubeconfig for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rowlock.authentication.cluster_refusals import refusal_for_owner
from rowlock.errors import ApiError, Unsupported
from rowlock.http_server.request_body import decode_json, read_body
from rowlock.kube.connection import Connection, Request
from rowlock.kube.users.user_connection import UserConnection
from rowlock.objects import Object

ConnectionFor = Callable[[HttpRequest], Awaitable[Connection | UserConnection]]
"""Returns a connection with the caller's rights. Raises ApiError (Unauthorized for an unknown caller)."""
_ENDLESS_QUERIES = ("watch", "follow")
_UPGRADE_MESSAGE = (
    "only exec, attach and port-forward of pods are passed on as streams, by websocket: use kubectl for others"
)
_CREATE_PATH = re.compile(r"/(api/v1|apis/[^/]+/[^/]+)/namespaces/[^/]+/[a-z]+")
"""Paths of the objects of one kind in a namespace; subresources (tokens, evictions) cannot be created here."""
MAX_BODY = 3 * 1024 * 1024
"""Maximum size of an object in bytes, as of the API server."""
_STREAM_PATH = re.compile(r"/api/v1/namespaces/[^/]+/pods/[^/]+/(exec|attach|portforward)")


class ApiProxy:
    """Forwards GETs below /api and /apis, creates in a namespace, and streams of pods: the owner's with the rights of our kubeconfig,
    users' with their own."""

    def __init__(self, connection_for: ConnectionFor, refuse: Callable[[Object], None]) -> None:
        """`refuse` raises BadRequest for an object that this cluster must not get."""
        self._connection_for, self._refuse = connection_for, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "websocket":
                return await self._relay(scope, receive, send)
            response = await self._pass_on(HttpRequest(scope, receive))
        except ApiError as error:
            response = JSONResponse(error.status(), error.code)
        await response(scope, receive, send)

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay a websocket. Raises ApiError if the caller may not, or if the path is not that of a pod's stream."""
        await receive()  # websocket.connect
        connection = await self._connection_for(HttpRequest({**scope, "type": "http", "method": "GET"}))
        if not _STREAM_PATH.fullmatch(scope["path"]):
            raise Unsupported(_UPGRADE_MESSAGE)
        from rowlock.kube.proxy.websocket_relay import relay_stream  # late: wsproto is loaded for the first stream

        with _told_to_caller(connection):
            await relay_stream(connection, scope, receive, send)

    async def _pass_on(self, request: HttpRequest) -> Response:
        connection = await self._connection_for(request)
        with _told_to_caller(connection):
            return await self._pass_on_as(connection, request)

    async def _pass_on_as(self, connection: Connection | UserConnection, request: HttpRequest) -> Response:
        if request.method == "POST" and _CREATE_PATH.fullmatch(request.url.path):
            return await self._create(connection, request)
        if request.method != "GET":
            raise Unsupported(
                "this server passes on reads, and creates of objects in a namespace: write to the cluster with its own kubeconfig"
            )
        if "upgrade" in request.headers or any(name in request.query_params for name in _ENDLESS_QUERIES):
            raise Unsupported(_UPGRADE_MESSAGE if "upgrade" in request.headers else "watches are not passed on here")
        path = request.url.path
        content = await connection.fetch(Request("GET", path, dict(request.query_params)))
        return Response(content, media_type="text/plain" if path.endswith("/log") else "application/json")

    async def _create(self, connection: Connection | UserConnection, request: HttpRequest) -> Response:
        """Forward a create. Raises BadRequest, TooLarge, or the cluster's error."""
        body = decode_json(await read_body(request, MAX_BODY))
        if isinstance(body, dict):
            self._refuse(body)
        content = await connection.fetch(Request("POST", request.url.path, dict(request.query_params), body))
        return Response(content, 201, media_type="application/json")


@contextmanager
def _told_to_caller(connection: Connection | UserConnection) -> Iterator[None]:
    """Rewrites an error of the owner's request, which used this server's own credentials. Users' errors are raised unchanged."""
    try:
        yield
    except ApiError as error:
        if isinstance(connection, UserConnection):
            raise
        raise refusal_for_owner(error) from error
