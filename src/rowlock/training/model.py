"""A job as the training operator reads it: its kind, its replica types, its ranks, its gang.

A `Job` is the object parsed once, with the operator's in-memory defaults applied (`defaults.py`); they never change the stored object. A
`JobKind` has the data of one kind and the few functions that need only a job; `framework.py` adds the lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from rowlock.kinds import Kind
from rowlock.objects import Object

T = TypeVar("T")

OPERATOR_LABEL = "training.kubeflow.org/operator-name"
JOB_LABEL = "training.kubeflow.org/job-name"
TYPE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
ROLE_LABEL = "training.kubeflow.org/job-role"

CHIEF, EVALUATOR, LAUNCHER, MASTER, PS, WORKER = "Chief", "Evaluator", "Launcher", "Master", "PS", "Worker"
"""Replica types as spelled in Kubeflow's API; `JobKind.roles` has those of a kind."""

REQUEST_ANNOTATION = "rowlock.dev/request"
"""The request, on a job that was submitted through rowlock (`rowlock run`, `runai`, REST, SDK, UI). Restarts and cleanup of such a job
follow `defaults.py`; a job created by kubectl follows the operator's rules."""
MANAGED_BY_US = "kubeflow.org/training-operator"
MIN_RETRYABLE_EXIT_CODE = 128
"""With restartPolicy ExitCode, codes from here on (signals) are retried; smaller ones are permanent failures."""
UNKNOWN_EXIT_CODE = 0xBEEF
"""The exit code assumed for a pod without a terminated main container: 48879, which is retryable."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Where rowlock may differ from training operator 1.9.4 (`docs/design/operator.md` has a row for each).

    `STRICT` behaves exactly like the operator. `DEFAULT` agrees with every recorded case, without the operator's endless loops and missing
    timers. `FIXED` also fixes what users would call bugs, although that is visible in the API."""

    deadline_timer: bool = True
    """activeDeadlineSeconds fails the job when it passes, not at the next unrelated change."""
    no_phantoms: bool = True
    """`replicas: 0` means no pods; the operator creates and deletes pod 0 for ever."""
    no_late_pods: bool = True
    """The reconcile that sees a job's success creates no missing pods. The operator creates them, and cleanup deletes them again."""
    events_once: bool = True
    """An event is not repeated at every reconcile while its cause continues."""
    completion_time: bool = False
    """A permanent ExitCode failure of a PyTorchJob gets its completionTime, so that its TTL works."""
    linger: float = 0.1
    """Seconds that pods of a job that has just succeeded get to end by themselves before cleanup deletes them. The operator is slow enough
    to spare ranks that end together with the deciding one; without the delay we would kill them."""
    immutable_owner: bool = False
    """managedBy of a PyTorchJob cannot be changed, as documented."""


STRICT = Parity(deadline_timer=False, no_phantoms=False, no_late_pods=False, events_once=False, linger=0.0)
DEFAULT = Parity()
FIXED = Parity(completion_time=True, immutable_owner=True)
PARITIES = {"default": DEFAULT, "strict": STRICT, "fixed": FIXED}
"""Value of `rowlock up --parity` → `Parity`."""


@dataclass(frozen=True, slots=True)
class Port:
    """A named port of a container."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica type of a job; `template` has the default port."""

    type: str
    count: int
    restart_policy: str
    template: Object

    @property
    def label(self) -> str:
        return self.type.lower()

    @property
    def pod_restart_policy(self) -> str:
        return "Never" if self.restart_policy == "ExitCode" else self.restart_policy


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """`spec.runPolicy` with the operator's defaults; `ttl` and `deadline` in seconds, None = unlimited."""

    clean_pod_policy: str = "None"
    ttl: int | None = None
    deadline: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None
    min_available: int | None = None
    linger: float | None = None
    """Seconds that running pods get to end by themselves once the job has succeeded; None = `Parity.linger`."""
    counts_job_restarts: bool = False
    """backoffLimit counts restarts of the job, regardless of its number of ranks; else it counts as in the operator."""

    @property
    def is_managed_by_us(self) -> bool:
        return self.managed_by is None or self.managed_by == MANAGED_BY_US


@dataclass(frozen=True, slots=True)
class Job:
    """A job object as the operator reads it: defaults applied, replica types sorted by name."""

    framework: JobKind
    object: Object
    name: str
    namespace: str
    uid: str
    spec: Object
    replicas: Mapping[str, Replica]
    policy: RunPolicy
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Values shared by all ranks, computed once (`compute_once`), so that the cost is not quadratic in the number of ranks."""

    def compute_once(self, key: str, compute: Callable[[], T]) -> T:
        if key not in self.cache:
            self.cache[key] = compute()
        return cast(T, self.cache[key])

    @property
    def total_replicas(self) -> int:
        return sum(r.count for r in self.replicas.values())

    @property
    def labels(self) -> dict[str, str]:
        return {OPERATOR_LABEL: self.framework.operator, JOB_LABEL: self.name}

    def pod_name(self, type_: str, index: int) -> str:
        return f"{self.name}-{type_.lower()}-{index}".replace("/", "-")

    def port(self, type_: str) -> int:
        """The framework's port on the main container of a replica type."""
        default_port = self.framework.port
        for item in self.main_container(type_).get("ports") or ():
            if item.get("name") == default_port.name:
                return int(item["containerPort"])
        return default_port.number

    def main_container(self, type_: str) -> Object:
        replica = self.replicas.get(type_)
        containers = ((replica.template.get("spec") or {}).get("containers") or ()) if replica else ()
        return next((dict(c) for c in containers if c.get("name") == self.framework.container), {})


