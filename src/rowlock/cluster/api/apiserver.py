"""The Kubernetes API over HTTP: who asks, what for, and which function answers. An ASGI application and its routes.

    /api /apis              discovery, objects         a token is needed
    /openapi/v2 /openapi/v3 what there is              a token is needed
    /version /healthz …     is anybody there           open

Paths are taken apart by hand, not by patterns: the hot path is a few dictionary look-ups.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from rowlock import kinds
from rowlock.cluster.api import (
    absent,
    bodies,
    definitions,
    deletes,
    discovery,
    endpoint_slices,
    events,
    openapi,
    requests,
    reviews,
    subresources,
    verbs,
    watching,
)
from rowlock.cluster.api.answers import (
    FAULT,
    InYaml,
    Reply,
    answer,
    answer_document,
    answer_error,
    answer_object,
    encode,
)
from rowlock.cluster.api.requests import Call, Target, in_yaml, nowhere
from rowlock.cluster.api.users import EVERYBODY, Keys, User, accounts_of
from rowlock.cluster.storage.store import Store
from rowlock.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Internal,
    NotAcceptable,
    TooLarge,
    Unauthorized,
    Unsupported,
    not_found,
)

if TYPE_CHECKING:
    from rowlock.cluster.api.streaming import Entrance

log = logging.getLogger(__name__)

_CHECKS: tuple[list[str], ...] = ([], ["ping"], ["log"], ["etcd"])
_OPEN = frozenset({"/healthz", "/livez", "/readyz", "/version"})
NOBODY = "this cluster was started without a kubelet: there is nothing to go into"
_LATER = {
    "pods/ephemeralcontainers": "rowlock has no ephemeral containers: `kubectl exec POD -- COMMAND` runs any program of this"
    " machine inside the pod, and `kubectl debug POD --copy-to=NAME` makes a copy of it",
    "pods/resize": "rowlock does not resize pods that run: delete the pod and make it anew with other resources",
    "serviceaccounts/token": "rowlock gives service accounts no tokens: programs come in with the token in the cluster's kubeconfig",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Who may come in: the owner's token, and others by value; what the server calls itself."""

    token: str = ""
    tokens: Mapping[str, User] = field(default_factory=dict)
    guarded: bool = False
    """The owner's token counts on loopback alone: who comes from elsewhere has one of his own."""
    address: str = "127.0.0.1"
    body_limit: int = requests.BODY_LIMIT
    watch_limit: int = 5_000
    """Watches, followed logs and sessions in pods that one user may have at once."""
    ready: Callable[[], bool] = lambda: True


