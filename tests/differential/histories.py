"""Random histories: a job, and what then happens to it and its pods, as steps that can be played on any cluster.

A step is a small JSON list, a verb and its arguments, so that a history can be printed, shrunk and played again.
Verbs that move a pod name it by its slot (`worker-0`); they do nothing where there is no such pod, or where it has
ended, which keeps every subset of a history playable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from tests.differential.jobs import SHAPE, Manifest, chance, job, replicas_of

Step = tuple[Any, ...]
CODES = (0, 0, 0, 1, 2, 127, 128, 130, 137, 139, 143, 255)


@dataclass(frozen=True)
class History:
    """`seed` is where it comes from; -1 for one that was written or shrunk."""

    seed: int
    job: Manifest
    steps: tuple[Step, ...]

    @property
    def kind(self) -> str:
        return str(self.job["kind"])

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, found: dict[str, Any]) -> History:
        return cls(int(found.get("seed", -1)), found["job"], tuple(tuple(step) for step in found["steps"]))


def history(seed: int) -> History:
    dice = Random(f"history {seed}")
    wrong = chance(dice, 0.14)
    made = job(dice, wrong)
    steps: list[Step] = [("create",)]
    if (places := _places(made)) and chance(dice, 0.12):
        what = dice.choice(("foreign", "labelled"))
        steps.insert(0, (what, dice.choice(("Pod", "Service")), dice.choice(places)))
    # Of a job whose pods are refused the operator goes on trying, in another order each time and ever more seldom:
    # what else happens to it is chance.
    for _ in range(dice.choice((0, 0, 1)) if wrong else dice.choice((1, 3, 4, 5, 6, 7, 8))):
        steps += _next(dice, made)
    return History(seed, made, tuple(steps))


def _places(made: Manifest) -> list[str]:
    """Where an obstacle may be put; nowhere in a job of several types. The operator walks through them in random order, as
    far as the obstacle: what happens to the others is chance. An MPIJob has an order."""
    one = made["kind"] == "MPIJob" or len(replicas_of(made)) < 2
    return (slots(made) or ["worker-0"]) if one else []


def slots(made: Manifest) -> list[str]:
    """`master-0`, `worker-0`, …; MPIJob's launcher has no number."""
    found = []
    for type_, replica in replicas_of(made).items():
        count = replica.get("replicas", 1) if isinstance(replica, dict) else 0
        if made["kind"] == "MPIJob" and type_ == "Launcher":
            found.append("launcher")
        elif isinstance(count, int):
            found += [f"{type_.lower()}-{i}" for i in range(min(count, 4))]
    return found


def _next(dice: Random, made: Manifest) -> list[Step]:
    weights = [weight for weight, _ in MOVES]
    move = dice.choices([move for _, move in MOVES], weights)[0]
    found = slots(made)
    return move(dice, made, found) if found else [_edit(dice, made)]


def _run_all(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("running", found)]


def _run_some(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("running", dice.sample(found, dice.randint(1, len(found))))]


def _exit(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("exit", dice.choice(found), dice.choice(CODES))]


