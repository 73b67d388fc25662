"""A watch over HTTP: one JSON line per change, until the client disconnects or its time is up.

The store gives changes already encoded, and an encoded line is shared by all watchers of it; tables are built per
watcher. A streaming list (`sendInitialEvents`) is the state, an annotated bookmark, then the changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from starlette.types import Receive, Send

from rowlock.api import Change
from rowlock.apiserver.endpoints.list_answers import parse_include_object
from rowlock.apiserver.endpoints.verbs import parse_selectors, transform_object
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import begin_stream, encode, encode_chunk, end_stream, send_chunk
from rowlock.apiserver.printers import tables
from rowlock.errors import ApiError, BadRequest, NotAcceptable
from rowlock.http_server.disconnects import send_until_disconnect
from rowlock.storage.computed_watcher import ComputedWatcher
from rowlock.storage.read_verbs import Selection
from rowlock.storage.store import Store
from rowlock.storage.watcher import TryDeliver, Watcher

MAX_WATCH_S = 3600.0
"""Seconds after which a watch without a client timeout ends; clients resume at their last revision."""

END_TIMEOUT_S = 5.0
"""Seconds that a client, which may have stopped reading, has to read the rest of an answer after the timeout."""

_TYPES = {"Added": b"ADDED", "Modified": b"MODIFIED", "Deleted": b"DELETED"}
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Follow(Protocol):
    """Begins a watch of the selected objects, with the state if `since` is None."""

    def __call__(self, selection: Selection, *, since: int | None, bookmarks: bool) -> Watcher | ComputedWatcher: ...


async def watch(
    call: Call, receive: Receive, send: Send, store: Store, target: Target, *, follow: Follow | None = None
) -> None:
    """Serve a watch until the client disconnects or its time is up. `follow`: of what is not stored."""
    lines = _WatchStream(call, target, store, follow)
    timeout = call.number("timeoutSeconds")
    await begin_stream(send, warnings=call.warnings)
    await send_until_disconnect(_send_lines(lines, send, call.pass_on), receive, timeout or MAX_WATCH_S)
    stuck = asyncio.get_running_loop().call_later(END_TIMEOUT_S, call.cut)
    try:
        await end_stream(send)
    finally:
        stuck.cancel()


async def _send_lines(lines: _WatchStream, send: Send, pass_on: Callable[[bytes], bool]) -> None:
    try:
        while True:
            await send_chunk(send, await lines.next(pass_on))
    except ApiError as error:
        await send_chunk(send, _event_line(b"ERROR", encode(error.status())))


def _encode_change(change: Change) -> bytes:
    return _event_line(_TYPES[change.type], getattr(change, "encoded", b"") or encode(change.object))


def _event_line(event_type: bytes, body: bytes) -> bytes:
    return b'{"type":"' + event_type + b'","object":' + body + b"}\n"


class _LatestChunk:
    """Caches the chunk of the latest change in the most common form: the next watcher usually needs the same one."""

    def __init__(self) -> None:
        self._change: Change | None = None
        self._chunk = b""

    def chunk_of(self, change: Change) -> bytes:
        if change is not self._change:
            self._change, self._chunk = change, encode_chunk(_encode_change(change))
        return self._chunk


_latest_chunk = _LatestChunk()


def _direct_sender(pass_on: Callable[[bytes], bool], line: Callable[[Change], bytes]) -> TryDeliver:
    """A callback that writes lines directly to the connection (see `http_protocol.py`)."""
    shared = _latest_chunk.chunk_of if line is _encode_change else None

    def send_now(changes: Sequence[Change]) -> bool:
        if shared and len(changes) == 1:
            return pass_on(shared(changes[0]))
        return pass_on(encode_chunk(b"".join(map(line, changes))))

    return send_now


class _WatchStream:
    """The lines of one watch, in the form that its client accepts."""

    def __init__(self, call: Call, target: Target, store: Store, follow: Follow | None) -> None:
        call.check_query(requests.LIST_PARAMETERS)
        self._form = requests.negotiate_form(call.header(b"accept"), for_list=True)
        if requests.wants_yaml(call.header(b"accept")):
            raise NotAcceptable("a watch is a stream of JSON objects, not of YAML: accept application/json")
        self._call, self._target = call, target
        scope = Selection(
            target.kind, target.namespace if target.kind.namespaced else "", *parse_selectors(call, target.kind)
        )
        if target.name:
            raise BadRequest("a watch is about a collection: use a field selector on metadata.name")
        self._send_initial = "sendInitialEvents" in call.query and call.flag("sendInitialEvents")
        self._deferred_error: ApiError | None = None
        """The error of the initial list, which is raised at the first `next`."""
        self._bookmarks = call.flag("allowWatchBookmarks")
        parse_include_object(call)
        if call.number("limit") or call.query.get("continue"):
            call.query.pop("limit", None)
        revision = requests.parse_revision(call)
        if self._send_initial and revision and revision > store.revision:
            self._deferred_error = requests.revision_too_large(revision, store.revision)
        since = None if not revision or self._send_initial else revision
        self._store = store
        self._unchecked = (scope.namespace, since) if scope.namespace and since is not None else None
        """Namespace and revision with which it begins, until the first `next` has checked them."""
        if since is None and "sendInitialEvents" in call.query and not self._send_initial:
            since = store.revision  # only changes from now on
        requests.check_list_options(call, revision, watch=True)
        self._initial_sent = since is not None
        """Whether the initial state has been sent completely."""
        self._watcher = (follow or store.follow)(scope, since=since, bookmarks=self._bookmarks)

    async def next(self, pass_on: Callable[[bytes], bool]) -> bytes:
        """Wait for the next lines; a bookmark is returned alone. Changes that `pass_on` accepts meanwhile are not returned."""
        if self._deferred_error:
            raise self._deferred_error
        if self._unchecked is not None:
            await self._store.check_is_same_namespace(*self._unchecked)
            self._unchecked = None
        send_now = _direct_sender(pass_on, self._encode_line if self._form else _encode_change)
        while True:
            batch = await self._watcher.next(send_now)
            if batch[0].type != "Bookmark":
                return b"".join(map(self._encode_line, batch))
            send_bookmark, annotations = (
                (self._bookmarks, None) if self._initial_sent else (self._send_initial, _INITIAL_END)
            )
            self._initial_sent = True
            if send_bookmark:
                return self._encode_bookmark(batch[0].revision, annotations)

    def _encode_line(self, change: Change) -> bytes:
        if not self._form:
            return _encode_change(change)
        obj = transform_object(self._call, self._target.kind, change.object, self._form)
        return _event_line(_TYPES[change.type], encode(obj))

    def _encode_bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        kind = self._target.kind
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        obj: dict[str, Any] = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta}
        if self._form == "Table":
            obj = {**tables.table(kind, [], 0.0), "metadata": {"resourceVersion": str(revision)}}
            obj["rows"] = [{"cells": [], "object": {**tables.partial_metadata({"metadata": meta})}}]
        elif self._form:
            obj = tables.partial_metadata(obj)
        return _event_line(b"BOOKMARK", encode(obj))
