"""The pods behind a Service, as EndpointSlices computed on demand, for `kubectl describe service`.

They are read-only: nothing is stored, watched or discovered; name resolution does not use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.selectors import from_labels
from rowlock.storage import lifecycle
from rowlock.storage.store import Store

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
