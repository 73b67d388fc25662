"""Ports of the node that pods request (`hostPort`): kube-scheduler's NodePorts, modelled as resource amounts.

Each port has `ALL` shares. A pod that requests it on all addresses of the node takes all shares; a pod that requests it on one address
takes one share and that address. So a pod of the first kind conflicts with any other, and pods of the second kind only at the same address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ALL = 1 << 20
_PREFIX = "host port "
_EVERYWHERE = ("", "0.0.0.0", "::")  # compared, not listened on
NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"


def ports_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The container ports with a hostPort, including those of sidecars but not of other init containers."""
    for container in spec.get("containers") or ():
        yield from (p for p in container.get("ports") or () if p.get("hostPort"))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield from (p for p in container.get("ports") or () if p.get("hostPort"))


def requested_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """The pod's host ports as entries of `Shape.extras`."""
    amounts: dict[str, int] = {}
    for port in ports_of(spec):
        name, address = f"{_PREFIX}{port['hostPort']}/{port.get('protocol') or 'TCP'}", port.get("hostIP") or ""
        if address in _EVERYWHERE:
            amounts[name] = ALL
        elif f"{name} at {address}" not in amounts:
            amounts[f"{name} at {address}"] = 1
            amounts[name] = min(ALL, amounts.get(name, 0) + 1)
    return amounts


def is_port(resource: str) -> bool:
    """Whether this entry of `Shape.extras` is a host port."""
    return resource.startswith(_PREFIX)


def unlisted_amount(resource: str) -> int:
    """How much a node has of a resource that it does not list."""
    if not is_port(resource):
        return 0
    return 1 if " at " in resource else ALL
