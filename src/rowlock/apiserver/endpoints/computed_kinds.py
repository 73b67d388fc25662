"""Serves the read-only kinds of `discovery/computed_kinds.py`: a list, a table, one object, or a watch.

CustomResourceDefinitions are those of the custom kinds, as a real cluster would list them. EndpointSlices are the pods behind a
Service: nothing is stored, and name resolution does not use them. Only they and Endpoints can be watched.
"""

from __future__ import annotations

import json
import time
from functools import cache, partial
from importlib import resources
from typing import Any
from weakref import WeakValueDictionary

from starlette.types import Receive, Send

from rowlock import kinds, objects
from rowlock.apiserver.discovery import computed_kinds, openapi
from rowlock.apiserver.discovery.computed_kinds import DEFINITIONS, ComputedKind
from rowlock.apiserver.endpoints import watches
from rowlock.apiserver.endpoints.list_answers import SLICE
from rowlock.apiserver.endpoints.verbs import parse_selectors
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target, path_not_found
from rowlock.apiserver.http.responses import answer_object, encode
from rowlock.apiserver.printers import tables
from rowlock.apiserver.schema import types
from rowlock.authorization.open_requests import LongRunningRequests
from rowlock.controllers.turn_budget import take_slices
from rowlock.controllers.view.state import FIRST_KEY
from rowlock.errors import Unsupported, not_found
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.computed_watcher import ComputedObjects, ComputedWatcher
from rowlock.storage.read_verbs import Selection, encode_token
from rowlock.storage.store import BOOKMARK_INTERVAL, Store
from rowlock.system.endpoint_slices import ReachablePods, endpoint_slices, endpoints

PLURALS = frozenset(plural for _, _, plural in computed_kinds.BY_PATH)


def match_path(version: tuple[str, str], rest: list[str]) -> tuple[ComputedKind, str, str] | None:
    """The read-only kind that a path names, with namespace and object name; None for other paths. Raises NotFound."""
    namespace, path = (rest[1], rest[2:]) if rest[0] == "namespaces" and len(rest) >= 3 else ("", rest)
    row = computed_kinds.BY_PATH.get((*version, path[0]))
    if row is not None and (len(path) > 3 or (namespace and not row.kind.namespaced)):
        raise path_not_found()
    return None if row is None else (row, namespace, path[1] if path[1:] else "")


