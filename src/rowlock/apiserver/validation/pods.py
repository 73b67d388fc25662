"""Rules of pods: what kube-apiserver refuses in a PodSpec, in its order and with its messages. Pure.

Containers, volumes and placement have their own files (`containers.py` …). Here are the rules
for the whole pod, and those for updates of an existing pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rowlock.apiserver.validation.ip_addresses import ip_problems
from rowlock.apiserver.validation.placement import gate_update_causes, lacks_some
from rowlock.apiserver.validation.rules import Scope, rule
from rowlock.documents.field_errors import (
    Causes,
    forbidden_field,
    invalid_value,
    invalid_values,
    required_value,
    search_domain_problems,
)
from rowlock.errors import Cause
from rowlock.objects import Object

_MUTABLE_FIELDS_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


@rule
def dns_policy(policy: str, scope: Scope) -> Iterable[Cause]:
    """The policy None needs a `dnsConfig`."""
    missing = policy == "None" and not scope.struct.get("dnsConfig")
    return (required_value("", "must provide `dnsConfig` when `dnsPolicy` is None"),) if missing else ()


@rule
def search_domain(domain: str, _: Scope) -> Iterable[Cause]:
    """A search domain is the root, or a domain with or without a trailing dot."""
    name = domain.removesuffix(".")
    return () if domain == "." else invalid_values("", name, search_domain_problems(name))


@rule
def pod_addresses(status: dict[str, Any], _: Scope) -> Causes:
    """Check the pod IPs in a status."""
    addresses = status.get("podIPs") or ([{"ip": status["podIP"]}] if status.get("podIP") else ())
    for index, entry in enumerate(addresses):
        yield from invalid_values(f".podIPs[{index}]", ip := entry.get("ip") or "", ip_problems(ip))


# ---------------------------------------------------------------- what may still change


def pod_update_causes(old: Object, new: Object) -> Causes:
    """Forbidden changes of an existing pod's spec: only images, the deadline and additional tolerations may change."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before == after:
        return
    for field in ("containers", "initContainers"):
        if len(before.get(field) or ()) != len(after.get(field) or ()):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from gate_update_causes(before, after)
    if lacks_some(*(map(_without_seconds, spec.get("tolerations") or ()) for spec in (before, after))):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    yield from _deadline_causes(before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds"))
    if changes := list(field_differences(_immutable_fields(before, before), _immutable_fields(after, before), "spec")):
        yield forbidden_field("spec", "\n".join((_MUTABLE_FIELDS_TEXT, *changes[:MAX_SHOWN_CHANGES])))


MAX_SHOWN_CHANGES = 30
"""The most lines of differences in a message."""


def field_differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """The differences, three lines each: the field, the old value, the new value (a real server prints Go structs)."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from field_differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from field_differences(*pair, f"{path}[{index}]")
    else:
        yield f"  {path}:"
        for sign, value in (("-", old), ("+", new)):
            if value is not None:
                yield f"{sign} {json.dumps(value, ensure_ascii=False)[:200]}"


def _deadline_causes(before: int | None, after: int | None) -> Causes:
    """A deadline may become shorter, but not be removed or extended."""
    field = "spec.activeDeadlineSeconds"
    if after is not None and not 0 <= after <= 2**31 - 1:
        yield invalid_value(field, after, "must be between 0 and 2147483647, inclusive")
    if before is None or before == after:
        return
    if after is None:
        yield invalid_value(field, None, "must not update from a positive integer to nil value")
    elif after > before:
        yield invalid_value(field, after, "must be less than or equal to previous value")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    """A toleration without `tolerationSeconds`, which may change."""
    return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}


def _immutable_fields(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The part of a spec that must stay as it was `before`."""
    mutable_fields = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if before.get("schedulingGates"):  # `gate_update_causes` checks these
        mutable_fields |= {"nodeSelector", "affinity"}
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        spec = {**spec, "terminationGracePeriodSeconds": before["terminationGracePeriodSeconds"]}
    fixed = {k: v for k, v in spec.items() if k not in mutable_fields}
    if "affinity" in mutable_fields:
        fixed["affinity"] = {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed
