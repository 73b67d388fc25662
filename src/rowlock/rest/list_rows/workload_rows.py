"""A workload in a long list: the fields by which queries filter and sort, read once per change of the workload.

A request reads a field of ten thousand rows, so a row caches fields of the job, its pods and its group until one of them
changes (`InformerCache` clears it). Fields of the project are not cached, because many rows share a project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.workloads import list_query, runai_json
from rowlock.workloads.figures import times
from rowlock.workloads.figures.resources import json_number
from rowlock.workloads.figures.times import count_idle_gpus
from rowlock.workloads.phase import WorkloadStatus
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload
from rowlock.workloads.submission import PRIORITIES


class RowSource(Protocol):
    """What a row reads besides its job."""

    @property
    def clock(self) -> Callable[[], float]: ...

    @property
    def cluster(self) -> str: ...

    def projects(self) -> Mapping[str, Project]: ...

    def phase(self, uid: str) -> str: ...

    def status(self, uid: str) -> WorkloadStatus: ...

    def job(self, uid: str) -> Object | None: ...

    def workload(self, uid: str) -> Workload | None: ...


@dataclass(slots=True, eq=False)
class WorkloadRow:
    """A workload in a list; `FIELDS` reads fields of its job and pods when a query needs them."""

    uid: str
    kind: Kind
    cache: RowSource = field(repr=False)
    namespace: str
    name: str
    created_at: str
    known: dict[str, Any] = field(default_factory=dict, repr=False)
    """Field → value, cached since the workload's last change."""

    @property
    def job(self) -> Object:
        """The job as it is now. Raises KeyError when it was deleted."""
        if (job := self.cache.job(self.uid)) is None:
            raise KeyError(self.uid)
        return job

    @property
    def project(self) -> Project:
        """The project of the job's namespace. Raises KeyError when the namespace is no project any more."""
        return self.cache.projects()[self.namespace]


Read = Callable[[WorkloadRow], Any]


def _remember(name: str, read: Read) -> Read:
    def read_once(row: WorkloadRow) -> Any:
        known = row.known
        if name not in known:
            known[name] = read(row)
        return known[name]

    return read_once


def _search_text(row: WorkloadRow) -> str:
    names = (row.name, row.project.name, runai_json.creator(row.job))
    types = (runai_json.framework_name(row.job), runai_json.workload_type(row.job), row.cache.phase(row.uid))
    return "\n".join((*names, *types)).lower()


def _allocated_gpus(row: WorkloadRow) -> Any:
    workload = row.cache.workload(row.uid)
    return json_number(runai_json.allocated_gpus(workload)) if workload else 0


def _idle_gpus(row: WorkloadRow) -> int | None:
    """Not cached, because it changes without a change of the workload's objects."""
    workload = row.cache.workload(row.uid) if row.cache.phase(row.uid) in ("Running", "Degraded") else None
    return count_idle_gpus(workload.pods, workload.latest_usage, row.cache.clock()) if workload else None


_milestones = _remember("milestones", lambda row: times.read_milestones(row.job))

_OF_THE_WORKLOAD: dict[str, Read] = {
    list_query.SEARCH: _search_text,
    "type": lambda row: runai_json.workload_type(row.job),
    "category": lambda row: runai_json.category(row.job),
    "id": lambda row: runai_json.workload_id(row.job),
    "completedAt": lambda row: runai_json.completed_at(row.job),
    "deletedAt": lambda row: row.job["metadata"].get("deletionTimestamp"),
    "submittedBy": lambda row: runai_json.creator(row.job),
    "phaseUpdatedAt": lambda row: row.cache.status(row.uid).since,
    "nodepool": lambda row: runai_json.node_pool_name(row.job),
    "distributedFramework": lambda row: runai_json.framework_name(row.job),
    "allocatedGPU": _allocated_gpus,
    "priority": lambda row: PRIORITIES.get(runai_json.priority_class(row.job)),
    "priorityClassName": lambda row: runai_json.priority_class(row.job),
}
FIELDS: list_query.Readers[WorkloadRow] = {
    **{name: _remember(name, read) for name, read in _OF_THE_WORKLOAD.items()},
    "name": attrgetter("name"),
    "namespace": attrgetter("namespace"),
    "clusterId": lambda row: row.cache.cluster,
    "projectId": lambda row: row.cache.projects()[row.namespace].id,
    "projectName": lambda row: row.cache.projects()[row.namespace].name,
    "departmentId": lambda row: row.cache.projects()[row.namespace].department,
    "departmentName": lambda row: row.cache.projects()[row.namespace].department,
    "createdAt": attrgetter("created_at"),
    "phase": lambda row: row.cache.phase(row.uid),
    "totalPendingTimeSeconds": lambda row: _milestones(row).waiting_seconds(row.cache.clock()),
    "totalRunningTimeSeconds": lambda row: _milestones(row).running_seconds(row.cache.clock()),
    "idleGpus": _idle_gpus,
    "idleAllocatedGpus": _idle_gpus,
}
"""Field → how it is read from a row."""