class ComputedKinds:
    """Answers reads and watches of computed kinds."""

    def __init__(self, store: Store, long_running: LongRunningRequests) -> None:
        self._store, self._long_running = store, long_running
        self._watched: WeakValueDictionary[tuple[Kind, str], ComputedObjects] = WeakValueDictionary()
        """What several watches share, while there are any."""

    async def serve(self, call: Call, receive: Receive, send: Send, match: tuple[ComputedKind, str, str]) -> None:
        """Answer a read, a watch of pods behind Services, or a deletecollection of a kind that is always empty. Raises Unsupported for
        every other verb."""
        row, namespace, name = match
        kind, target, store = row.kind, Target(row.kind, namespace, name), self._store
        verb = requests.verb_of(call, name)
        call.require(verb, target)
        if verb == "watch" and row in _FROM_PODS:
            with self._long_running.hold(call, verb, target):
                return await watches.watch(call, receive, send, store, target, follow=partial(self._follow, row))
        if call.method not in ("GET", "DELETE" if row in computed_kinds.UNSERVED else "GET") or call.flag("watch"):
            raise Unsupported(row.refusal)
        call.check_query(requests.DELETE_COLLECTION_PARAMETERS if call.method == "DELETE" else requests.LIST_PARAMETERS)
        selection, revision = Selection(kind, namespace, *parse_selectors(call, kind)), store.revision
        computed = await self._compute(row, namespace)
        items = [obj for obj in computed if selection.matches(obj)]
        warnings, meta = [row.warning] if row.warning else [], {"resourceVersion": str(revision)}
        if row in _FROM_PODS:
            items = [{**obj, "metadata": {**obj["metadata"], **meta}} for obj in items]
        if name and not (items := [o for o in items if objects.name(o) == name]):
            raise not_found(kind.plural, name, kind.group)
        head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}
        if requests.negotiate_form(call.header(b"accept"), for_list=not name) == "Table":
            head = {**tables.table(kind, items, time.time()), "metadata": meta}
        elif name:
            head = {"kind": kind.name, "apiVersion": kind.api_version, **items[0]}
        await answer_object(send, head, warnings=warnings)

    def _follow(
        self, row: ComputedKind, selection: Selection, *, since: int | None, bookmarks: bool
    ) -> ComputedWatcher:
        place = selection.kind, selection.namespace
        watched = self._watched.get(place)
        if watched is None:
            watched = ComputedObjects(self._store, _CAUSES, partial(self._encode, row, selection.namespace))
            self._watched[place] = watched
        return ComputedWatcher(
            watched, selection, since=since, bookmark_interval=BOOKMARK_INTERVAL if bookmarks else None
        )

    async def _encode(self, row: ComputedKind, namespace: str, revision: int | None) -> dict[Key, bytes]:
        slices = take_slices(await self._compute(row, namespace, revision), SLICE)
        return {objects.key(obj): encode(obj) async for some in slices for obj in some}

    async def _compute(self, row: ComputedKind, namespace: str, revision: int | None = None) -> list[Object]:
        """The objects of a kind now, or at an earlier revision."""
        if row not in _FROM_PODS:
            return all_crds() if row is computed_kinds.DEFINITIONS else []
        store, reachable = self._store, ReachablePods()
        if revision is None:
            services, pods = store.view.all(kinds.SERVICE, namespace), store.view.all_unfinished(kinds.POD, namespace)
        else:
            token = encode_token(revision, FIRST_KEY)
            services = (await store.list(kinds.SERVICE, namespace, token=token)).items
            pods = list((await store.list(kinds.POD, namespace, token=token)).items)
        async for some_pods in take_slices(pods, SLICE):
            reachable.add(some_pods)
        return [
            computed
            async for some in take_slices(services, _SERVICES_PER_SLICE)
            for service in some
            if objects.dig(service, "spec.selector")
            for computed in _FROM_PODS[row](service, reachable.select(service))
        ]


_FROM_PODS = {computed_kinds.ENDPOINT_SLICES: endpoint_slices, computed_kinds.ENDPOINTS: endpoints}
_CAUSES = frozenset({kinds.SERVICE, kinds.POD})
_SERVICES_PER_SLICE = 100
"""Services whose endpoints are computed without yielding: 5 ms, or 15 ms if one of them has a thousand pods."""

_EPOCH = "1970-01-01T00:00:00Z"
_ESTABLISHED = json.loads(resources.files(__package__).joinpath("established_conditions.json").read_bytes())
"""The conditions of every definition: NamesAccepted and Established."""


@cache
def all_crds() -> list[Object]:
    return [_crd(kind) for kind in sorted(kinds.KINDS, key=lambda kind: kind.resource) if kind.custom]


def _crd(kind: Kind) -> Object:
    names: dict[str, Any] = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.name,
        "listKind": f"{kind.name}List",
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    schema = openapi.inline_references(types.schema_of(kind))
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": kind.group,
        "names": names,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "versions": [{**version, "subresources": {"status": {}}}],
        "conversion": {"strategy": "None"},
    }
    status = {"conditions": _ESTABLISHED, "acceptedNames": names, "storedVersions": [kind.version]}
    meta = {"name": kind.resource, "uid": f"crd-{kind.resource}", "creationTimestamp": _EPOCH, "resourceVersion": "1"}
    return {
        "apiVersion": DEFINITIONS.kind.api_version,
        "kind": DEFINITIONS.kind.name,
        "metadata": meta,
        "spec": spec,
        "status": status,
    }
