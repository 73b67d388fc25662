"""What the cluster holds, kept current by watching: jobs, their pods and pod groups, projects, nodes.

Lists, searches and waits answer from here; nothing in it is a source of truth, and losing it costs one list. A writer
that must be seen by its own next read waits with `until`. One task per kind (`run`); a watch that expired begins
again and what vanished in between is dropped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Api, Change
from rowlock.errors import ApiError, Expired, Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.workloads import pods as ranks
from rowlock.workloads import present, projects, query
from rowlock.workloads.phase import Standing, phase_of, standing
from rowlock.workloads.present import Workload
from rowlock.workloads.projects import Project
from rowlock.workloads.spec import PRIORITIES

WATCHED: tuple[Kind, ...] = (*kinds.JOBS, kinds.POD, kinds.POD_GROUP, kinds.NAMESPACE, kinds.QUEUE, kinds.NODE)
PATIENCE = 5.0
"""Seconds that a read waits for the first picture, and a writer for its own write."""
_AGAIN = 0.2


class Catalog:
    """The cluster at a glance. `version` counts changes; it moves whenever anything does."""

    def __init__(self, api: Api, cluster: str = "", said: Callable[[str, str], str] | None = None) -> None:
        self._api = api
        self._cluster = cluster
        self.said = said
        self._shelves: dict[Kind, dict[Key, Object]] = {kind: {} for kind in WATCHED}
        self._synced: set[Kind] = set()
        self._jobs: dict[str, Object] = {}
        self._ids: dict[str, str] = {}
        self._pods: dict[str, dict[Key, Object]] = {}
        self._groups: dict[str, Object] = {}
        self._phases: dict[str, str] = {}
        self._standings: dict[str, Standing] = {}
        self._projects: dict[str, Project] | None = None
        self._rows: dict[str, Row] = {}
        self._listing = Listing()
        self._visible: tuple[frozenset[str], list[Row]] | None = None
        self._waiters: dict[str, set[asyncio.Event]] = {}

    # ------------------------------------------------------------ keeping it current

    async def run(self) -> None:
        """Watch for ever. One task of the server's TaskGroup."""
        async with asyncio.TaskGroup() as tasks:
            for kind in WATCHED:
                tasks.create_task(self._follow(kind), name=f"catalog {kind.plural}")

    async def _follow(self, kind: Kind) -> None:
        while True:
            try:
                await self._watch(kind)
            except Expired:
                continue
            except ApiError:
                await asyncio.sleep(_AGAIN)

    async def _watch(self, kind: Kind) -> None:
        """One watch from the beginning: the first bookmark ends the picture, and with it what was known before."""
        before = set(self._shelves[kind])
        first = True
        async for change in self._api.watch(kind, since=None, bookmarks=True):
            if change.type == "Bookmark":
                if first:
                    for key in before:
                        self._drop(kind, key)
                    first = False
                    self._synced.add(kind)
                    self._notify("")
                continue
            before.discard(objects.key(change.object))
            self._take(kind, change)

    def _take(self, kind: Kind, change: Change) -> None:
        key = objects.key(change.object)
        if change.type == "Deleted":
            self._drop(kind, key)
        else:
            self._put(kind, key, change.object)

    def _put(self, kind: Kind, key: Key, obj: Object) -> None:
        old = self._shelves[kind].get(key)
        if old is not None and objects.uid(old) != objects.uid(obj):
            self._drop(kind, key)
        self._shelves[kind][key] = obj
        self._index(kind, key, obj)

    def _index(self, kind: Kind, key: Key, obj: Object) -> None:
        owner = (objects.controller_of(obj) or {}).get("uid", "")
        if kind in kinds.JOBS:
            owner = objects.uid(obj)
            if owner not in self._jobs:
                self._rows[owner] = Row(owner, obj, self, objects.name(obj), present.created_at(obj))
                self._listing.add(self._place(obj), self._rows[owner])
                self._visible = None
            self._jobs[owner] = self._rows[owner].job = obj
            self._ids[present.workload_id(obj)] = owner
        elif kind == kinds.POD and owner:
            self._pods.setdefault(owner, {})[key] = obj
        elif kind == kinds.POD_GROUP:
            owner = _owner(obj)
            self._groups[owner] = obj
        elif kind != kinds.NODE:
            self._projects = None
        self._touched(owner)

    def _drop(self, kind: Kind, key: Key) -> None:
        obj = self._shelves[kind].pop(key, None)
        if obj is None:
            return
        owner = (objects.controller_of(obj) or {}).get("uid", "")
        if kind in kinds.JOBS:
            owner = objects.uid(obj)
            self._jobs.pop(owner, None)
            self._rows.pop(owner, None)
            self._ids.pop(present.workload_id(obj), None)
            self._listing.remove(self._place(obj))
            self._visible = None
        elif kind == kinds.POD and owner:
            mine = self._pods.get(owner, {})
            mine.pop(key, None)
            if not mine:
                self._pods.pop(owner, None)
        elif kind == kinds.POD_GROUP:
            owner = _owner(obj)
            self._groups.pop(owner, None)
        elif kind != kinds.NODE:
            self._projects = None
        self._touched(owner)

    def _place(self, job: Object) -> Place:
        return present.created_at(job), objects.name(job), objects.uid(job)

    def _touched(self, uid: str) -> None:
        self._phases.pop(uid, None)
        self._standings.pop(uid, None)
        self._notify(uid)

    # ------------------------------------------------------------ waiting

    def _notify(self, uid: str) -> None:
        for name in {uid, ""}:
            for event in self._waiters.get(name, ()):
                event.set()

    async def until(self, uid: str, holds: Callable[[], bool], patience: float | None = PATIENCE) -> bool:
        """Wait until `holds()`, looking again whenever something about `uid` ("" = anything) changes. False: time out."""
        event = asyncio.Event()
        self._waiters.setdefault(uid, set()).add(event)
        try:
            async with asyncio.timeout(patience):
                while not holds():
                    await event.wait()
                    event.clear()
            return True
        except TimeoutError:
            return holds()
        finally:
            self._waiters[uid].discard(event)
            if not self._waiters[uid]:
                del self._waiters[uid]

    async def ready(self) -> None:
        """Until the first picture is complete. Raises Unavailable when it does not come."""
        if len(self._synced) == len(WATCHED):
            return
        if not await self.until("", lambda: len(self._synced) == len(WATCHED)):
            missing = ", ".join(kind.plural for kind in WATCHED if kind not in self._synced)
            raise Unavailable(f"the server has not read the cluster's {missing} yet; try again in a moment")

    # ------------------------------------------------------------ questions

    @property
    def cluster(self) -> str:
        """The cluster's UUID: that of its kube-system namespace, unless the settings name one."""
        system = self.namespace("kube-system")
        return self._cluster or (objects.uid(system) if system else "") or "00000000-0000-0000-0000-000000000000"

    def projects(self) -> dict[str, Project]:
        """Every project by its namespace."""
        if self._projects is None:
            self._projects = {}
            for namespace in self._shelves[kinds.NAMESPACE].values():
                if projects.is_project(namespace):
                    queue = self.queue(objects.labels(namespace)[projects.QUEUE_LABEL])
                    self._projects[objects.name(namespace)] = projects.of(namespace, queue)
        return self._projects

    def project(self, word: str) -> Project | None:
        """By id, else by name."""
        found = list(self.projects().values())
        by_id = next((p for p in found if p.id == word), None)
        return by_id or next((p for p in found if p.name == word), None)

    def queue(self, name: str) -> Object | None:
        return self._shelves[kinds.QUEUE].get(Key("", name))

    def namespace(self, name: str) -> Object | None:
        return self._shelves[kinds.NAMESPACE].get(Key("", name))

    def nodes(self) -> Iterable[Object]:
        return self._shelves[kinds.NODE].values()

    def uid(self, word: str) -> str:
        """The job uid behind a workload id (or a job's uid); "" when there is none."""
        return self._ids.get(word) or (word if word in self._jobs else "")

    def workload(self, uid: str) -> Workload | None:
        """None when the job is gone or lies in no project."""
        job = self._jobs.get(uid)
        project = self.projects().get(objects.namespace(job)) if job else None
        if job is None or project is None:
            return None
        mine = ranks.ordered(self._pods.get(uid, {}).values())
        return Workload(job, mine, self._groups.get(uid), project, self.cluster, self.said)

    def named(self, namespace: str, name: str) -> list[Object]:
        """Jobs of any kind with this name."""
        found = (self._shelves[kind].get(Key(namespace, name)) for kind in kinds.JOBS)
        return [job for job in found if job is not None]

    def phase(self, uid: str) -> str:
        """The phase alone: what lists filter and sort by, without the sentence that explains it."""
        found = self._phases.get(uid)
        if found is None:
            found = phase_of(self._jobs[uid], list(self._pods.get(uid, {}).values()), self._groups.get(uid))
            self._phases[uid] = found
        return found

    def standing(self, uid: str) -> Standing:
        found = self._standings.get(uid)
        if found is None:
            found = standing(self._jobs[uid], list(self._pods.get(uid, {}).values()), self._groups.get(uid))
            self._standings[uid] = found
        return found

    def rows(self) -> list[Row]:
        """Every workload of every project, newest first."""
        mine = frozenset(self.projects())
        if self._visible is None or self._visible[0] != mine:
            everything = reversed(self._listing.rows)
            self._visible = mine, [row for row in everything if row.job["metadata"]["namespace"] in mine]
        return self._visible[1]

    def rows_named(self, name: str) -> list[Row]:
        """The workloads of this name in any project: what `describe NAME` asks for, without looking at the others."""
        found = (job for namespace in self.projects() for job in self.named(namespace, name))
        return [self._rows[objects.uid(job)] for job in found]


