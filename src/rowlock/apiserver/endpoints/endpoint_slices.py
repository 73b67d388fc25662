"""Which pods stand behind a Service, as a list of EndpointSlices made on demand: `kubectl describe service` asks.

A view for reading, not a kind: nothing is stored, watched or discovered; names resolve without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.apiserver.endpoints import reviews
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target, path_not_found
from rowlock.apiserver.http.responses import answer_object
from rowlock.apiserver.printers.durations import time_since
from rowlock.errors import Unsupported
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.selectors import from_labels, parse_labels
from rowlock.storage import lifecycle
from rowlock.storage.store import Store

GROUP = "discovery.k8s.io"
_SLICE_KIND = Kind(GROUP, "v1", "EndpointSlice", "endpointslices")
_SERVICE_NAME_LABEL = "kubernetes.io/service-name"


async def serve_endpoint_slices(call: Call, send: Send, store: Store, rest: list[str]) -> None:
    """`rest` is what follows `/apis/discovery.k8s.io/v1` in the path."""
    namespace = rest[1] if len(rest) == 3 and rest[0] == "namespaces" else ""
    if rest[-1] != _SLICE_KIND.plural or len(rest) != (3 if namespace else 1):
        raise path_not_found()
    if not call.user.is_allowed("list", _SLICE_KIND.plural):
        raise reviews.forbidden_error(call.user, "list", Target(_SLICE_KIND, namespace))
    if call.method != "GET" or call.flag("watch"):
        raise Unsupported("rowlock finds the pods of a Service by itself: EndpointSlices can only be listed")
    call.check_query(requests.LIST_PARAMETERS)
    selector = parse_labels(call.query.get("labelSelector", ""))
    services = (await store.list(kinds.SERVICE, namespace)).items
    slices = [await _build_slice(store, s) for s in services if objects.dig(s, "spec.selector")]
    matching = [s for s in slices if selector.matches(objects.labels(s))]
    meta = {"resourceVersion": str(store.revision)}
    await answer_object(
        send, {"kind": "EndpointSliceList", "apiVersion": f"{GROUP}/v1", "metadata": meta, "items": matching}
    )


async def serve_endpoints(call: Call, send: Send, store: Store, rest: list[str]) -> None:
    """The same as Endpoints, the older kind, for who still asks; `rest` is what follows `/api/v1` in the path."""
    namespace = rest[1] if len(rest) == 3 and rest[0] == "namespaces" else ""
    if rest[-1] != "endpoints" or len(rest) != (3 if namespace else 1):
        raise path_not_found()
    if not call.user.is_allowed("list", "endpoints"):
        raise reviews.forbidden_error(call.user, "list", Target(_ENDPOINTS_KIND, namespace))
    if call.method != "GET" or call.flag("watch"):
        raise Unsupported("rowlock finds the pods of a Service by itself: Endpoints can only be listed")
    call.check_query(requests.LIST_PARAMETERS)
    selector = parse_labels(call.query.get("labelSelector", ""))
    services = [s for s in (await store.list(kinds.SERVICE, namespace)).items if selector.matches(objects.labels(s))]
    endpoints_list = [
        _as_endpoints(s, await _build_slice(store, s)) for s in services if objects.dig(s, "spec.selector")
    ]
    head = {"metadata": {"resourceVersion": str(store.revision)}}
    warning = ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]
    if requests.negotiate_form(call.header(b"accept"), for_list=True).view == "Table":
        table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", **head, "columnDefinitions": _COLUMNS}
        return await answer_object(send, {**table, "rows": [_row(one) for one in endpoints_list]}, warnings=warning)
    await answer_object(
        send, {"kind": "EndpointsList", "apiVersion": "v1", **head, "items": endpoints_list}, warnings=warning
    )


_ENDPOINTS_KIND = Kind("", "v1", "Endpoints", "endpoints", ("ep",))
_COLUMNS = [
    {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "", "priority": 0}
    for name in ("Name", "Endpoints", "Age")
]


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


def _row(endpoints: Object) -> dict[str, Any]:
    address_ports = [
        f"{address['ip']}:{port['port']}"
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    more = f" + {len(address_ports) - 3} more..." if len(address_ports) > 3 else ""
    endpoints_cell = ",".join(address_ports[:3]) + more if address_ports else "<none>"
    meta = endpoints["metadata"]
    return {
        "cells": [meta["name"], endpoints_cell, time_since(meta["creationTimestamp"], time.time())],
        "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta},
    }


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
    return bool(objects.dig(pod, "status.podIP")) and objects.phase(pod) not in ("Succeeded", "Failed")


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
