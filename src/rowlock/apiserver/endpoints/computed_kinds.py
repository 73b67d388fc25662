"""Serves the read-only kinds of `discovery/computed_kinds.py`: a list, a table or one object.

CustomResourceDefinitions are those of the custom kinds, as a real cluster would list them. EndpointSlices are the pods behind a
Service, for `kubectl describe service`: nothing is stored or watched, and name resolution does not use them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.apiserver.discovery import computed_kinds, openapi
from rowlock.apiserver.discovery.computed_kinds import DEFINITIONS, ComputedKind
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target, path_not_found
from rowlock.apiserver.http.responses import answer_object
from rowlock.apiserver.printers import tables
from rowlock.apiserver.schema import types
from rowlock.errors import Unsupported, not_found
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.selectors import from_labels, parse_labels
from rowlock.storage import lifecycle
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
        return all_crds()
    if row is computed_kinds.ENDPOINT_SLICES:
        return await slices(store, namespace)
    return await endpoints(store, namespace) if row is computed_kinds.ENDPOINTS else []


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


_SERVICE_NAME_LABEL = "kubernetes.io/service-name"


async def slices(store: Store, namespace: str) -> list[Object]:
    """One EndpointSlice for each Service with a selector; "" = all namespaces."""
    services = (await store.list(kinds.SERVICE, namespace)).items
    return [await _build_slice(store, service) for service in services if objects.dig(service, "spec.selector")]


async def endpoints(store: Store, namespace: str) -> list[Object]:
    """`slices` as Endpoints, the older kind, for older clients."""
    services = (await store.list(kinds.SERVICE, namespace)).items
    return [_as_endpoints(s, await _build_slice(store, s)) for s in services if objects.dig(s, "spec.selector")]


def _as_endpoints(service: Object, endpoint_slice: Object) -> Object:
    meta = {
        "name": objects.name(service),
        "namespace": objects.namespace(service),
        "creationTimestamp": objects.meta(service).get("creationTimestamp"),
        **({"labels": objects.labels(service)} if objects.labels(service) else {}),
    }
    if not endpoint_slice["endpoints"]:
        return {"metadata": meta}
    ready: list[dict[str, Any]] = []
    not_ready: list[dict[str, Any]] = []
    for point in endpoint_slice["endpoints"]:
        address = {"ip": point["addresses"][0], "nodeName": point["nodeName"], "targetRef": point["targetRef"]}
        (ready if point["conditions"]["ready"] else not_ready).append(address)
    subset = {"addresses": ready, "notReadyAddresses": not_ready, "ports": endpoint_slice["ports"]}
    return {"metadata": meta, "subsets": [{key: value for key, value in subset.items() if value}]}


async def _build_slice(store: Store, service: Object) -> Object:
    name, namespace = objects.name(service), objects.namespace(service)
    selected = await store.list(kinds.POD, namespace, labels=from_labels(objects.dig(service, "spec.selector")))
    pods, uid = [pod for pod in selected.items if _is_reachable(pod)], objects.uid(service)
    meta = {
        "name": f"{name}-{lifecycle.generate_suffix(uid)}",
        "namespace": namespace,
        "labels": {"endpointslice.kubernetes.io/managed-by": "rowlock", _SERVICE_NAME_LABEL: name},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}],
    }
    return {
        "metadata": meta,
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in pods],
        "ports": list(_ports(service, pods)) if pods else None,
    }


def _is_reachable(pod: Object) -> bool:
    return bool(objects.dig(pod, "status.podIP")) and objects.phase(pod) not in objects.FINAL_PHASES


def _endpoint(pod: Object) -> dict[str, Any]:
    condition = objects.condition(pod, "Ready") or {}
    ready, terminating = condition.get("status") == "True", objects.is_deleting(pod)
    target = {"kind": "Pod", "namespace": objects.namespace(pod), "name": objects.name(pod), "uid": objects.uid(pod)}
    return {
        "addresses": [objects.dig(pod, "status.podIP")],
        "conditions": {"ready": ready and not terminating, "serving": ready, "terminating": terminating},
        "nodeName": objects.dig(pod, "spec.nodeName"),
        "targetRef": target,
    }


def _ports(service: Object, pods: list[Object]) -> Iterable[dict[str, Any]]:
    """The Service's ports with the port numbers of its pods; a named target port is looked up in the first pod."""
    named = {
        port.get("name"): port["containerPort"]
        for container in objects.dig(pods[0], "spec.containers")
        for port in container.get("ports") or ()
    }
    for port in objects.dig(service, "spec.ports") or ():
        target = port.get("targetPort") or port["port"]
        number = target if isinstance(target, int) else named.get(target)
        if number is not None:
            yield {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
