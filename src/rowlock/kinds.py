"""The table of kinds: which kinds a cluster has, with their names and paths.

One row per kind that rowlock serves. Discovery, routes, storage keys, owner references and the CLI all
read this table; other kinds are refused with NotFound. The fields of kinds are in the
table of types (`apiserver/schema/types.py`), their columns in `apiserver/printers/columns.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rowlock.errors import NotFound


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One row of the table, a singleton that is compared by identity. `subresources`: the paths below an object that the API
    serves."""

    group: str
    version: str
    name: str
    plural: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    categories: tuple[str, ...] = ()
    custom: bool = field(default=False)
    """Whether it is a custom resource on a real cluster: strict decoding, pruning and patches differ from built-in kinds."""
    api_version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def resource(self) -> str:
        """`pods`, `pytorchjobs.kubeflow.org`: the kind's unique name in messages and storage."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __repr__(self) -> str:
        return f"Kind({self.resource})"


def _core(name: str, plural: str, *short: str, subs: str = "", namespaced: bool = True, all_: bool = False) -> Kind:
    return Kind("", "v1", name, plural, short, namespaced, frozenset(subs.split()), ("all",) if all_ else ())


def _job(name: str, plural: str, *, scale: bool) -> Kind:
    subs = frozenset({"status", "scale"} if scale else {"status"})
    return Kind("kubeflow.org", "v1", name, plural, (), True, subs, (), custom=True)


NAMESPACE = _core("Namespace", "namespaces", "ns", subs="status finalize", namespaced=False)
NODE = _core("Node", "nodes", "no", subs="status", namespaced=False)
POD = _core(
    "Pod", "pods", "po", subs="status log exec attach portforward binding eviction ephemeralcontainers", all_=True
)
SERVICE = _core("Service", "services", "svc", subs="status", all_=True)
EVENT = _core("Event", "events", "ev")
EVENTS_V1_EVENT = Kind("events.k8s.io", "v1", "Event", "events", ("ev",))
"""Another representation of Event: nothing is stored under it (`apiserver/endpoints/events.py`)."""
CONFIG_MAP = _core("ConfigMap", "configmaps", "cm")
SECRET = _core("Secret", "secrets")
SERVICE_ACCOUNT = _core("ServiceAccount", "serviceaccounts", "sa", subs="token")
PERSISTENT_VOLUME_CLAIM = _core("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", subs="status")
RESOURCE_QUOTA = _core("ResourceQuota", "resourcequotas", "quota", subs="status")
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", ("pc",), namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
RBAC: tuple[Kind, ...] = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
"""The kinds of RBAC."""
AUTOSCALER = Kind(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), True, frozenset({"status"}),
    ("all",),
)  # fmt: skip
BATCH_JOB = Kind("batch", "v1", "Job", "jobs", (), True, frozenset({"status"}), ("all",))
CRON_JOB = Kind("batch", "v1", "CronJob", "cronjobs", ("cj",), True, frozenset({"status"}), ("all",))

PYTORCHJOB = _job("PyTorchJob", "pytorchjobs", scale=True)
TFJOB = _job("TFJob", "tfjobs", scale=False)
MPIJOB = _job("MPIJob", "mpijobs", scale=False)
XGBOOSTJOB = _job("XGBoostJob", "xgboostjobs", scale=False)
PADDLEJOB = _job("PaddleJob", "paddlejobs", scale=True)
JAXJOB = _job("JAXJob", "jaxjobs", scale=True)
JOBS: tuple[Kind, ...] = (PYTORCHJOB, TFJOB, MPIJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB)
JOB_SET = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", (), True, frozenset({"status"}), custom=True)
TRAIN_JOB = Kind(
    "trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", (), True, frozenset({"status"}), custom=True
)
TRAINING_RUNTIME = Kind("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", custom=True)
CLUSTER_TRAINING_RUNTIME = Kind(
    "trainer.kubeflow.org",
    "v1alpha1",
    "ClusterTrainingRuntime",
    "clustertrainingruntimes",
    namespaced=False,
    custom=True,
)
WORKLOADS: tuple[Kind, ...] = (*JOBS, BATCH_JOB, JOB_SET, TRAIN_JOB)
"""Kinds that users see as workloads. A Job or JobSet that is owned by another workload is a part of that one."""
PARENTS = {BATCH_JOB: JOB_SET, JOB_SET: TRAIN_JOB}
"""Kinds that may be parts of another workload → the kind of that workload."""
TRAINER: tuple[Kind, ...] = (JOB_SET, TRAIN_JOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
"""Kubeflow Trainer's kinds, and the kind that its jobs create."""

