"""Kinds that every real cluster has and this one has none of: they can be looked for, never made.

A list of them is empty, and true; so `kubectl get all`, `kubectl apply --prune` and `kubectl cluster-info dump`, which
ask for many kinds, work. Who would make one is told in a sentence that there is nobody here to run it.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Send

from rowlock.apiserver.endpoints import reviews
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target, path_not_found
from rowlock.apiserver.http.responses import answer_object
from rowlock.errors import Unsupported, not_found
from rowlock.kinds import Kind

VERBS = ("get", "list")
_JOBS = "create pods, or a job of kubeflow.org/v1 (PyTorchJob, TFJob, MPIJob …)"
_VOLUMES = "persistent volume claims are directories of this machine"


@dataclass(frozen=True, slots=True)
class UnservedKind:
    """One of them, and why it is not made."""

    kind: Kind
    alternative: str

    @property
    def message(self) -> str:
        return f"rowlock has no {self.kind.name} objects: {self.alternative}"


def _row(
    path: str, name: str, plural: str, alternative: str, short: str = "", *, namespaced: bool = True
) -> UnservedKind:
    group, _, version = path.rpartition("/")
    categories = ("all",) if alternative is _JOBS else ()
    kind = Kind(group, version, name, plural, tuple(short.split()), namespaced, frozenset(), categories)
    return UnservedKind(kind, alternative)


_RIGHTS = "rights come from the groups in the users file (`rowlock up --users`)"
_NETWORK = "pods reach each other by name; only headless Services are served"
ROWS = (
    _row("v1", "LimitRange", "limitranges", "set requests and limits in the manifests", "limits"),
    _row("v1", "ReplicationController", "replicationcontrollers", _JOBS, "rc"),
    _row("v1", "PersistentVolume", "persistentvolumes", _VOLUMES, "pv", namespaced=False),
    _row("apps/v1", "DaemonSet", "daemonsets", _JOBS, "ds"),
    _row("apps/v1", "Deployment", "deployments", _JOBS, "deploy"),
    _row("apps/v1", "ReplicaSet", "replicasets", _JOBS, "rs"),
    _row("apps/v1", "StatefulSet", "statefulsets", _JOBS, "sts"),
    _row("batch/v1", "CronJob", "cronjobs", _JOBS, "cj"),
    _row("batch/v1", "Job", "jobs", _JOBS),
    _row("networking.k8s.io/v1", "Ingress", "ingresses", _NETWORK, "ing"),
    _row("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", _NETWORK, "netpol"),
    _row("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "gangs are evicted whole or not at all", "pdb"),
    _row("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", _RIGHTS, namespaced=False),
    _row("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", _RIGHTS, namespaced=False),
    _row("storage.k8s.io/v1", "StorageClass", "storageclasses", _VOLUMES, "sc", namespaced=False),
)
BY_PATH = {(row.kind.group, row.kind.version, row.kind.plural): row for row in ROWS}
PLURALS = frozenset(row.kind.plural for row in ROWS)


def match_path(version: tuple[str, str], rest: list[str]) -> tuple[UnservedKind, str, str] | None:
    """Which of them a path names, with its namespace and the name of an object."""
    if rest[0] == "namespaces" and len(rest) >= 3:
        namespace, path = rest[1], rest[2:]
    else:
        namespace, path = "", rest
    row = BY_PATH.get((*version, path[0]))
    if row is None:
        return None
    if len(path) > 3 or (namespace and not row.kind.namespaced):
        raise path_not_found()
    return row, namespace, path[1] if path[1:] else ""


async def serve_unserved_kind(call: Call, send: Send, match_result: tuple[UnservedKind, str, str]) -> None:
    row, namespace, name = match_result
    verb = "list" if call.method == "GET" and not name else call.method.lower()
    target = Target(row.kind, namespace, name)
    if not call.user.is_allowed(verb, row.kind.plural):
        raise reviews.forbidden_error(call.user, verb, target)
    if call.method not in ("GET", "DELETE") or call.flag("watch"):
        raise Unsupported(row.message)
    if name:
        raise not_found(row.kind.plural, name, row.kind.group)
    call.check_query(requests.DELETE_COLLECTION_PARAMETERS if call.method == "DELETE" else requests.LIST_PARAMETERS)
    head = {"metadata": {"resourceVersion": "1"}}
    if requests.negotiate_form(call.header(b"accept"), for_list=True).view == "Table":
        columns = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
        table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", **head, "columnDefinitions": columns, "rows": []}
        return await answer_object(send, table)
    kind = {"kind": f"{row.kind.name}List", "apiVersion": row.kind.api_version}
    await answer_object(send, {**kind, **head, "items": []})
