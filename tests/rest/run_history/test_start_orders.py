"""A job waits for jobs of its own project alone, whatever its annotation says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock.archive.records import RunRecord
from rowlock.objects import Object
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.rest.run_history.start_orders import StartOrders
from rowlock.workloads.run_options.start_order import AFTER_ANNOTATION, BLOCKED_ANNOTATION


class Jobs:
    """A cache of jobs, and a cluster that notes what is patched."""

    def __init__(self, *jobs: Object) -> None:
        self.jobs = {job["metadata"]["uid"]: job for job in jobs}
        self.patches: list[dict[str, Any]] = []
        self.reads = 0

    def job(self, uid: str) -> Object | None:
        self.reads += 1
        return self.jobs.get(uid)

    def phase(self, uid: str) -> str:
        return "Completed"

    async def patch(self, kind: Any, namespace: str, name: str, patch: dict[str, Any], **_: Any) -> None:
        self.patches.append(patch)


def job(name: str, namespace: str, **annotations: str) -> Object:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta}
    return {**head, "spec": {"runPolicy": {"suspend": True}}}


@pytest.mark.parametrize(("namespace", "starts"), [("own", True), ("other", False)])
def test_the_end_of_a_job_of_another_project_starts_nothing(namespace: str, starts: bool) -> None:
    """Somebody who has learnt the uid of another project's job would have seen by the own one whether that succeeded."""
    waiting = job("train", "own", **{AFTER_ANNOTATION: "prep/uid-prep/succeeded"})
    jobs = Jobs(waiting, job("prep", namespace))

    async def scenario() -> None:
        orders = StartOrders(jobs, jobs, None, lambda: 0.0)  # type: ignore[arg-type] # three in one; nothing is archived
        orders.consider(RunNotes(RunRecord("uid-train", "w", "train", "own", "nu", "p", "PyTorchJob", 0.0)))
        while not jobs.patches:
            await asyncio.sleep(0.001)

    asyncio.run(scenario())
    (patch,) = jobs.patches
    if starts:
        assert patch["spec"] == {"runPolicy": {"suspend": False}}
    else:
        assert patch["metadata"]["annotations"] == {BLOCKED_ANNOTATION: "prep"} and "spec" not in patch


def test_thousands_that_wait_for_one_job_are_started_in_turns() -> None:
    """All were patched in one turn of the event loop; and each end of any job read the annotations of all that wait."""
    waiting = [job(f"train-{n}", "own", **{AFTER_ANNOTATION: "prep/uid-prep"}) for n in range(500)]
    jobs, turns = Jobs(*waiting, job("prep", "own")), list[int]()

    async def scenario() -> None:
        orders = StartOrders(jobs, jobs, None, lambda: 0.0)  # type: ignore[arg-type] # three in one; nothing is archived
        for one in waiting:
            meta = one["metadata"]
            orders._note(meta["uid"])
        reads = jobs.reads
        ended = RunRecord("uid-other", "w", "other", "own", "nu", "p", "PyTorchJob", 0.0, phase="Completed")
        orders.consider(RunNotes(ended))
        assert jobs.reads - reads <= 1, "nobody waits for that one"
        orders.consider(
            RunNotes(RunRecord("uid-prep", "w", "prep", "own", "nu", "p", "PyTorchJob", 0.0, phase="Completed"))
        )
        while len(jobs.patches) < 500:
            before = len(jobs.patches)
            await asyncio.sleep(0)
            turns.append(len(jobs.patches) - before)

    asyncio.run(scenario())
    assert max(turns) <= 2
