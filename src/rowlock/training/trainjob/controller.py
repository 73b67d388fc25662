"""`TrainJobController`: reconciles TrainJobs, after changes of a TrainJob or of objects that it owns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from rowlock.api import NOTHING, Change, Create, Decision, Delete, DeleteOptions, Record, Update, View, Write
from rowlock.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    JOB_SET,
    OTHER_POD_GROUPS,
    SECRET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    Kind,
)
from rowlock.objects import (
    Key,
    Object,
    dig,
    is_controlled_by,
    is_deleting,
    key,
    meta,
    name,
    namespace,
    owner_reference,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.training.admission.jobset import default_jobset
from rowlock.training.job_changes import owner_keys
from rowlock.training.trainjob import status
from rowlock.training.trainjob.admission import Find, runtime_of
from rowlock.training.trainjob.jobset import is_suspended, make_jobset
from rowlock.training.trainjob.model import CONTROLLER, TrainPlan
from rowlock.training.trainjob.plugins import mpi
from rowlock.training.trainjob.pod_groups import make_pod_groups, named_groups
from rowlock.training.trainjob.snapshot import BadSnapshot, make_snapshot, read_snapshot, snapshot_name
from rowlock.training.trainjob.ssh_keys import POLL_SECONDS, KeyNotReady, make_key_pair

SOURCE = "trainjob-controller"
_FAILED = "TrainJobResourcesCreationFailed"
_FAILURE = "TrainJob resources reconciliation failed: {}"
_MANAGER = "trainer"
"""Trainer's field manager, in whose name JobSets are written: what it owns of one is told from what others have added."""
_LONGEST = 950
"""Maximum length of an error message in an event."""


