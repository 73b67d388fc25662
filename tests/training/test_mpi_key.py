"""The SSH key of an MPI TrainJob is made once, however often a part of the job is missing."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from rowlock.api import Decision
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.controllers.writer import execute_write, plan_steps
from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, NAMESPACE, SECRET, TRAIN_JOB
from rowlock.objects import Key
from rowlock.storage.store import Store, no_logs
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.training.trainjob.runtimes import shipped_runtimes
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

SPACE, NAME = "ns", "tj"


class KeyMaker:
    """Makes keys that can be told apart, and counts them."""

    made = 0

    def __call__(self) -> tuple[str, str]:
        self.made += 1
        return f"a2V5{self.made:04}", "cHVibGlj"


async def do(store: Store, decision: Decision) -> None:
    _, steps = plan_steps(decision.writes)
    for step in steps:
        await execute_write(store, step.write)


def test_a_missing_part_makes_no_new_key() -> None:
    async def play() -> list[Any]:
        admission, make_key = partial(AdmissionChain, webhooks=TrainerWebhooks()), KeyMaker()
        store = Store.open(None, admission=admission, patches=Patcher(), log_source=no_logs)
        controller, key = TrainJobController(make_key), Key(SPACE, NAME)
        await store.create(NAMESPACE, {"metadata": {"name": SPACE}})
        for runtime in shipped_runtimes():
            await store.create(CLUSTER_TRAINING_RUNTIME, runtime)
        spec = {"runtimeRef": {"name": "deepspeed-distributed"}, "trainer": {"numNodes": 2}, "suspend": True}
        await store.create(TRAIN_JOB, {"metadata": {"name": NAME, "namespace": SPACE}, "spec": spec})
        await do(store, controller.decide(store.view, key, 1.0))
        found = [make_key.made]
        first = store.view.get(SECRET, SPACE, f"{NAME}-mpi-ssh-auth")
        await store.delete(CONFIG_MAP, SPACE, f"{NAME}-mpi-hostfile")
        for now in (2.0, 3.0):  # while it is suspended, every look compares all parts
            await do(store, controller.decide(store.view, key, now))
        assert store.view.get(CONFIG_MAP, SPACE, f"{NAME}-mpi-hostfile") is not None
        assert store.view.get(SECRET, SPACE, f"{NAME}-mpi-ssh-auth") == first
        found.append(make_key.made)
        await store.delete(SECRET, SPACE, f"{NAME}-mpi-ssh-auth")
        await do(store, controller.decide(store.view, key, 4.0))
        assert store.view.get(SECRET, SPACE, f"{NAME}-mpi-ssh-auth") != first
        found.append(make_key.made)
        await store.close()
        return found

    assert asyncio.run(play()) == [1, 1, 2], "a Secret that somebody has deleted is made with a new key"
