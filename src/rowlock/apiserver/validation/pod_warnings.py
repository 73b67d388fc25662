"""What a real API server warns of in a new pod, and takes all the same: kubectl prints it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.field_errors import dns_label_problems, label_value_problems
from rowlock.apiserver.validation.ip_addresses import address_warnings
from rowlock.objects import Object
from rowlock.quantity import is_whole


def warnings(pod: Object) -> Iterator[str]:
    spec, name = pod.get("spec") or {}, objects.name(pod)
    if problems := dns_label_problems(name):
        why = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{' '.join(problems)}]"
    for volume in spec.get("volumes") or ():
        yield from _volume_warnings(volume)
    yield from _deprecation_warnings(pod, spec)
    yield from _duplicate_warnings(spec.get("imagePullSecrets") or (), "spec.imagePullSecrets", "name")
    yield from _duplicate_warnings(spec.get("hostAliases") or (), "spec.hostAliases", "ip")
    yield from _pod_address_warnings(spec)
    yield from _placement_warnings(spec)
    yield from _port_warnings(spec)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container_warnings(container, f"spec.{field}[{index}]")


def _volume_warnings(volume: dict[str, Any]) -> Iterator[str]:
    """Files of a volume that lie upon one another."""
    title = f'volume "{volume.get("name")}"'
    if not all((volume.get("projected") or {}).get("sources") or ()):
        yield f"{title} (Projected) has no sources provided"
    for source, kind in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
        spec = volume.get(source)
        if not spec:
            continue
        source_name = spec.get("name") or spec.get("secretName")
        source_title = f'{kind} "{source_name}"' if source_name else kind
        for repeated in _repeated_names(item.get("path") or "" for item in spec.get("items") or ()):
            yield f'{title} ({source_title}): overlapping paths: "{repeated}" with "{repeated}"'


def _repeated_names(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _container_warnings(container: dict[str, Any], path: str) -> Iterator[str]:
    for field in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(field) or {}
        for name in ("memory", "ephemeral-storage"):
            amount = amounts.get(name)
            if amount is not None and not is_whole(amount):
                text = f'fractional byte value "{amount}" is invalid, must be an integer'
                yield f"{path}.resources.{field}[{name}]: {text}"
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name")
        if name in seen:
            yield f'{path}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


# ---------------------------------------------------------------- what has a newer name, or does nothing any more

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
_VOLUMES = {
    "cephfs": ("cephfs", "v1.28, non-functional in v1.31+"),
    "flocker": ("flocker", "v1.22, non-functional in v1.25+"),
    "gitRepo": ("gitRepo", "v1.11, and disabled by default in v1.33+"),
    "glusterfs": ("glusterfs", "v1.25, non-functional in v1.26+"),
    "photonPersistentDisk": ("photonPersistentDisk", "v1.11, non-functional in v1.16+"),
    "quobyte": ("quobyte", "v1.22, non-functional in v1.25+"),
    "rbd": ("rbd", "v1.28, non-functional in v1.31+"),
    "scaleIO": ("scaleIO", "v1.16, non-functional in v1.22+"),
    "storageos": ("storageOS", "v1.22, non-functional in v1.25+"),
}


def _deprecation_warnings(pod: Object, spec: dict[str, Any]) -> Iterator[str]:
    for key in objects.annotations(pod):
        annotation = key.partition("/")[0] + "/" if key.startswith("container.") else key
        if annotation in _ANNOTATIONS:
            since, field = _ANNOTATIONS[annotation]
            yield f'metadata.annotations[{key}]: {since}; use the "{field}" field instead'
    for index, volume in enumerate(spec.get("volumes") or ()):
        for field in volume.keys() & _VOLUMES.keys():
            field_name, since = _VOLUMES[field]
            yield f"spec.volumes[{index}].{field_name}: deprecated in {since}"


def _deprecated_label_warnings(label: str, path: str, says: str = " is") -> Iterator[str]:
    if label in _LABELS:
        since, name = _LABELS[label]
        yield f'{path}{says} deprecated since {since}; use "{name}" instead'


# ---------------------------------------------------------------- where it runs


def _placement_warnings(spec: dict[str, Any]) -> Iterator[str]:
    for label in spec.get("nodeSelector") or {}:
        yield from _deprecated_label_warnings(label, f"spec.nodeSelector[{label}]", ":")
    for index, rule in enumerate(spec.get("topologySpreadConstraints") or ()):
        path = f"spec.topologySpreadConstraints[{index}]"
        yield from _deprecated_label_warnings(
            rule.get("topologyKey") or "", f"{path}.topologyKey: {rule.get('topologyKey')}"
        )
        if rule.get("labelSelector") is None:
            yield f"{path}.labelSelector: {_NULL_SELECTOR}"
    affinity = spec.get("affinity") or {}
    for path, terms in _node_terms(affinity.get("nodeAffinity") or {}):
        for index, need in enumerate(terms.get("matchExpressions") or ()):
            key = need.get("key") or ""
            where = f"{path}.matchExpressions[{index}]"
            yield from _deprecated_label_warnings(key, f"{where}.key: {key}")
            if path.endswith(".preference"):  # where they must match, it is an error
                for number, value in enumerate(need.get("values") or ()):
                    if problems := label_value_problems(value):
                        yield f"{where}.values[{number}]: {value} is invalid, {problems[0]}"
    for field in ("podAffinity", "podAntiAffinity"):
        for path, term in _pod_terms(affinity.get(field) or {}, f"spec.affinity.{field}"):
            if term.get("labelSelector") is None:
                yield f"{path}.labelSelector: {_NULL_SELECTOR}"


_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _node_terms(affinity: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[{index}]", term
    for index, preference in enumerate(affinity.get(_PREFERRED) or ()):
        yield f"spec.affinity.nodeAffinity.{_PREFERRED}[{index}].preference", preference.get("preference") or {}


def _pod_terms(affinity: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        yield f"{path}.{_REQUIRED}[{index}]", term
    for index, preference in enumerate(affinity.get(_PREFERRED) or ()):
        yield f"{path}.{_PREFERRED}[{index}].podAffinityTerm", preference.get("podAffinityTerm") or {}


# ---------------------------------------------------------------- names, addresses and ports that are there twice


def _duplicate_warnings(entries: Sequence[dict[str, Any]], path: str, field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        name = entry.get(field) or ""
        if name in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{name}"'
        if not name and field == "name":
            yield f'{path}[{index}].name: invalid empty name ""'
        seen.add(name)


def _pod_address_warnings(spec: dict[str, Any]) -> Iterator[str]:
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from address_warnings(alias.get("ip") or "", f"spec.hostAliases[{index}].ip")
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from address_warnings(server, f"spec.dnsConfig.nameservers[{index}]")


def _format_port(port: dict[str, Any]) -> str:
    """A port as Go prints its structure."""
    fields = (("name", ""), ("hostPort", 0), ("containerPort", 0), ("protocol", ""), ("hostIP", ""))
    return "{" + " ".join(f"{name[0].upper()}{name[1:]}:{port.get(name, zero)}" for name, zero in fields) + "}"


_MAX_COMPARED_PORTS = 16
"""Ports of one number that later ones are held against: who has more of them has read enough, and a pod may have many."""


def _port_warnings(spec: dict[str, Any]) -> Iterator[str]:
    """Containers of a pod share its ports, and the names of them."""
    ports: dict[tuple[Any, Any], list[tuple[str, dict[str, Any]]]] = {}
    names: dict[str, str] = {}
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            for index, port in enumerate(container.get("ports") or ()):
                path, name = f"spec.{field}[{number}].ports[{index}]", port.get("name")
                if port.get("hostIP") and not port.get("hostPort"):
                    yield f"{path}: hostIP set without hostPort: {_format_port(port)}"
                same_number = ports.setdefault((port.get("containerPort"), port.get("protocol")), [])
                yield from (
                    f"{path}: {how} port definition with {where}" for where, how in _port_conflicts(port, same_number)
                )
                if len(same_number) < _MAX_COMPARED_PORTS:
                    same_number.append((path, port))
                if not name or (field == "initContainers" and container.get("restartPolicy") != "Always"):
                    continue  # an init container is over before anybody asks for a port by its name
                first = names.setdefault(name, path)
                if first != path:
                    used = f"services and probes that select ports by name will use {first}"
                    yield f'{path}: duplicate port name "{name}" with {first}, {used}'


def _port_conflicts(port: dict[str, Any], others: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """The ports of the same number that get in this one's way, and how."""
    number, address = port.get("hostPort") or 0, port.get("hostIP") or ""
    for path, other in others:
        other_port, other_address = other.get("hostPort") or 0, other.get("hostIP") or ""
        if (other_port, other_address) == (number, address):
            yield path, "duplicate"
        elif not number or not other_port:
            yield path, "overlapping"
        elif number == other_port and bool(address) != bool(other_address):
            yield path, "dangerously ambiguous"