QUEUE = Kind(
    "scheduling.run.ai", "v2", "Queue", "queues", ("q",), False, frozenset({"status"}), custom=True
)  # KAI's own group and versions, so that the same object works on a cluster that has KAI
POD_GROUP = Kind(
    "scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", ("pg",), True, frozenset({"status"}), custom=True
)
COSCHEDULING_POD_GROUP = Kind(
    "scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", subresources=frozenset({"status"}), custom=True
)
VOLCANO_POD_GROUP = Kind(
    "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", subresources=frozenset({"status"}), custom=True
)
OTHER_POD_GROUPS: tuple[Kind, ...] = (COSCHEDULING_POD_GROUP, VOLCANO_POD_GROUP)
"""PodGroups of other schedulers, which Kubeflow Trainer writes. They have no short names: `pg` is KAI's PodGroup."""

KINDS: tuple[Kind, ...] = (
    NAMESPACE, NODE, POD, SERVICE, EVENT, CONFIG_MAP, SECRET, SERVICE_ACCOUNT, PERSISTENT_VOLUME_CLAIM,
    RESOURCE_QUOTA, PRIORITY_CLASS, LEASE, *RBAC, AUTOSCALER, BATCH_JOB, CRON_JOB, *JOBS, *TRAINER, QUEUE, POD_GROUP,
    *OTHER_POD_GROUPS,
)  # fmt: skip

_BY_PATH = {(k.group, k.version, k.plural): k for k in KINDS}
_BY_NAME = {(k.group, k.name): k for k in KINDS}
_BY_RESOURCE = {k.resource: k for k in KINDS}
_KATIB = (
    "is a kind of Katib, which Kubeflow's OptimizerClient needs and rowlock does not have; "
    "make a TrainJob for each set of parameters (TrainerClient.train)"
)
_SPARK = "is a kind of the Spark operator, which Kubeflow's SparkClient needs and rowlock does not have"
_ELSEWHERE: dict[tuple[str, str], str] = {
    **{("kubeflow.org", plural): _KATIB for plural in ("experiments", "suggestions", "trials")},
    **{("sparkoperator.k8s.io", plural): _SPARK for plural in ("sparkapplications", "sparkconnects")},
}
"""(group, plural) of kinds that Kubeflow's clients request but rowlock lacks → the reason, and what to do instead."""


def by_path(group: str, version: str, plural: str) -> Kind:
    """The kind served at a REST path. Raises NotFound with the real server's text."""
    kind = _BY_PATH.get((group, version, plural))
    if kind is None:
        why = _ELSEWHERE.get((group, plural), "")
        raise NotFound("the server could not find the requested resource" + (why and f": {plural}.{group} {why}"))
    return kind


def by_api_version(api_version: str, kind: str) -> Kind | None:
    """The row for an object's `apiVersion` and `kind`, ignoring the version; None when there is none."""
    group = api_version.rpartition("/")[0]
    return _BY_NAME.get((group, kind))


def by_object(obj: dict[str, object]) -> Kind:
    """The row for an object, by its `apiVersion` and `kind`. Raises NotFound when rowlock does not serve the kind."""
    kind = by_api_version(str(obj.get("apiVersion") or ""), str(obj.get("kind") or ""))
    if kind is None:
        raise NotFound(f'no matches for kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    return kind


def by_resource(resource: str) -> Kind:
    """The row for a storage key (`pods`, `queues.scheduling.run.ai`)."""
    return _BY_RESOURCE[resource]
