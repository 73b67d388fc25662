"""Requests for memory of a card: as many fit as the card has room for, beside shares and whole cards, and cost what they hold."""

from __future__ import annotations

import random

import pytest

from rowlock.scheduling.explain.explanations import Explainer
from rowlock.scheduling.model.resources import GPU, WHOLE_GPU, memory_portion
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Shape, Snapshot, Status, Task
from rowlock.scheduling.plan import Plan
from rowlock.scheduling.planner import Planner, plan
from rowlock.scheduling.policy.fairshare import set_fair_shares

CARDS = (100, 11_264, 16_384, 24_576, 40_536, 81_559, 143_771, 196_608, 288_000)
"""MiB of cards that people have; 100: a node that does not say."""


def gang(name: str, shape: Shape, created: float, devices: tuple[int, ...] = ()) -> Gang:
    task = Task(name, "t", name, shape, created=created)
    if devices:
        task = Task(name, "t", name, shape, Status.RUNNING, node="n", devices=devices)
    return Gang("t", name, name, "q", (task,), (PodSet("", 1),), created=created)


def snapshot(node: Node, gangs: list[Gang], limit: int = -1) -> Snapshot:
    return Snapshot(0.0, (node,), (Queue("q", quota=(-1, -1, limit), limit=(-1, -1, limit)),), tuple(gangs))


def placed(found: Plan, prefix: str) -> int:
    return sum(b.uid.startswith(prefix) for b in found.binds)


def pods(count: int, shape: Shape) -> list[Gang]:
    return [gang(f"p{i:04}", shape, float(i)) for i in range(count)]


@pytest.mark.parametrize("card", [81_559, 81_500])
def test_forty_requests_of_2000_fit_a_card_of_80_gb(card: int) -> None:
    one_card = Node("n", gpus=1, gpu_memory=card, pods=1000)
    found = plan(snapshot(one_card, pods(43, Shape(gpu_memory=2000, devices=1)), limit=WHOLE_GPU))
    assert placed(found, "p") == 40
    assert all(b.devices == (0,) for b in found.binds)


@pytest.mark.parametrize("seed", range(60))
def test_as_many_fit_as_there_is_memory_for(seed: int) -> None:
    draw = random.Random(seed)
    card = draw.choice(CARDS)
    request = draw.choice([draw.randint(100, card), card // draw.randint(1, 40), card, 100])
    request = min(card, max(100, request))
    portion, whole = draw.choice([0, 0, 10, 25, 33, 50, 99]), draw.choice([0, 1])
    neighbours = [gang("share", Shape(portion=portion, devices=1), 0.0, (0,))] if portion else []
    neighbours += [gang("whole", Shape(gpus=1), 0.0, (1,))] if whole else []
    node = Node("n", gpus=1 + whole, gpu_memory=card, pods=5000)
    wanted = card * (100 - portion) // 100 // request
    found = plan(snapshot(node, [*neighbours, *pods(wanted + 2, Shape(gpu_memory=request, devices=1))], limit=200))
    assert placed(found, "p") == wanted, (card, request, portion)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_is_exact_whatever_came_and_went(seed: int) -> None:
    """Sums of shares do not drift: an empty card is empty, and a full one is full."""
    draw = random.Random(seed)
    card = draw.choice(CARDS[1:])
    node = Node("n", gpus=1, gpu_memory=card, pods=5000)
    session = open_session(snapshot(node, pods(60, Shape(gpu_memory=card // 60, devices=1))))
    tasks = [t for g in session.gangs.values() for t in g.tasks]
    one = memory_portion(card // 60, card)
    for _ in range(600):
        t = draw.choice(tasks)
        if t.status is Status.PENDING:
            session.move_task(t, Status.RUNNING, "n", (0,))
        else:
            session.move_task(t, Status.PENDING)
        held = sum(t.status is Status.RUNNING for t in tasks) * one
        assert session.ordered_nodes[0].used_per_device == [held]
        assert session.queues["q"].allocated[GPU] == held <= WHOLE_GPU
        assert session.free_gpu == WHOLE_GPU - held


def test_a_share_of_memory_is_no_reason_to_reclaim() -> None:
    """A fair share that is rounded down would put everybody who asks for memory above it, and make victims of them."""
    node = Node("n", gpus=2, gpu_memory=81_559, pods=1000)
    mine = [gang(f"p{i}", Shape(gpu_memory=2000, devices=1), 0.0, (0,)) for i in range(3)]
    session = open_session(snapshot(node, mine))
    set_fair_shares(session)
    queue = session.queues["q"]
    assert queue.fair_share[GPU] == queue.allocated[GPU] == 3 * memory_portion(2000, 81_559)


def test_the_wait_names_request_and_room_in_mebibytes() -> None:
    node = Node("n", gpus=1, gpu_memory=81_559, pods=1000)
    planner = Planner(open_session(snapshot(node, pods(41, Shape(gpu_memory=2000, devices=1)))))
    planner.run_cycle(keep_plan=True)
    (hold,) = planner.holds()
    told = Explainer(planner.session).explain(hold)
    assert told is not None
    assert told.message == (
        "Each pod needs 2000 MiB of 1 GPU; 0 of 1 pods fit now "
        "(1 node: 1 Insufficient nvidia.com/gpu; at most 1559 MiB free on a GPU (n))."
    )
    assert told.record["requested"] == "2000 MiB of GPU memory"
    assert told.record["nodes"]["freeShare"] == "at most 1559 MiB free on a GPU (n)"
