"""Runs drawn in the terminal, by equality."""

from __future__ import annotations

from rowlock.answers.workloads import RunPhase
from rowlock.cli.history.runs import _failure_lines
from rowlock.cli.history.timeline import draw_timeline


def steps(count: int) -> list[RunPhase]:
    phases = ("Initializing", "Pending")
    return [
        {"at": f"2026-11-29T09:{n // 60:02}:{n % 60:02}Z", "phase": phases[n % 2], "message": ""} for n in range(count)
    ]


def test_what_repeats_is_counted() -> None:
    lines = list(draw_timeline(steps(501), [], 60))
    drawn = lines[: lines.index("")]
    assert len(drawn) == 17
    assert drawn[8] == "  +   8.00s  Initializing 243 times, Pending 242 times"
    assert drawn[9].endswith("Pending for 1.00s") and drawn[-1].endswith("Initializing")


def test_what_is_short_is_shown_whole() -> None:
    lines = list(draw_timeline(steps(17), [], 60))
    assert len(lines[: lines.index("")]) == 17


def test_equal_failures_of_a_rank_are_one_line() -> None:
    death = {"rank": "rank 0", "run": 0, "code": 137, "reason": "", "trouble": None, "stopped": False}
    other = {**death, "rank": "rank 1", "code": 1}
    assert list(_failure_lines([{"deaths": [death, other, death, death]}])) == [
        "  rank 0, run 0: exit code 137 (×3)",
        "  rank 1, run 0: exit code 1",
    ]
