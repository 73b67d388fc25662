"""A job as the training operator reads it: its kind, its replica types, its ranks, its gang.

A `Job` is the object parsed once, with the operator's in-memory defaults applied (`defaults.py`); the stored object is
never changed by them. A `JobKind` is a row of facts about one kind and the few functions that need nothing but a job;
how a job of that kind lives is added by `framework.py`.
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
"""Replica types as Kubeflow's API spells them; which of them a kind has is `JobKind.roles`."""

REQUEST_ANNOTATION = "rowlock.dev/request"
"""On a job that was submitted through rowlock (`rowlock run`, `runai`, REST, SDK, UI): the request. Such a job counts its restarts and
releases its pods as `defaults.py` says; one that kubectl created follows the operator's rules."""
MANAGED_BY_US = "kubeflow.org/training-operator"
MIN_RETRYABLE_EXIT_CODE = 128
"""ExitCode: codes from here on (signals) are worth another try, smaller ones are the program's own verdict."""
UNKNOWN_EXIT_CODE = 0xBEEF
"""What a pod without a terminated main container counts as: 48879, which is retryable."""


@dataclass(frozen=True, slots=True)
class Parity:
    """Where rowlock may differ from training operator 1.9.4 (`docs/design/operator.md` has a row for each).

    `STRICT` is the operator to the letter. `DEFAULT` is what every recorded case shows, without the operator's
    endless loops and missing timers. `FIXED` also mends what users would call a bug but the API shows."""

    deadline_timer: bool = True
    """activeDeadlineSeconds fails the job when it passes, not at the next unrelated change."""
    no_phantoms: bool = True
    """`replicas: 0` means no pods; the operator makes and deletes number 0 for ever."""
    no_late_pods: bool = True
    """The look that sees a job's success makes no missing pod. The operator makes it, and clean-up removes it again."""
    events_once: bool = True
    """An event whose cause merely continues is not repeated at every look."""
    completion_time: bool = False
    """A permanent ExitCode failure of a PyTorchJob gets its completionTime, so that its TTL works."""
    linger: float = 0.1
    """Seconds that pods of a job that has just succeeded get to end by themselves before clean-up removes them: the
    operator is slow enough to spare ranks that end together with the deciding one, we would kill them."""
    immutable_owner: bool = False
    """managedBy of a PyTorchJob cannot be changed, as documented."""


STRICT = Parity(deadline_timer=False, no_phantoms=False, no_late_pods=False, events_once=False, linger=0.0)
DEFAULT = Parity()
FIXED = Parity(completion_time=True, immutable_owner=True)
PARITIES = {"default": DEFAULT, "strict": STRICT, "fixed": FIXED}
"""By the names that `rowlock up --parity` takes."""


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
    """Seconds that running pods have to end by themselves once the job has succeeded; None = as `Parity.linger` says."""
    counts_job_restarts: bool = False
    """backoffLimit is the number of restarts of the job, however many ranks it has; else it is counted as the operator does."""

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
    """What all its ranks share and is worked out once (`compute_once`), so that a thousand ranks cost no million steps."""

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
    """One pod that a job wants: a replica type and a number within it."""

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
    """One job kind of the training operator. The first block holds facts of its API, the rest are rules for one job."""

    kind: Kind
    replicas: str
    """The field of the spec that holds the replica specs, for example `pytorchReplicaSpecs`."""
    container: str
    """The name of the container that trains."""
    port: Port
    restart_policy: str
    """What a replica without a restartPolicy gets."""
    roles: tuple[str, ...]
    """Its replica types, in the order in which the operator names them."""
    lead_roles: tuple[str, ...] = ()
    """Replica types of one pod that leads the others; the first is what new jobs use."""
    needs_lead: bool = False
    """A job without a lead replica is refused."""
    pods_are_ranks: bool = True
    """All pods run the same program and differ in their rank only: none merely serves the others."""

    environment: Callable[[Rank], Env]
    """What is appended to the environment of a rank's containers."""
    is_master: Callable[[Rank], bool]
    """Who carries the label job-role=master."""

    env_in_all: bool = True
    """Environment into every container; else into the first one with the main container's name."""
    init_containers: Callable[[Rank], Sequence[Object]] = no_init_containers
    apply_defaults: Callable[[Object], Object] = keep_spec
    """Defaults of the spec beside replica specs and clean-up policy."""
    any_role_case: bool = True
    """Replica types may be written in any case."""
    default_counts: Mapping[str, int] = field(default_factory=dict)
    """replicas where the field is absent, if not 1."""
    copied_metadata: tuple[str, ...] = ("annotations", "finalizers")
    """What of a template's metadata pods keep beside labels."""
    respects_managed_by: bool = True
    """Leaves jobs alone whose managedBy names somebody else. (JAXJob's controller does not look.)"""
    validate: Callable[[Object], str] = accept_any_spec
    """What the operator itself refuses, as a sentence; "" = nothing."""
    has_scale_selector: bool = False
    """replicaStatuses carry the label selector that the scale subresource shows."""
    adopts_services: bool = False
    ttl_reason: str = "SuccessfulDeletePod"
    gang: Callable[[Job], GangSpec] = all_replicas_gang
    dependents: tuple[Kind, ...] = ()
    """Kinds it makes beside Pods and Services: they are shown to it, and their changes wake it."""
    named_objects: Callable[[Job], Sequence[tuple[Kind, str]]] = no_named_objects
    """Objects that are shown to it by name, of any owner."""

    @property
    def name(self) -> str:
        """The framework's name: `PyTorch` of PyTorchJob."""
        return self.kind.name.removesuffix("Job")

    @property
    def lead_role(self) -> str:
        """The replica type that leads a new job; "" = none does."""
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
