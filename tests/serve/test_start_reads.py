"""A start with many finished jobs decodes few of their objects, and none of them again and again. Counted, not timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until_async

from rowlock import kinds
from rowlock.cluster import KNOWN_BY_METADATA, ClusterSettings, LocalCluster
from rowlock.controllers.reconcile_stats import RECONCILES
from rowlock.controllers.view import object_table, state
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import Kind
from rowlock.kubelet.worker.settings import KubeletSettings
from rowlock.objects import Object, owner_reference, uid
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

JOBS, RANKS, EVENTS = 150, 2, 4
"""More objects than stay decoded (`DECODED_LIMIT`)."""
OBJECTS_PER_JOB = 2 + 2 * RANKS + EVENTS
MOST_DECODES = 2.0
"""Per object. Before, each was decoded about five times."""
SPACE, NODE = "runai-default", "node-0"
OPERATOR = "pytorchjob-controller"
THEN = "2026-01-02T03:04:05Z"


async def _make_finished_jobs(path: Path, jobs: int = JOBS) -> None:
    store = Store.open(path)
    for kind, obj in bootstrap.initial_objects():
        await store.create(kind, obj)
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "pods": "110"}}
    await store.create(kinds.NODE, _object(kinds.NODE, NODE, status=ready))
    await asyncio.gather(*(_make_job(store, f"job-{number:03}") for number in range(jobs)))
    await store.close()


def _object(kind: Kind, called: str, owner: Object | None = None, **more: Any) -> Object:
    metadata = {"name": called, "labels": more.pop("labels", {})}
    if kind.namespaced:
        metadata["namespace"] = SPACE
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **more}


async def _make(store: Store, kind: Kind, obj: Object, status: Object | None = None) -> Object:
    made = await store.create(kind, obj)
    return await store.update(kind, {**made, "status": status}, subresource="status") if status else made


async def _make_job(store: Store, called: str) -> None:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "host", "command": ["true"]}]}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}
    done = {"type": "Succeeded", "status": "True", "lastTransitionTime": THEN}
    status = {"conditions": [done], "startTime": THEN, "completionTime": THEN}
    job = await _make(store, kinds.PYTORCHJOB, _object(kinds.PYTORCHJOB, called, spec=spec), status)
    await _make(
        store, kinds.POD_GROUP, _object(kinds.POD_GROUP, f"pg-{called}-{uid(job)}", job, spec={"minMember": RANKS})
    )
    for role in ("master", "worker"):
        labels = {
            "training.kubeflow.org/job-name": called,
            "training.kubeflow.org/operator-name": OPERATOR,
            "training.kubeflow.org/replica-type": role,
        }
        rank = f"{called}-{role}-0"
        await _make(store, kinds.SERVICE, _object(kinds.SERVICE, rank, job, labels=labels, spec={"selector": labels}))
        pod = _object(kinds.POD, rank, job, labels=labels, spec={**template["spec"], "nodeName": NODE})
        made = await _make(store, kinds.POD, pod, {"phase": "Succeeded"})
        for number in range(EVENTS // RANKS):
            about = {"kind": "Pod", "namespace": SPACE, "name": rank, "uid": uid(made)}
            event = _object(kinds.EVENT, f"{rank}.{number}", involvedObject=about, lastTimestamp="2126-01-01T00:00:00Z")
            await store.create(kinds.EVENT, event)


async def _start(data: Path, decodes: Callable[[], int]) -> tuple[int, int]:
    """Start a server until all that reads many objects at a start has done so. Returns (decodes, objects)."""
    settings = ClusterSettings(data, KubeletSettings(data), disabled_parts=frozenset({"kubelet"}))
    turns = Counter(RECONCILES.turns)
    async with LocalCluster(settings) as cluster:
        view, scheduler = cluster.store.view, cluster.scheduler
        assert scheduler is not None
        rest = RestApi(cluster.store, RestSettings(user="ana"), archive=cluster.archive, view=view)

        def has_read() -> bool:
            jobs = rest.cache.job_uids()
            operator, groups = (RECONCILES.turns[one] - turns[one] for one in (OPERATOR, "podgrouper"))
            is_planned = scheduler.cycles and not scheduler.tracker.is_behind and not scheduler.tracker.changed_keys
            return bool(
                rest.cache.can_answer() and len(jobs) == JOBS and all(rest.usage.latest(job) for job in jobs)
                and operator >= JOBS and groups >= JOBS and is_planned
            )  # fmt: skip

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(cluster.run()), tasks.create_task(rest.run())]
            await until_async(has_read, "every object was read")
            for task in running:
                task.cancel()
        return decodes(), sum(view.counts().values())


def test_a_start_decodes_finished_objects_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_make_finished_jobs(tmp_path / "cluster.db"))
    count, decode = 0, object_table.decode

    def count_decode(text: bytes) -> Object:
        nonlocal count
        count += 1
        return decode(text)

    for module in (object_table, state):
        monkeypatch.setattr(module, "decode", count_decode)
    decodes, number = asyncio.run(_start(tmp_path, lambda: count))
    assert number >= JOBS * OBJECTS_PER_JOB > object_table.DECODED_LIMIT
    assert number / 2 < decodes < MOST_DECODES * number, f"{decodes} decodes of {number} objects"


def test_controllers_know_some_kinds_by_their_metadata(tmp_path: Path) -> None:
    """The state of these kinds at a start has nothing else (`KNOWN_BY_METADATA`)."""
    asyncio.run(_make_finished_jobs(tmp_path / "cluster.db", 1))
    settings = ClusterSettings(tmp_path, KubeletSettings(tmp_path), disabled_parts=frozenset({"kubelet"}))

    async def compare() -> int:
        compared = 0
        async with LocalCluster(settings) as cluster:
            view = cluster.store.view
            for kind in KNOWN_BY_METADATA:
                whole, parts = view.freeze(kind), view.freeze(kind, only_metadata=True)
                for (_, obj, text), (_, part, _) in zip(whole, parts, strict=True):
                    assert part.keys() == {"metadata"}, "it was not decoded before"
                    for one, other in zip(cluster.controllers(), cluster.controllers(), strict=True):
                        if kind in one.kinds:
                            changes = (StoredChange("Added", 1, kind, of, None, text) for of in (obj, part))
                            keys = [list(c.keys(view, change)) for c, change in zip((one, other), changes, strict=True)]
                            assert keys[0] == keys[1], (one.name, kind)
                            compared += 1
        return compared

    assert asyncio.run(compare()) > 20
