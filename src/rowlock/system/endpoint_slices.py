"""EndpointSlices and Endpoints: the pods behind each Service with a selector, as kube-controller-manager computes them. Pure.

Nothing of them is stored. A job of a thousand ranks may have a thousand Services, so pods are grouped by their labels first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.objects import FINAL_PHASES, Object

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_SUFFIX_CHARACTERS = 5
MAX_ENDPOINTS_PER_SLICE = 100
"""The default of `--max-endpoints-per-slice` of kube-controller-manager."""
MAX_ADDRESSES = 1000
"""The most addresses of an Endpoints object; of more, it has those of pods that are ready first, and says so in an annotation."""
_OVER_CAPACITY = {"endpoints.kubernetes.io/over-capacity": "truncated"}


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


def endpoint_slices(service: Object, pods: Sequence[Object]) -> Iterator[Object]:
    """The EndpointSlices of a Service whose selector matches these pods: one, or one for each 100 pods, in the order of their creation.

    kube-controller-manager remembers in which slice a pod is. Here it moves to the one before when many before it have ended.
    """
    if len(pods) > MAX_ENDPOINTS_PER_SLICE:
        pods = sorted(pods, key=lambda pod: (str(objects.meta(pod).get("creationTimestamp")), objects.name(pod)))
    ports = list(_ports(service, pods)) if pods else None
    for number, first in enumerate(range(0, max(1, len(pods)), MAX_ENDPOINTS_PER_SLICE)):
        yield _endpoint_slice(service, number, pods[first : first + MAX_ENDPOINTS_PER_SLICE], ports)


def _endpoint_slice(service: Object, number: int, pods: Sequence[Object], ports: list[dict[str, Any]] | None) -> Object:
    name, namespace, uid = objects.name(service), objects.namespace(service), objects.uid(service)
    which = f"-{number}" if number else ""
    return {
        "metadata": {
            "name": f"{name}-{_digest(uid)[:_SUFFIX_CHARACTERS]}{which}",
            "namespace": namespace,
            **_identity(service, f"EndpointSlice{which}"),
            "labels": {"endpointslice.kubernetes.io/managed-by": "rowlock", SERVICE_NAME_LABEL: name},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid, "controller": True}],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(pod) for pod in pods],
        "ports": ports,
    }


def endpoints(service: Object, pods: Sequence[Object]) -> Iterator[Object]:
    """The same as the one object Endpoints, the older kind, for older clients."""
    yield _endpoints(service, pods)


def _endpoints(service: Object, pods: Sequence[Object]) -> Object:
    meta: dict[str, Any] = {
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
    if len(pods) > MAX_ADDRESSES:
        meta["annotations"] = _OVER_CAPACITY
        ready = ready[:MAX_ADDRESSES]
        not_ready = not_ready[: MAX_ADDRESSES - len(ready)]
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
