"""Rules of containers that concern several fields: environment, mounts, resources, security contexts. Pure.

The other rules are rows of `rules.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rowlock.apiserver.validation.rules import Scope, check_struct, port_name, port_number, qualified_name, rule
from rowlock.documents.field_errors import (
    Causes,
    duplicate_value,
    forbidden_field,
    invalid_value,
    not_found,
    not_supported,
    required_value,
)
from rowlock.errors import Cause
from rowlock.quantity import parse

STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_RESOURCE_FIELDS = tuple(f"{what}.{name}" for what in ("limits", "requests") for name in sorted(STANDARD_RESOURCES))
_BYTE_UNITS = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
_DIVISORS = {
    "cpu": ("1m, 1", "cpu"),
    "memory": (_BYTE_UNITS, "memory"),
    "ephemeral-storage": (_BYTE_UNITS, "local ephemeral storage"),
}
"""The allowed divisors of a resource in a file or variable, and upstream's name of the resource in messages."""


@rule
def port(value: int | str, scope: Scope) -> Iterable[Cause]:
    """A port must be a valid number or name."""
    return port_number(value, scope) if isinstance(value, int) else port_name(value, scope)


@rule
def no_outer_space(image: str, _: Scope) -> Iterable[Cause]:
    text = "must not have leading or trailing whitespace"
    return () if image == image.strip() else (invalid_value("", image, text),)


