"""A watch over HTTP: one JSON line per change, until the client leaves or its time is up.

The store gives changes already encoded, and an encoded line is shared by all watchers of it; tables are made per
watcher. A streaming list (`sendInitialEvents`) is the state, a bookmark that says so, then the changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive, Send

from rowlock import objects
from rowlock.api import Change
from rowlock.cluster.api import requests, tables
from rowlock.cluster.api.answers import begin_stream, encode, end_stream, in_chunk, stream
from rowlock.cluster.api.requests import Call, Form, Target
from rowlock.cluster.api.verbs import selectors
from rowlock.cluster.storage.following import AtOnce
from rowlock.cluster.storage.reading import Wanted
from rowlock.cluster.storage.store import Store
from rowlock.errors import ApiError, BadRequest, NotAcceptable, TooManyRequests

LONGEST = 3600.0
"""Seconds after which a watch ends although its client set no limit; clients begin again where they were."""

_TYPES = {"Added": b"ADDED", "Modified": b"MODIFIED", "Deleted": b"DELETED"}
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Watches:
    """How many there are, by user, together with followed logs and sessions in pods: each holds a connection, and a place
    in history, a file or a process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, user: str) -> Iterator[None]:
        """For the life of a watch. Raises TooManyRequests."""
        if self._open[user] >= self._limit:
            text = f'user "{user}" has {self._limit} watches, followed logs and sessions open, as many as one may: end some, or share watches as informers do'
            raise TooManyRequests(text, retry_after=1)
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1


async def watch(call: Call, receive: Receive, send: Send, store: Store, target: Target) -> None:
    """Answer until somebody has had enough."""
    lines = _Lines(call, target, store)
    timeout = call.number("timeoutSeconds")
    await begin_stream(send, warnings=call.warnings)
    sender = asyncio.create_task(_send(lines, send, call.pass_on))
    leaver = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({sender, leaver}, timeout=timeout or LONGEST, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sender, leaver):
            task.cancel()
        ended = await asyncio.gather(sender, leaver, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result
    await end_stream(send)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(lines: _Lines, send: Send, pass_on: Callable[[bytes], bool]) -> None:
    try:
        while True:
            await stream(send, await lines.next(pass_on))
    except ApiError as error:
        await stream(send, b'{"type":"ERROR","object":' + encode(error.status()) + b"}\n")


def _plain(change: Change) -> bytes:
    body = getattr(change, "encoded", b"") or encode(change.object)
    return b'{"type":"' + _TYPES[change.type] + b'","object":' + body + b"}\n"


class _Latest:
    """The chunk of the latest change in the form that most want: the next watcher to ask asks for the same one."""

    def __init__(self) -> None:
        self._change: Change | None = None
        self._chunk = b""

    def of(self, change: Change) -> bytes:
        if change is not self._change:
            self._change, self._chunk = change, in_chunk(_plain(change))
        return self._chunk


_latest = _Latest()


def _passing(pass_on: Callable[[bytes], bool], line: Callable[[Change], bytes]) -> AtOnce:
    """Lines straight to the wire (see `wire.py`)."""
    shared = _latest.of if line is _plain else None

    def at_once(changes: Sequence[Change]) -> bool:
        if shared and len(changes) == 1:
            return pass_on(shared(changes[0]))
        return pass_on(in_chunk(b"".join(map(line, changes))))

    return at_once


class _Lines:
    """The changes as bytes, in the form that this client wants."""

    def __init__(self, call: Call, target: Target, store: Store) -> None:
        call.only(requests.LIST)
        self._form: Form = requests.form_of(call.header(b"accept"), listed=True)
        if requests.in_yaml(call.header(b"accept")):
            raise NotAcceptable("a watch is a stream of JSON objects, not of YAML: accept application/json")
        self._target = target
        wanted = Wanted(target.kind, target.namespace if target.kind.namespaced else "", *selectors(call, target.kind))
        if target.name:
            raise BadRequest("a watch is about a collection: use a field selector on metadata.name")
        self._initial = "sendInitialEvents" in call.query and call.flag("sendInitialEvents")
        self._late: ApiError | None = None
        """Why the list that was to come first cannot."""
        self._bookmarks = call.flag("allowWatchBookmarks")
        self._include = call.query.get("includeObject") or "Metadata"
        if call.number("limit") or call.query.get("continue"):
            call.query.pop("limit", None)
        asked = requests.revision_of(call)
        if self._initial and asked and asked > store.revision:
            self._late = requests.from_the_future(asked, store.revision)
        since = None if not asked or self._initial else asked
        if since is None and "sendInitialEvents" in call.query and not self._initial:
            since = store.revision  # only what comes from now on
        self._check(call)
        self._ready = since is not None
        """Has it said all that was there at the beginning?"""
        self._following = store.follow(wanted, since=since, bookmarks=self._bookmarks)

    def _check(self, call: Call) -> None:
        match = call.query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in call.query and match != "NotOlderThan":
            text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise requests.wrong_option("ListOptions", "resourceVersionMatch", text)
        if "sendInitialEvents" not in call.query and match:
            text = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise requests.wrong_option("ListOptions", "resourceVersionMatch", text)
        if self._include not in ("None", "Metadata", "Object"):
            raise BadRequest(f'includeObject is None, Metadata or Object, not "{self._include}"')

    async def next(self, pass_on: Callable[[bytes], bool]) -> bytes:
        """What there is to say, as soon as there is something; a bookmark comes alone. What `pass_on` takes is said."""
        if self._late:
            raise self._late
        at_once = _passing(pass_on, self._line if self._form.view else _plain)
        while True:
            batch = await self._following.next(at_once)
            if batch[0].type != "Bookmark":
                return b"".join(map(self._line, batch))
            wanted, about = (self._bookmarks, None) if self._ready else (self._initial, _INITIAL_END)
            self._ready = True
            if wanted:
                return self._bookmark(batch[0].revision, about)

    def _line(self, change: Change) -> bytes:
        if not self._form.view:
            return _plain(change)
        return b'{"type":"' + _TYPES[change.type] + b'","object":' + encode(self._formed(change.object)) + b"}\n"

    def _formed(self, obj: objects.Object) -> objects.Object:
        if self._form.view != "Table":
            return tables.partial(obj)
        include: Any = self._include
        made = tables.table(self._target.kind, [obj], time.time(), include=include)
        made["metadata"] = {"resourceVersion": objects.meta(obj).get("resourceVersion", "")}
        return made

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        kind = self._target.kind
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        obj: dict[str, Any] = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": meta}
        if self._form.view == "Table":
            obj = {**tables.table(kind, [], 0.0), "metadata": {"resourceVersion": str(revision)}}
            obj["rows"] = [{"cells": [], "object": {**tables.partial({"metadata": meta})}}]
        elif self._form.view:
            obj = tables.partial(obj)
        return b'{"type":"BOOKMARK","object":' + encode(obj) + b"}\n"
