"""The informer cache with the rights of one user: it hides projects and workloads that the user may not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.informers import WAIT_TIMEOUT, InformerCache
from rowlock.rest.list_rows.workload_rows import WorkloadRow
from rowlock.rest.rights import Rights
from rowlock.workloads.assets import asset_objects
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.phase import WorkloadStatus
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload


class VisibleCache(InformerCache):
    """Created per request. A project is visible if the user may get its namespace, a workload if the user may get its job.
    Lists contain the workloads of kinds that the user may list in their namespaces."""

    def __init__(self, cache: InformerCache, rights: Rights) -> None:
        self._base, self._rights = cache, rights
        self.diagnosis_message = cache.diagnosis_message
        self.clock, self.pod_usage = cache.clock, cache.pod_usage

    async def run(self) -> NoReturn:
        """Not available: the shared cache does the watching."""
        raise TypeError("only the cache behind it is kept up to date")

    def subscribe(self, note_change: Callable[[str], None]) -> NoReturn:
        """Not available: a subscription would outlive the request."""
        raise TypeError("only the cache behind it has subscribers")

    def follows(self, kind: Kind, obj: Object) -> NoReturn:
        """Not available: writes wait for the shared cache."""
        raise TypeError("only the cache behind it follows anything")

    async def wait_for_object(self, kind: Kind, key: Key, condition: Callable[[Object | None], bool]) -> NoReturn:
        """Not available: writes wait for the shared cache."""
        raise TypeError("only the cache behind it follows anything")

    async def wait_until(self, uid: str, condition: Callable[[], bool], timeout: float | None = WAIT_TIMEOUT) -> bool:
        return await self._base.wait_until(uid, condition, timeout)

    def is_absent(self, kind: Kind) -> bool:
        return self._base.is_absent(kind)

    def has_synced(self) -> bool:
        return self._base.has_synced()

    def can_answer(self) -> bool:
        return self._base.can_answer()

    def knows_runs(self) -> bool:
        return self._base.knows_runs()

    async def wait_for_sync(self) -> None:
        await self._base.wait_for_sync()

    @property
    def cluster(self) -> str:
        return self._base.cluster

    @property
    def cluster_created(self) -> str:
        return self._base.cluster_created

    # ------------------------------------------------------------ filtered

    def projects(self) -> dict[str, Project]:
        return {space: project for space, project in self._base.projects().items() if self._sees_namespace(space)}

    def project(self, id_or_name: str) -> Project | None:
        visible = self.projects().values()
        by_id = next((p for p in visible if p.id == id_or_name), None)
        return by_id or next((p for p in visible if p.name == id_or_name), None)

    def namespace(self, name: str) -> Object | None:
        return self._base.namespace(name) if self._sees_namespace(name) else None

    def _sees_namespace(self, name: str) -> bool:
        return self._rights.allows("get", kinds.NAMESPACE, name, name=name)

    def _sees_job(self, kind: Kind, namespace: str, name: str) -> bool:
        return self._rights.allows("get", kind, namespace, name=name) and self._sees_namespace(namespace)

    def _sees(self, job: Object) -> bool:
        return self._sees_job(kinds.by_object(job), *objects.key(job))

    def job(self, uid: str) -> Object | None:
        job = self._base.job(uid)
        return job if job is not None and self._sees(job) else None

    def has_job(self, uid: str) -> bool:
        return self.job(uid) is not None

    def project_of(self, uid: str) -> Project | None:
        return self._base.project_of(uid) if self.has_job(uid) else None

    def job_that_left(self, uid: str) -> NoReturn:
        """Not available: only subscribers ask."""
        raise TypeError("only the cache behind it has subscribers")

    def job_uids(self) -> list[str]:
        return [row.uid for row in self.rows()]

    def job_uid(self, identifier: str) -> str:
        return next(iter(self.uids_claimed(identifier)), "")

    def uids_claimed(self, identifier: str) -> list[str]:
        return [uid for uid in self._base.uids_claimed(identifier) if self.workload(uid)]

    def workload(self, uid: str) -> Workload | None:
        workload = self._base.workload(uid)
        return workload if workload is not None and self._sees(workload.job) else None

    def pods(self) -> Iterable[Object]:
        return (pod for pod in self._base.pods() if self._rights.allows("list", kinds.POD, objects.namespace(pod)))

    def unfinished_pods(self) -> Iterable[Object]:
        found = self._base.unfinished_pods()
        return (pod for pod in found if self._rights.allows("list", kinds.POD, objects.namespace(pod)))

    def pods_of(self, uid: str) -> list[Object]:
        pods = self._base.pods_of(uid)
        return [pod for pod in pods if self._rights.allows("list", kinds.POD, objects.namespace(pod))]

    def own_pods(self, uid: str) -> list[Object]:
        pods = self._base.own_pods(uid)
        return [pod for pod in pods if self._rights.allows("list", kinds.POD, objects.namespace(pod))]

    def part_uids(self, uid: str) -> tuple[str, ...]:
        return self._base.part_uids(uid)

    def parts_of(self, job: Object) -> list[Object]:
        return [part for part in self._base.parts_of(job) if self._sees(part)]

    def owner_uid(self, pod: Object) -> str:
        return self._base.owner_uid(pod)

    def group_of(self, uid: str) -> Object | None:
        group, job = self._base.group_of(uid), self._base.job(uid)
        return group if job is not None and self._sees(job) else None

    def uids_named(self, namespace: str, name: str) -> list[str]:
        return self._base.uids_named(namespace, name) if self._sees_namespace(namespace) else []

    def jobs_named(self, namespace: str, name: str) -> list[Object]:
        return self._base.jobs_named(namespace, name) if self._sees_namespace(namespace) else []

    def count_pods(self, uid: str) -> tuple[int, int]:
        return self._base.count_pods(uid)

    def rows(self) -> list[WorkloadRow]:
        allowed = {
            (space, kind.name)
            for space in self.projects()
            for kind in kinds.WORKLOADS
            if self._rights.allows("list", kind, space)
        }
        if len(allowed) == len(self._base.projects()) * len(kinds.WORKLOADS):
            return self._base.rows()
        return [row for row in self._base.rows() if (row.namespace, row.kind.name) in allowed]

    def rows_named(self, name: str) -> list[WorkloadRow]:
        return [row for row in self._base.rows_named(name) if self._sees_job(row.kind, row.namespace, row.name)]

    async def count_phases(self) -> dict[tuple[str, str, str], int]:
        counts, visible = await self._base.count_phases(), self.projects()
        return {labels: count for labels, count in counts.items() if labels[0] in visible}

    def assets(self) -> list[Asset]:
        projects = self.projects()
        departments = {project.department for project in projects.values()}
        ids = {project.id for project in projects.values()}

        def sees(asset: Asset) -> bool:
            if asset.scope == "department":
                return asset.scope_id in departments or self._rights.allows("list", kinds.QUEUE)
            if asset_objects.is_policy(asset.kind):
                return asset.scope != "project" or asset.scope_id in ids
            in_project = asset.namespace in projects and self._rights.allows("get", kinds.CONFIG_MAP, asset.namespace)
            return asset.scope != "project" or in_project

        return [asset for asset in self._base.assets() if sees(asset)]

    # ------------------------------------------------------------ unfiltered

    def queue(self, name: str) -> Object | None:
        return self._base.queue(name)

    def queues(self) -> Iterable[Object]:
        return self._base.queues()

    def guaranteed_seconds(self, queue: str) -> float:
        return self._base.guaranteed_seconds(queue)

    def nodes(self) -> Iterable[Object]:
        return self._base.nodes()

    def card_memory(self, node: str) -> int:
        return self._base.card_memory(node)

    def phase(self, uid: str) -> str:
        return self._base.phase(uid)

    def status(self, uid: str) -> WorkloadStatus:
        return self._base.status(uid)
