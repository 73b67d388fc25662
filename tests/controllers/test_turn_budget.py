"""Long work in slices: others get their turns, and work that is short costs them nothing."""

from __future__ import annotations

import asyncio

from rowlock.controllers.turn_budget import TurnBudget


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
