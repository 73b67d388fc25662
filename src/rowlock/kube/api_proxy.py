"""The Kubernetes API of the real cluster, to read, at our address: what commands ask besides the REST API.

An ASGI application. Nodes, pods and events are read through it by `rowlock status`, `runai list nodes` and the like;
kubectl has its own kubeconfig, and everything else goes there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rowlock.errors import ApiError, Unsupported
from rowlock.kube.connection import Connection, Request

Authenticate = Callable[[HttpRequest], object]
"""Raises Unauthorized for whoever has no token of ours."""
_ENDLESS_QUERIES = ("watch", "follow")
_UPGRADE_MESSAGE = (
    "exec, attach and port-forward do not go through this server on a real cluster:"
    " use `kubectl exec`, `kubectl attach` and `kubectl port-forward`"
)


class ApiProxy:
    """Passes on GETs below /api and /apis, for who has our token, with the rights of our kubeconfig."""

    def __init__(self, connection: Connection, authenticate: Authenticate) -> None:
        self._connection, self._authenticate = connection, authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": _UPGRADE_MESSAGE[:120]})
            return
        request = HttpRequest(scope, receive)
        try:
            response = await self._pass_on(request)
        except ApiError as error:
            response = JSONResponse(error.status(), error.code)
        await response(scope, receive, send)

    async def _pass_on(self, request: HttpRequest) -> Response:
        self._authenticate(request)
        if request.method != "GET":
            raise Unsupported("this server passes on reads only: write to the cluster with its own kubeconfig")
        if "upgrade" in request.headers or any(name in request.query_params for name in _ENDLESS_QUERIES):
            raise Unsupported(_UPGRADE_MESSAGE if "upgrade" in request.headers else "watches are not passed on here")
        answer = await self._connection.send(Request("GET", request.url.path, dict(request.query_params)))
        return Response(msgspec.json.encode(answer), media_type="application/json")