class ApiServer:
    """The ASGI application."""

    def __init__(self, store: Store, settings: Settings, entrance: Entrance | None = None) -> None:
        self._store, self._settings, self._entrance = store, settings, entrance
        self._keys = Keys(settings.token, settings.tokens, guarded=settings.guarded)
        self._watches = watching.Watches(settings.watch_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await self._websocket(scope, receive, send)
        warnings: list[str] = []
        headers = dict(scope["headers"])
        exchange = (scope.get("extensions") or _NONE).get("rowlock")
        reply = Reply(send, exchange)
        if b"yaml" in headers.get(b"accept", b"") and in_yaml(headers[b"accept"].decode("latin-1")):
            reply = Reply(InYaml(send), None)
        try:
            call = await self._call(scope, receive, headers)
            warnings = call.warnings
            await self._route(call, receive, reply)
        except ApiError as error:
            if not reply.started:
                await answer_error(reply, error, warnings)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not reply.started:
                await answer_error(reply, Internal(FAULT), warnings)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """exec, attach and port-forward; a refusal comes before the handshake, as an ordinary answer."""
        from rowlock.cluster.api import doors  # late: few servers ever need it

        await receive()
        await doors.guarded(scope["path"], send, lambda noted: self._entered(scope, receive, noted))

    async def _entered(self, scope: Scope, receive: Receive, send: Send) -> None:
        from rowlock.cluster.api import forwarding, streaming  # late: few servers ever need them

        call = await self._call({**scope, "method": "GET"}, receive, dict(scope["headers"]))
        parts = call.path.rstrip("/").split("/")[1:]
        target = requests.target_of("", "v1", parts[2:]) if parts[:2] == ["api", "v1"] and parts[2:] else None
        if target is None or target.subresource not in subresources.DOORS or target.kind is not kinds.POD:
            raise nowhere()
        if not call.user.may("get", target.resource):
            raise reviews.refusal(call.user, "get", target)
        pod = await subresources.enter(call, self._store, target)
        if self._entrance is None:
            raise Unsupported(NOBODY)
        door = forwarding.forward if target.subresource == "portforward" else streaming.enter
        with self._watches.one_more(call.user.name):
            await door(scope, receive, send, self._entrance, pod)

    # ------------------------------------------------------------ who

    def user(self, token: str) -> User | None:
        """Whose token this is, for a review of it."""
        return self._keys.user(token)

    async def _call(self, scope: Scope, receive: Receive, headers: Mapping[bytes, bytes]) -> Call:
        path = scope["path"]
        call = Call(scope["method"], path, requests.query_of(scope["query_string"]), headers, User("", ()))
        extensions = scope.get("extensions") or _NONE
        if "rowlock.take_over" in extensions:
            call.upgrade = scope
        exchange = extensions.get("rowlock")
        if exchange is not None:
            call.pass_on = exchange.pass_on
        if path not in _OPEN and not path.startswith(("/livez/", "/readyz/", "/healthz/")):
            call.user = self._authenticated(call, (scope.get("server") or ("",))[0], scope["headers"])
        if call.method in ("POST", "PUT", "PATCH", "DELETE"):
            body = exchange.body() if exchange is not None else None
            if body is None:
                body = await self._body(call, receive)
            elif len(body) > self._settings.body_limit:
                raise _too_large(self._settings.body_limit)
            call.body = body
        return call

    def _authenticated(self, call: Call, address: str, headers: Iterable[tuple[bytes, bytes]]) -> User:
        """Who asks, or for whom the owner asks: each of his groups has a header of its own."""
        kind, _, token = call.header(b"authorization").partition(" ")
        user = self._keys.user(token.strip(), address) if kind.lower() == "bearer" else None
        if user is None:
            raise Unauthorized("Unauthorized")
        other = b"impersonate-user" in call.headers and call.header(b"impersonate-user")
        if not other:
            return user
        if not user.master:
            text = f'users "{other}" is forbidden: User "{user.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
            raise Forbidden(text)
        named = tuple(value.decode("latin-1") for name, value in headers if name == b"impersonate-group" and value)
        named = named or accounts_of(other)
        return User(other, (*named, EVERYBODY), uid=call.header(b"impersonate-uid"))

    async def _body(self, call: Call, receive: Receive) -> bytes:
        limit = self._settings.body_limit
        declared = call.header(b"content-length")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
        return body

    # ------------------------------------------------------------ where

    async def _route(self, call: Call, receive: Receive, send: Send) -> None:
        parts = call.path.rstrip("/").split("/")[1:]
        head = parts[0] if parts else ""
        if head == "api" and len(parts) > 2 and parts[1] == "v1":
            return await self._resource(call, receive, send, ("", "v1"), parts[2:])
        if head == "apis" and len(parts) > 3:
            return await self._resource(call, receive, send, (parts[1], parts[2]), parts[3:])
        if call.method not in ("GET", "HEAD"):
            raise Unsupported(_WRONG_METHOD) if parts in _LOOKED_AT else nowhere()
        await self._about(call, send, head, parts)

    async def _about(self, call: Call, send: Send, head: str, parts: list[str]) -> None:
        """Everything that is not an object."""
        if head in ("healthz", "livez", "readyz") and parts[1:] in _CHECKS:
            return await self._health(call, send, head)
        if head == "version" and len(parts) == 1:
            return await answer(send, discovery.version_text())
        if head == "openapi":
            return await _openapi(call, send, parts[1:])
        if head in ("api", "apis"):
            return await self._discovery(call, send, parts)
        if not head:
            paths = ["/api", "/api/v1", "/apis", *(f"/apis/{g}" for g in discovery.groups())]
            return await answer_object(
                send, {"paths": [*paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}
            )
        raise nowhere()

    async def _health(self, call: Call, send: Send, which: str) -> None:
        if which == "readyz" and not self._settings.ready():
            return await answer(send, b"not ready", code=500, media=b"text/plain; charset=utf-8")
        text = f"[+]ping ok\n{which} check passed\n" if "verbose" in call.query else "ok"
        await answer(send, text.encode(), media=b"text/plain; charset=utf-8")

    async def _discovery(self, call: Call, send: Send, parts: list[str]) -> None:
        named, accept = parts[0] == "apis", call.header(b"accept")
        if len(parts) == 1:
            version = requests.aggregated_in(accept)
            if version:
                media = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()
                return await answer_document(send, discovery_bytes(named, version), call, media)
            shown = discovery.group_list() if named else discovery.api_versions(self._settings.address)
            return await answer_object(send, shown)
        if named and len(parts) == 2 and parts[1] in discovery.groups():
            return await answer_object(send, discovery.group(parts[1]))
        place = (parts[1], parts[2]) if named and len(parts) == 3 else ("", parts[1]) if not named else ("", "")
        if place in discovery.resources() and len(parts) == (3 if named else 2):
            return await answer_object(send, discovery.resource_list(*place))
        raise nowhere()

    async def _resource(
        self, call: Call, receive: Receive, send: Send, version: tuple[str, str], rest: list[str]
    ) -> None:
        if (version[0] in _ASIDE or not _ASIDE.isdisjoint(rest)) and await self._aside(
            call, receive, send, version, rest
        ):
            return
        await self._object(call, receive, send, requests.target_of(*version, rest))

    async def _aside(self, call: Call, receive: Receive, send: Send, version: tuple[str, str], rest: list[str]) -> bool:
        """What no object of the store stands for. False: it is an object after all."""
        core = version == ("", "v1")
        if (place := (*version, rest[-1])) in reviews.REVIEWS and call.method == "POST" and len(rest) in (1, 3):
            shown = reviews.review(call, place, bodies.document(call), self.user)
            await answer_object(send, shown, code=201)
        elif version[0] == definitions.GROUP:
            await definitions.served(call, send, rest)
        elif version == (events.GROUP, events.VERSION):
            await events.served(
                call, send, self._store, rest, lambda call, send: self._resource(call, receive, send, ("", "v1"), rest)
            )
        elif version == (endpoint_slices.GROUP, "v1"):
            await endpoint_slices.served(call, send, self._store, rest)
        elif (found := absent.asked(version, rest)) is not None:
            await absent.served(call, send, found)
        elif core and "endpoints" in (rest[0], *rest[2:3]):
            await endpoint_slices.older(call, send, self._store, rest)
        elif core and len(rest) == 3 and rest[0] == "namespaces" and rest[2] == "bindings":
            await self._object(call, receive, send, Target(kinds.POD, rest[1], "", "binding"))
        elif rest[0] == "watch" and rest[1:]:
            target = requests.watched(call, requests.target_of(*version, rest[1:]))
            await self._object(call, receive, send, target)
        else:
            return False
        return True

    async def _object(self, call: Call, receive: Receive, send: Send, target: Target) -> None:
        verb = _verb(call, target)
        if not call.user.may(verb, target.resource):
            raise reviews.refusal(call.user, verb, target)
        if target.subresource not in _STREAMS:
            # whoever could not read the answer writes nothing
            requests.form_of(call.header(b"accept"), listed=verb == "list")
        if target.subresource:
            return await self._part(call, receive, send, target)
        if verb == "watch":
            with self._watches.one_more(call.user.name):
                return await watching.watch(call, receive, send, self._store, target)
        await _VERBS[verb](call, send, self._store, target)

    async def _upgraded(self, call: Call, target: Target) -> None:
        """exec, attach and port-forward of clients that do not speak websockets yet."""
        pod = await subresources.enter(call, self._store, target)
        if not call.header(b"upgrade"):
            raise BadRequest("Upgrade request required")
        if call.upgrade is None:
            raise Unsupported(f"websockets and SPDY/3.1 are spoken here, not {call.header(b'upgrade')}")
        if self._entrance is None:
            raise Unsupported(NOBODY)
        from rowlock.cluster.api import upgraded  # late: few servers ever need it

        with self._watches.one_more(call.user.name):
            await upgraded.serve(call, target.subresource, self._entrance, pod)

    async def _part(self, call: Call, receive: Receive, send: Send, target: Target) -> None:
        sub, store = target.subresource, self._store
        if sub not in target.kind.subresources:
            kind = target.kind
            if target.resource in _LATER:
                raise Unsupported(_LATER[target.resource])
            raise not_found(kind.plural, target.name, kind.group) if kind.custom else nowhere()
        if sub == "log" and call.method == "GET":
            with self._watches.one_more(call.user.name) if call.flag("follow") else nullcontext():
                return await subresources.log(call, receive, send, store, target)
        if sub in _POSTED:
            if call.method != "POST":
                raise Unsupported(_WRONG_METHOD)
            return await _POSTED[sub](call, send, store, target)
        if sub == "scale" and call.method in ("GET", "PUT", "PATCH"):
            return await subresources.scale(call, send, store, target)
        if call.method in {"status": ("GET", "PUT", "PATCH"), "finalize": ("PUT",)}.get(sub, ()):
            verb = {"GET": verbs.get, "PUT": verbs.update, "PATCH": verbs.patch}[call.method]
            return await verb(call, send, store, target)
        if sub in subresources.DOORS:
            return await self._upgraded(call, target)
        raise Unsupported(_LATER.get(target.resource) or _WRONG_METHOD)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {limit}")


Verb = Callable[[Call, Send, Store, Target], Awaitable[None]]
_NONE: Mapping[str, Any] = {}

_ASIDE = frozenset(
    {events.GROUP, endpoint_slices.GROUP, definitions.GROUP, *(place[0] for place in reviews.REVIEWS)}
    | absent.WORDS
    | {"endpoints", "bindings", "watch"}
)
"""Groups, and words in a path, of what is (or may be) no object of the store."""
_WRONG_METHOD = "the server does not allow this method on the requested resource"
_LOOKED_AT = (["version"], ["api"], ["api", "v1"])
_STREAMS = frozenset({"log", "exec", "attach", "portforward"})
_POSTED: dict[str, Verb] = {"binding": subresources.bind, "eviction": subresources.evict}
_VERBS: dict[str, Verb] = {
    "get": verbs.get,
    "list": verbs.list_,
    "create": verbs.create,
    "update": verbs.update,
    "patch": verbs.patch,
    "delete": deletes.delete,
    "deletecollection": deletes.delete_collection,
}


def _verb(call: Call, target: Target) -> str:
    """Kubernetes' word for what the request does. Raises Unsupported for a method that is none."""
    if call.method == "GET":
        if target.name:
            return "get"
        return "watch" if call.flag("watch") else "list"
    if call.method == "POST" and (not target.name or target.subresource):
        return "create"
    if call.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    if call.method in ("PUT", "PATCH") and target.name:
        return "update" if call.method == "PUT" else "patch"
    raise Unsupported(_WRONG_METHOD)


def discovery_bytes(named: bool, version: str) -> bytes:
    """The aggregated document, made once."""
    key = (named, version)
    if key not in _DISCOVERY:
        _DISCOVERY[key] = encode(discovery.aggregated(named, version))
    return _DISCOVERY[key]


_DISCOVERY: dict[tuple[bool, str], bytes] = {}


async def _openapi(call: Call, send: Send, parts: list[str]) -> None:
    if parts == ["v3"]:
        return await answer_object(send, openapi.index())
    if parts == ["v2"] or parts[:1] == ["v3"]:
        accept = call.header(b"accept")
        if parts == ["v2"] and openapi.PROTOBUF in accept:
            return await answer(send, openapi.v2_protobuf(), media=openapi.PROTOBUF.replace("@", ".").encode())
        if accept and "json" not in accept and "*/*" not in accept:
            raise NotAcceptable("only the following media types are accepted: application/json")
        try:
            body = openapi.encoded("v2" if parts == ["v2"] else "/".join(parts[1:]))
        except (KeyError, IndexError):
            raise nowhere() from None
        return await answer_document(send, body, call)
    raise nowhere()


class Front:
    """The API server in front of another application: what is plainly Kubernetes' never passes that one's routes."""

    def __init__(self, kubernetes: ASGIApp, others: ASGIApp) -> None:
        self._kubernetes, self._others = kubernetes, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["path"].split("/", 4)
        core = len(parts) > 3 and parts[1] == "api" and parts[2] == "v1" and parts[3] in _CORE
        app = self._kubernetes if core or parts[1:2] == ["apis"] else self._others
        await app(scope, receive, send)


_CORE = frozenset({"watch", *(kind.plural for kind in kinds.KINDS if not kind.group)})


def application(
    faces: Sequence[BaseRoute], store: Store, settings: Settings, entrance: Entrance | None = None
) -> ASGIApp:
    """What `assembly.py` serves: the faces' routes, and the API server for all other paths."""
    last = routes(store, settings, entrance)
    return Front(last[0].app, Starlette(routes=[*faces, *last]))


def routes(store: Store, settings: Settings, entrance: Entrance | None = None) -> list[Mount]:
    """The API server as a last route: unknown paths are answered there with a Status."""
    return [Mount("/", app=ApiServer(store, settings, entrance))]
