"""Which pods stand behind a Service, as a list of EndpointSlices made on demand: `kubectl describe service` asks.

A view for reading, not a kind: nothing is stored, watched or discovered; names resolve without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.cluster.api import requests, reviews
from rowlock.cluster.api.ages import since
from rowlock.cluster.api.answers import answer_object
from rowlock.cluster.api.requests import Call, Target, nowhere
from rowlock.cluster.storage import lifecycle
from rowlock.cluster.storage.store import Store
from rowlock.errors import Unsupported
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.selectors import from_labels, parse_labels

GROUP = "discovery.k8s.io"
_SLICE = Kind(GROUP, "v1", "EndpointSlice", "endpointslices")
_SERVICE = "kubernetes.io/service-name"


async def served(call: Call, send: Send, store: Store, rest: list[str]) -> None:
    """`rest` is what follows `/apis/discovery.k8s.io/v1` in the path."""
    space = rest[1] if len(rest) == 3 and rest[0] == "namespaces" else ""
    if rest[-1] != _SLICE.plural or len(rest) != (3 if space else 1):
        raise nowhere()
    if not call.user.may("list", _SLICE.plural):
        raise reviews.refusal(call.user, "list", Target(_SLICE, space))
    if call.method != "GET" or call.flag("watch"):
        raise Unsupported("rowlock finds the pods of a Service by itself: EndpointSlices can only be listed")
    call.only(requests.LIST)
    wanted = parse_labels(call.query.get("labelSelector", ""))
    services = (await store.list(kinds.SERVICE, space)).items
    made = [await _slice(store, s) for s in services if objects.dig(s, "spec.selector")]
    found = [s for s in made if wanted.matches(objects.labels(s))]
    meta = {"resourceVersion": str(store.revision)}
    await answer_object(
        send, {"kind": "EndpointSliceList", "apiVersion": f"{GROUP}/v1", "metadata": meta, "items": found}
    )


async def older(call: Call, send: Send, store: Store, rest: list[str]) -> None:
    """The same as Endpoints, the older kind, for who still asks; `rest` is what follows `/api/v1` in the path."""
    space = rest[1] if len(rest) == 3 and rest[0] == "namespaces" else ""
    if rest[-1] != "endpoints" or len(rest) != (3 if space else 1):
        raise nowhere()
    if not call.user.may("list", "endpoints"):
        raise reviews.refusal(call.user, "list", Target(_ENDPOINTS, space))
    if call.method != "GET" or call.flag("watch"):
        raise Unsupported("rowlock finds the pods of a Service by itself: Endpoints can only be listed")
    call.only(requests.LIST)
    wanted = parse_labels(call.query.get("labelSelector", ""))
    services = [s for s in (await store.list(kinds.SERVICE, space)).items if wanted.matches(objects.labels(s))]
    found = [_as_endpoints(s, await _slice(store, s)) for s in services if objects.dig(s, "spec.selector")]
    head = {"metadata": {"resourceVersion": str(store.revision)}}
    warning = ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]
    if requests.form_of(call.header(b"accept"), listed=True).view == "Table":
        table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", **head, "columnDefinitions": _COLUMNS}
        return await answer_object(send, {**table, "rows": [_row(one) for one in found]}, warnings=warning)
    await answer_object(send, {"kind": "EndpointsList", "apiVersion": "v1", **head, "items": found}, warnings=warning)


_ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints", ("ep",))
_COLUMNS = [
    {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "", "priority": 0}
    for name in ("Name", "Endpoints", "Age")
]


def _as_endpoints(service: Object, made: Object) -> Object:
    meta = {
        "name": objects.name(service),
        "namespace": objects.namespace(service),
        "creationTimestamp": objects.meta(service).get("creationTimestamp"),
        **({"labels": objects.labels(service)} if objects.labels(service) else {}),
    }
    if not made["endpoints"]:
        return {"metadata": meta}
    ready: list[dict[str, Any]] = []
    other: list[dict[str, Any]] = []
    for point in made["endpoints"]:
        address = {"ip": point["addresses"][0], "nodeName": point["nodeName"], "targetRef": point["targetRef"]}
        (ready if point["conditions"]["ready"] else other).append(address)
    subset = {"addresses": ready, "notReadyAddresses": other, "ports": made["ports"]}
    return {"metadata": meta, "subsets": [{key: value for key, value in subset.items() if value}]}


def _row(one: Object) -> dict[str, Any]:
    places = [
        f"{address['ip']}:{port['port']}"
        for subset in one.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    more = f" + {len(places) - 3} more..." if len(places) > 3 else ""
    shown = ",".join(places[:3]) + more if places else "<none>"
    meta = one["metadata"]
    return {
        "cells": [meta["name"], shown, since(meta["creationTimestamp"], time.time())],
        "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta},
    }


async def _slice(store: Store, service: Object) -> Object:
    name, space = objects.name(service), objects.namespace(service)
    chosen = await store.list(kinds.POD, space, labels=from_labels(objects.dig(service, "spec.selector")))
    pods, uid = [pod for pod in chosen.items if _reachable(pod)], objects.uid(service)
    meta = {
        "name": f"{name}-{lifecycle.suffix(uid)}",
        "namespace": space,
        "labels": {"endpointslice.kubernetes.io/managed-by": "rowlock", _SERVICE: name},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}],
    }
    return {
        "metadata": meta,
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in pods],
        "ports": list(_ports(service, pods)) if pods else None,
    }


def _reachable(pod: Object) -> bool:
    return bool(objects.dig(pod, "status.podIP")) and objects.phase(pod) not in ("Succeeded", "Failed")


def _endpoint(pod: Object) -> dict[str, Any]:
    condition = objects.condition(pod, "Ready") or {}
    ready, leaving = condition.get("status") == "True", objects.deleting(pod)
    target = {"kind": "Pod", "namespace": objects.namespace(pod), "name": objects.name(pod), "uid": objects.uid(pod)}
    return {
        "addresses": [objects.dig(pod, "status.podIP")],
        "conditions": {"ready": ready and not leaving, "serving": ready, "terminating": leaving},
        "nodeName": objects.dig(pod, "spec.nodeName"),
        "targetRef": target,
    }


def _ports(service: Object, pods: list[Object]) -> Iterable[dict[str, Any]]:
    """The Service's ports as numbers of its pods; a target that is a name is looked up in the first pod."""
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