@dataclass(frozen=True, slots=True)
class Rank:
    """One pod that a job should have: a replica type and an index within it."""

    job: Job
    replica: Replica
    index: int

    @property
    def type(self) -> str:
        return self.replica.type

    @property
    def name(self) -> str:
        return self.job.pod_name(self.replica.type, self.index)

    @property
    def labels(self) -> dict[str, str]:
        return {**self.job.labels, TYPE_LABEL: self.replica.label, INDEX_LABEL: str(self.index)}


Env = list[dict[str, Any]]


def env_vars(*pairs: tuple[str, object]) -> Env:
    """Environment entries in order."""
    return [{"name": name, "value": str(value)} for name, value in pairs]


@dataclass(frozen=True, slots=True)
class GangSpec:
    """How many pods must start together, and the sub-groups that each need their own minimum."""

    min_members: int
    sub_groups: tuple[tuple[str, int], ...] = ()


def all_replicas_gang(job: Job) -> GangSpec:
    """All replicas, unless schedulingPolicy.minAvailable says otherwise."""
    min_available = job.policy.min_available
    return GangSpec(job.total_replicas if min_available is None else min_available)


def keep_spec(spec: Object) -> Object:
    return spec


def no_init_containers(_: Rank) -> Sequence[Object]:
    return ()


def no_named_objects(_: Job) -> Sequence[tuple[Kind, str]]:
    return ()


def accept_any_spec(_: Object) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One job kind of the training operator: facts of its API, and functions of one job."""

    kind: Kind
    replicas: str
    """The field of the spec that holds the replica specs, for example `pytorchReplicaSpecs`."""
    container: str
    """The name of the main container, which trains."""
    port: Port
    restart_policy: str
    """The default restartPolicy of a replica type."""
    roles: tuple[str, ...]
    """Its replica types, in the order of the operator's messages."""
    lead_roles: tuple[str, ...] = ()
    """Replica types with one pod that leads the others; new jobs use the first."""
    needs_lead: bool = False
    """A job without a lead replica is refused."""
    pods_are_ranks: bool = True
    """All pods run the same program with different ranks; there are no servers or launchers."""

    environment: Callable[[Rank], Env]
    """Variables to append to the environment of a rank's containers."""
    is_master: Callable[[Rank], bool]
    """Whether a rank's pod gets the label job-role=master."""

    env_in_all: bool = True
    """Add the environment to every container, not only to the first one with the main container's name."""
    init_containers: Callable[[Rank], Sequence[Object]] = no_init_containers
    apply_defaults: Callable[[Object], Object] = keep_spec
    """Applies defaults of the spec other than those of replica specs and cleanPodPolicy."""
    any_role_case: bool = True
    """Replica types may be written in any case."""
    default_counts: Mapping[str, int] = field(default_factory=dict)
    """Default of `replicas` by replica type, if it is not 1."""
    copied_metadata: tuple[str, ...] = ("annotations", "finalizers")
    """Metadata fields of the template that are copied to pods, besides labels."""
    respects_managed_by: bool = True
    """Ignore jobs whose managedBy names another controller. (JAXJob's controller does not check it.)"""
    validate: Callable[[Object], str] = accept_any_spec
    """The operator's own error message for an invalid spec; "" = valid."""
    has_scale_selector: bool = False
    """replicaStatuses have the label selector for the scale subresource."""
    adopts_services: bool = False
    ttl_reason: str = "SuccessfulDeletePod"
    gang: Callable[[Job], GangSpec] = all_replicas_gang
    dependents: tuple[Kind, ...] = ()
    """Further kinds that its jobs own: they are read, and their changes trigger a reconcile."""
    named_objects: Callable[[Job], Sequence[tuple[Kind, str]]] = no_named_objects
    """Objects that are looked up by name, whatever their owner."""

    @property
    def name(self) -> str:
        """The framework's name: `PyTorch` of PyTorchJob."""
        return self.kind.name.removesuffix("Job")

    @property
    def lead_role(self) -> str:
        """The replica type that leads a new job; "" = none."""
        return self.lead_roles[0] if self.lead_roles else ""

    @property
    def operator(self) -> str:
        return f"{self.kind.name.lower()}-controller"

    def prefixed_reason(self, suffix: str) -> str:
        return self.kind.name + suffix


def group_by_replica_type(items: Iterable[Object]) -> dict[str, list[Object]]:
    """Objects by the replica type that their label names."""
    by_label: dict[str, list[Object]] = {}
    for item in items:
        by_label.setdefault(((item.get("metadata") or {}).get("labels") or {}).get(TYPE_LABEL, ""), []).append(item)
    return by_label
