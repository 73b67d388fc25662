"""The nine verbs over HTTPS: `Api` on a real cluster.

Where a real API server differs from the contract (it refuses to update a custom resource without a resourceVersion; items of a list have no
kind) this client closes the gap. The same conformance suite runs against it and the store.
"""

from __future__ import annotations

import asyncio
import builtins
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from rowlock.api import (
    DELETE,
    LOG,
    WRITE,
    Change,
    DeleteOptions,
    LogOptions,
    Page,
    PatchType,
    WriteOptions,
)
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, BadRequest, Conflict, Expired, Invalid, NotFound, Timeout, Unavailable
from rowlock.kinds import EVENT, POD, Kind
from rowlock.kube import requests
from rowlock.kube.config import Credentials
from rowlock.kube.connection import Connection, Request
from rowlock.kube.followed_logs.follower import PodLogFollower, PodsOf, limit_bytes
from rowlock.kube.rate_limit import Backoff, Limits
from rowlock.kube.users.user_connection import UserConnection
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.kube.watches.watch_stream import InitialState, LineSplitter, decode_item, parse_change, split_page
from rowlock.objects import Object, name, namespace, revision, with_field
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

WATCH_SECONDS = (300, 600)
"""Seconds that one watch request lasts: a random value, so that watches do not all end at once."""
WATCH_SILENCE_S = 90.0
"""Seconds of silence after which a watch is requested again. An API server sends a bookmark each minute, so a longer silence may mean that
a network device has dropped the connection and still acknowledges packets for the server."""
PAGE = 500
"""Objects per page: decoding 10,000 at once would block the event loop."""
LogSource = Callable[[str, str, LogOptions], AsyncIterator[bytes]]
"""(namespace, pod, part of the log) → its bytes. Raises NotFound."""
_NO_LOG = b"unable to retrieve container logs for "
"""The text that a kubelet returns with status 200 when the container is already removed."""
_WATCH_QUERY = {"watch": "true", "allowWatchBookmarks": "true"}


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """The objects that a watch selects."""

    kind: Kind
    path: str
    query: Mapping[str, str]


