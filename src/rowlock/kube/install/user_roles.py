"""The rights of people in the namespaces of their projects: cluster roles that Kubernetes adds to its own view, edit and admin.

Kubeflow's operator adds its kinds to roles of Kubeflow only, so a binding of `edit` alone gave nobody the right to submit a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object

_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_JOBS = (*kinds.JOBS, kinds.JOB_SET, kinds.TRAIN_JOB, kinds.TRAINING_RUNTIME)


def user_role_objects() -> list[Object]:
    """`rowlock-view`: to read jobs, their gangs and, where it is bound in the whole cluster, queues; `rowlock-edit`: to write jobs;
    `rowlock-admin`: to write queues, which only a binding in the whole cluster gives."""
    return [
        _role("view", [_rule(kind, _READ) for kind in _by_group((*_JOBS, kinds.POD_GROUP, kinds.QUEUE))]),
        _role("edit", [_rule(kind, _WRITE) for kind in _by_group(_JOBS)]),
        _role("admin", [_rule(kind, _WRITE) for kind in _by_group((kinds.QUEUE,))]),
    ]


def _by_group(wanted: Iterable[Kind]) -> list[tuple[str, list[str]]]:
    """(API group, its resources)."""
    groups: dict[str, list[str]] = {}
    for kind in wanted:
        groups.setdefault(kind.group, []).append(kind.plural)
    return list(groups.items())


def _rule(resources: tuple[str, list[str]], verbs: tuple[str, ...]) -> dict[str, Any]:
    group, names = resources
    return {"apiGroups": [group], "resources": names, "verbs": list(verbs)}


def _role(level: str, rules: list[dict[str, Any]]) -> Object:
    metadata = {"name": f"rowlock-{level}", "labels": {f"{_AGGREGATE}{level}": "true"}}
    kind = kinds.CLUSTER_ROLE
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "rules": rules}
