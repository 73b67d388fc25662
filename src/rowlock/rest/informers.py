"""An index of the cluster: jobs, their pods and pod groups, projects, nodes. Lists, searches and waits read from here.

The objects are in a `View`, which tells of each change: the store's own in the embedded server; over a real cluster a `State` that
`run` feeds, with one watch per kind. The index has their keys, and reads an object when it is asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from rowlock import kinds, objects
from rowlock.api import Api, Change, ObservedView
from rowlock.controllers.supervisor import ERRORS
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.controllers.view.state import State
from rowlock.controllers.waiters import Waiters
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.cluster_view.change_listeners import ChangeListeners
from rowlock.rest.cluster_view.parts import Parts, is_replaced
from rowlock.rest.cluster_view.reflector import Reflector
from rowlock.rest.cluster_view.workload_ids import WorkloadIds
from rowlock.rest.creation_order import CreationOrder, SortKey
from rowlock.rest.list_rows.object_facts import CardMemory, group_owner
from rowlock.rest.list_rows.workload_rows import WorkloadRow
from rowlock.selectors import parse_labels
from rowlock.training.trainjob.owners import is_part
from rowlock.workloads import pods as ranks
from rowlock.workloads import projects, runai_json
from rowlock.workloads.assets import asset_objects
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.figures.guarantees import RuntimeGuarantees
from rowlock.workloads.figures.usage_series import PodUsageSource
from rowlock.workloads.phase import WorkloadStatus, end_of, phase_of, workload_status
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload

WATCHED: tuple[Kind, ...] = (
    *kinds.WORKLOADS, kinds.POD, kinds.POD_GROUP, kinds.NAMESPACE, kinds.QUEUE, kinds.NODE, kinds.CONFIG_MAP,
)  # fmt: skip
_SELECTORS = {kinds.CONFIG_MAP: parse_labels(asset_objects.LABEL)}
"""Kinds of which only objects with this label are watched: assets."""
WAIT_TIMEOUT = 5.0
"""Seconds that a read waits for the first complete state, and a writer for its own write."""
_JOBS_PER_TURN = 256  # jobs counted before yielding to the event loop


class InformerCache:
    """The cache of the cluster. `version` increases with every change."""

    def __init__(
        self,
        api: Api,
        cluster: str = "",
        diagnosis_message: Callable[[str, str], str] | None = None,
        clock: Callable[[], float] = time.time,
        *,
        pod_usage: PodUsageSource | None = None,
        view: ObservedView | None = None,
    ) -> None:
        """`pod_usage` has the usage of pods; None if it is not measured. `view`: the store's view, if the store is in this process."""
        self._api, fed = api, State()
        self._reads_store, self._view = view is not None, view if view is not None else fed
        self.clock = clock
        self._cluster = cluster
        self.diagnosis_message = diagnosis_message
        self.pod_usage = pod_usage
        self._jobs: dict[str, tuple[Kind, Key]] = {}
        self._left: tuple[str, Object] | None = None
        """The job whose deletion is being told, by its uid, in its last state."""
        self._ids = WorkloadIds()
        self._parts = Parts(self._view.get)
        self._phases: dict[str, str] = {}
        self._statuses: dict[str, WorkloadStatus] = {}
        self._projects: dict[str, Project] | None = None
        self._assets: list[Asset] | None = None
        self._guarantees: RuntimeGuarantees | None = None
        self._cards = CardMemory()
        self._rows_by_uid: dict[str, WorkloadRow] = {}
        self._listing = CreationOrder[WorkloadRow]()
        self._visible: tuple[frozenset[str], list[WorkloadRow]] | None = None
        self._listeners, self._writers = ChangeListeners(), Waiters[tuple[Kind, Key]]()
        self._reflector = Reflector(WATCHED, _SELECTORS, fed, lambda: self._listeners.notify(""))
        self.hidden = self._reflector.hidden
        self._view.observe(WATCHED, self._take_change)

    # ------------------------------------------------------------ keeping it current

    async def run(self) -> None:
        """Keep the index current until cancelled. Runs as a task of the server."""
        if self._reads_store:
            await self._read_store()
            await asyncio.Event().wait()  # from here on the store reports each change
        await self._reflector.watch(self._api)

    async def _read_store(self) -> None:
        """Index what the store has, in slices. The index needs the metadata, and of nodes their cards."""
        budget = TurnBudget()
        for kind in WATCHED:
            for key in self._view.keys(kind):
                metadata = self._view.metadata(kind, *key)
                obj = self._view.get(kind, *key) if kind is kinds.NODE else {"metadata": metadata} if metadata else None
                if obj is not None:
                    self._take_change(Change("Added", objects.revision(obj), kind, obj))
                await budget.pause_if_due()
            self._reflector.note_read(kind)
        self._listeners.notify("")

    def is_absent(self, kind: Kind) -> bool:
        """Whether the cluster does not serve the kind."""
        return self._reflector.is_absent(kind)

    def _take_change(self, change: Change) -> None:
        kind, obj, old, is_followed = change.kind, change.object, change.old, self._reflector.is_selected
        if kind is None:
            return
        key, old = objects.key(obj), old if old is None or is_followed(kind, old) else None
        try:
            if change.type == "Deleted" or not is_followed(kind, obj):
                self._drop_object(kind, key, obj if old is None else old)
            else:
                self._store_object(kind, key, old, obj)
        except Exception as error:  # noqa: BLE001 (a malformed object must not affect others)
            ERRORS.report(f"what the REST API knows of {kind.plural}", error, "one of them is not as it should be")
        self._writers.wake((kind, key))

    def _store_object(self, kind: Kind, key: Key, previous: Object | None, obj: Object) -> None:
        if previous is not None and is_replaced(kind, previous, obj):
            self._drop_object(kind, key, previous)
            previous = None
        self._index(kind, key, previous, obj)
        if kind == kinds.NODE:
            self._note_cards(key.name, previous, obj)

    def _index(self, kind: Kind, key: Key, previous: Object | None, obj: Object) -> None:
        owner = (objects.controller_of(obj) or {}).get("uid", "")
        if is_part(kind, obj):
            self._parts.add(kind, obj)
        elif kind in kinds.WORKLOADS:
            owner = objects.uid(obj)
            if owner not in self._jobs:
                self._rows_by_uid[owner] = WorkloadRow(owner, kind, self, *key, runai_json.created_at(obj))
                self._listing.add(self._sort_key(obj), self._rows_by_uid[owner])
                self._visible = None
            self._jobs[owner] = kind, key
            self._ids.note(previous, obj)
        elif kind == kinds.POD and owner:
            self._parts.add_pod(owner, key)
        elif kind == kinds.POD_GROUP:
            owner = group_owner(obj)
            self._parts.add_group(key, obj)
        elif kind == kinds.CONFIG_MAP:
            self._assets = None
        elif kind != kinds.NODE:  # `_store_object` compares those
            self._projects = self._assets = self._guarantees = None
        self._invalidate(owner)

    def _drop_object(self, kind: Kind, key: Key, obj: Object) -> None:
        """Forget an object; `obj` is its last state."""
        owner = (objects.controller_of(obj) or {}).get("uid", "")
        workload = self._parts.workload_uid(owner)
        if is_part(kind, obj):
            self._parts.drop(objects.uid(obj))
            owner = workload
        elif kind in kinds.WORKLOADS:
            owner = objects.uid(obj)
            self._left = owner, self._parts.complete(obj)
            self._jobs.pop(owner, None)
            self._rows_by_uid.pop(owner, None)
            self._ids.forget(obj)
            self._listing.remove(self._sort_key(obj))
            self._visible = None
        elif kind == kinds.POD and owner:
            self._parts.drop_pod(owner, key)
            owner = workload
        elif kind == kinds.POD_GROUP:
            owner = group_owner(obj)
            self._parts.drop_group(key, obj)
        elif kind == kinds.NODE:
            self._note_cards(key.name, obj, None)
        elif kind == kinds.CONFIG_MAP:
            self._assets = None
        else:
            self._projects = self._assets = self._guarantees = None
        self._invalidate(owner)
        self._left = None

    def _sort_key(self, job: Object) -> SortKey:
        return runai_json.created_at(job), objects.name(job), objects.uid(job)

    def _invalidate(self, uid: str) -> None:
        uid = self._parts.workload_uid(uid)
        self._phases.pop(uid, None)
        self._statuses.pop(uid, None)
        if row := self._rows_by_uid.get(uid):
            row.known.clear()
        self._listeners.notify(uid)

    def _note_cards(self, node: str, before: Object | None, after: Object | None) -> None:
        """Update a node's cards; if they changed, clear the cached fields of all rows. Most writes of nodes are heartbeats."""
        for row in self._rows_by_uid.values() if self._cards.note(node, before, after) else ():
            row.known.clear()

    # ------------------------------------------------------------ waiting

    def subscribe(self, note_change: Callable[[str], None]) -> None:
        """Call `note_change` from now on with the uid of the job (or other owner) of each changed object, or with ""."""
        self._listeners.subscribe(note_change)

    async def wait_until(self, uid: str, condition: Callable[[], bool], timeout: float | None = WAIT_TIMEOUT) -> bool:
        """Wait until `condition()` holds, checking after each change of the job `uid` ("" = any object). False after
        `timeout`."""
        return await self._listeners.wait_until(uid, condition, timeout)

    def follows(self, kind: Kind, obj: Object) -> bool:
        """Whether a write of this object will reach the cache."""
        return self._reflector.follows(kind, obj)

    async def wait_for_object(self, kind: Kind, key: Key, condition: Callable[[Object | None], bool]) -> None:
        """Wait until `condition` holds for the newest known object of this key (None = there is none), without a time limit."""
        await self._writers.wait_until((kind, key), lambda: condition(self._view.get(kind, *key)))

    async def wait_for_sync(self) -> None:
        """Wait until the first state is complete. Raises Unavailable if that takes too long, and Forbidden if the cluster refuses a
        kind that every answer needs."""
        if not self.can_answer() and not await self.wait_until("", self.can_answer):
            raise self._reflector.unread_error()
        self.hidden.require_necessary()

    def has_synced(self) -> bool:
        """Whether the first state is complete."""
        return self._reflector.has_synced()

    def can_answer(self) -> bool:
        """Whether the first state is complete, except for kinds that the cluster refuses to list."""
        return self._reflector.can_answer()

    def knows_runs(self) -> bool:
        """Whether all jobs and their pods are known: only then does a missing job mean that it was deleted."""
        shown = (kind for kind in kinds.WORKLOADS if kind in kinds.JOBS or not self.hidden.has(kind))
        return self._reflector.knows((*shown, kinds.POD, kinds.NAMESPACE))

    # ------------------------------------------------------------ reads

    @property
    def cluster(self) -> str:
        """The cluster's UUID: that of its kube-system namespace, unless the settings name one."""
        system = self.namespace("kube-system")
        return self._cluster or (objects.uid(system) if system else "") or "00000000-0000-0000-0000-000000000000"

    @property
    def cluster_created(self) -> str:
        """When the cluster was created: the creation time of its kube-system namespace, else the epoch."""
        system = self.namespace("kube-system") or {}
        return str(objects.meta(system).get("creationTimestamp") or "1970-01-01T00:00:00Z")

    def projects(self) -> dict[str, Project]:
        """Every project by its namespace."""
        if self._projects is None:
            self._projects = {}
            for namespace in self._view.all(kinds.NAMESPACE):
                if projects.is_project(namespace):
                    queue = self.queue(objects.labels(namespace)[projects.QUEUE_LABEL])
                    self._projects[objects.name(namespace)] = projects.project_of(namespace, queue)
        return self._projects

    def project(self, id_or_name: str) -> Project | None:
        """The project with this id, else with this name; None if there is none."""
        all_projects = list(self.projects().values())
        by_id = next((p for p in all_projects if p.id == id_or_name), None)
        return by_id or next((p for p in all_projects if p.name == id_or_name), None)

    def queue(self, name: str) -> Object | None:
        """The Queue of this name; None when there is none."""
        return self._view.get(kinds.QUEUE, "", name)

    def queues(self) -> Iterable[Object]:
        """All Queues, in no order."""
        return self._view.all(kinds.QUEUE)

    def guaranteed_seconds(self, queue: str) -> float:
        """Seconds after its start for which a preemptible gang of this queue cannot be preempted."""
        if self._guarantees is None:
            self._guarantees = RuntimeGuarantees(self.queues())
        return self._guarantees.seconds(queue)

    def namespace(self, name: str) -> Object | None:
        """The Namespace of this name; None when there is none."""
        return self._view.get(kinds.NAMESPACE, "", name)

    def assets(self) -> list[Asset]:
        """Assets and templates, the built-in ones first; those of a project have its id, and disappear with it."""
        if self._assets is None:
            is_asset, ids = self._reflector.is_selected, {s: p.id for s, p in self.projects().items()}
            found = [one for one in self._view.all(kinds.CONFIG_MAP) if is_asset(kinds.CONFIG_MAP, one)]
            self._assets = asset_objects.all_assets(found, ids, self.cluster_created)
        return self._assets

    def nodes(self) -> Iterable[Object]:
        """All Nodes, in no order."""
        return self._view.all(kinds.NODE)

    def card_memory(self, node: str) -> int:
        """Memory of one GPU of the node in MiB; for "" the smallest of all nodes; 0 when there is none."""
        return self._cards.of(node)

    def job_uid(self, identifier: str) -> str:
        """The uid of the job with this uid or workload id; "" when there is none."""
        return next(iter(self.uids_claimed(identifier)), "")

    def uids_claimed(self, identifier: str) -> list[str]:
        """The uids of the jobs that have this uid or workload id, at most one of a namespace; the oldest first."""
        labelled = [uid for uid in self._ids.uids(identifier) if uid != identifier and uid in self._jobs]
        labelled.sort(key=lambda uid: self._rows_by_uid[uid].created_at)
        return [identifier, *labelled] if identifier in self._jobs else labelled

    def workload(self, uid: str) -> Workload | None:
        """The workload of this job; None when the job is gone or belongs to no project."""
        job = self.job(uid)
        project = self.projects().get(objects.namespace(job)) if job else None
        if job is None or project is None:
            return None
        job_pods = self.pods_of(uid)
        group, cluster = self.group_of(uid), self.cluster
        look_up = self.pod_usage.latest if self.pod_usage is not None else None
        more = (self.clock, self.diagnosis_message, look_up, self.guaranteed_seconds, self.part_uids(uid))
        return Workload(job, job_pods, group, project, cluster, self.card_memory, *more)

    def job(self, uid: str) -> Object | None:
        """The job of this uid; None when there is none."""
        known = self._jobs.get(uid)
        job = self._view.get(known[0], *known[1]) if known is not None else None
        return self._parts.complete(job) if job is not None else None

    def has_job(self, uid: str) -> bool:
        """Whether there is a job of this uid."""
        return uid in self._jobs

    def project_of(self, uid: str) -> Project | None:
        """The project of the job of this uid; None when the job is gone or belongs to no project."""
        known = self._jobs.get(uid)
        return self.projects().get(known[1].namespace) if known is not None else None

    def job_that_left(self, uid: str) -> Object | None:
        """For subscribers, while they are told of its deletion: the job of this uid in its last state."""
        return self._left[1] if self._left is not None and self._left[0] == uid else None

    def job_uids(self) -> list[str]:
        """The uids of all jobs, in no order."""
        return list(self._jobs)

    def pods(self) -> Iterable[Object]:
        """All Pods, in no order."""
        return self._view.all(kinds.POD)

    def unfinished_pods(self) -> Iterable[Object]:
        """The Pods that have not ended."""
        return self._view.all_unfinished(kinds.POD)

    def pods_of(self, uid: str) -> list[Object]:
        """The pods of the job with this uid, sorted by rank; also after the job was deleted."""
        known = row.known if (row := self._rows_by_uid.get(uid)) else {}
        if "pods" not in known:
            known["pods"] = [objects.key(pod) for pod in ranks.sort_by_rank(self.own_pods(uid))]
        return [pod for key in known["pods"] if (pod := self._view.get(kinds.POD, *key)) is not None]

    def own_pods(self, uid: str) -> list[Object]:
        """The same in no order. A pod in another namespace that names this job as its owner is not included."""
        return self._parts.pods_of(uid, self._home(uid))

    def _home(self, uid: str) -> str | None:
        return self._jobs[uid][1].namespace if uid in self._jobs else None

    def part_uids(self, uid: str) -> tuple[str, ...]:
        """The uids of the parts of the job of this uid, as far as they or their pods exist; () for jobs without parts."""
        return tuple(self._parts.members(uid))[1:]

    def parts_of(self, job: Object) -> list[Object]:
        """The JobSet and the Jobs between a set and its pods that exist, each after its owner; [] for other jobs."""
        return self._parts.parts_of(job)

    def owner_uid(self, pod: Object) -> str:
        """The uid of a pod's workload: its owner, or the workload that the owner is a part of; "" for a pod without an owner."""
        return self._parts.workload_uid(str((objects.controller_of(pod) or {}).get("uid") or ""))

    def group_of(self, uid: str) -> Object | None:
        """The pod group of the job of this uid; None when there is none."""
        return self._parts.group_of(uid)

    def count_pods(self, uid: str) -> tuple[int, int]:
        """How many pods the job of this uid has, and how many of them have not ended; decodes none."""
        has_ended = [self._view.has_ended(kinds.POD, *key) for key in self._parts.pod_keys(uid, self._home(uid))]
        return len(has_ended), has_ended.count(False)

    def uids_named(self, namespace: str, name: str) -> list[str]:
        """The uids of jobs of any kind with this name."""
        found = (self._view.metadata(kind, namespace, name) for kind in kinds.WORKLOADS)
        return [uid for one in found if one is not None and (uid := str(one.get("uid"))) in self._jobs]

    def jobs_named(self, namespace: str, name: str) -> list[Object]:
        """Jobs of any kind with this name."""
        return [job for uid in self.uids_named(namespace, name) if (job := self.job(uid)) is not None]

    def _known_job(self, uid: str) -> Object:
        """The job of this uid. Raises KeyError when there is none."""
        if (job := self.job(uid)) is None:
            raise KeyError(uid)
        return job

    def phase(self, uid: str) -> str:
        """The phase of the workload, without the message that explains it; lists filter and sort by it."""
        job_phase = self._phases.get(uid)
        if job_phase is None:
            job = self._known_job(uid)
            job_phase = end_of(job)[0] or phase_of(job, self.own_pods(uid), self.group_of(uid))
            self._phases[uid] = job_phase
        return job_phase

    def status(self, uid: str) -> WorkloadStatus:
        """The status of the workload whose job has this uid, computed once per change. Raises KeyError for an unknown uid."""
        job_status = self._statuses.get(uid)
        if job_status is None:
            job_status = workload_status(self._known_job(uid), self.own_pods(uid), self.group_of(uid))
            self._statuses[uid] = job_status
        return job_status

    async def count_phases(self) -> dict[tuple[str, str, str], int]:
        """The number of jobs by (namespace, kind, phase). Yields to the event loop regularly."""
        counts: dict[tuple[str, str, str], int] = {}
        for number, uid in enumerate(list(self._jobs), 1):
            if (known := self._jobs.get(uid)) is not None:
                labels = (known[1].namespace, known[0].name, self.phase(uid))
                counts[labels] = counts.get(labels, 0) + 1
            if number % _JOBS_PER_TURN == 0:
                await asyncio.sleep(0)
        return counts

    def rows(self) -> list[WorkloadRow]:
        """Every workload of every project, newest first."""
        namespaces = frozenset(self.projects())
        if self._visible is None or self._visible[0] != namespaces:
            everything = reversed(self._listing.rows)
            self._visible = namespaces, [row for row in everything if row.namespace in namespaces]
        return self._visible[1]

    def rows_named(self, name: str) -> list[WorkloadRow]:
        """The workloads of this name in any project, without reading all others."""
        return [self._rows_by_uid[uid] for namespace in self.projects() for uid in self.uids_named(namespace, name)]