@rule
def init_container(container: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    """An init container that must end before others start has neither probes nor hooks."""
    if container.get("restartPolicy") == "Always":
        return check_struct("Container handlers", container, scope)
    text = "may not be set for init containers without restartPolicy=Always"
    names = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
    return [forbidden_field(f".{name}", text) for name in names if name in container]


@rule
def shared_host_ports(container: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    """A host port must be used by only one of the containers."""
    return _host_port_causes(container["ports"], scope) if container.get("ports") else ()


def _host_port_causes(ports: list[dict[str, Any]], scope: Scope) -> Causes:
    for index, entry in enumerate(ports):
        shown = f"{entry.get('protocol')}/{entry.get('hostIP') or ''}/{entry.get('hostPort')}"
        if entry.get("hostPort") is not None and scope.is_repeated("host ports", shown):
            yield duplicate_value(f".ports[{index}].hostPort", shown)


@rule
def own_host_ports(container: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    """Host ports of init containers conflict only within the same container."""
    return shared_host_ports(container, Scope(container, scope))


# ---------------------------------------------------------------- environment


@rule
def env_name(name: str, _: Scope) -> Iterable[Cause]:
    if "=" not in name and name.isascii() and name.isprintable():
        return ()
    text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return (invalid_value("", name, text),)


@rule
def env_value(source: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    sources = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
    return _one_source_causes(source, sources, "", has_value=bool(scope.struct.get("value")))


@rule
def env_from(source: dict[str, Any], _: Scope) -> Iterable[Cause]:
    return _one_source_causes(source, ("configMapRef", "secretRef"), "..", has_value=False)


def _one_source_causes(source: dict[str, Any], names: tuple[str, ...], path: str, *, has_value: bool) -> Causes:
    count = sum(name in source for name in names)
    if not count:
        shown = ", ".join(f"`{name}`" for name in names[:-1])
        yield invalid_value(path, "", f"must specify one of: {shown} or `{names[-1]}`")
    elif has_value:
        yield invalid_value(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid_value(path, "", "may not have more than one field specified at a time")


def _field_causes(reference: dict[str, Any], allowed: tuple[str, ...], scope: Scope) -> Causes:
    """Check a fieldRef: a field of the pod as an environment variable or a file."""
    path = reference.get("fieldPath") or ""
    path = "spec.nodeName" if path == "spec.host" else path
    version, subscript = reference.get("apiVersion") or "v1", _split_subscript(path)
    why = ""
    if not path:
        yield required_value(".fieldPath")
    elif version != "v1":
        why = f"unsupported pod version: {version}"
    elif subscript and subscript[0] not in _MAP_PATHS:
        why = f"field label does not support subscript: {path}"
    elif subscript:
        key = subscript[1] if subscript[0] == "metadata.labels" else subscript[1].lower()
        yield from qualified_name(key, scope)
    elif path not in (*_VOLUME_PATHS, *_ENV_PATHS, *_OTHER_PATHS):
        why = f"field label not supported: {path}"
    elif path not in allowed:
        yield not_supported(".fieldPath", path, allowed)
    if why:
        yield invalid_value(".fieldPath", path, f"error converting fieldPath: {why}")


def _split_subscript(path: str) -> tuple[str, str] | None:
    """Split `metadata.labels['KEY']` into field and key (SplitMaybeSubscriptedPath); None without a subscript."""
    field, found, key = path.removesuffix("']").partition("['")
    return (field, key) if field and found and path.endswith("']") else None


_IDENTITY_PATHS = ("metadata.name", "metadata.namespace", "metadata.uid")
_MAP_PATHS = ("metadata.annotations", "metadata.labels")
_ENV_PATHS = (*_IDENTITY_PATHS, "spec.nodeName", "spec.serviceAccountName",
              "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")  # fmt: skip
_VOLUME_PATHS = (*_MAP_PATHS, *_IDENTITY_PATHS)
"""Fields that environment variables and files may refer to, besides a single label or annotation."""
_OTHER_PATHS = ("spec.restartPolicy", "spec.schedulerName", "status.phase")
"""Known fields that neither may refer to."""


@rule
def env_field(reference: dict[str, Any], scope: Scope) -> Causes:
    return _field_causes(reference, _ENV_PATHS, scope)


@rule
def volume_field(reference: dict[str, Any], scope: Scope) -> Causes:
    return _field_causes(reference, _VOLUME_PATHS, scope)


@rule
def env_resource(reference: dict[str, Any], _: Scope) -> Causes:
    """Check a resourceFieldRef in an environment variable."""
    resource, divisor = reference.get("resource") or "", reference.get("divisor", "0")
    if not resource:
        yield required_value(".resource")
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield not_supported(".resource", resource, _RESOURCE_FIELDS)
    units, title = _DIVISORS.get(resource.partition(".")[2], ("", ""))
    if title and divisor != "0" and divisor not in units.split(", "):
        units_text = units.replace("1m, 1", "1m and 1")
        text = f"only divisor's values {units_text} are supported with the {title} resource"
        yield invalid_value(".divisor", resource, text)


@rule
def volume_resource(reference: dict[str, Any], scope: Scope) -> Causes:
    """Check a resourceFieldRef in a file, which must name its container."""
    if not reference.get("containerName"):
        yield required_value(".containerName")
    named = reference.get("containerName")
    yield from (cause for cause in env_resource(reference, scope) if named or cause.field == ".divisor")


# ---------------------------------------------------------------- mounts


@rule
def mounted_volume(name: str, scope: Scope) -> Iterable[Cause]:
    return () if name in scope.outer.outer.notes["volumes"] else (not_found("", name),)


@rule
def device_volume(name: str, scope: Scope) -> Causes:
    source = scope.outer.outer.notes["volumes"].get(name)
    if source is None:
        yield not_found("", name)
    elif source not in ("persistentVolumeClaim", "ephemeral"):
        text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield invalid_value("", name, text)


@rule
def relative_path(path: str, scope: Scope) -> Causes:
    """A path must be relative and stay inside its volume."""
    if path.startswith("/"):
        yield invalid_value("", path, "must be a relative path")
    yield from no_backsteps(path, scope)


@rule
def no_backsteps(path: str, _: Scope) -> Causes:
    if ".." in path.split("/"):
        yield invalid_value("", path, "must not contain '..'")


# ---------------------------------------------------------------- resources


@rule
def container_resources(resources: dict[str, Any], _: Scope) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in ((".limits", limits), (".requests", requests)):
        for name, amount in amounts.items():
            yield from _amount_causes(name, amount, f"{field}[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if "/" in name and "kubernetes.io/" not in name:
                yield required_value(".limits", "Limit must be set for non overcommitable resources")
        elif "/" in name and parse(amount) != parse(limit):
            yield invalid_value(".requests", amount, f"must be equal to {name} limit of {limit}")
        elif parse(amount) > parse(limit):
            yield invalid_value(".requests", amount, f"must be less than or equal to {name} limit of {limit}")
    names = limits.keys() | requests.keys()
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        yield forbidden_field("", "HugePages require cpu or memory")


def _amount_causes(name: str, amount: Any, field: str) -> Causes:
    number = parse(amount)
    if "/" not in name and name not in STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield invalid_value(field, name, "must be a standard resource type or fully qualified")
        yield invalid_value(field, name, "must be a standard resource for containers")
    if number < 0:
        yield invalid_value(field, amount, "must be greater than or equal to 0")
    if "/" in name and number != number.to_integral_value():
        yield invalid_value(field, amount, "must be an integer")


# ---------------------------------------------------------------- security contexts


@rule
def privileges(context: dict[str, Any], _: Scope) -> Causes:
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        yield invalid_value("", context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")


@rule
def sysctl(name: str, scope: Scope) -> Causes:
    repeated = scope.outer.is_repeated("sysctls", name)
    if len(name) > 253 or not _SYSCTL.fullmatch(name):
        yield invalid_value("", name, _SYSCTL_TEXT)
    elif repeated:
        yield duplicate_value("", name)


_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_TEXT = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$"


@rule
def seccomp_localhost(profile: dict[str, Any], _: Scope) -> Iterable[Cause]:
    return _localhost_causes(profile, "seccomp", profile)


@rule
def app_armor_localhost(profile: dict[str, Any], _: Scope) -> Iterable[Cause]:
    return _localhost_causes(profile, "AppArmor", profile.get("localhostProfile"))


def _localhost_causes(profile: dict[str, Any], title: str, shown: Any) -> Causes:
    """`localhostProfile` must be set if, and only if, the profile's type is Localhost."""
    kind, name = profile.get("type"), profile.get("localhostProfile")
    if kind == "Localhost" and name is None:
        yield required_value(".localhostProfile", f"must be set when {title} type is Localhost")
    elif kind != "Localhost" and name is not None:
        yield invalid_value(".localhostProfile", shown, f"can only be set when {title} type is Localhost")
