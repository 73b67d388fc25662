"""Serves the read-only kinds of `discovery/computed_kinds.py`: a list, a table or one object."""

from __future__ import annotations

import time

from starlette.types import Send

from rowlock import objects
from rowlock.apiserver.discovery import computed_kinds
from rowlock.apiserver.discovery.computed_kinds import ComputedKind
from rowlock.apiserver.endpoints import crds, endpoint_slices
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target, path_not_found
from rowlock.apiserver.http.responses import answer_object
from rowlock.apiserver.printers import tables
from rowlock.errors import Unsupported, not_found
from rowlock.objects import Object
from rowlock.selectors import parse_labels
from rowlock.storage.store import Store

PLURALS = frozenset(plural for _, _, plural in computed_kinds.BY_PATH)


def match_path(version: tuple[str, str], rest: list[str]) -> tuple[ComputedKind, str, str] | None:
    """The read-only kind that a path names, with namespace and object name; None for other paths. Raises NotFound."""
    namespace, path = (rest[1], rest[2:]) if rest[0] == "namespaces" and len(rest) >= 3 else ("", rest)
    row = computed_kinds.BY_PATH.get((*version, path[0]))
    if row is not None and (len(path) > 3 or (namespace and not row.kind.namespaced)):
        raise path_not_found()
    return None if row is None else (row, namespace, path[1] if path[1:] else "")


async def serve_computed_kind(call: Call, send: Send, store: Store, match: tuple[ComputedKind, str, str]) -> None:
    """Answer a read, or a deletecollection of a kind that is always empty. Raises Unsupported for every other verb."""
    row, namespace, name = match
    kind = row.kind
    call.require(requests.verb_of(call, name), Target(kind, namespace, name))
    if call.method not in ("GET", "DELETE" if row in computed_kinds.UNSERVED else "GET") or call.flag("watch"):
        raise Unsupported(row.refusal)
    call.check_query(requests.DELETE_COLLECTION_PARAMETERS if call.method == "DELETE" else requests.LIST_PARAMETERS)
    selector = parse_labels(call.query.get("labelSelector", ""))
    items = [o for o in await _compute(row, store, namespace) if selector.matches(objects.labels(o))]
    warnings, meta = [row.warning] if row.warning else [], {"resourceVersion": str(store.revision)}
    if name and not (items := [o for o in items if objects.name(o) == name]):
        raise not_found(kind.plural, name, kind.group)
    if requests.negotiate_form(call.header(b"accept"), for_list=not name) == "Table":
        table = tables.table(kind, items, time.time())
        return await answer_object(send, {**table, "metadata": meta}, warnings=warnings)
    if name:
        return await answer_object(
            send, {"kind": kind.name, "apiVersion": kind.api_version, **items[0]}, warnings=warnings
        )
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta}
    await answer_object(send, {**head, "items": items}, warnings=warnings)


async def _compute(row: ComputedKind, store: Store, namespace: str) -> list[Object]:
    if row is computed_kinds.DEFINITIONS:
        return crds.all_crds()
    if row is computed_kinds.ENDPOINT_SLICES:
        return await endpoint_slices.slices(store, namespace)
    return await endpoint_slices.endpoints(store, namespace) if row is computed_kinds.ENDPOINTS else []
