"""The answer to a list, in the form that was asked for: JSON as it is stored, a Table, or the metadata alone.

There may be 100,000 objects. They are encoded, and sent, in slices, and others have their turn between two of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.types import Send

from rowlock.api import Page
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer_slices, encode
from rowlock.apiserver.printers import tables
from rowlock.errors import BadRequest
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.storage.store import Store

SLICE = 500
"""Objects that are encoded between two pauses: 1 ms for JSON, 4 ms for rows of a table."""


def parse_include_object(call: Call) -> tables.Include:
    value = call.query.get("includeObject") or "Metadata"
    if value not in ("None", "Metadata", "Object"):
        raise BadRequest(f'includeObject is None, Metadata or Object, not "{value}"')
    return value  # type: ignore[return-value]  # one of the three


async def answer_list(call: Call, send: Send, store: Store, target: Target, page: Page) -> None:
    """Sends a page of objects."""
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
    now, rows = time.time(), list[bytes]()
    for start in range(0, len(objs), SLICE):
        if start:
            await asyncio.sleep(0)
        some = tables.table(kind, objs[start : start + SLICE], now, include=include)["rows"]
        rows.append(encode(some)[1:-1])
    return _join_slices({**tables.table(kind, (), now), "metadata": meta}, "rows", rows)


async def _encode_metadata(objs: Sequence[Object], meta: dict[str, Any]) -> list[bytes]:
    head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    if not objs:
        return [encode({**head, "items": None})]  # a list in Go that nobody began
    items = []
    for start in range(0, len(objs), SLICE):
        if start:
            await asyncio.sleep(0)
        some = objs[start : start + SLICE]
        items.append(b",".join([encode(tables.partial_metadata(obj)) for obj in some]))
    return _join_slices(head, "items", items)


async def _encode_objects(store: Store, target: Target, page: Page, meta: dict[str, Any]) -> list[bytes]:
    kind, items, encoded = target.kind, list[bytes](), _get_encoded(store, target, page)
    for start in range(0, len(page.items), SLICE):
        if start:
            await asyncio.sleep(0)
        end = start + SLICE
        some = encoded[start:end] if encoded else [encode_object(store, kind, obj) for obj in page.items[start:end]]
        items.append(b",".join(some) if kind.custom else encode_items(kind, some))
    if kind.custom:
        meta.setdefault("continue", "")
    return _join_slices({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta}, "items", items)


def _join_slices(head: Object, field: str, slices: list[bytes]) -> list[bytes]:
    """An object whose last field is a list that comes in slices; as slices."""
    begin = encode({**head, field: []})[:-2]
    between = [part for one in slices for part in (b",", one)][1:]
    return [begin, *between, b"]}"]


def encode_items(kind: Kind, encoded: list[bytes]) -> bytes:
    """Elements of a built-in kind's list without what they are, which the list says: they are cut behind the brace and the
    words that admission puts first."""
    head = b'{"apiVersion":"%b","kind":"%b",' % (kind.api_version.encode(), kind.name.encode())
    cut = len(head)
    rest = [memoryview(one)[cut:] if one.startswith(head) else memoryview(_encode_untyped(one))[1:] for one in encoded]
    return b"{" + b",{".join(rest)


def _encode_untyped(encoded: bytes) -> bytes:
    """An object written in another order, by an older rowlock perhaps."""
    return encode({k: v for k, v in msgspec.json.decode(encoded).items() if k not in ("apiVersion", "kind")})


def _get_encoded(store: Store, target: Target, page: Page) -> list[bytes] | None:
    """A page's objects as they are stored, without looking at each, when it is all there is; else None."""
    kind, space = target.kind, target.namespace if target.kind.namespaced else ""
    if page.revision == store.revision and len(page.items) == store.view.count(kind, space):
        return store.view.all_encoded(kind, space)
    return None


def encode_object(store: Store, kind: Kind, obj: Object) -> bytes:
    """The stored JSON, if the object is still the newest."""
    return store.view.get_encoded_if_newest(kind, obj) or encode(obj)
