"""What a real API server warns of in a new pod, and takes all the same: kubectl prints it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock import objects
from rowlock.cluster.api.wording import dns_label_problems
from rowlock.objects import Object
from rowlock.quantity import parse


def warnings(pod: Object) -> Iterator[str]:
    spec, name = pod.get("spec") or {}, objects.name(pod)
    if problems := dns_label_problems(name):
        why = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{' '.join(problems)}]"
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources")
        if sources is not None and not any(sources):
            yield f'volume "{volume.get("name")}" (Projected) has no sources provided'
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'spec.imagePullSecrets[{index}].name: invalid empty name ""'
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container(container, f"spec.{field}[{index}]")


def _container(container: dict[str, Any], path: str) -> Iterator[str]:
    for field in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(field) or {}
        for name in ("memory", "ephemeral-storage"):
            amount = amounts.get(name)
            if amount is not None and parse(amount) % 1:
                text = f'fractional byte value "{amount}" is invalid, must be an integer'
                yield f"{path}.resources.{field}[{name}]: {text}"
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name")
        if name in seen:
            yield f'{path}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)
    ports: dict[tuple[Any, ...], int] = {}
    for index, port in enumerate(container.get("ports") or ()):
        what = (port.get("containerPort"), port.get("protocol"), port.get("hostPort"), port.get("hostIP"))
        if what in ports:
            yield f"{path}.ports[{index}]: duplicate port definition with {path}.ports[{ports[what]}]"
        ports.setdefault(what, index)
