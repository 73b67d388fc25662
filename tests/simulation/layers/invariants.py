"""What must hold of Jobs, JobSets and TrainJobs: after every write, and when all is calm."""

from __future__ import annotations

from functools import partial

from tests.simulation import invariants
from tests.simulation.invariants import require
from tests.simulation.world import World

from rowlock import objects
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import BATCH_JOB, JOB_SET, POD, TRAIN_JOB
from rowlock.objects import Object
from rowlock.training.batch_job.model import TRACKING_FINALIZER

ENDS = {BATCH_JOB: ("Complete", "Failed"), JOB_SET: ("Completed", "Failed"), TRAIN_JOB: ("Complete", "Failed")}


def after_write(world: World, change: StoredChange) -> None:
    """Cheap: looks only at what the write concerns."""
    invariants.after_write(world, change)
    kind, _ = change.kind_and_key
    ends = ENDS.get(kind)
    if ends is None or change.type == "Deleted":
        return
    name = f"{kind.plural} {objects.name(change.object)}"
    reached = [end for end in ends if objects.is_condition_true(change.object, end)]
    require(len(reached) < 2, f"{name} ends in two ways")
    for end in ends:
        lost = objects.is_condition_true(change.old or {}, end) and end not in reached
        require(not lost, f"{name} is no longer {end}")
    if kind is BATCH_JOB:
        _counts(world, change, name)


def _counts(world: World, change: StoredChange, name: str) -> None:
    """No end of a pod is counted twice, and none is forgotten."""
    status = change.object.get("status") or {}
    before = (change.old or {}).get("status") or {}
    counted = int(status.get("succeeded") or 0) + int(status.get("failed") or 0)
    earlier = int(before.get("succeeded") or 0) + int(before.get("failed") or 0)
    require(counted >= earlier, f"{name} forgets ends: {earlier}, then {counted}")
    if counted > earlier:
        made = sum(
            one.kind is POD and one.type == "Added" and _owner(one.object) == objects.uid(change.object)
            for one in world.log
        )
        require(counted <= made, f"{name} counts {counted} ends of {made} pods")


def _owner(obj: Object) -> str:
    return str((objects.controller_of(obj) or {}).get("uid") or "")


# ---------------------------------------------------------------- calm


def at_calm(world: World) -> None:
    invariants.at_calm(world, partial(_replacement_waits, world))
    for job in world.view.all(BATCH_JOB):
        _job_settled(world, job)
    for jobset in world.view.all(JOB_SET):
        _set_settled(world, jobset)
    for trainjob in world.view.all(TRAIN_JOB):
        _trainjob_settled(world, trainjob)
    for pod in world.view.all(POD):
        if objects.phase(pod) in invariants.FINISHED:
            held = TRACKING_FINALIZER in objects.meta(pod).get("finalizers", ())
            waits = held and _replacement_waits(world, pod)
            require(not held or waits, f"nobody counts pod {objects.name(pod)}")


def _replacement_waits(world: World, pod: Object) -> bool:
    """With a limit per index a failed pod is kept until the next one is made, and that may wait for the Job to be resumed."""
    jobs = [job for job in world.view.all(BATCH_JOB) if objects.uid(job) == _owner(pod)]
    return bool(jobs) and objects.dig(jobs[0], "spec.backoffLimitPerIndex", None) is not None


def ended(kind: object, obj: Object) -> str:
    return next((end for end in ENDS[kind] if objects.is_condition_true(obj, end)), "")  # type: ignore[index]


def _job_settled(world: World, job: Object) -> None:
    """Finished, suspended, or its pods wait because they must. Its status says what is."""
    name, pods = f"job {objects.name(job)}", list(world.view.by_owner(POD, objects.uid(job)))
    active = [pod for pod in pods if objects.phase(pod) not in invariants.FINISHED]
    status = job.get("status") or {}
    require(
        int(status.get("active") or 0) == len(active), f"{name} says {status.get('active')} of {len(active)} active"
    )
    uncounted = status.get("uncountedTerminatedPods") or {}
    require(not any(uncounted.values()), f"{name} leaves pods uncounted: {uncounted}")
    if end := ended(BATCH_JOB, job):
        require(not active, f"{name} is {end} and has pods")
        wanted = int(objects.dig(job, "spec.completions", 1))
        require(
            end == "Failed" or int(status.get("succeeded") or 0) >= wanted, f"{name} is complete too soon: {status}"
        )
        return
    if objects.dig(job, "spec.suspend", False) or not objects.dig(job, "spec.parallelism", 1):
        require(not active, f"{name} is suspended and has pods")
        return
    require(bool(active), f"{name} hangs without a pod")
    bound = [pod for pod in active if objects.dig(pod, "spec.nodeName")]
    require(not bound, f"{name} hangs with {len(bound)} of {len(active)} pods bound")
    if objects.controller_of(job) is None:
        require(bool(invariants.sentence(world, job, active)), f"{name} waits and nobody says why")
        require(not invariants.fits(world, active), f"{name} waits though it fits")


def _set_settled(world: World, jobset: Object) -> None:
    """Finished, suspended, or it has Jobs that have not ended, of which the pods wait."""
    name, jobs = f"set {objects.name(jobset)}", list(world.view.by_owner(BATCH_JOB, objects.uid(jobset)))
    running = [job for job in jobs if not ended(BATCH_JOB, job)]
    if ended(JOB_SET, jobset):
        require(not running, f"{name} has ended and has {len(running)} Jobs that run")
        return
    if objects.dig(jobset, "spec.suspend", False):
        awake = [objects.name(job) for job in running if not objects.dig(job, "spec.suspend", False)]
        require(not awake, f"{name} is suspended and {awake} are not")
        return
    require(bool(running), f"{name} hangs without a Job that runs")
    asleep = [objects.name(job) for job in running if objects.dig(job, "spec.suspend", False)]
    require(not asleep, f"{name} runs and {asleep} are suspended")
    pods = [pod for job in running for pod in world.view.by_owner(POD, objects.uid(job))]
    waiting = [pod for pod in pods if objects.phase(pod) not in invariants.FINISHED]
    require(not invariants.fits(world, waiting), f"{name} waits though it fits")


def _trainjob_settled(world: World, trainjob: Object) -> None:
    """It says what its JobSet says."""
    name = f"trainjob {objects.name(trainjob)}"
    jobset = world.view.get(JOB_SET, objects.namespace(trainjob), objects.name(trainjob))
    if end := ended(TRAIN_JOB, trainjob):
        told = ended(JOB_SET, jobset) if jobset is not None else end
        require(told[:6] == end[:6], f"{name} is {end}, its set {told or 'runs'}")
        return
    require(jobset is not None, f"{name} has no set")
    assert jobset is not None
    require(not ended(JOB_SET, jobset), f"{name} does not say that its set has ended")
    asked, said = (bool(objects.dig(one, "spec.suspend", False)) for one in (trainjob, jobset))
    require(asked == said, f"{name}: suspend {asked}, its set {said}")
