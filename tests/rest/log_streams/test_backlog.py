"""Which of several logs may tell its next line, while what they held when they began to be followed is told."""

from __future__ import annotations

import asyncio

import pytest

from rowlock.rest.log_streams import backlog
from rowlock.rest.log_streams.backlog import BacklogOrder, started_before

A, B, NEW = ("a", 0), ("b", 0), ("b", 1)


async def tell(order: BacklogOrder, told: list[str], life: tuple[str, int], stamps: str, *, ends: bool = True) -> None:
    """A follower: a line for each letter, whose order is that of the alphabet."""
    for stamp in stamps:
        if not order.is_over:
            await order.wait_for_turn(life, stamp.encode())
        told.append(f"{life[0]}{life[1]}{stamp}")
        await asyncio.sleep(0)
        order.note_told(life, stamp.encode())
    if ends:
        order.leave(life)


def test_the_past_is_told_by_time_and_then_lines_as_they_come() -> None:
    async def play() -> list[str]:
        told: list[str] = []
        order = BacklogOrder({A: b"e", B: b"f"})
        await asyncio.gather(
            tell(order, told, NEW, "x"), tell(order, told, B, "bdfz", ends=False), tell(order, told, A, "aceh")
        )
        return told

    told = asyncio.run(play())
    assert told[:6] == ["a0a", "b0b", "a0c", "b0d", "a0e", "b0f"]
    assert sorted(told[6:]) == ["a0h", "b0z", "b1x"]


def test_a_log_that_ends_or_is_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "_SILENCE_S", 0.01)

    async def play() -> list[str]:
        told: list[str] = []
        order = BacklogOrder({A: b"e", B: b"f", ("c", 0): b"z"})
        await asyncio.gather(tell(order, told, A, "a"), tell(order, told, B, "bg"))
        assert order.is_over
        return told

    assert asyncio.run(play()) == ["a0a", "b0b", "b0g"]


def test_nothing_is_waited_for_where_nothing_is_to_be_ordered() -> None:
    assert BacklogOrder({}).is_over


def test_a_pod_has_a_past_when_one_of_its_lives_began_before() -> None:
    def pod(**states: object) -> dict[str, object]:
        return {"status": {"containerStatuses": [states]}}

    began = {"startedAt": "2026-01-01T00:00:10Z"}
    moment = 1767225620.0
    assert started_before(pod(state={"running": began}), moment)
    assert started_before(pod(state={"waiting": {}}, lastState={"terminated": began}), moment)
    assert not started_before(pod(state={"running": began}), moment - 30)
    assert not started_before(pod(state={"waiting": {"reason": "x"}}), moment) and not started_before({}, moment)
