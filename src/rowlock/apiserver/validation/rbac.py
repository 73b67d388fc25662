"""The rules of Roles and RoleBindings: who may do what, said completely. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock.apiserver.validation.field_errors import invalid_value, not_supported, required_value, subdomain_problems
from rowlock.errors import Cause
from rowlock.objects import Object

Causes = Iterator[Cause]

_GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def role_causes(obj: Object) -> Causes:
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required_value(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            text = "namespaced rules cannot apply to non-resource URLs"
            yield invalid_value(f"{path}.nonResourceURLs", rule["nonResourceURLs"], text)
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid_value(f"{path}.nonResourceURLs", rule["nonResourceURLs"], text)
            continue
        for field, noun in (("apiGroups", "api group"), ("resources", "resource")):
            if not rule.get(field):
                yield required_value(f"{path}.{field}", f"resource rules must supply at least one {noun}")


def role_binding_causes(obj: Object) -> Causes:
    role = obj.get("roleRef") or {}
    if role.get("apiGroup") != _GROUP:
        yield not_supported("roleRef.apiGroup", role.get("apiGroup"), (_GROUP,))
    if role.get("kind") not in ("Role", "ClusterRole"):
        yield not_supported("roleRef.kind", role.get("kind"), ("Role", "ClusterRole"))
    name = role.get("name") or ""
    if not name:
        yield required_value("roleRef.name")
    for char in ("/", "%"):
        if char in name:
            yield invalid_value("roleRef.name", name, f"may not contain '{char}'")
    for index, subject in enumerate(obj.get("subjects") or ()):
        yield from _subject_causes(subject, f"subjects[{index}]")


def _subject_causes(subject: dict[str, Any], path: str) -> Causes:
    name, kind, group = (subject.get(field) or "" for field in ("name", "kind", "apiGroup"))
    if not name:
        yield required_value(f"{path}.name")
    if kind == "ServiceAccount":
        for problem in subdomain_problems(name) if name else ():
            yield invalid_value(f"{path}.name", name, problem)
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
    elif kind not in _SUBJECTS:
        yield not_supported(f"{path}.kind", kind, _SUBJECTS)
    elif group != _GROUP:
        yield not_supported(f"{path}.apiGroup", group, (_GROUP,))