class Kube:
    """`Api` of a real cluster. Make one with `Kube.connect`, and `close` it."""

    keeps_order = False

    def __init__(self, connection: Connection | UserConnection, *, decoder: ObjectDecoder | None = None) -> None:
        """With a `decoder` the objects of watches share equal parts and have no managedFields, which saves nine tenths of the memory of
        pods. Updates of such objects are safe: the API server keeps managedFields that are absent."""
        self.connection, self.decoder = connection, decoder
        self.kept_log: LogSource | None = None
        """The source of deleted pods' logs, for requests that name a job (`LogOptions.owner`)."""
        self.pods_of: PodsOf | None = None
        """The pods of a job, as a watch shows them."""

    @classmethod
    def connect(
        cls,
        kubeconfig: str | Path | Mapping[str, Any] | None = None,
        context: str | None = None,
        *,
        limits: Limits = Limits(),
        decoder: ObjectDecoder | None = None,
    ) -> Kube:
        """A client by kubeconfig (default: KUBECONFIG, ~/.kube/config) or, inside a pod, by its service account."""
        return cls(Connection(Credentials(kubeconfig, context), limits), decoder=decoder)

    async def close(self) -> None:
        """Close all connections; watches and followed logs end."""
        await self.connection.close()

    async def git_version(self) -> str:
        """The version that the API server gives, such as `v1.34.4`. Raises ApiError."""
        return str((await self.connection.send(Request("GET", "/version"))).get("gitVersion") or "")

    async def __aenter__(self) -> Kube:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------ reads

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return await self._send(Request("GET", requests.path(kind, namespace, _require_name(kind, name))))

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        limit: int = 0,
        token: str = "",
    ) -> Page:
        path, query = requests.path(kind, namespace), requests.selector_query(labels, fields)
        if token:
            query["continue"] = token
        if limit:
            return await self._list_page(kind, path, {**query, "limit": str(limit)})
        items: builtins.list[Object] = []
        pages = dict(query)
        while True:
            try:
                page = await self._list_page(kind, path, {**pages, "limit": str(PAGE)})
            except Expired:
                if not items:
                    raise
                return await self._list_page(kind, path, query)  # the page token expired: list all at once
            items += page.items
            if not page.token:
                return Page(items, page.revision)
            pages["continue"] = page.token

    async def _list_page(self, kind: Kind, path: str, query: Mapping[str, str]) -> Page:
        answer = await self._send(Request("GET", path, query))
        meta = answer.get("metadata") or {}
        typed = {"apiVersion": kind.api_version, "kind": kind.name}
        items = [item if "kind" in item else {**typed, **item} for item in answer.get("items") or ()]
        return Page(items, int(meta["resourceVersion"]), meta.get("continue", ""), meta.get("remainingItemCount"))

    async def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        since: int | None = None,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        bookmarks: bool = False,
    ) -> AsyncIterator[Change]:
        if since is not None and since <= 0:
            raise Expired("a real cluster remembers no revision 0: list, then watch from the list's revision")
        target = WatchTarget(kind, requests.path(kind, namespace), requests.selector_query(labels, fields))
        backoff, broken_since = Backoff(), 0.0
        while True:
            event = None
            try:
                if since is None:
                    budget = TurnBudget()
                    for event in await self._initial_state(target):
                        await budget.pause_if_due()
                        yield event
                        since = event.revision
                async for event in self._watch_changes(target, since or 0):
                    since, broken_since = event.revision, 0.0
                    backoff.reset()
                    if bookmarks or event.type != "Bookmark":
                        yield event
            except (Unavailable, Timeout) as error:
                broken_since = broken_since or time.monotonic()
                if time.monotonic() - broken_since > self.connection.limits.watch_retry_seconds:
                    raise Unavailable(
                        f"the watch of {kind.resource} broke and could not be resumed: {error}"
                    ) from error
            if event is None:
                await asyncio.sleep(backoff.next_delay())  # wait also when the server ends every watch at once

    def _parse(self, kind: Kind, line: bytes) -> tuple[Change, bool]:
        """Parse one line of a watch. Events are decoded without the shared decoder, because they are not kept as objects."""
        return parse_change(kind, line, None if kind == EVENT else self.decoder)

    async def _initial_state(self, target: WatchTarget) -> builtins.list[Change]:
        """The current state as Added changes, and the bookmark from which to watch."""
        try:
            return await self._stream_state(target)
        except (Invalid, BadRequest):
            return await self._list_state(target)  # the error of a server without streaming lists

    async def _list_state(self, target: WatchTarget) -> builtins.list[Change]:
        state, query, budget = InitialState(), {**target.query, "limit": str(PAGE)}, TurnBudget()
        decoder = None if target.kind == EVENT else self.decoder
        while True:
            text = await self.connection.fetch(Request("GET", target.path, query))
            page = split_page(target.kind, text)
            for item in page.items or ():
                await budget.pause_if_due()
                obj = decode_item(target.kind, item, decoder)
                state.add(Change("Added", revision(obj), target.kind, obj))
            if not page.metadata.token:
                return state.changes(Change("Bookmark", int(page.metadata.resourceVersion), target.kind))
            query["continue"] = page.metadata.token

    async def _stream_state(self, target: WatchTarget) -> builtins.list[Change]:
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        state, budget, lines = InitialState(), TurnBudget(), LineSplitter()
        request = Request("GET", target.path, {**target.query, **initial, **_WATCH_QUERY})
        async with self.connection.stream(request) as response:
            async for chunk in response.content.iter_any():
                for line in lines.feed(chunk):
                    await budget.pause_if_due()
                    event, complete = self._parse(target.kind, line)
                    if complete:
                        return state.changes(event)
                    if event.type != "Bookmark":
                        state.add(event)
        raise Unavailable(f"the list of {target.kind.resource} ended before it was complete: try again")

    async def _watch_changes(self, target: WatchTarget, since: int) -> AsyncIterator[Change]:
        """Yield the changes of one watch request until the server ends it, or is silent for too long. Raises Expired when the revision
        is compacted."""
        timeout_seconds = str(random.randint(*WATCH_SECONDS))
        query = {**target.query, **_WATCH_QUERY, "resourceVersion": str(since), "timeoutSeconds": timeout_seconds}
        lines = LineSplitter()
        async with self.connection.stream(Request("GET", target.path, query), endless=True) as response:
            while True:
                try:
                    async with asyncio.timeout(WATCH_SILENCE_S):
                        chunk = await response.content.readany()
                except TimeoutError as error:
                    if isinstance(error, aiohttp.ClientError):
                        raise
                    return
                if not chunk:
                    return
                for line in lines.feed(chunk):
                    yield self._parse(target.kind, line)[0]

    # ------------------------------------------------------------ writes

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        path = requests.path(kind, namespace(obj))
        try:
            return await self._send(Request("POST", path, requests.write_query(options), obj), options.warnings)
        except NotFound as error:
            if error.details.get("name"):
                raise  # the namespace is missing, not the kind
            raise NotFound(
                f"the cluster does not serve {kind.resource}: {error.message}", details=error.details
            ) from error

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        path = requests.path(kind, namespace(obj), _require_name(kind, name(obj)), subresource)
        query = requests.write_query(options)
        while True:
            try:
                return await self._send(Request("PUT", path, query, obj), options.warnings)
            except Invalid as error:
                if not _requires_revision(error):
                    raise
            current = await self.get(kind, namespace(obj), name(obj))
            fresh = with_field(obj, "metadata.resourceVersion", current["metadata"]["resourceVersion"])
            try:
                return await self._send(Request("PUT", path, query, fresh), options.warnings)
            except Conflict:
                continue  # a concurrent write; without a resourceVersion the caller overwrites any version

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:
        path = requests.path(kind, namespace, _require_name(kind, name), subresource)
        request = Request("PATCH", path, requests.patch_query(options, type), patch, requests.PATCH_MEDIA_TYPES[type])
        return await self._send(request, options.warnings)

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        path = requests.path(kind, namespace, _require_name(kind, name))
        return await self._send(Request("DELETE", path, {}, requests.delete_body(options)))

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        path = requests.path(POD, namespace, pod, "binding")
        await self.connection.send(Request("POST", path, {}, requests.binding_body(pod, node, annotations, uid)))

    async def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        """As `Api.log`. A log that is followed for a job (`owner`) goes on when its stream breaks, where `pods_of` is set."""
        try:
            if options.follow and options.owner and not options.previous and self.pods_of is not None:
                follower = PodLogFollower(self, namespace, pod, options, self.pods_of)
                chunks = limit_bytes(follower.chunks(), options.limit_bytes)
            else:
                chunks = self.read_stream(namespace, pod, options)
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        except (NotFound, BadRequest):  # both are raised before the first byte
            if self.kept_log is None or not options.owner:
                raise
            async for chunk in self.kept_log(namespace, pod, options):
                yield chunk

    async def read_stream(self, namespace: str, pod: str, options: LogOptions) -> AsyncGenerator[bytes]:
        """One request for a log, until its answer ends or breaks."""
        path = requests.path(POD, namespace, pod, "log")
        request = Request("GET", path, requests.log_query(options), is_relayed=True)
        async with self.connection.stream(request, endless=options.follow) as response:
            is_first = True
            async for chunk in response.content.iter_any():
                if is_first and chunk.startswith(_NO_LOG):
                    raise NotFound(chunk.decode(errors="replace").strip())
                is_first = False
                yield chunk

    async def read_kept(self, namespace: str, pod: str, options: LogOptions) -> AsyncGenerator[bytes]:
        """The log of a pod that is gone, of the job `options.owner`. Raises NotFound if none is kept."""
        if self.kept_log is None or not options.owner:
            raise NotFound(f'pods "{pod}" not found, and no log of it is kept')
        async for chunk in self.kept_log(namespace, pod, options):
            yield chunk

    async def _send(self, request: Request, warnings: builtins.list[str] | None = None) -> Object:
        answer: Object = await self.connection.send(request, warnings)
        return answer


def _require_name(kind: Kind, name: str) -> str:
    """Raises BadRequest for an empty name: the path would be that of the whole collection."""
    if not name:
        raise BadRequest(f"a name is needed to act on one of {kind.resource}")
    return name


def _requires_revision(error: ApiError) -> bool:
    return any(cause.field == "metadata.resourceVersion" for cause in error.causes)