class TrainJobController:
    """Creates the JobSets of TrainJobs. It keeps no state. `make_key` returns a new (private, public) SSH key, or raises KeyNotReady;
    `pod_groups`: the kinds of PodGroups that the cluster serves."""

    name = "trainjob-controller"

    def __init__(
        self, make_key: Callable[[], tuple[str, str]] = make_key_pair, pod_groups: Sequence[Kind] = OTHER_POD_GROUPS
    ) -> None:
        self._make_key, self._pod_groups = make_key, frozenset(pod_groups)
        self.kinds: tuple[Kind, ...] = (TRAIN_JOB, JOB_SET, CONFIG_MAP, SECRET, *pod_groups)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The TrainJob itself, the one that owns the changed object, and the one with a JobSet's name."""
        if change.kind is TRAIN_JOB:
            return (key(change.object),)
        found = list(owner_keys(TRAIN_JOB, change))
        if change.kind is JOB_SET:
            found.append(key(change.object))
        return tuple(dict.fromkeys(found))

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Reconcile one TrainJob."""
        trainjob = view.get(TRAIN_JOB, key.namespace, key.name)
        if trainjob is None or is_deleting(trainjob) or dig(trainjob, "spec.managedBy", CONTROLLER) != CONTROLLER:
            return NOTHING
        jobset = view.get(JOB_SET, key.namespace, key.name)
        left = None if status.is_finished(trainjob) else status.time_left(trainjob, now)
        if left is not None and left <= 0:
            overdue = {**trainjob, "status": status.overdue_status(trainjob, now)}
            return Decision((Update(TRAIN_JOB, overdue, "status"), *_stop(trainjob, jobset)))
        if status.is_overdue(trainjob):
            return Decision(tuple(_stop(trainjob, jobset)))
        writes: list[Write] = []
        if not status.is_finished(trainjob):
            try:
                writes += self._make(view, trainjob, jobset)
            except BadSnapshot as error:
                why = f"getting runtime snapshot: invalid runtime snapshot: {error}"
                return Decision((_refusal(trainjob, why),), requeue=True)
            except KeyNotReady:
                return Decision(requeue_after=POLL_SECONDS)
            except mpi.TooManyHosts as error:
                return Decision((_refusal(trainjob, str(error)),))
        new_status = status.next_status(trainjob, jobset, now)
        if new_status != (trainjob.get("status") or {}):
            writes.append(Update(TRAIN_JOB, {**trainjob, "status": new_status}, "status"))
        return Decision(tuple(writes), requeue_after=left)

    def _make(self, view: View, trainjob: Object, jobset: Object | None) -> Iterator[Write]:
        """Create missing objects; while the job or its JobSet is suspended, also update the JobSet."""
        snapshot = view.get(CONFIG_MAP, namespace(trainjob), snapshot_name(trainjob))
        is_settled = jobset is not None and not (is_suspended(trainjob) or is_suspended(jobset))
        if snapshot is not None and is_settled and not _misses_parts(view, trainjob, jobset, self._pod_groups):
            return
        runtime = runtime_of(trainjob, _finder(view)) if snapshot is None else read_snapshot(trainjob, snapshot)
        if runtime is None:
            yield _refusal(trainjob, "the runtime is not there any more, and there is no snapshot of it")
            return
        refused = (_refusal(trainjob, "{error}"),)
        if snapshot is None:
            yield Create(CONFIG_MAP, make_snapshot(trainjob, runtime), refused)
        wanted, plan = make_jobset(trainjob, runtime)
        if "mpi" in plan.policy:
            for kind, part_name, make in self._mpi_parts(plan):
                if view.get(kind, namespace(trainjob), part_name) is None:
                    yield Create(kind, make(plan), refused)
        marks = annotations_of(wanted)
        for kind, obj in make_pod_groups(plan, dig(runtime, "spec.podGroupPolicy", {}), marks):
            if kind not in self._pod_groups:
                continue
            known = view.get(kind, namespace(obj), name(obj))
            if known is None:
                yield Create(kind, obj, refused)
            elif not is_settled and known.get("spec") != obj["spec"] and is_controlled_by(known, uid(trainjob)):
                yield Update(kind, {**known, "spec": obj["spec"]})
        if jobset is None:
            yield Create(JOB_SET, wanted, refused, manager=_MANAGER)
        elif not is_settled and is_controlled_by(jobset, uid(trainjob)):
            yield Update(JOB_SET, _with_wishes(jobset, wanted), failure_records=refused, manager=_MANAGER)

    def _mpi_parts(self, plan: TrainPlan) -> Iterator[tuple[Kind, str, Callable[[TrainPlan], Object]]]:
        """Kind, name and maker of what an MPI job needs. A maker is called where the object is missing, so that there is one key a job."""
        yield SECRET, mpi.secret_name(plan.name), self._make_secret
        yield CONFIG_MAP, mpi.hosts_name(plan.name), _make_hosts

    def _make_secret(self, plan: TrainPlan) -> Object:
        private, public = self._make_key()
        data = {mpi.PRIVATE_KEY: private, mpi.PUBLIC_KEY: public}
        head = _head(SECRET, plan, mpi.secret_name(plan.name))
        return {**head, "type": "kubernetes.io/ssh-auth", "immutable": True, "data": data}


def _make_hosts(plan: TrainPlan) -> Object:
    return {**_head(CONFIG_MAP, plan, mpi.hosts_name(plan.name)), "data": {mpi.HOSTS_FILE: mpi.host_file(plan)}}


def _head(kind: Kind, plan: TrainPlan, own_name: str) -> dict[str, Any]:
    owner = [owner_reference(plan.trainjob)]
    metadata = {"name": own_name, "namespace": namespace(plan.trainjob), "ownerReferences": owner}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _finder(view: View) -> Find:
    kinds = {kind.name: kind for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)}
    return lambda kind, space, wanted: view.get(kinds[kind], space, wanted)


def _misses_parts(view: View, trainjob: Object, jobset: Object | None, pod_groups: Collection[Kind]) -> bool:
    """Whether the PodGroup that the pods name is missing, or the key or hostfile of an MPI job. `pod_groups`: the kinds that are served."""
    groups = (kind for kind in named_groups(jobset) if kind in pod_groups)
    if any(view.get(kind, namespace(trainjob), name(trainjob)) is None for kind in groups):
        return True
    jobs = dig(jobset, "spec.replicatedJobs", None) or ()
    volumes = {v.get("name") for job in jobs for v in dig(job, "template.spec.template.spec.volumes", None) or ()}
    if mpi.SSH_VOLUME not in volumes:
        return False
    space, own = namespace(trainjob), name(trainjob)
    return (
        view.get(SECRET, space, mpi.secret_name(own)) is None
        or view.get(CONFIG_MAP, space, mpi.hosts_name(own)) is None
    )


def _with_wishes(jobset: Object, wanted: Object) -> Object:
    """The existing JobSet with the wanted spec, labels and annotations, without those that a patch brought that is gone. What others have
    added stays."""
    marks = {}
    for part in ("labels", "annotations"):
        own = _managed_keys(jobset, part)
        others = {key: value for key, value in (meta(jobset).get(part) or {}).items() if key not in own}
        if found := {**others, **(meta(wanted).get(part) or {})}:
            marks[part] = found
    rest = {field: value for field, value in meta(jobset).items() if field not in ("labels", "annotations")}
    return {**jobset, "metadata": {**rest, **marks}, "spec": default_jobset(wanted)["spec"]}


def _managed_keys(jobset: Object, part: str) -> set[str]:
    """The labels or annotations (`part`) that this controller has given the JobSet, and nobody else has changed."""
    entries = (entry for entry in meta(jobset).get("managedFields") or () if entry.get("manager") == _MANAGER)
    fields = (dig(entry, f"fieldsV1.f:metadata.f:{part}", None) or {} for entry in entries)
    return {key.removeprefix("f:") for found in fields for key in found if key.startswith("f:")}


def _stop(trainjob: Object, jobset: Object | None) -> Iterator[Write]:
    if jobset is not None and not is_deleting(jobset) and is_controlled_by(jobset, uid(trainjob)):
        yield Delete(JOB_SET, namespace(jobset), name(jobset), DeleteOptions(propagation="Background"))


def _refusal(trainjob: Object, why: str) -> Record:
    told = why if len(why) <= _LONGEST else f"{why[:_LONGEST]} ..."
    return Record(trainjob, "Warning", _FAILED, _FAILURE.format(told), SOURCE, longest_error=_LONGEST)
