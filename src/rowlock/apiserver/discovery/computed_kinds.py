"""Kinds of which nothing is stored: they can be looked at, never made.

Some are computed from other objects (Endpoints from Services and pods, definitions from the table of kinds). Of the others
every real cluster has some and this one has none: a list of them is empty, and true; so `kubectl get all`,
`kubectl apply --prune` and `kubectl cluster-info dump`, which ask for many kinds, work. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.kinds import Kind

_JOBS = "create pods, or a job of kubeflow.org/v1 (PyTorchJob, TFJob, MPIJob …)"
_VOLUMES = "persistent volume claims are directories of this machine"


@dataclass(frozen=True, slots=True)
class ComputedKind:
    """One of them, and what is said to those who want to make one, or to watch."""

    kind: Kind
    refusal: str
    warning: str = ""
    """What is said to those who read it."""


def _unserved_kind(
    path: str, name: str, plural: str, alternative: str, short: str = "", *, namespaced: bool = True
) -> ComputedKind:
    group, _, version = path.rpartition("/")
    categories = ("all",) if alternative is _JOBS else ()
    kind = Kind(group, version, name, plural, tuple(short.split()), namespaced, frozenset(), categories)
    return ComputedKind(kind, f"rowlock has no {name} objects: {alternative}")


_RIGHTS = "rights come from the groups in the users file (`rowlock up --users`)"
_NETWORK = "pods reach each other by name; only headless Services are served"
UNSERVED = (
    _unserved_kind("v1", "LimitRange", "limitranges", "set requests and limits in the manifests", "limits"),
    _unserved_kind("v1", "ReplicationController", "replicationcontrollers", _JOBS, "rc"),
    _unserved_kind("v1", "PersistentVolume", "persistentvolumes", _VOLUMES, "pv", namespaced=False),
    _unserved_kind("apps/v1", "DaemonSet", "daemonsets", _JOBS, "ds"),
    _unserved_kind("apps/v1", "Deployment", "deployments", _JOBS, "deploy"),
    _unserved_kind("apps/v1", "ReplicaSet", "replicasets", _JOBS, "rs"),
    _unserved_kind("apps/v1", "StatefulSet", "statefulsets", _JOBS, "sts"),
    _unserved_kind("batch/v1", "CronJob", "cronjobs", _JOBS, "cj"),
    _unserved_kind("batch/v1", "Job", "jobs", _JOBS),
    _unserved_kind("networking.k8s.io/v1", "Ingress", "ingresses", _NETWORK, "ing"),
    _unserved_kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", _NETWORK, "netpol"),
    _unserved_kind(
        "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "gangs are evicted whole or not at all", "pdb"
    ),
    _unserved_kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", _RIGHTS, namespaced=False),
    _unserved_kind(
        "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", _RIGHTS, namespaced=False
    ),
    _unserved_kind("storage.k8s.io/v1", "StorageClass", "storageclasses", _VOLUMES, "sc", namespaced=False),
)
_NAMES = "rowlock finds the pods of a Service by itself: {} can only be listed"
ENDPOINTS = ComputedKind(
    Kind("", "v1", "Endpoints", "endpoints", ("ep",)),
    _NAMES.format("Endpoints"),
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)
ENDPOINT_SLICES = ComputedKind(
    Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"), _NAMES.format("EndpointSlices")
)
DEFINITIONS = ComputedKind(
    Kind(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", ("crd", "crds"), False,
        categories=("api-extensions",),
    ),
    "rowlock has a fixed set of kinds: definitions can only be read",
)  # fmt: skip
BY_PATH = {
    (row.kind.group, row.kind.version, row.kind.plural): row
    for row in (*UNSERVED, ENDPOINTS, ENDPOINT_SLICES, DEFINITIONS)
}
