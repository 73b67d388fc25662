"""Which jobs have which workload id. Anybody may write a label with another job's id: it counts in its own namespace alone."""

from __future__ import annotations

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads import runai_json


class WorkloadIds:
    """The ids of all jobs of an informer cache."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[tuple[str, str], ...]] = {}
        """Workload id → (namespace, uid of the job), one of a namespace, in the order in which they were seen."""

    def note(self, previous: Object | None, job: Object) -> None:
        """Note the id of a job; `previous` is its earlier state. A second job of a namespace does not take the id of the first."""
        if previous is not None and runai_json.workload_id(previous) != runai_json.workload_id(job):
            self.forget(previous)
        identity, namespace = runai_json.workload_id(job), objects.namespace(job)
        held = self._claims.get(identity, ())
        if all(space != namespace for space, _ in held):
            self._claims[identity] = (*held, (namespace, objects.uid(job)))

    def forget(self, job: Object) -> None:
        """Forget a job, in the state that was noted last."""
        identity = runai_json.workload_id(job)
        left = tuple(claim for claim in self._claims.pop(identity, ()) if claim[1] != objects.uid(job))
        if left:
            self._claims[identity] = left

    def uids(self, identity: str) -> list[str]:
        """The uids of the jobs with this id."""
        return [uid for _, uid in self._claims.get(identity, ())]