Place = tuple[str, str, str]


class Listing:
    """Rows kept in the order of creation, so that a list of ten thousand is a slice and not a sort."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self.rows: list[Row] = []

    def add(self, place: Place, row: Row) -> None:
        at = bisect_left(self._places, place)
        self._places.insert(at, place)
        self.rows.insert(at, row)

    def remove(self, place: Place) -> None:
        at = bisect_left(self._places, place)
        if at < len(self._places) and self._places[at] == place:
            del self._places[at], self.rows[at]


def _owner(group: Object) -> str:
    """The job a pod group was declared for: its first owner, controlling or not."""
    owners = objects.meta(group).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


@dataclass(slots=True, eq=False)
class Row:
    """A workload in a list, with the job as it is now; `FIELDS` reads the rest when a query asks for it."""

    uid: str
    job: Object
    catalog: Catalog = field(repr=False)
    name: str
    created: str
    text: str = ""
    """What a search looks through and never changes; made at the first search."""

    @property
    def project(self) -> Project:
        return self.catalog.projects()[self.job["metadata"]["namespace"]]


def _searched(row: Row) -> str:
    if not row.text:
        words = (objects.name(row.job), row.project.name, present.framework_name(row.job), present.creator(row.job))
        row.text = "\n".join((*words, "Distributed")).lower()
    return f"{row.text}\n{row.catalog.phase(row.uid).lower()}"


def _allocated(row: Row) -> Any:
    workload = row.catalog.workload(row.uid)
    return present.number(present.allocated_gpus(workload, "")) if workload else 0


FIELDS: query.Readers[Row] = {
    query.SEARCH: _searched,
    "type": lambda row: "Distributed",
    "category": lambda row: "Train",
    "id": lambda row: present.workload_id(row.job),
    "name": lambda row: row.name,
    "namespace": lambda row: row.project.namespace,
    "clusterId": lambda row: row.catalog.cluster,
    "projectId": lambda row: row.project.id,
    "projectName": lambda row: row.project.name,
    "departmentId": lambda row: row.project.department,
    "departmentName": lambda row: row.project.department,
    "createdAt": lambda row: row.created,
    "completedAt": lambda row: present.completed_at(row.job),
    "deletedAt": lambda row: row.job["metadata"].get("deletionTimestamp"),
    "submittedBy": lambda row: present.creator(row.job),
    "phase": lambda row: row.catalog.phase(row.uid),
    "phaseUpdatedAt": lambda row: row.catalog.standing(row.uid).since,
    "nodepool": lambda row: present.pool(row.job),
    "distributedFramework": lambda row: present.framework_name(row.job),
    "allocatedGPU": _allocated,
    "priority": lambda row: PRIORITIES.get(present.priority_class(row.job)),
    "priorityClassName": lambda row: present.priority_class(row.job),
}
"""How each field of `query.FIELDS` is read from a row."""
