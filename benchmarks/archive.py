"""What the archive costs: CPU of a one-pod job's life in the store and the REST cache, with and without it.

`python -m benchmarks.archive`. CPU time of this process, its threads included, not wall time; no processes of ranks, no
scheduler, no HTTP. The best of several rounds, with and without in turn.

Then what that is of a job's whole way, over HTTP and with its process: on a cluster that runs one-pod jobs as fast as it
can, either the event loop is what all wait for, or all CPUs are. So throughput falls by the larger of two shares: of the
event loop's time for a job, and of all CPUs' time for it. Two whole clusters side by side differ by more than that by chance.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster import running
from benchmarks.jobs import Budget, one_pod_jobs
from rowlock import kinds, objects
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.controllers import heap_collector
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage.store import Store

JOBS, AT_ONCE, ROUNDS = 300, 16, 4
JOBS_PER_SECOND = 80
"""The throughput at which the share of a core is reckoned."""
WHOLE_JOBS = 500
"""Jobs that a cluster runs for the throughput of this machine."""
BUDGET = Budget(2.0, is_share=True)
"""Percent of throughput."""
NAMESPACE, BEGAN, ENDED = "runai-team", "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
CONTAINER = {
    "name": "pytorch", "image": "train:1", "command": ["python", "train.py"],
    "env": [{"name": f"VARIABLE_{n}", "value": "x" * 10} for n in range(12)],
}  # fmt: skip
LABELS = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}


def job(name: str) -> Object:
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [CONTAINER]}}}
    meta = {"name": name, "namespace": NAMESPACE}
    spec = {"pytorchReplicaSpecs": {"Master": replica}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


def pod(owner: Object) -> Object:
    owners = [{**objects.owner_reference(owner), "controller": True}]
    meta = {
        "name": f"{objects.name(owner)}-master-0",
        "namespace": NAMESPACE,
        "labels": LABELS,
        "ownerReferences": owners,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [CONTAINER], "nodeName": "node-0"},
    }


def event(about: Object, reason: str) -> Object:
    regarding = {"kind": "Pod", "name": objects.name(about), "namespace": NAMESPACE, "uid": objects.uid(about)}
    meta = {"name": f"{objects.name(about)}.{reason.lower()}", "namespace": NAMESPACE}
    return {"metadata": meta, "involvedObject": regarding, "reason": reason, "message": "a message", "type": "Normal"}


async def life(store: Store, name: str) -> None:
    """What a job of one pod writes from its submit to its end."""
    made = await store.create(kinds.PYTORCHJOB, job(name))
    rank = await store.create(kinds.POD, pod(made))
    for reason in ("SuccessfulCreatePod", "Scheduled", "Pulled", "Created", "Started"):
        await store.create(kinds.EVENT, event(rank, reason))
    running = {"running": {"startedAt": BEGAN}}
    ended = {"terminated": {"exitCode": 0, "startedAt": BEGAN, "finishedAt": ENDED}}
    for phase, state in (("Running", running), ("Succeeded", ended)):
        status = {"name": "pytorch", "image": "train:1", "restartCount": 0, "ready": phase == "Running", "state": state}
        rank = await store.update(
            kinds.POD, {**rank, "status": {"phase": phase, "containerStatuses": [status]}}, subresource="status"
        )
        await asyncio.sleep(0.1)  # it runs, and is over, for longer than the recorder takes to look
    done = {"type": "Succeeded", "status": "True", "lastTransitionTime": ENDED}
    await store.update(kinds.PYTORCHJOB, {**made, "status": {"conditions": [done]}}, subresource="status")


class Cpu(NamedTuple):
    """Milliseconds of CPU for a job."""

    all: float
    loop: float
    """Of these, on the thread of the event loop."""


async def cpu_per_job(directory: Path, *, archived: bool) -> Cpu:
    store = Store.open(None)
    archive = Archive(directory / "archive") if archived else None
    rest = RestApi(store, RestSettings(), archive=archive)
    serving = [asyncio.create_task(rest.run())]
    await store.create(kinds.NAMESPACE, {"metadata": {"name": NAMESPACE, "labels": {"runai/queue": "team"}}})
    await rest.cache.wait_for_sync()
    if archive is not None:  # its file is made and opened once
        archive.put("bench", database.put_note("bench", "begun"))
        await archive.settle()
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await life(store, name)

    began, loop_began = time.process_time(), time.thread_time()
    await asyncio.gather(*(one(f"job-{n}") for n in range(JOBS)))
    await asyncio.sleep(1.5)  # what the recorder gathers is written
    if archive is not None:
        await archive.settle()
    taken = Cpu((time.process_time() - began) / JOBS * 1e3, (time.thread_time() - loop_began) / JOBS * 1e3)
    for task in serving:
        task.cancel()
    await asyncio.wait(serving)
    return taken


def main() -> int:
    heap_collector.tune()  # as the server does
    best: dict[bool, Cpu] = {}
    for _ in range(ROUNDS):
        for archived in (False, True):
            with tempfile.TemporaryDirectory() as place:
                cpu = asyncio.run(cpu_per_job(Path(place), archived=archived))
                best[archived] = min(best.get(archived, cpu), cpu)
    cost, on_loop = best[True].all - best[False].all, best[True].loop - best[False].loop
    print(f"one-pod job, without the archive   {best[False].all:6.2f} ms of CPU")
    print(
        f"one-pod job, with the archive      {best[True].all:6.2f} ms of CPU   {best[True].all / best[False].all:.2f}×"
    )
    print(
        f"the archive's part                 {cost:6.2f} ms of CPU, {on_loop:.2f} of them on the event loop"
        f"   {cost * JOBS_PER_SECOND / 10:.1f} % of a core at {JOBS_PER_SECOND} jobs/s"
    )
    with running("--cpus-per-node", "4000") as client:
        rate = one_pod_jobs(client, WHOLE_JOBS)
    cpus = os.cpu_count() or 1
    share = max(on_loop, cost / cpus) * rate / 10
    print(
        f"one-pod jobs over HTTP             {rate:6.1f} jobs/s: {share:.1f} % of throughput are the archive's"
        f"   budget {BUDGET.verdict([share], '%')}"
    )
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    sys.exit(main())
