"""Warnings about new pods, as rules for `rules.txt`: a real API server gives them and accepts the pods.

A warning is a cause without a reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.ip_addresses import parse_ip
from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import Causes, dns_label_problems, label_value_problems
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.quantity import is_whole

MAX_WARNINGS = 1_000
"""The most warnings about one object: a crafted object could cause millions."""


def warning(field: str, text: str) -> Cause:
    """A warning about a field, or with "" about the whole object."""
    return Cause("", text, field)


@rule
def pod_hostname(pod: Object, _: Scope) -> Iterable[Cause]:
    if not (problems := dns_label_problems(objects.name(pod))):
        return ()
    why = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
    return (warning(".metadata.name", f"{why}: [{' '.join(problems)}]"),)


@rule
def overlapping_files(pod: Object, _: Scope) -> Causes:
    """Warn of volumes with several files at the same path."""
    for volume in objects.dig(pod, "spec.volumes", ()):
        title = f'volume "{volume.get("name")}"'
        if "projected" in volume and not all(volume["projected"].get("sources") or ()):
            yield warning("", f"{title} (Projected) has no sources provided")
        for source in volume.keys() & _FILES.keys():
            spec = volume[source]
            name, seen = spec.get("name") or spec.get("secretName"), set[str]()
            for path in (item.get("path") or "" for item in spec.get("items") or ()):
                if path in seen:
                    owner = f'{_FILES[source]} "{name}"' if name else _FILES[source]
                    yield warning("", f'{title} ({owner}): overlapping paths: "{path}" with "{path}"')
                seen.add(path)


_FILES = {"configMap": "ConfigMap", "secret": "Secret", "downwardAPI": "DownwardAPI"}
"""Volume sources with a list of files."""


# ---------------------------------------------------------------- renamed fields, and fields without effect

_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}
_ANNOTATIONS = {
    "container.apparmor.security.beta.kubernetes.io/": ("deprecated since v1.30", "appArmorProfile"),
    "container.seccomp.security.alpha.kubernetes.io/": ("non-functional in v1.27+", "seccompProfile"),
    "scheduler.alpha.kubernetes.io/critical-pod": ("non-functional in v1.16+", "priorityClassName"),
    "seccomp.security.alpha.kubernetes.io/pod": ("non-functional in v1.27+", "seccompProfile"),
    "security.alpha.kubernetes.io/sysctls": ("non-functional in v1.11+", "sysctls"),
}


@rule
def old_annotations(pod: Object, _: Scope) -> Iterable[Cause]:
    return _annotation_warnings(pod) if "annotations" in pod["metadata"] else ()


def _annotation_warnings(pod: Object) -> Causes:
    for key in objects.annotations(pod):
        annotation = key.partition("/")[0] + "/" if key.startswith("container.") else key
        if annotation in _ANNOTATIONS:
            since, field = _ANNOTATIONS[annotation]
            yield warning(f".metadata.annotations[{key}]", f'{since}; use the "{field}" field instead')


@rule
def old_label(label: str, _: Scope) -> Iterable[Cause]:
    if label not in _LABELS:
        return ()
    since, name = _LABELS[label]
    return (warning("", f'{label} is deprecated since {since}; use "{name}" instead'),)


@rule
def old_labels(labels: dict[str, str], _: Scope) -> Iterable[Cause]:
    old = ((label, *_LABELS[label]) for label in labels if label in _LABELS)
    return [warning(f"[{label}]", f'deprecated since {since}; use "{name}" instead') for label, since, name in old]


# ---------------------------------------------------------------- selectors and amounts


@rule
def preferred_value(value: str, _: Scope) -> Iterable[Cause]:
    """Warn of a value that no label can have, in a preferred term; in a required term it is an error."""
    return [warning("", f"{value} is invalid, {why}") for why in label_value_problems(value)[:1]]


@rule
def null_selector(struct: dict[str, Any], _: Scope) -> Causes:
    if struct.get("labelSelector") is None:
        yield warning(".labelSelector", "a null labelSelector results in matching no pod")


@rule
def whole_bytes(amounts: dict[str, Any], _: Scope) -> Iterable[Cause]:
    return _fraction_warnings(amounts, "memory", "ephemeral-storage")


@rule
def whole_storage(amounts: dict[str, Any], _: Scope) -> Iterable[Cause]:
    return _fraction_warnings(amounts, "storage")


def _fraction_warnings(amounts: dict[str, Any], *names: str) -> Iterable[Cause]:
    fractions = [name for name in names if name in amounts and not is_whole(amounts[name])]
    text = 'fractional byte value "{}" is invalid, must be an integer'
    return [warning(f"[{name}]", text.format(amounts[name])) for name in fractions] if fractions else ()


# ---------------------------------------------------------------- names, addresses and ports that are there twice


@rule
def hidden_variables(container: dict[str, Any], _: Scope) -> Iterable[Cause]:
    names = [variable.get("name") for variable in container["env"]] if "env" in container else ()
    if len(set(names)) == len(names):
        return ()
    first = {name: index for index, name in reversed([*enumerate(names)])}
    hidden = ((index, name) for index, name in enumerate(names) if index > first[name])
    why = "which may be dropped when using apply"
    return [warning(f".env[{index}]", f'hides previous definition of "{name}", {why}') for index, name in hidden]


@rule
def repeated_reference(reference: dict[str, Any], scope: Scope) -> Causes:
    name = reference.get("name") or ""
    if scope.is_repeated("references", name):
        yield warning(".name", f'duplicate name "{name}"')
    if not name:
        yield warning(".name", 'invalid empty name ""')


@rule
def repeated_alias(alias: dict[str, Any], scope: Scope) -> Causes:
    if scope.is_repeated("aliases", ip := alias.get("ip") or ""):
        yield warning(".ip", f'duplicate ip "{ip}"')


@rule
def unusual_address(address: str, _: Scope) -> Causes:
    """Warn of an address in a non-standard or non-canonical notation."""
    ip = parse_ip(address)
    if ip is None or str(ip) == address:
        return
    later = "will be considered invalid in a future Kubernetes release"
    if ip.version == 4:
        yield warning("", f'non-standard IP address "{address}" {later}: use "{ip}"')
    else:
        yield warning("", f'IPv6 address "{address}" should be in RFC 5952 canonical format ("{ip}")')


def _format_port(port: dict[str, Any]) -> str:
    """A port as Go prints its struct."""
    fields = (("name", ""), ("hostPort", 0), ("containerPort", 0), ("protocol", ""), ("hostIP", ""))
    return "{" + " ".join(f"{name[0].upper()}{name[1:]}:{port.get(name, zero)}" for name, zero in fields) + "}"


_MAX_COMPARED_PORTS = 16
"""The most ports of one number that later ones are compared with: a pod may have many, and a few warnings are enough."""


@rule
def shared_ports(spec: dict[str, Any], _: Scope) -> Iterable[Cause]:
    """Warn of conflicting ports and port names, which the containers of a pod share."""
    has_ports = any("ports" in c for field in ("initContainers", "containers") for c in spec.get(field) or ())
    return islice(_port_warnings(spec), MAX_WARNINGS) if has_ports else ()


def _port_warnings(spec: dict[str, Any]) -> Causes:
    ports: dict[tuple[Any, Any], list[tuple[str, dict[str, Any]]]] = {}
    names: dict[str, str] = {}
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            for index, port in enumerate(container.get("ports") or ()):
                path, name = f".{field}[{number}].ports[{index}]", port.get("name")
                if port.get("hostIP") and not port.get("hostPort"):
                    yield warning(path, f"hostIP set without hostPort: {_format_port(port)}")
                same_number = ports.setdefault((port.get("containerPort"), port.get("protocol")), [])
                for where, how in _port_conflicts(port, same_number):
                    yield warning(path, f"{how} port definition with spec{where}")
                if len(same_number) < _MAX_COMPARED_PORTS:
                    same_number.append((path, port))
                if not name or (field == "initContainers" and container.get("restartPolicy") != "Always"):
                    continue  # an init container has ended before its port is looked up by name
                first = names.setdefault(name, path)
                if first != path:
                    used = f"services and probes that select ports by name will use spec{first}"
                    yield warning(path, f'duplicate port name "{name}" with spec{first}, {used}')


def _port_conflicts(port: dict[str, Any], others: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """The ports of the same number that conflict with this one, and how."""
    number, address = port.get("hostPort") or 0, port.get("hostIP") or ""
    for path, other in others:
        other_port, other_address = other.get("hostPort") or 0, other.get("hostIP") or ""
        if (other_port, other_address) == (number, address):
            yield path, "duplicate"
        elif not number or not other_port:
            yield path, "overlapping"
        elif number == other_port and bool(address) != bool(other_address):
            yield path, "dangerously ambiguous"
