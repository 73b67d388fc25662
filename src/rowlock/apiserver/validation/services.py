"""The rules of Services: ports, addresses, families, policies. Only headless ones are served, all are read strictly. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.containers import PORT_RANGE_TEXT, port_causes
from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_supported,
    required_value,
)
from rowlock.apiserver.validation.ip_addresses import address_causes, non_special_ip_causes
from rowlock.errors import Cause
from rowlock.objects import Object

Causes = Iterator[Cause]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_ENUM_FIELDS = (
    ("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
    ("internalTrafficPolicy", ("Cluster", "Local")),
    ("trafficDistribution", ("PreferClose", "PreferSameZone", "PreferSameNode")),
)


def service_causes(obj: Object) -> Causes:
    yield from _topology_hint_causes(objects.annotations(obj))
    spec = obj.get("spec") or {}
    ports, kind, address = spec.get("ports") or (), spec.get("type", "ClusterIP"), spec.get("clusterIP") or ""
    if not ports and address != "None" and kind != "ExternalName":
        yield required_value("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and address == "None":
        yield invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        if address or spec.get("clusterIPs"):
            yield forbidden_field("spec.clusterIPs", "may not be set for ExternalName services")
        if not spec.get("externalName"):
            yield required_value("spec.externalName")
    yield from _ports_causes(ports, kind)
    yield from label_causes(spec.get("selector") or {}, "spec.selector")
    yield from _affinity_causes(spec)
    if kind not in _TYPES:
        yield not_supported("spec.type", kind, _TYPES)
    for index, entry in enumerate(spec.get("externalIPs") or ()):
        yield from non_special_ip_causes(entry, f"spec.externalIPs[{index}]")
    yield from _load_balancer_causes(spec, kind)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in ("IPv4", "IPv6"):
            yield not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
    for field, supported in _ENUM_FIELDS:
        if spec.get(field) not in (None, *supported):
            yield not_supported(f"spec.{field}", spec[field], supported)
    yield from _cluster_ip_causes(address, spec.get("clusterIPs") or ())


def _topology_hint_causes(annotations: dict[str, str]) -> Causes:
    """One setting under an old name and a new one: they must agree."""
    older, newer = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
    if older in annotations and newer in annotations and annotations[older] != annotations[newer]:
        text = f"must match annotations[{older}] when both are specified"
        yield invalid_value(f"metadata.annotations[{newer}]", annotations[newer], text)


def _load_balancer_causes(spec: dict[str, Any], kind: str) -> Causes:
    """What only a load balancer has."""
    if kind == "LoadBalancer":
        return
    for field, name in _LOAD_BALANCER_FIELDS:
        if spec.get(field) not in (None, []):
            yield forbidden_field(f"spec.{name}", "may only be used when `type` is 'LoadBalancer'")
    policy, check = spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort")
    if policy and kind != "NodePort" and not spec.get("externalIPs"):
        text = "may only be set for externally-accessible services"
        yield invalid_value("spec.externalTrafficPolicy", policy, text)
    if check:
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid_value("spec.healthCheckNodePort", check, text)


_LOAD_BALANCER_FIELDS = (
    ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
    ("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts"),
    ("loadBalancerClass", "loadBalancerClass"),
)


def label_causes(labels: dict[str, str], path: str) -> Causes:
    for key, value in labels.items():
        for problem in label_key_problems(key):
            yield invalid_value(path, key, problem)
        for problem in label_value_problems(value):
            yield invalid_value(path, value, problem)


def _cluster_ip_causes(address: str, addresses: Sequence[str]) -> Causes:
    if addresses and addresses[0] != address:
        yield invalid_value("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif address not in ("", "None"):
        yield from address_causes(address, "spec.clusterIPs[0]")


def _ports_causes(ports: Sequence[dict[str, Any]], kind: str) -> Causes:
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path, name, number, protocol = (
            f"spec.ports[{index}]",
            port.get("name") or "",
            port.get("port", 0),
            port.get("protocol"),
        )
        if not name and len(ports) > 1:
            yield required_value(f"{path}.name")
        elif name:
            for problem in dns_label_problems(name):
                yield invalid_value(f"{path}.name", name, problem)
            if name in names:
                yield duplicate_value(f"{path}.name", name)
        names.add(name)
        if not 0 < number < 65536:
            yield invalid_value(f"{path}.port", number, PORT_RANGE_TEXT)
        if protocol not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{path}.protocol", protocol, ("SCTP", "TCP", "UDP"))
        yield from port_causes(port.get("targetPort", number), f"{path}.targetPort")
        for problem in label_key_problems(port["appProtocol"]) if port.get("appProtocol") else ():
            yield invalid_value(f"{path}.appProtocol", port["appProtocol"], problem)
        if port.get("nodePort") and kind == "ClusterIP":
            yield forbidden_field(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if (protocol, number) in numbers:
            shown = (
                f'{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}'
            )
            yield Cause("FieldValueDuplicate", f"Duplicate value: {shown}", path)
        numbers.add((protocol, number))


def _affinity_causes(spec: dict[str, Any]) -> Causes:
    affinity = spec.get("sessionAffinity")
    if affinity not in ("None", "ClientIP"):
        yield not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is not None and not 0 < seconds <= 86400:
        field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield invalid_value(field, seconds, "must be greater than 0 and less than 86400")


def service_status_causes(service: Object) -> Causes:
    """What a service's status may not say."""
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    if balancer.get("ingress") and (service.get("spec") or {}).get("type") != "LoadBalancer":
        yield forbidden_field("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")
