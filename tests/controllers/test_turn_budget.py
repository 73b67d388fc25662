"""Long work in slices: others get their turns, and work that is short costs them nothing."""

from __future__ import annotations

import asyncio
import time

from rowlock.controllers.turn_budget import SLICE, FairTurns, OnePerTurn, SharedTurn, TurnBudget, take_paced_slices


def turns_of_others(budget: TurnBudget, pieces: int) -> int:
    """How many turns another task got while so many pieces were worked off."""

    async def play() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.create_task(count())
        await asyncio.sleep(0)
        for _ in range(pieces):
            await budget.pause_if_due()
        other.cancel()
        return turns

    return asyncio.run(play())


def test_others_get_a_turn_after_each_slice() -> None:
    assert turns_of_others(TurnBudget(0.0), 100) >= 99


def test_within_a_slice_nobody_is_asked() -> None:
    assert turns_of_others(TurnBudget(3600.0), 100) <= 2, (
        "the first pause alone: how long this has worked is not known then"
    )


def test_pieces_of_many_tasks_share_a_turn() -> None:
    """Each piece takes a whole slice: there is one a turn, in the order in which they came."""
    done = list[tuple[int, int]]()

    async def work(number: int, turn: SharedTurn, rounds: list[int]) -> None:
        async with turn:
            began = time.perf_counter()
            while time.perf_counter() - began < SLICE:
                pass
            done.append((number, rounds[0]))

    async def body() -> None:
        turn, rounds = SharedTurn(), [0]
        tasks = [asyncio.create_task(work(number, turn, rounds)) for number in range(5)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds[0] += 1

    asyncio.run(body())
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert len({turn for _, turn in done}) == 5


def test_one_piece_a_turn_in_the_order_of_the_calls() -> None:
    async def body() -> list[tuple[int, int]]:
        turns, turn, done = OnePerTurn(), 0, list[tuple[int, int]]()

        async def work(number: int) -> None:
            await turns.wait()
            done.append((number, turn))

        tasks = [asyncio.ensure_future(work(number)) for number in range(5)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn += 1
        return done

    done = asyncio.run(body())
    assert [number for number, _ in done] == list(range(5)) and len({turn for _, turn in done}) == 5


def test_who_asks_often_delays_none_but_its_own() -> None:
    """Pieces of one name are worked off one by one; beside them there is place for another name, at most two at a time."""
    begun, running, most = list[str](), set[str](), list[int]()

    async def work(turns: FairTurns, name: str) -> None:
        async with turns.take(name):
            assert name not in running, f"two pieces of {name} at once"
            running.add(name)
            begun.append(name)
            most.append(len(running))
            await asyncio.sleep(0)
            running.remove(name)

    async def body() -> None:
        turns = FairTurns(2)
        await asyncio.gather(*(work(turns, name) for name in ["greedy"] * 100 + ["ana", "ben"]))

    asyncio.run(body())
    assert max(most) == 2 and len(begun) == 102
    assert max(begun.index("ana"), begun.index("ben")) <= 4, begun


def sizes_of(costs: list[float], items: int, most: int, *, others: float = 0.0) -> list[int]:
    """The sizes of paced slices whose tasks take so many seconds together; the last one repeats. `others`: seconds that another task takes
    in each turn of the loop."""
    costs_left, sizes, now = iter(costs), list[int](), 0.0

    async def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def spend_for_ever() -> None:
        while True:
            await spend(others)
            await asyncio.sleep(0)

    async def body() -> None:
        other = asyncio.create_task(spend_for_ever())
        tasks = []
        async for some in take_paced_slices(range(items), most, lambda: now):
            sizes.append(len(some))
            cost = next(costs_left, costs[-1])
            tasks += [asyncio.create_task(spend(cost / len(some))) for _ in some]
        await asyncio.gather(*tasks)
        other.cancel()

    asyncio.run(body())
    return sizes


def test_slices_of_dear_items_are_small_and_of_cheap_ones_large() -> None:
    assert sizes_of([0.0], 5, 64) == [5]
    assert sizes_of([0.0], 200, 64) == [8, 16, 32, 64, 64, 16]
    assert sizes_of([0.1], 20, 64) == [8, 8, 4]
    assert sizes_of([0.0, 0.0, 0.1, 0.1, 0.0], 100, 64) == [8, 16, 32, 16, 8, 16, 4]
    assert sizes_of([0.1, 0.0], 20, 6) == [6, 6, 6, 2]


def test_what_others_take_in_the_same_turn_makes_no_slice_smaller() -> None:
    assert sizes_of([0.0], 200, 64, others=1.0) == [8, 16, 32, 64, 64, 16]
