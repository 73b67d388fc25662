"""A run drawn in the terminal: one bar for the phases of the job, and one for the attempts of each rank."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowlock.cli.output import parse_time

if TYPE_CHECKING:
    from rowlock.answers.workloads import RunPhase, RunRank

_MAX_RANKS = 32
_SHOWN_STEPS = 8
"""Phases that are shown at the beginning and at the end; those in between are only counted."""
_MIN_WIDTH, _MAX_WIDTH = 20, 100
_MARKS = {
    "Creating": "·", "Pending": "·", "Initializing": "-", "Running": "█", "Degraded": "▒", "Stopping": "-", "Stopped": " ",
    "Resuming": "·", "Completed": "✓", "Failed": "✗", "Deleting": " ", "Deleted": " ",
}  # fmt: skip


def format_span(seconds: float) -> str:
    """A duration with two or three significant figures: 0.34s, 12.5s, 3m 20s, 2h 5m."""
    if seconds < 10:
        return f"{seconds:.2f}s"
    if seconds < 120:
        return f"{seconds:.1f}s"
    minutes = int(seconds) // 60
    if minutes < 120:
        return f"{minutes}m {int(seconds) % 60}s"
    return f"{minutes // 60}h {minutes % 60}m"


def _instant(text: str | None) -> float | None:
    moment = parse_time(text)
    return moment.timestamp() if moment else None


def draw_timeline(phases: list[RunPhase], ranks: list[RunRank], width: int | None = None) -> Iterator[str]:
    """The lines of a timeline: the phases with their times, then the bars over one axis."""
    steps = [(_instant(step["at"]) or 0.0, str(step["phase"]), str(step["message"])) for step in phases]
    begin = steps[0][0]
    ends = [_instant(attempt["endedAt"]) for rank in ranks for attempt in rank["attempts"]]
    end = max([steps[-1][0], *(moment for moment in ends if moment)])
    hidden = range(_SHOWN_STEPS, len(steps) - _SHOWN_STEPS if len(steps) > 2 * _SHOWN_STEPS + 1 else 0)
    for number, (at, phase, message) in enumerate(steps):
        if number in hidden:
            if number == hidden[0]:
                counts = Counter(steps[k][1] for k in hidden)
                again = ", ".join(f"{phase} {count} times" for phase, count in counts.most_common())
                yield f"  {_offset(at - begin)}  {again}"
            continue
        following = steps[number + 1][0] if number + 1 < len(steps) else None
        lasted = f" for {format_span(following - at)}" if following is not None else ""
        first = f": {message.splitlines()[0]}" if message else ""
        yield f"  {_offset(at - begin)}  {phase}{lasted}{first}"
    yield ""
    label = max([len("job"), *(len(rank["rank"]) for rank in ranks[:_MAX_RANKS])])
    columns = (width or shutil.get_terminal_size((100, 24)).columns) - label - 5
    columns = max(_MIN_WIDTH, min(_MAX_WIDTH, columns))
    span = max(end - begin, 1e-3)

    def column(at: float) -> int:
        return max(0, min(columns - 1, int((at - begin) / span * columns)))

    bar = [" "] * columns
    for number, (at, phase, _) in enumerate(steps):
        until = steps[number + 1][0] if number + 1 < len(steps) else end
        for place in range(column(at), column(until) + 1):
            bar[place] = _MARKS.get(phase, "?")
    yield f"  {'job':{label}} |{''.join(bar)}|"
    for rank in ranks[:_MAX_RANKS]:
        yield f"  {rank['rank']:{label}} |{_draw_rank(rank, columns, column, end)}|"
    if len(ranks) > _MAX_RANKS:
        yield f"  and {len(ranks) - _MAX_RANKS} more ranks"
    axis = f"{format_span(0)[:1]} s"
    yield f"  {'':{label}}  {axis}{format_span(span):>{columns - len(axis)}}"


def _offset(seconds: float) -> str:
    return f"+{format_span(seconds):>8}"


def _draw_rank(rank: RunRank, columns: int, column: Any, end: float) -> str:
    """The bar of a rank: a digit where an attempt began, blocks while it ran, and ✓ or ✗ at the end."""
    bar = [" "] * columns
    attempts = rank["attempts"]
    for attempt in attempts:
        began = _instant(attempt["startedAt"]) or 0.0
        ended = _instant(attempt["endedAt"]) or end
        for place in range(column(began), column(ended) + 1):
            bar[place] = "█"
        bar[column(began)] = str(attempt["attempt"])[-1]
    last = rank["pods"][-1] if rank["pods"] else None
    if last is not None and last["exitCode"] is not None and attempts:
        bar[column(_instant(attempts[-1]["endedAt"]) or end)] = "✗" if last["exitCode"] else "✓"
    return "".join(bar)
