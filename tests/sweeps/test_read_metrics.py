"""The metrics of a sweep of a thousand runs: an answer reads logs for a second, and the next one goes on."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rowlock.cli.sweep import commands
from rowlock.rest.sweeps import metrics
from rowlock.sdk.sweeps import SweepHandle


def entries(count: int, running: int) -> list[Any]:
    """Runs of which the first are unfinished."""
    body = {"id": "", "index": 0, "name": "", "phase": "Completed", "metric": None}
    return [
        {**body, "id": f"id-{n}", "index": n, "phase": "Running" if n < running else "Completed"} for n in range(count)
    ]


def test_an_answer_reads_for_a_while_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    call = cast(Any, SimpleNamespace(context=SimpleNamespace(run_metrics=OrderedDict())))
    read = list[str]()

    async def read_extremes(_: Any, run: Any, __: Any) -> metrics.Extremes:
        read.append(run["id"])
        found: metrics.Extremes = {"loss": (float(run["index"]), 9.0, 9.0)}
        if run["phase"] == "Completed":
            call.context.run_metrics[run["id"]] = "", found
        return found

    monkeypatch.setattr(metrics, "_read_extremes", read_extremes)
    monkeypatch.setattr(metrics, "_READING_S", -1.0)  # each reading takes longer

    async def ask() -> tuple[int, list[int]]:
        rows = entries(4, running=1)
        names, unread = await metrics.add_metrics(call, rows, {}, "loss", is_max=False)
        assert names == {"loss"}
        return unread, [row["index"] for row in rows if row["metric"]]

    answers = [asyncio.run(ask()) for _ in range(5)]
    assert answers == [(3, [1]), (2, [1, 2]), (1, [1, 2, 3]), (0, [0, 1, 2, 3]), (0, [0, 1, 2, 3])]
    assert read == ["id-1", "id-2", "id-3", "id-0", "id-0"], "what has ended is read once, before what has not"


@pytest.mark.parametrize(("unread", "asked"), [((5, 2, 0), 3), ((0,), 1), ((5, 5), 2)])
def test_who_asks_goes_on_while_more_is_read(unread: tuple[int, ...], asked: int, capsys: Any) -> None:
    left = list(unread)
    answer = {"unread": 0, "entries": [{}]}
    server = SimpleNamespace(get=lambda path, **_: {**answer, "unread": left.pop(0)})
    shown = commands._read_sweep(cast(Any, server), "id", {"metric": "loss"})
    assert shown["unread"] == unread[-1] and len(unread) - len(left) == asked
    assert ("The metrics of 5 runs are left out" in capsys.readouterr().err) == (unread[-1] > 0)


def test_the_handle_of_a_program_goes_on_likewise() -> None:
    left = [5, 2, 0]
    client = SimpleNamespace(run_call=lambda call: ([left[0]], left.pop(0)))
    handle = SweepHandle(cast(Any, client), cast(Any, SimpleNamespace(id="id", name="tune")))
    assert cast(Any, handle.runs("loss")) == [0] and not left
