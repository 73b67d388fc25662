"""The rules of who a container runs as and what it may: users, groups, profiles of the kernel, sysctls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rowlock.apiserver.validation.field_errors import duplicate_value, invalid_value, not_supported, required_value
from rowlock.errors import Cause

Causes = Iterator[Cause]

_FIELDS = (  # as the real server prints them
    "capabilities", "privileged", "seLinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot",
    "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount", "seccompProfile", "appArmorProfile",
)  # fmt: skip
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_ID_RANGE_TEXT = "must be between 0 and 2147483647, inclusive"
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")


def security_causes(context: dict[str, Any], path: str) -> Causes:
    """The rules of a container's own security context."""
    yield from _identity_causes(context, path)
    if context.get("procMount") not in (None, "Default", "Unmasked"):
        yield not_supported(f"{path}.procMount", context["procMount"], ("Default", "Unmasked"))
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        go_context = {_go_field_name(field): _go_struct(context.get(field)) for field in _FIELDS}
        yield invalid_value(path, go_context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
    yield from _profile_causes(context, path)


def pod_security_causes(spec: dict[str, Any], path: str) -> Causes:
    """The rules of a whole pod's security context."""
    context = spec.get("securityContext") or {}
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid_value(f"{path}.shareProcessNamespace", True, text)
    yield from _identity_causes(context, path)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= 2**31 - 1:
            yield invalid_value(f"{path}.supplementalGroups[{index}]", group, _ID_RANGE_TEXT)
    yield from _sysctl_causes(context, path)
    for field, supported in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ):
        if context.get(field) not in (None, *supported):
            yield not_supported(f"{path}.{field}", context[field], supported)
    yield from _profile_causes(context, path)


def _sysctl_causes(context: dict[str, Any], path: str) -> Causes:
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        name, where = sysctl.get("name") or "", f"{path}.sysctls[{index}].name"
        if not name:
            yield required_value(where)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            text = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern.replace('./', chr(92) + './')}$"
            yield invalid_value(where, name, text)
        elif name in seen:
            yield duplicate_value(where, name)
        seen.add(name)


def _identity_causes(context: dict[str, Any], path: str) -> Causes:
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        number = context.get(field)
        if number is not None and not 0 <= number <= 2**31 - 1:
            yield invalid_value(f"{path}.{field}", number, _ID_RANGE_TEXT)


def _profile_causes(context: dict[str, Any], path: str) -> Causes:
    for field, title in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        kind, localhost_profile, where = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.{field}"
        if not kind:
            yield required_value(f"{where}.type", f"type is required when {field} is set")
        elif kind not in _PROFILES:
            yield not_supported(f"{where}.type", kind, _PROFILES)
        if kind == "Localhost" and localhost_profile is None:
            yield required_value(f"{where}.localhostProfile", f"must be set when {title} type is Localhost")
        elif kind != "Localhost" and localhost_profile is not None:
            shown = (
                _go_struct({"type": kind, "localhostProfile": localhost_profile})
                if title == "seccomp"
                else localhost_profile
            )
            yield invalid_value(f"{where}.localhostProfile", shown, f"can only be set when {title} type is Localhost")


_STRUCT_FIELDS = (("add", "drop"), ("level", "role", "type", "user"), ("type", "localhostProfile"))
"""The fields of what stands in a security context, in Go's order."""


def _go_field_name(field: str) -> str:
    return "SELinuxOptions" if field == "seLinuxOptions" else field[0].upper() + field[1:]


def _go_struct(value: Any) -> Any:
    """A part of a security context as Go's structure prints it, with the fields that nobody set."""
    if not isinstance(value, dict):
        return value
    names = next((fields for fields in _STRUCT_FIELDS if value.keys() <= set(fields)), tuple(value))
    return {_go_field_name(name): value.get(name) for name in names}
