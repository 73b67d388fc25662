"""What must hold after every write, and what must hold when all is calm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.simulation.world import Broken, World

from rowlock import kinds, objects
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import NODE, POD, POD_GROUP, PYTORCHJOB
from rowlock.objects import Object

FINISHED = ("Succeeded", "Failed")


def after_write(world: World, change: StoredChange) -> None:
    """Cheap: looks only at what the write concerns."""
    kind, _ = change.kind_and_key
    require(objects.revision(change.object) == change.revision, "an object has not the revision of its write")
    require(len(world.log) < 2 or world.log[-2].revision < change.revision, "revisions do not rise")
    if change.old is not None:
        _history(change.old, change.object)
    if (
        kind is PYTORCHJOB
        and objects.is_condition_true(change.object, "Failed")
        and not objects.is_condition_true(change.old or {}, "Failed")
    ):
        _fails_for_a_reason(world, change.object)
    if kind is POD and change.type == "Modified" and objects.dig(change.object, "spec.nodeName"):
        _node_holds(world, str(objects.dig(change.object, "spec.nodeName")))


def _fails_for_a_reason(world: World, job: Object) -> None:
    """A pod of it died, was restarted or was removed by somebody other than the scheduler."""
    for change in world.log:
        pod = change.object
        if change.kind is not POD or (objects.controller_of(pod) or {}).get("uid") != objects.uid(job):
            continue
        mark = objects.condition(pod, "DisruptionTarget") or {}
        restarted = any(c.get("restartCount") for c in objects.dig(pod, "status.containerStatuses", ()))
        gone = change.type == "Deleted" or objects.is_deleting(pod) or objects.phase(pod) == "Failed"
        if restarted or (gone and mark.get("reason") != "PreemptionByScheduler"):
            return
    raise Broken(f"job {objects.name(job)} failed though only the scheduler took its pods back")


def _history(old: Object, new: Object) -> None:
    was, now = objects.meta(old), objects.meta(new)
    for name in ("uid", "creationTimestamp", "name", "namespace"):
        require(was.get(name) == now.get(name), f"{name} changed")
    require(not was.get("deletionTimestamp") or bool(now.get("deletionTimestamp")), "a deletion was taken back")
    require(int(was.get("generation") or 0) <= int(now.get("generation") or 0), "a generation fell")
    before, after = objects.dig(old, "spec.nodeName"), objects.dig(new, "spec.nodeName")
    require(not before or before == after, "a bound pod moved")
    require(objects.phase(old) not in FINISHED or objects.phase(new) in FINISHED, "a finished pod came to life")


def _node_holds(world: World, name: str) -> None:
    """No card is given twice, and no node more than it has."""
    node = world.view.get(NODE, "", name)
    pods = [p for p in world.view.all(POD) if objects.dig(p, "spec.nodeName") == name and _active(p)]
    if node is None:
        return
    has = int(objects.dig(node, "status.allocatable")["nvidia.com/gpu"])
    require(sum(map(gpus, pods)) <= has, f"node {name} is over-committed")
    cards = Counter(c for p in pods for c in objects.annotations(p).get("rowlock.dev/devices", "").split(",") if c)
    require(all(n == 1 for n in cards.values()), f"node {name} gives a card twice: {cards}")
    require(all(int(c) < has for c in cards), f"node {name} has no such card: {cards}")


def _active(pod: Object) -> bool:
    return objects.phase(pod) not in FINISHED


def gpus(pod: Object) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(objects.dig(c, "resources.limits", {}).get("nvidia.com/gpu", 0)) for c in containers)


# ---------------------------------------------------------------- calm


def at_calm(world: World, is_kept: Callable[[Object], bool] = lambda _: False) -> None:
    """`is_kept`: of an object that is deleted, whether somebody keeps it for a reason."""
    _no_orphans(world, is_kept)
    for node in world.view.all(NODE):
        _node_holds(world, objects.name(node))
    for job in world.view.all(PYTORCHJOB):
        _settled(world, job)


def _no_orphans(world: World, is_kept: Callable[[Object], bool]) -> None:
    for kind in kinds.KINDS:
        for obj in world.view.all(kind):
            require(not objects.is_deleting(obj) or is_kept(obj), f"{kind.plural} {objects.name(obj)} never goes")
            owner = objects.controller_of(obj)
            owner_kind = kinds.by_api_version(owner["apiVersion"], owner["kind"]) if owner else None
            if owner and owner_kind:
                there = world.view.get(owner_kind, objects.namespace(obj), owner["name"])
                alive = there is not None and objects.uid(there) == owner["uid"]
                require(alive, f"{kind.plural} {objects.name(obj)} is an orphan")
    for pod in world.view.all(POD):
        node = objects.dig(pod, "spec.nodeName")
        require(not node or world.view.get(NODE, "", node) is not None, f"{objects.name(pod)} haunts {node}")


def _settled(world: World, job: Object) -> None:
    """A job is finished, suspended, or waits and says why; and it waits only if it must."""
    name = objects.name(job)
    if any(objects.is_condition_true(job, end) for end in FINISHED):
        return
    if objects.dig(job, "spec.runPolicy.suspend"):
        left = [p for p in world.view.by_owner(POD, objects.uid(job)) if _active(p)]
        require(not left, f"suspended job {name} still has pods")
        return
    pods = list(world.view.by_owner(POD, objects.uid(job)))
    wanted = sum(r["replicas"] for r in job["spec"]["pytorchReplicaSpecs"].values())
    require(len(pods) == wanted, f"job {name} has {len(pods)} of {wanted} pods")
    bound = [p for p in pods if objects.dig(p, "spec.nodeName")]
    require(not bound, f"job {name} hangs with {len(bound)} of {wanted} pods bound")
    require(bool(sentence(world, job, pods)), f"job {name} waits and nobody says why")
    require(not fits(world, pods), f"job {name} waits though it fits: {sentence(world, job, pods)}")


def sentence(world: World, job: Object, pods: Iterable[Object]) -> str:
    for group in world.view.by_owner(POD_GROUP, objects.uid(job)):
        for condition in objects.dig(group, "status.schedulingConditions", ()):
            return str(condition.get("message"))
    for pod in pods:
        scheduled = objects.condition(pod, "PodScheduled") or {}
        if scheduled.get("message"):
            return str(scheduled["message"])
    return ""


def fits(world: World, pods: list[Object]) -> bool:
    """First fit by GPUs: enough for pods of one size."""
    free = []
    for node in world.view.all(NODE):
        name = objects.name(node)
        here = [p for p in world.view.all(POD) if objects.dig(p, "spec.nodeName") == name and _active(p)]
        free.append(int(objects.dig(node, "status.allocatable")["nvidia.com/gpu"]) - sum(map(gpus, here)))
    for pod in pods:
        place = next((n for n, room in enumerate(free) if room >= gpus(pod)), None)
        if place is None:
            return False
        free[place] -= gpus(pod)
    return True


def require(holds: bool, claim: str) -> None:
    if not holds:
        raise Broken(claim)