def _exit_leader(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    leader = next((s for s in found if s in ("master-0", "chief-0", "launcher", "worker-0")), found[0])
    return [("exit", leader, dice.choice((0, 0, 0, 1, 137)))]


def _finish_all(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("exit", slot, 0) for slot in dice.sample(found, len(found))]


def _sidecar(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("exit others", dice.choice(found), dice.choice((0, 1)))]


def _evict(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("evict", dice.choice(found))]


def _restart(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("restarts", dice.choice(found), dice.choice((1, 1, 2, 3)))]


def _waiting(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("waiting", dice.choice(found), dice.choice(("ImagePullBackOff", "CrashLoopBackOff", "Init:Error")))]


def _unschedulable(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("unschedulable", dice.choice(found))]


def _delete(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    steps: list[Step] = [("delete", dice.choice(found))]
    if chance(dice, 0.7):
        steps += [("gone",)]
    return steps


def _vanish(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("vanish", dice.choice(found))]


def _delete_service(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("delete service", dice.choice(found))]


def _suspend(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    """Terminating pods that are seen at resume make the operator random, so they are mostly gone by then."""
    steps: list[Step] = [("patch", {"runPolicy": {"suspend": True}})]
    if chance(dice, 0.9):
        steps.append(("gone",))
    if chance(dice, 0.8):
        steps.append(("patch", {"runPolicy": {"suspend": False}}))
    return steps


def _resize(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    if chance(dice, 0.3):
        return [("scale", dice.choice((1, 2, 3)))]
    field = SHAPE[made["kind"]][0]
    type_ = dice.choice(sorted(replicas_of(made)))
    steps: list[Step] = [("patch", {field: {type_: {"replicas": dice.choice((1, 1, 2, 3))}}})]
    return [*steps, ("gone",)] if chance(dice, 0.7) else steps


def _edit_step(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [_edit(dice, made)]


def _edit(dice: Random, made: Manifest) -> Step:
    policy = dice.choice(
        ({"cleanPodPolicy": "All"}, {"cleanPodPolicy": None}, {"cleanPodPolicy": "Running"}, {"backoffLimit": 1},
         {"backoffLimit": None}, {"ttlSecondsAfterFinished": 0}, {"suspend": None}, {"managedBy": None},
         {"managedBy": "kueue.x-k8s.io/multikueue"}, {"schedulingPolicy": {"queue": "other"}},
         {"schedulingPolicy": {"minAvailable": 2}}, {"suspend": "x"}, {"managedBy": "somebody"})
    )  # fmt: skip
    special = dice.choice(
        {"PyTorchJob": ({"nprocPerNode": "4"}, {"elasticPolicy": {"maxReplicas": 4}}, {"elasticPolicy": None}),
         "TFJob": ({"successPolicy": "AllWorkers"}, {"successPolicy": None}, {"enableDynamicWorker": True}),
         "MPIJob": ({"slotsPerWorker": 3}, {"cleanPodPolicy": "All"}, {"mainContainer": "mpi"})}.get(
            made["kind"], ({},))
    )  # fmt: skip
    drop = {SHAPE[made["kind"]][0]: {dice.choice(sorted(replicas_of(made)) or ["Worker"]): None}}
    return ("patch", dice.choices(({"runPolicy": policy}, special, drop), (7, 3, 1))[0])


def _replace(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    """Another job in the place of this one, as `kubectl replace` does it."""
    other = job(dice, chance(dice, 0.3))
    while other["kind"] != made["kind"] or other["metadata"]["name"] != made["metadata"]["name"]:
        other = job(dice, chance(dice, 0.3))
    return [("replace", other["spec"])]


def _touch(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("label", {"touched": str(dice.randint(1, 9))})]


def _deadline(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    return [("wait", 2.1), ("patch", {"runPolicy": {"activeDeadlineSeconds": 1}})]


def _delete_job(dice: Random, made: Manifest, found: list[str]) -> list[Step]:
    steps: list[Step] = [("delete job", dice.choice(("Background", "Background", "Foreground", "Orphan"))), ("gone",)]
    return [*steps, ("create",)] if chance(dice, 0.5) else steps


Move = Callable[[Random, Manifest, list[str]], list[Step]]
MOVES: tuple[tuple[int, Move], ...] = (
    (16, _run_all), (12, _run_some), (22, _exit), (12, _exit_leader), (4, _finish_all), (3, _sidecar), (6, _evict),
    (7, _restart), (5, _waiting), (3, _unschedulable), (9, _delete), (4, _vanish), (2, _delete_service), (7, _suspend),
    (7, _resize), (8, _edit_step), (4, _touch), (3, _deadline), (3, _delete_job), (3, _replace),
)  # fmt: skip
