"""Addresses and node ports of Services: what kube-apiserver's allocators allocate, keep and release. Pure.

Error texts are the real server's. Fields of a Service that have no effect here become warnings of the response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.errors import Cause, Internal, invalid
from rowlock.objects import Object

SERVICE_ADDRESSES = (
    *(f"10.77.0.{number}" for number in range(16, 255)),
    *(f"10.77.255.{number}" for number in range(1, 250)),
)
"""Part of the pods' network (`kubelet/network/hosts.py`) that neither pods nor the gateway use."""
ADDRESS_RANGE = "10.77.0.16-10.77.0.254, 10.77.255.1-10.77.255.249"
NODE_PORTS = range(30000, 32768)
"""kube-apiserver's default `--service-node-port-range`."""
_CLUSTER_DOMAIN = ".svc.cluster.local"


def has_address(service: Object) -> bool:
    """Whether the Service has a virtual address (a clusterIP other than `None`)."""
    return objects.dig(service, "spec.clusterIP") not in (None, "", "None")


def keep_allocated(old: Object, new: Object) -> Object:
    """Carry addresses and node ports over from `old` where `new` leaves them out, and drop them where its type has none.

    A new `clusterIP` without new `clusterIPs`, as older clients write, replaces the list."""
    before, after = old.get("spec") or {}, dict(new.get("spec") or {})
    given = ("clusterIP", "clusterIPs")
    if after.get("type") == "ExternalName":
        if before.get("type") != "ExternalName" and after.get("clusterIP") == before.get("clusterIP"):
            after = {k: v for k, v in after.items() if k not in given}
    elif not after.get("clusterIP"):
        after |= {k: before[k] for k in given if before.get(k) and not after.get(k)}
    elif after["clusterIP"] != before.get("clusterIP") and after.get("clusterIPs") == before.get("clusterIPs"):
        after["clusterIPs"] = [after["clusterIP"]]
    if ports := after.get("ports"):
        numbers = {_port_key(p): p["nodePort"] for p in before.get("ports") or () if p.get("nodePort")}
        after["ports"] = [_keep_node_port(port, numbers, has_one=_has_node_ports(after)) for port in ports]
    return {**new, "spec": after}


def _port_key(port: Object) -> tuple[str, int]:
    return (port.get("protocol") or "TCP", port.get("port") or 0)


def _keep_node_port(port: Object, numbers: dict[tuple[str, int], int], *, has_one: bool) -> Object:
    number = numbers.get(_port_key(port))
    if has_one:
        return {**port, "nodePort": number} if number and not port.get("nodePort") else port
    return {k: v for k, v in port.items() if k != "nodePort"} if number and port.get("nodePort") == number else port


def allocate(old: Object | None, service: Object, view: View | None) -> Object:
    """The Service with an address, and with node ports if its type has them. Raises Invalid if one is taken or out of range, Internal when
    none is left."""
    spec = dict(service.get("spec") or {})
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") == "None":
        return service
    own_key = objects.key(service)
    others = [s for s in (view.all(kinds.SERVICE) if view else ()) if objects.key(s) != own_key]
    address = spec.get("clusterIP")
    if not address or address != objects.dig(old or {}, "spec.clusterIP"):
        taken = {objects.dig(other, "spec.clusterIP") for other in others}
        spec["clusterIP"] = _check_address(service, address, taken) if address else _free_address(service, taken)
        spec["clusterIPs"] = [spec["clusterIP"]]
    if _has_node_ports(spec):
        spec["ports"] = _with_node_ports(service, spec["ports"], old, others)
    return {**service, "spec": spec}


def _has_node_ports(spec: Object) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _free_address(service: Object, taken: Collection[str]) -> str:
    """A free address, derived from the Service's name: a client that cached the address finds the Service again after it was recreated."""
    name = f"{objects.namespace(service)}/{objects.name(service)}"
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % len(SERVICE_ADDRESSES)
    for address in (*SERVICE_ADDRESSES[first:], *SERVICE_ADDRESSES[:first]):
        if address not in taken:
            return address
    raise Internal("failed to allocate a serviceIP: range is full")


def _check_address(service: Object, address: str, taken: Collection[str]) -> str:
    problem = ""
    if address not in SERVICE_ADDRESSES:
        problem = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {ADDRESS_RANGE}"
    elif address in taken:
        problem = "provided IP is already allocated"
    if problem:
        text = f'Invalid value: ["{address}"]: failed to allocate IP {address}: {problem}'
        raise invalid("Service", objects.name(service), [Cause("FieldValueInvalid", text, "spec.clusterIPs")])
    return address


def _with_node_ports(
    service: Object, ports: Sequence[Object], old: Object | None, others: Sequence[Object]
) -> list[Object]:
    taken = {number for other in others for number in node_ports(other)}
    own = set(node_ports(old or {}))
    found: list[Object] = []
    for index, port in enumerate(ports):
        number = port.get("nodePort") or next((n for n in NODE_PORTS if n not in taken | own), 0)
        problem = ""
        if not number:
            raise Internal("failed to allocate a nodePort: range is full")
        if number not in NODE_PORTS:
            first, last = NODE_PORTS[0], NODE_PORTS[-1]
            problem = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        elif number in taken:
            problem = "provided port is already allocated"
        if problem:
            cause = Cause("FieldValueInvalid", f"Invalid value: {number}: {problem}", f"spec.ports[{index}].nodePort")
            raise invalid("Service", objects.name(service), [cause])
        taken.add(number)
        found.append({**port, "nodePort": number})
    return found


def node_ports(service: Object) -> list[int]:
    """The node ports of the Service."""
    ports = objects.dig(service, "spec.ports") or ()
    return [port["nodePort"] for port in ports if port.get("nodePort")]


def notes(service: Object) -> Iterator[str]:
    """Warnings: one sentence for each field of the Service that has no effect on this machine."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        name = str(spec.get("externalName")).rstrip(".")
        if not name.endswith(_CLUSTER_DOMAIN):
            yield (
                f"externalName {name}: pods look up names of this cluster alone (NAME.NAMESPACE{_CLUSTER_DOMAIN}); "
                f"to reach others over their proxy, let programs call {name} itself"
            )
        return
    if not has_address(service):
        return
    other = sorted({str(p["protocol"]) for p in spec.get("ports") or () if p.get("protocol", "TCP") != "TCP"})
    if other:
        yield f"ports over {', '.join(other)} of a Service with an address lead nowhere: only TCP is led to its pods; clusterIP: None gives them its name"
    if not spec.get("selector"):
        yield "a Service without a selector leads nowhere: there are no Endpoints objects here"
    if spec.get("externalIPs"):
        yield "spec.externalIPs is not applied on this machine"
    if spec.get("type") == "LoadBalancer":
        yield "there is no load balancer: EXTERNAL-IP stays pending, as on a cluster without one; its node ports are open on 127.0.0.1 of this machine"
