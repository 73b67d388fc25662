"""The initial roles and bindings of a cluster; missing ones are restored at every start.

Kubernetes' own (`cluster-admin`, `admin`, `edit`, `view`, those for all users such as `system:basic-user`), and rowlock's `rowlock:viewer`,
`rowlock:editor`, `rowlock:admin`. As in plugin/pkg/auth/authorizer/rbac/bootstrappolicy. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from rowlock import objects
from rowlock.api import View
from rowlock.authentication.users import AUTHENTICATED, MASTERS
from rowlock.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind
from rowlock.objects import Object
from rowlock.system.role_aggregation import aggregate_rules

_AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BINDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cluster-admin": ("cluster-admin", (MASTERS,)),
    "system:basic-user": ("system:basic-user", (AUTHENTICATED,)),
    "system:discovery": ("system:discovery", (AUTHENTICATED,)),
    "system:monitoring": ("system:monitoring", ("system:monitoring",)),
    "system:public-info-viewer": ("system:public-info-viewer", (AUTHENTICATED, "system:unauthenticated")),
    "system:service-account-issuer-discovery": ("system:service-account-issuer-discovery", ("system:serviceaccounts",)),
    "kubeflow-trainer-view-cluster-runtimes": ("kubeflow-trainer-view-cluster-runtimes", (AUTHENTICATED,)),
    "rowlock:admins": ("rowlock:admin", ("rowlock:admins",)),
    "rowlock:editors": ("rowlock:editor", ("rowlock:editors",)),
    "rowlock:viewers": ("rowlock:viewer", ("rowlock:viewers",)),
}
"""Cluster role binding → its role, and the groups that have it."""


def initial_objects() -> list[tuple[Kind, Object]]:
    """Every role and binding of a new cluster. The rules of aggregated roles are filled in."""
    return [*((CLUSTER_ROLE, role) for role in _cluster_roles()), *((CLUSTER_ROLE_BINDING, one) for one in _bindings())]


def reconcile(view: View) -> Iterator[tuple[Kind, Object]]:
    """Existing initial objects that lost rules, subjects or labels, each completed for an update.

    Skips objects whose annotation `rbac.authorization.kubernetes.io/autoupdate` is not "true"."""
    for kind, default in initial_objects():
        stored = view.get(kind, "", objects.name(default))
        if stored is None or objects.annotations(stored).get(_AUTO_UPDATE) != "true":
            continue
        complete = _complete(stored, default)
        if complete != stored:
            yield kind, complete


def _complete(stored: Object, default: Object) -> Object:
    complete = dict(stored)
    for field in ("rules", "subjects"):
        if field in default and not default.get("aggregationRule"):
            have = stored.get(field) or []
            missing = [entry for entry in default[field] if entry not in have]
            complete |= {field: [*have, *missing]} if missing else {}
    if rule := default.get("aggregationRule"):
        have = objects.dig(stored, "aggregationRule.clusterRoleSelectors") or []
        missing = [selector for selector in rule["clusterRoleSelectors"] if selector not in have]
        complete |= {"aggregationRule": {"clusterRoleSelectors": [*have, *missing]}} if missing else {}
    labels = {**objects.labels(stored), **objects.labels(default)}
    return complete if labels == objects.labels(stored) else objects.with_field(complete, "metadata.labels", labels)


@cache
def _cluster_roles() -> tuple[Object, ...]:
    text = resources.files(__package__).joinpath("cluster_roles.json").read_bytes()
    entries: dict[str, dict[str, Any]] = msgspec.json.decode(text)
    roles = {name: _object(CLUSTER_ROLE, name, entry) for name, entry in sorted(entries.items())}
    while True:  # aggregated roles may aggregate each other: repeat until nothing changes
        before = list(roles.values())
        for name, role in roles.items():
            if role.get("aggregationRule"):
                roles[name] = {**role, "rules": aggregate_rules(role, before)}
        if list(roles.values()) == before:
            return tuple(before)


def _bindings() -> Iterator[Object]:
    for name, (role, groups) in _BINDINGS.items():
        group = CLUSTER_ROLE.group
        content = {
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": one} for one in groups],
        }
        yield _object(CLUSTER_ROLE_BINDING, name, content)


def _object(kind: Kind, name: str, entry: dict[str, Any]) -> Object:
    content = dict(entry)
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults", **content.pop("labels", {})}
    metadata = {"name": name, "labels": labels, "annotations": {_AUTO_UPDATE: "true"}}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content}
