"""EndpointSlices and Endpoints: the pods behind each Service with a selector, as kube-controller-manager computes them. Pure.

Nothing of them is stored. A job of a thousand ranks may have a thousand Services, so pods are grouped by their labels first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from rowlock import objects
from rowlock.objects import FINAL_PHASES, Object

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_SUFFIX_CHARACTERS = 5


class ReachablePods:
    """The pods that have an address and have not ended, by namespace and label."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], list[Object]] = {}

    def add(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            if not objects.dig(pod, "status.podIP") or objects.phase(pod) in FINAL_PHASES:
                continue
            for label, value in objects.labels(pod).items():
                self._groups.setdefault((objects.namespace(pod), label, value), []).append(pod)

    def select(self, service: Object) -> Sequence[Object]:
        """The pods that a Service's selector matches, in the order in which they were added."""
        space, selector = objects.namespace(service), objects.dig(service, "spec.selector") or {}
        groups = [self._groups.get((space, label, value), []) for label, value in selector.items()]
        if not groups:
            return []
        smallest, wanted = min(groups, key=len), selector.items()
        return smallest if len(wanted) == 1 else [pod for pod in smallest if wanted <= objects.labels(pod).items()]


def endpoint_slice(service: Object, pods: Sequence[Object]) -> Object:
    """The EndpointSlice of a Service whose selector matches these pods."""
    name, namespace, uid = objects.name(service), objects.namespace(service), objects.uid(service)
    return {
        "metadata": {
            "name": f"{name}-{_digest(uid)[:_SUFFIX_CHARACTERS]}",
            "namespace": namespace,
            **_identity(service, "EndpointSlice"),
            "labels": {"endpointslice.kubernetes.io/managed-by": "rowlock", SERVICE_NAME_LABEL: name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in pods],
        "ports": list(_ports(service, pods)) if pods else None,
    }


def endpoints(service: Object, pods: Sequence[Object]) -> Object:
    """The same as Endpoints, the older kind, for older clients."""
    meta = {
        "name": objects.name(service),
        "namespace": objects.namespace(service),
        **_identity(service, "Endpoints"),
        **({"labels": objects.labels(service)} if objects.labels(service) else {}),
    }
    if not pods:
        return {"metadata": meta}
    ready: list[dict[str, Any]] = []
    not_ready: list[dict[str, Any]] = []
    for point in map(_endpoint, pods):
        address = {"ip": point["addresses"][0], "nodeName": point["nodeName"], "targetRef": point["targetRef"]}
        (ready if point["conditions"]["ready"] else not_ready).append(address)
    subset = {"addresses": ready, "notReadyAddresses": not_ready, "ports": list(_ports(service, pods))}
    return {"metadata": meta, "subsets": [{key: value for key, value in subset.items() if value}]}


def _identity(service: Object, kind: str) -> dict[str, Any]:
    """A uid that stays the same for the life of the Service, and the Service's time of creation."""
    digits = _digest(f"{kind}/{objects.uid(service)}")
    return {
        "uid": f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}",
        "creationTimestamp": objects.meta(service).get("creationTimestamp"),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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


def _ports(service: Object, pods: Sequence[Object]) -> Iterable[dict[str, Any]]:
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
