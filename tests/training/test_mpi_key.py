"""The SSH key of an MPI TrainJob is made once, however often a part of the job is missing."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64decode
from functools import partial
from typing import Any

import pytest

from rowlock.api import Create, Decision
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.controllers.key_maker import KeyMaker
from rowlock.controllers.writer import execute_write, plan_steps
from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, CONFIG_MAP, NAMESPACE, SECRET, TRAIN_JOB
from rowlock.objects import Key
from rowlock.storage.store import Store, no_logs
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.training.trainjob.runtimes import shipped_runtimes
from rowlock.training.trainjob.ssh_keys import POLL_SECONDS, KeyNotReady
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

SPACE, NAME = "ns", "tj"


class CountedKeys:
    """Makes keys that can be told apart, and counts them."""

    made = 0

    def __call__(self) -> tuple[str, str]:
        self.made += 1
        return f"a2V5{self.made:04}", "cHVibGlj"


async def do(store: Store, decision: Decision) -> None:
    _, steps = plan_steps(decision.writes)
    for step in steps:
        await execute_write(store, step.write)


async def world() -> Store:
    """A store with the runtimes that ship and a suspended MPI TrainJob."""
    admission = partial(AdmissionChain, webhooks=TrainerWebhooks())
    store = Store.open(None, admission=admission, patches=Patcher(), log_source=no_logs)
    await store.create(NAMESPACE, {"metadata": {"name": SPACE}})
    for runtime in shipped_runtimes():
        await store.create(CLUSTER_TRAINING_RUNTIME, runtime)
    spec = {"runtimeRef": {"name": "deepspeed-distributed"}, "trainer": {"numNodes": 2}, "suspend": True}
    await store.create(TRAIN_JOB, {"metadata": {"name": NAME, "namespace": SPACE}, "spec": spec})
    return store


def test_a_missing_part_makes_no_new_key() -> None:
    async def play() -> list[Any]:
        make_key, store = CountedKeys(), await world()
        controller, key = TrainJobController(make_key), Key(SPACE, NAME)
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


def test_a_job_waits_for_the_library_that_makes_keys_and_holds_up_nobody() -> None:
    """Loading it takes a tenth of a second, which would be a pause of the whole server."""

    def not_yet() -> tuple[str, str]:
        raise KeyNotReady

    async def play() -> list[Decision]:
        store = await world()
        found = [
            TrainJobController(maker).decide(store.view, Key(SPACE, NAME), 1.0)
            for maker in (not_yet, lambda: ("a", "b"))
        ]
        await store.close()
        return found

    waits, made = asyncio.run(play())
    assert waits == Decision(requeue_after=POLL_SECONDS)
    assert SECRET in [write.kind for write in made.writes if isinstance(write, Create)]


def test_the_first_call_loads_the_library_on_a_thread() -> None:
    maker = KeyMaker()
    with pytest.raises(KeyNotReady):
        maker()
    for thread in threading.enumerate():
        if thread.name == "ssh-key library":
            thread.join()
    (private, public), (other, _) = maker(), maker()
    assert b64decode(private).startswith(b"-----BEGIN EC PRIVATE KEY") and private != other
    assert b64decode(public).startswith(b"ecdsa-sha2-nistp521 ")
