"""A world with the controllers of CronJobs and Jobs: what users do to CronJobs, and what must hold of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from tests.simulation import plot as common
from tests.simulation.invariants import require
from tests.simulation.layers import invariants as layers
from tests.simulation.layers.build import LayeredWorld
from tests.simulation.world import World, collectors

from rowlock import objects
from rowlock.api import Controller, DeleteOptions, Propagation, View
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import BATCH_JOB, CRON_JOB
from rowlock.objects import Object
from rowlock.scheduling.controller import Scheduler
from rowlock.storage import bootstrap
from rowlock.system.namespace_deletion import NamespaceDefaults
from rowlock.training.batch_job.controller import BatchJobController, JobPodRelease
from rowlock.training.cron_job.controller import CronJobController
from rowlock.training.cron_job.model import end_of, is_made_by, start_of

OFTEN = ("* * * * *", "*/2 * * * *", "@every 90s", "@every 45s", "@every 20s")
SCHEDULES = (*OFTEN, *OFTEN, *OFTEN, "@hourly", "0 0 31 2 *")


def build(seed: int) -> World:
    makers: list[Callable[[], Controller]] = [
        CronJobController,
        partial(BatchJobController, declares_gangs=True),
        JobPodRelease,
        NamespaceDefaults,
        Scheduler,
        *collectors(),
    ]

    def admission(clock: Callable[[], float], view: View) -> AdmissionChain:
        return AdmissionChain(view, clock)

    return LayeredWorld(seed, makers, after_write, admission=admission)


def play(seed: int, world: World | None = None) -> World:
    """One world from its first day to calm. Raises Broken, or whatever a controller raises."""
    world = world or build(seed)
    common.prologue(world, bootstrap.initial_objects())
    for number in range(world.dice.choice((6, 12, 20))):
        acts = common.DISASTERS if world.dice.random() < 0.03 else ACTS
        (_submit if number < 2 else world.dice.choice(acts))(world, number)
        for _ in range(world.dice.choice((20, 120, 200))):
            if not world.step():
                world.pass_time(world.now + world.dice.choice((30, 100)))
    for cron in list(world.view.all(CRON_JOB)):
        _change(world, cron, {"suspend": True})
    common.epilogue(world)
    world.settle(2000)
    for cron in world.view.all(CRON_JOB):
        _settled(world, cron)
    return world


# ---------------------------------------------------------------- users


def _submit(world: World, number: int) -> None:
    dice = world.dice
    spec: dict[str, Any] = {"schedule": dice.choice(SCHEDULES), "jobTemplate": {"spec": _job_spec(dice)}}
    spec["concurrencyPolicy"] = dice.choice(("Allow", "Forbid", "Replace"))
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if dice.random() < 0.6:
            spec[field] = dice.choice((0, 1, 2))
    if dice.random() < 0.3:
        spec["startingDeadlineSeconds"] = dice.choice((0, 20, 600))
    meta = {"name": f"c{number}", "namespace": dice.choice(common.SPACES)}
    made = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}
    world.write("user", lambda: world.core.create(CRON_JOB, made))


def _job_spec(dice: Random) -> dict[str, Any]:
    limits = {"cpu": "1", **({"nvidia.com/gpu": "1"} if dice.random() < 0.5 else {})}
    container = {"name": "main", "image": "host", "resources": {"limits": limits, "requests": {"cpu": "1"}}}
    pod = {"restartPolicy": dice.choice(("Never", "OnFailure")), "containers": [container]}
    spec: dict[str, Any] = {"backoffLimit": dice.choice((0, 1)), "template": {"spec": pod}}
    if dice.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = dice.choice((0, 20))
    return spec


def _some(world: World) -> Object | None:
    found = list(world.view.all(CRON_JOB))
    return world.dice.choice(found) if found else None


def _change(world: World, cron: Object, spec: dict[str, Any]) -> None:
    world.write("user", lambda: world.core.patch(CRON_JOB, objects.key(cron), {"spec": spec}))


def _edit(world: World, number: int) -> None:
    if cron := _some(world):
        schedule = {"schedule": world.dice.choice(SCHEDULES)}
        _change(world, cron, world.dice.choice(({"suspend": True}, {"suspend": False}, {"suspend": False}, schedule)))


def _delete(world: World, number: int) -> None:
    if cron := _some(world):
        policies: tuple[Propagation | None, ...] = ("Background", "Foreground", "Orphan", None)
        options = DeleteOptions(propagation=world.dice.choice(policies))
        world.write("user", lambda: world.core.delete(CRON_JOB, *objects.key(cron), options))


def _delete_job(world: World, number: int) -> None:
    jobs = list(world.view.all(BATCH_JOB))
    if jobs:
        key, options = objects.key(world.dice.choice(jobs)), DeleteOptions(propagation="Background")
        world.write("user", lambda: world.core.delete(BATCH_JOB, *key, options))


def _make_by_hand(world: World, number: int) -> None:
    if cron := _some(world):
        meta: Object = {"name": f"by-hand-{number}", "namespace": objects.namespace(cron)}
        meta |= {"ownerReferences": [objects.owner_reference(cron) | {"blockOwnerDeletion": False}]}
        spec = objects.dig(cron, "spec.jobTemplate.spec")
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
        world.write("user", lambda: world.core.create(BATCH_JOB, made))


def _wait(world: World, number: int) -> None:
    world.pass_time(world.now + world.dice.choice((30, 200, 4000)))


ACTS: tuple[common.Act, ...] = (
    _submit, _submit, _edit, _edit, _delete, _delete_job, _delete_job, _make_by_hand, _wait, _wait, *common.ACCIDENTS,
)  # fmt: skip


# ---------------------------------------------------------------- what must hold


def after_write(world: World, change: StoredChange) -> None:
    """Cheap: looks only at what the write concerns."""
    layers.after_write(world, change)
    if change.kind is BATCH_JOB and change.type == "Added":
        _made_once(world, change.object)
    if change.kind is CRON_JOB and change.type == "Modified":
        before, after = (objects.dig(one, "status.lastScheduleTime", "") for one in (change.old, change.object))
        require(before <= after, f"cron job {objects.name(change.object)} forgets a start: {before}, then {after}")


def _made_once(world: World, job: Object) -> None:
    """A start that the status has is not made again; with Forbid and Replace no two of its Jobs are alive."""
    uid = str((objects.controller_of(job) or {}).get("uid") or "")
    cron = next((one for one in world.view.all(CRON_JOB) if objects.uid(one) == uid), None)
    if cron is None or not is_made_by(job, cron):
        return
    name, start, last = objects.name(job), start_of(job) or 0.0, objects.dig(cron, "status.lastScheduleTime")
    require(start > objects.seconds(last), f"start {name} is made, and the last was {last}")
    require(start <= world.now, f"start {name} is made before its time")
    alive = [
        one
        for one in world.view.by_owner(BATCH_JOB, uid)
        if is_made_by(one, cron) and not end_of(one) and not objects.is_deleting(one)
    ]
    if objects.dig(cron, "spec.concurrencyPolicy") != "Allow":
        require(len(alive) == 1, f"{len(alive)} Jobs of {objects.name(cron)} are alive")


def _settled(world: World, cron: Object) -> None:
    """The status says what is, and no more ended Jobs are kept than it wants."""
    name, jobs = objects.name(cron), list(world.view.by_owner(BATCH_JOB, objects.uid(cron)))
    active = {ref["uid"] for ref in objects.dig(cron, "status.active") or ()}
    made = {objects.uid(job) for job in jobs if not end_of(job) and is_made_by(job, cron)}
    require(active == made, f"cron job {name} has {len(active)} active Jobs in its status and {len(made)} that are")
    for field, end in (("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")):
        kept = [job for job in jobs if end_of(job) == end]
        require(len(kept) <= objects.dig(cron, f"spec.{field}"), f"cron job {name} keeps {len(kept)} {end} Jobs")
