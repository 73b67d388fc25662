"""Ports of the node that pods ask for (`hostPort`): kube-scheduler's NodePorts, as amounts of which every node has some.

Of each port there are `ALL` shares. A pod that takes it on all addresses of the node takes all of them; on one address, one
share and that address. So two of the first kind meet, or one of each; two of the second only at the same address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ALL = 1 << 20
_PREFIX = "host port "
_EVERYWHERE = ("", "0.0.0.0", "::")  # compared, not listened on
NO_FREE_PORTS = "node(s) didn't have free ports for the requested pod ports"


def ports_of(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The ports of a pod's containers that name one of the node: those of sidecars, too, not of other init containers."""
    for container in spec.get("containers") or ():
        yield from (p for p in container.get("ports") or () if p.get("hostPort"))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield from (p for p in container.get("ports") or () if p.get("hostPort"))


def requested_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """What the pod takes of the node's ports, as entries of `Shape.extras`."""
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
    """Is this entry of `Shape.extras` a port?"""
    return resource.startswith(_PREFIX)


def unlisted_amount(resource: str) -> int:
    """How much a node has of a resource that it does not list."""
    if not is_port(resource):
        return 0
    return 1 if " at " in resource else ALL
