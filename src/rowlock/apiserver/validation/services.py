"""Rules of Services: ports, addresses, IP families, policies. All kinds are validated, though only headless ones are served. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.containers import port
from rowlock.apiserver.validation.ip_addresses import ip_problems
from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import (
    Causes,
    duplicate_value,
    forbidden_field,
    invalid_value,
    invalid_values,
    required_value,
)
from rowlock.errors import Cause


@rule
def topology_hints(service: dict[str, Any], _: Scope) -> Causes:
    """The old and the new annotation for topology hints must agree."""
    annotations = objects.annotations(service)
    older, newer = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
    if older in annotations and newer in annotations and annotations[older] != annotations[newer]:
        text = f"must match annotations[{older}] when both are specified"
        yield invalid_value(f".metadata.annotations[{newer}]", annotations[newer], text)


@rule
def service_type(spec: dict[str, Any], _: Scope) -> Causes:
    """Check the fields that a service type requires or excludes."""
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP") or ""
    if not spec.get("ports") and address != "None" and kind != "ExternalName":
        yield required_value(".ports")
    if kind in ("LoadBalancer", "NodePort") and address == "None":
        yield invalid_value(".clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        if address or spec.get("clusterIPs"):
            yield forbidden_field(".clusterIPs", "may not be set for ExternalName services")
        if not spec.get("externalName"):
            yield required_value(".externalName")


@rule
def load_balancer(spec: dict[str, Any], _: Scope) -> Causes:
    """Check the fields that only load balancers may have."""
    kind, policy, check = (spec.get(field) for field in ("type", "externalTrafficPolicy", "healthCheckNodePort"))
    if kind == "LoadBalancer":
        return
    for field in ("loadBalancerSourceRanges", "allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(field) not in (None, []):
            path = ".LoadBalancerSourceRanges" if field == "loadBalancerSourceRanges" else f".{field}"
            yield forbidden_field(path, "may only be used when `type` is 'LoadBalancer'")
    if policy and kind != "NodePort" and not spec.get("externalIPs"):
        yield invalid_value(".externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    if check:
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid_value(".healthCheckNodePort", check, text)


@rule
def cluster_ip(spec: dict[str, Any], _: Scope) -> Causes:
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or ()
    if addresses and addresses[0] != address:
        yield invalid_value(".clusterIPs", addresses, "first value must match `clusterIP`")
    elif address not in ("", "None"):
        yield from invalid_values(".clusterIPs[0]", address, ip_problems(address))


@rule
def service_port_name(entry: dict[str, Any], scope: Scope) -> Causes:
    if not entry.get("name") and len(scope.outer.struct["ports"]) > 1:
        yield required_value(".name")


@rule
def target_port(entry: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    causes = port(entry.get("targetPort", entry.get("port", 0)), scope)
    return (Cause(c.reason, c.message, ".targetPort") for c in causes)


@rule
def node_port(entry: dict[str, Any], scope: Scope) -> Causes:
    if entry.get("nodePort") and scope.outer.struct.get("type", "ClusterIP") == "ClusterIP":
        yield forbidden_field(".nodePort", "may not be used when `type` is 'ClusterIP'")
    protocol, number = entry.get("protocol"), entry.get("port", 0)
    if scope.outer.is_repeated("ports", (protocol, number)):
        yield duplicate_value("", {"protocol": protocol, "port": number})


@rule
def service_status(service: dict[str, Any], _: Scope) -> Causes:
    """Only load balancers may have ingress points in their status."""
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    if balancer.get("ingress") and (service.get("spec") or {}).get("type") != "LoadBalancer":
        text = "may only be used when `spec.type` is 'LoadBalancer'"
        yield forbidden_field(".status.loadBalancer.ingress", text)
