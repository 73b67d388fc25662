"""The initial objects of a new cluster: namespaces, priority classes, what an installation of Kubeflow Trainer brings, the
default department and project.

Pure: a list of objects. `LocalCluster` creates those that are missing at every start, so that a deleted default comes
back and an edited one stays as it is.
"""

from __future__ import annotations

from rowlock import kinds
from rowlock.authentication.users import AUTHENTICATED
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.training.trainjob.runtimes import VERSION, shipped_runtimes
from rowlock.workloads import projects, submission

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
DEFAULT_NAME = "default"
"""Name of the project and of the department that a new cluster has."""
PRIORITY_CLASSES: dict[str, int] = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
    "train": 50,
    "build-preemptible": 75,
    "interactive-preemptible": 75,
    "build": 100,
    "inference": 125,
    **submission.PRIORITIES,
}
"""Kubernetes' two, KAI's five and those of Run:ai's REST API; below 100 a workload may be preempted."""


def _object(kind: Kind, name: str, **fields: object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **fields}


_TRAINER_NAMESPACE, _TRAINER_PUBLIC = "kubeflow-system", "kubeflow-trainer-public"


def _trainer() -> list[tuple[Kind, Object]]:
    """Kubeflow Trainer's runtimes, and the ConfigMap from which Kubeflow's SDK reads the release, readable by all users."""
    group = kinds.ROLE.group
    rule = {
        "apiGroups": [""],
        "resources": [kinds.CONFIG_MAP.plural],
        "resourceNames": [_TRAINER_PUBLIC],
        "verbs": ["get"],
    }
    role = {"apiGroup": group, "kind": kinds.ROLE.name, "name": _TRAINER_PUBLIC}
    subject = {"apiGroup": group, "kind": "Group", "name": AUTHENTICATED}
    public: list[tuple[Kind, dict[str, object]]] = [
        (kinds.CONFIG_MAP, {"data": {"kubeflow_trainer_version": VERSION}}),
        (kinds.ROLE, {"rules": [rule]}),
        (kinds.ROLE_BINDING, {"roleRef": role, "subjects": [subject]}),
    ]
    metadata = {"name": _TRAINER_PUBLIC, "namespace": _TRAINER_NAMESPACE}
    return [
        *((kinds.CLUSTER_TRAINING_RUNTIME, runtime) for runtime in shipped_runtimes()),
        (kinds.NAMESPACE, _object(kinds.NAMESPACE, _TRAINER_NAMESPACE)),
        *((kind, {**_object(kind, _TRAINER_PUBLIC), "metadata": metadata, **rest}) for kind, rest in public),
    ]


def initial_objects() -> list[tuple[Kind, Object]]:
    """Everything, parents before children. The default project may use the whole cluster: its quota has no bound."""
    project = projects.ProjectRequest(
        name=DEFAULT_NAME,
        namespace=projects.namespace_of(DEFAULT_NAME),
        department=DEFAULT_NAME,
    )
    return [
        *((kinds.NAMESPACE, _object(kinds.NAMESPACE, name)) for name in NAMESPACES),
        *(
            (kinds.PRIORITY_CLASS, _object(kinds.PRIORITY_CLASS, name, value=value))
            for name, value in PRIORITY_CLASSES.items()
        ),
        *_trainer(),
        (kinds.QUEUE, projects.to_department(DEFAULT_NAME)),
        (kinds.QUEUE, projects.to_queue(project)),
        (kinds.NAMESPACE, projects.to_namespace(project)),
    ]
