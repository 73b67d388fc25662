"""The answer to a list, of perhaps 100,000 objects: encoded and sent in slices that yield to the event loop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.types import Send

from rowlock.api import Page
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer_slices, encode
from rowlock.apiserver.printers import tables
from rowlock.controllers.turn_budget import take_slices
from rowlock.errors import BadRequest
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.storage.store import Store

SLICE = 500  # objects that are encoded without yielding: 1 ms as JSON, 4 ms as rows of a table


def parse_include_object(call: Call) -> tables.Include:
    value = call.query.get("includeObject") or "Metadata"
    if value not in ("None", "Metadata", "Object"):
        raise BadRequest(f'includeObject is None, Metadata or Object, not "{value}"')
    return value  # type: ignore[return-value]  # one of the three


async def answer_list(call: Call, send: Send, store: Store, target: Target, page: Page) -> None:
    """Send a page of objects in the form that the client accepts."""
    kind, form = target.kind, requests.negotiate_form(call.header(b"accept"), for_list=True)
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token:
        meta["continue"] = page.token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    if form == "Table":
        body = await _encode_table(kind, page.items, meta, parse_include_object(call))
    elif form:
        body = await _encode_metadata(page.items, meta)
    else:
        body = await _encode_objects(store, target, page, meta)
    await answer_slices(send, body, warnings=call.warnings)


async def _encode_table(
    kind: Kind, objs: Sequence[Object], meta: dict[str, Any], include: tables.Include
) -> list[bytes]:
    now, slices = time.time(), take_slices(objs, SLICE)
    rows = [encode(tables.table(kind, some, now, include=include)["rows"])[1:-1] async for some in slices]
    return _join_slices({**tables.table(kind, (), now), "metadata": meta}, "rows", rows)


async def _encode_metadata(objs: Sequence[Object], meta: dict[str, Any]) -> list[bytes]:
    head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    slices = take_slices(objs, SLICE)
    items = [b",".join([encode(tables.partial_metadata(obj)) for obj in some]) async for some in slices]
    return _join_slices(head, "items", items) if items else [encode({**head, "items": None})]  # a nil slice in Go


async def _encode_objects(store: Store, target: Target, page: Page, meta: dict[str, Any]) -> list[bytes]:
    kind, encoded = target.kind, _get_encoded(store, target, page)
    join = b",".join if kind.custom else partial(encode_items, kind)
    if encoded is not None:
        items = [join(some) async for some in take_slices(encoded, SLICE)]
    else:
        items = [
            join([encode_object(store, kind, obj) for obj in some]) async for some in take_slices(page.items, SLICE)
        ]
    if kind.custom:
        meta.setdefault("continue", "")
    return _join_slices({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta}, "items", items)


def _join_slices(head: Object, field: str, slices: list[bytes]) -> list[bytes]:
    """The JSON, in slices, of an object whose last field is a list in encoded slices."""
    between = [part for one in slices for part in (b",", one)][1:]
    return [encode({**head, field: []})[:-2], *between, b"]}"]


def encode_items(kind: Kind, encoded: Sequence[bytes]) -> bytes:
    """The items of a built-in kind's list without apiVersion and kind, which the list has: these are cut off the encoded
    objects, in which admission puts them first."""
    head = b'{"apiVersion":"%b","kind":"%b",' % (kind.api_version.encode(), kind.name.encode())
    rest = [
        memoryview(one)[len(head) :] if one.startswith(head) else memoryview(_encode_untyped(one))[1:]
        for one in encoded
    ]
    return b"{" + b",{".join(rest)


def _encode_untyped(encoded: bytes) -> bytes:
    """The same for an object with another field order, e.g. one written by an older rowlock."""
    return encode({k: v for k, v in msgspec.json.decode(encoded).items() if k not in ("apiVersion", "kind")})


def _get_encoded(store: Store, target: Target, page: Page) -> list[bytes] | None:
    """The stored JSON of a page's objects if the page has all objects at the current revision; else None."""
    kind, space = target.kind, target.namespace if target.kind.namespaced else ""
    if page.revision == store.revision and len(page.items) == store.view.count(kind, space):
        return store.view.all_encoded(kind, space)
    return None


def encode_object(store: Store, kind: Kind, obj: Object) -> bytes:
    """The object's JSON: the stored bytes if the object is still the newest."""
    return store.view.get_encoded_if_newest(kind, obj) or encode(obj)
