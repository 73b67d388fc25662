"""Who disturbs the peace: users who create, suspend, resume and delete; nodes that go and come; pods that die."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.world import World

from rowlock import kinds, objects
from rowlock.api import DeleteOptions, Propagation
from rowlock.kinds import NAMESPACE, NODE, POD, PYTORCHJOB, QUEUE
from rowlock.objects import Key, Object

SPACES = ("runai-default", "runai-default", "runai-team")
GPUS_PER_NODE = 4


Act = Callable[[World, int], None]
QUOTA = 2
PRIORITIES = ("", "train", "build-preemptible", "interactive-preemptible")


def team(world: World) -> Object:
    queue = "team" if world.contested else "default"
    return {"metadata": {"name": "runai-team", "labels": {"runai/queue": queue}}}


def node(name: str) -> Object:
    room = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": str(GPUS_PER_NODE), "pods": "110"}
    labels = {"nvidia.com/gpu.count": str(GPUS_PER_NODE), "kubernetes.io/hostname": name}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def job(name: str, world: World) -> Object:
    """A PyTorchJob of a size that sometimes fits, sometimes must wait, and seldom never fits."""
    dice = world.dice
    workers, gpus = dice.choice((0, 1, 1, 2, 3, 7)), dice.choice((0, 1, 1, 2))
    if world.contested:
        workers, gpus = workers % 4, max(1, gpus)
    policy = dice.choice(("Never", "OnFailure", "ExitCode"))
    container: dict[str, Any] = {"name": "pytorch", "image": "host", "command": ["train"]}
    container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}, "requests": {"cpu": "1"}}
    template = {"spec": {"containers": [container]}}

    def replicas(count: int) -> Object:
        return {"replicas": count, "restartPolicy": policy, "template": template}

    specs = {"Master": replicas(1), **({"Worker": replicas(workers)} if workers else {})}
    run: dict[str, Any] = {"cleanPodPolicy": dice.choice(("None", "Running", "All"))}
    if dice.random() < 0.3:
        run["backoffLimit"] = dice.choice((0, 1, 3))
    if dice.random() < 0.2:
        run["ttlSecondsAfterFinished"] = dice.choice((0, 20))
    if dice.random() < 0.15:
        run["suspend"] = True
    labels = {"priorityClassName": dice.choice(PRIORITIES)} if world.contested else {}
    return {
        "metadata": {"name": name, "namespace": dice.choice(SPACES), "labels": labels},
        "spec": {"runPolicy": run, "pytorchReplicaSpecs": specs},
    }


def prologue(world: World, seeds: list[tuple[kinds.Kind, Object]]) -> None:
    nodes = [(NODE, node(f"n{number}")) for number in range(world.dice.choice((1, 2, 2, 3)))]
    nodes = nodes[:1] if world.contested else nodes
    for kind, obj in [*seeds, *nodes, (NAMESPACE, team(world))]:
        world.write("seed", partial(world.core.create, kind, obj))
    if world.contested:
        spec: dict[str, Any] = {"parentQueue": "department-default", "resources": {"gpu": {"quota": QUOTA}}}
        world.write("seed", lambda: world.core.create(QUEUE, {"metadata": {"name": "team"}, "spec": spec}))
        world.write("seed", lambda: world.core.patch(QUEUE, Key("", "default"), {"spec": spec}))


def disturb(world: World, number: int) -> None:
    """One act of somebody."""
    acts: tuple[Act, ...] = (_submit, _submit, _submit, _suspend, _resume, _delete, *ACCIDENTS)
    if world.contested:
        acts += (_submit,) * 8
    if world.dice.random() < 0.03:
        acts = DISASTERS
    world.dice.choice(acts)(world, number)


def _submit(world: World, number: int) -> None:
    made = job(f"j{number}", world)
    world.write("user", lambda: world.core.create(PYTORCHJOB, made))


def _some(world: World, kind: kinds.Kind) -> Object | None:
    found = list(world.view.all(kind))
    return world.dice.choice(found) if found else None


def _suspend(world: World, number: int, value: bool = True) -> None:
    found = _some(world, PYTORCHJOB)
    if found:
        patch = {"spec": {"runPolicy": {"suspend": value}}}
        world.write("user", lambda: world.core.patch(PYTORCHJOB, objects.key(found), patch))


def _resume(world: World, number: int) -> None:
    _suspend(world, number, False)


def _delete(world: World, number: int) -> None:
    found = _some(world, PYTORCHJOB)
    if found:
        policies: tuple[Propagation | None, ...] = ("Background", "Foreground", "Orphan", None)
        policy = world.dice.choice(policies)
        options = DeleteOptions(propagation=policy)
        world.write("user", lambda: world.core.delete(PYTORCHJOB, *objects.key(found), options))


def _kill(world: World, number: int) -> None:
    """A rank dies; its kubelet notices when it looks."""
    found = _some(world, POD)
    if found and objects.phase(found) == "Running":
        world.disk.kill(found, world.now, world.dice.choice((1, 9, 137, 143)))
        world.nudge(found)


def _evict(world: World, number: int) -> None:
    found = _some(world, POD)
    if found:
        grace = world.dice.choice((None, 0))
        world.write("user", lambda: world.core.delete(POD, *objects.key(found), DeleteOptions(grace=grace)))


def _lose_node(world: World, number: int) -> None:
    found = _some(world, NODE)
    if found and world.dice.random() < 0.5:
        world.write("node", lambda: world.core.delete(NODE, "", objects.name(found)))


def _add_node(world: World, number: int) -> None:
    world.write("node", lambda: world.core.create(NODE, node(f"n{world.dice.choice((0, 1, 2))}")))


def _delete_space(world: World, number: int) -> None:
    """A team leaves, with all it has; another of that name comes when it is gone."""
    if world.view.get(NAMESPACE, "", "runai-team"):
        world.write("user", lambda: world.core.delete(NAMESPACE, "", "runai-team"))
    else:
        world.write("user", lambda: world.core.create(NAMESPACE, team(world)))


def _crash(world: World, number: int) -> None:
    """The whole server dies."""
    for actor in list(world.actors):
        world.crash(actor)


def _wait(world: World, number: int) -> None:
    world.pass_time(world.now + 30)


ACCIDENTS: tuple[Act, ...] = (_kill, _evict, _lose_node, _add_node, _wait, _wait)
DISASTERS: tuple[Act, ...] = (_delete_space, _crash)


def _remove(world: World, key: Key) -> None:
    world.write("user", lambda: world.core.delete(POD, key.namespace, key.name, DeleteOptions(grace=0)))


def epilogue(world: World) -> None:
    """The last acts before calm: there is a node, and what is marked for orphaning stays as it is."""
    if world.view.get(NODE, "", "n0") is None:
        world.write("node", lambda: world.core.create(NODE, node("n0")))
    for pod in list(world.view.all(POD)):
        if objects.controller_of(pod) is None:  # an orphan of an orphaning delete: its user cleans up
            _remove(world, objects.key(pod))
    world.disk.troubled = False
