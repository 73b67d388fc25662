"""What users of Jobs, JobSets and TrainJobs do; nodes, pods and crashes are those of the other worlds."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from tests.simulation import plot
from tests.simulation.world import World

from rowlock import objects
from rowlock.api import DeleteOptions, Propagation
from rowlock.kinds import BATCH_JOB, JOB_SET, TRAIN_JOB
from rowlock.objects import Object

KINDS = (BATCH_JOB, JOB_SET, TRAIN_JOB)


def _template(dice: Random, ranks: int, gpus: int) -> dict[str, Any]:
    """A pod's; `ranks` wait for each other before they work."""
    limits = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    env = [{"name": "WORLD_SIZE", "value": str(ranks)}]
    container = {"name": "main", "image": "host", "env": env, "resources": {"limits": limits, "requests": {"cpu": "1"}}}
    policy = dice.choice(("Never", "Never", "OnFailure"))
    return {"spec": {"restartPolicy": policy, "containers": [container]}}


def _job_spec(dice: Random, gpus: int, most: int) -> dict[str, Any]:
    parallelism = dice.randint(1, most)
    is_gang = dice.random() < 0.5
    spec: dict[str, Any] = {"parallelism": parallelism, "backoffLimit": dice.choice((0, 1, 2))}
    spec["completions"] = parallelism if is_gang else dice.randint(1, most + 1)
    spec["completionMode"] = "Indexed" if is_gang else dice.choice(("Indexed", "NonIndexed"))
    spec["template"] = _template(dice, parallelism if is_gang else 1, gpus)
    if spec["completionMode"] == "Indexed" and dice.random() < 0.2:
        spec["backoffLimitPerIndex"] = 1
        del spec["backoffLimit"]
    if dice.random() < 0.2:
        spec["podReplacementPolicy"] = "Failed"
    if dice.random() < 0.2 and spec["template"]["spec"]["restartPolicy"] == "Never":
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        spec["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": disrupted}]}
        spec["podReplacementPolicy"] = "Failed"
    return spec


def _finish(dice: Random, spec: dict[str, Any]) -> dict[str, Any]:
    if dice.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = dice.choice((0, 20))
    if dice.random() < 0.15:
        spec["suspend"] = True
    return spec


def _job_set(dice: Random, gpus: int) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = []
    for name in ("a", "b")[: dice.choice((1, 2))]:
        jobs.append({"name": name, "replicas": dice.randint(1, 2), "template": {"spec": _job_spec(dice, gpus, 2)}})
    if len(jobs) > 1 and dice.random() < 0.4:
        jobs[1]["dependsOn"] = [{"name": "a", "status": dice.choice(("Complete", "Ready"))}]
    spec: dict[str, Any] = {"replicatedJobs": jobs}
    if dice.random() < 0.5:
        spec["failurePolicy"] = {"maxRestarts": dice.randint(0, 2)}
    if dice.random() < 0.2:
        spec["successPolicy"] = {"operator": "Any", "targetReplicatedJobs": ["a"]}
    if dice.random() < 0.3 and "dependsOn" not in jobs[-1]:
        spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    return _finish(dice, spec)


def _train_job(dice: Random, gpus: int) -> dict[str, Any]:
    nodes = dice.randint(1, 3)
    limits = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    env = [{"name": "WORLD_SIZE", "value": str(nodes)}]
    trainer = {
        "numNodes": nodes,
        "image": "host",
        "env": env,
        "resourcesPerNode": {"limits": limits, "requests": limits},
    }
    spec: dict[str, Any] = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    if dice.random() < 0.15:
        spec["suspend"] = True
    if dice.random() < 0.3:
        spec["activeDeadlineSeconds"] = dice.choice((1, 5))
    return spec


def submit(world: World, number: int) -> None:
    dice = world.dice
    gpus = max(1, dice.choice((0, 1, 1, 2))) if world.contested else dice.choice((0, 1, 1, 2))
    kind = dice.choice(KINDS)
    if kind is BATCH_JOB:
        spec = _finish(dice, _job_spec(dice, gpus, 3))
    else:
        spec = _job_set(dice, gpus) if kind is JOB_SET else _train_job(dice, gpus)
    labels = {"priorityClassName": dice.choice(plot.PRIORITIES)} if world.contested else {}
    meta = {
        "name": f"j{number}",
        "namespace": dice.choice(plot.SPACES),
        "labels": {k: v for k, v in labels.items() if v},
    }
    made = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}
    world.write("user", lambda: world.core.create(kind, made))


def _some(world: World) -> tuple[Any, Object] | None:
    """Seldom an inner object, which its owner has made; mostly one of a user."""
    found = [(kind, obj) for kind in KINDS for obj in world.view.all(kind)]
    users = [(kind, obj) for kind, obj in found if objects.controller_of(obj) is None]
    return world.dice.choice(users if users and world.dice.random() < 0.85 else found) if found else None


def suspend(world: World, number: int, value: bool = True) -> None:
    if chosen := _some(world):
        kind, obj = chosen
        patch = {"spec": {"suspend": value}}
        world.write("user", lambda: world.core.patch(kind, objects.key(obj), patch))


def resume(world: World, number: int) -> None:
    suspend(world, number, False)


def delete(world: World, number: int) -> None:
    if chosen := _some(world):
        kind, obj = chosen
        policies: tuple[Propagation | None, ...] = ("Background", "Foreground", None, "Orphan")
        options = DeleteOptions(propagation=world.dice.choice(policies))
        world.write("user", lambda: world.core.delete(kind, *objects.key(obj), options))


def scale(world: World, number: int) -> None:
    """Fewer or more pods at a time, of a user's Job that is not Indexed. One that a set has made would not fit the set's gang."""
    jobs = [job for job in world.view.all(BATCH_JOB) if objects.controller_of(job) is None]
    jobs = [job for job in jobs if objects.dig(job, "spec.completionMode") != "Indexed"]
    if jobs:
        job, count = world.dice.choice(jobs), world.dice.randint(0, 3)
        patch = {"spec": {"parallelism": count}}
        world.write("user", lambda: world.core.patch(BATCH_JOB, objects.key(job), patch))


ACTS: tuple[plot.Act, ...] = (submit, submit, submit, suspend, resume, delete, scale, *plot.ACCIDENTS)


def disturb(world: World, number: int) -> None:
    """One act of somebody."""
    acts = ACTS + (submit,) * 8 if world.contested else ACTS
    if world.dice.random() < 0.03:
        acts = plot.DISASTERS
    world.dice.choice(acts)(world, number)


def epilogue(world: World) -> None:
    """As in the other worlds. What an orphaning delete left is a user's: a Job with all it wants, or nothing at all."""
    for job in list(world.view.all(BATCH_JOB)):
        if objects.controller_of(job) is None and not objects.dig(job, "spec.parallelism", 1):
            patch = {"spec": {"parallelism": 1}}
            world.write("user", partial(world.core.patch, BATCH_JOB, objects.key(job), patch))
    plot.epilogue(world)
