"""Jobs that were submitted through rowlock: what they hold when they have ended, and which restarts their backoffLimit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rowlock.objects import Object
from rowlock.training.model import REQUEST_ANNOTATION

if TYPE_CHECKING:
    from tests.training.conftest import Play

Player = Callable[..., "Play"]


def start(play: Player, *, submitted: bool = True, ranks: int = 4, **policy: Any) -> Play:
    """A PyTorchJob with OnFailure, all of whose ranks run."""
    run = play("PyTorchJob", graceful=True)
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    roles = {"Master": 1, "Worker": ranks - 1}
    specs = {r: {"replicas": n, "restartPolicy": "OnFailure", "template": template} for r, n in roles.items()}
    run.create({"pytorchReplicaSpecs": specs, "runPolicy": policy})
    if submitted:
        run.patch({"metadata": {"annotations": {REQUEST_ANNOTATION: "{}"}}})
    run.turn()
    for rank in names(ranks):
        run.set(rank, {"phase": "Running", "containerStatuses": []})
    run.turn()
    return run


def names(ranks: int) -> list[str]:
    return ["master-0", *(f"worker-{i}" for i in range(ranks - 1))]


def restarted(times: int, state: Object | None = None) -> Object:
    container = {"name": "pytorch", "restartCount": times, "state": state or {"running": {}}}
    return {"phase": "Running", "containerStatuses": [container]}


def ended(run: Play) -> str:
    return next((c["type"] for c in run.status["conditions"] if c["type"] in ("Failed", "Succeeded")), "")


BACK_OFF: Object = {"waiting": {"reason": "CrashLoopBackOff"}}
FAILED_NOW: Object = {"terminated": {"exitCode": 1}}


def test_a_restart_of_all_ranks_is_one_restart_of_the_job(play: Player) -> None:
    run = start(play, backoffLimit=2)
    for rank in names(4):
        run.set(rank, restarted(2))
    run.turn()
    assert ended(run) == ""


@pytest.mark.parametrize("state", [BACK_OFF, FAILED_NOW])
def test_the_end_after_the_last_restart_fails_the_job_and_frees_its_pods(play: Player, state: Object) -> None:
    run = start(play, backoffLimit=2)
    run.set("worker-1", restarted(1, state))
    run.turn()
    assert ended(run) == "", "the second restart is still to come"
    run.set("worker-1", restarted(2, state))
    run.turn()
    assert ended(run) == "Failed"
    assert set(run.pods().values()) == {"Running+Terminating"}


def test_the_operator_counts_the_restarts_of_a_manifest_and_leaves_its_pods(play: Player) -> None:
    run = start(play, submitted=False, backoffLimit=2)
    for rank in names(4)[:2]:
        run.set(rank, restarted(1))
    run.turn()
    run.turn()
    assert ended(run) == "Failed"
    assert set(run.pods().values()) == {"Running"}


def test_ranks_that_outlive_the_success_have_half_a_minute(play: Player) -> None:
    run = start(play, ranks=2)
    run.set("master-0", {"phase": "Succeeded"})
    run.turn()
    assert run.turn().requeue_after == pytest.approx(30)
    assert run.pods()["job-worker-0"] == "Running"
    run.world.now += 30.1
    run.turn()
    assert run.pods()["job-worker-0"] == "Running+Terminating"
    assert run.pods()["job-master-0"] == "Succeeded", "what has ended by itself stays to be looked at"


def test_a_submit_that_asks_for_it_keeps_its_pods(play: Player) -> None:
    run = start(play, ranks=2, cleanPodPolicy="None", backoffLimit=1)
    run.set("worker-0", restarted(1, BACK_OFF))
    run.turn()
    run.turn()
    assert ended(run) == "Failed"
    assert set(run.pods().values()) == {"Running"}
