"""GET /runs/{id}/curves: the metrics that a run printed, or wrote for TensorBoard, as curves: for `rowlock plot`, `rowlock diff` and
the web UI."""

from __future__ import annotations

import codecs
import math
from collections.abc import AsyncIterator
from typing import Any

from rowlock import objects
from rowlock.api import LogOptions
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.curves.curves import Curve, CurveReader
from rowlock.curves.lines import ENDS_OF_PIECES
from rowlock.errors import ApiError, BadRequest
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.log_streams.options import parse_count
from rowlock.rest.run_history import event_files, past_logs
from rowlock.rest.run_history.past_logs import Life
from rowlock.rest.run_history.past_workloads import PastRun
from rowlock.rest.run_history.runs import require_run
from rowlock.workloads import pods as ranks

_MAX_ATTEMPTS = 100
"""Most attempts of a rank that are read, the newest ones."""
_MAX_PIECE = 1 << 16
"""Most characters kept of an unfinished piece."""
_NAMES_OF_VALUES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


async def show(call: RestCall) -> Any:
    """GET /runs/{id}/curves: the curves of the first rank, or of `rank`, over all its attempts, with at most `points` points each; without
    `rank` also those of the run's event files, unless the rank printed a metric of that name.
    Values that JSON lacks are the strings NaN, Infinity and -Infinity. Raises NotFound, BadRequest."""
    query = call.validate_query("rank", "points")
    rank, most = parse_count(query, "rank"), parse_count(query, "points")
    run = await require_run(call, str(call.path["id"]))
    found, label, notes = await read_curves(call, run, rank)
    return {"rank": label, "curves": [_curve_json(name, curve, most) for name, curve in found.items()], "notes": notes}


async def read_curves(call: RestCall, run: PastRun, rank: int | None) -> tuple[dict[str, Curve], str, list[str]]:
    """The curves of a run by metric, the label of the rank that printed them, and notes about what is left out. Raises BadRequest."""
    job = run.record.body["job"]
    lives = past_logs.choose_container(await past_logs.find_lives(call, run.record.uid), "", job)
    pod, label = _choose_rank(job, lives, rank)
    reader, notes = CurveReader(), list[str]()
    own = [life for life in lives if life.pod == pod]
    for number, life in list(enumerate(own, 1))[-_MAX_ATTEMPTS:]:
        reader.begin_attempt()
        try:
            await _read_life(call, job, life, reader)
        except ApiError as error:
            notes.append(f"attempt {number} is left out: {error.message}")
    written, left_out = await event_files.read_curves(call, run) if rank is None else ({}, [])
    found = {**written, **{name: curve for name, curve in reader.curves.items() if curve.points}}
    return found, label, notes + left_out


def _choose_rank(job: Object, lives: list[Life], rank: int | None) -> tuple[str, str]:
    """(pod's name, rank's label); both "" if no container started. Raises BadRequest for an unknown rank."""
    stubs = past_logs.stubs_by_rank(job, sorted({life.pod for life in lives}))
    labels = {ranks.rank_label(job, stub): objects.name(stub) for stub in stubs}
    if rank is None or not labels:
        label = next(iter(labels), "")
        return labels.get(label, ""), label
    if f"rank {rank}" not in labels:
        raise BadRequest(f"{objects.name(job)} has no rank {rank}; it has {', '.join(labels)}.")
    return labels[f"rank {rank}"], f"rank {rank}"


async def _read_life(call: RestCall, job: Object, life: Life, reader: CurveReader) -> None:
    budget = TurnBudget()
    async for piece in split_pieces(past_logs.read_life(call, job, life, LogOptions())):
        reader.push(piece)
        await budget.pause_if_due()


async def split_pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Lines and states of overwritten lines, without their ends; an unfinished piece is cut to `_MAX_PIECE` characters."""
    decode, rest = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
    async for chunk in chunks:
        *pieces, rest = ENDS_OF_PIECES.split(rest + decode(chunk))
        for piece in pieces:
            yield piece
        rest = rest[:_MAX_PIECE]
    if rest:
        yield rest


def _curve_json(name: str, curve: Curve, most: int | None) -> dict[str, Any]:
    points = curve.points
    if most and len(points) > most:
        step = -(-len(points) // most)
        points = points[-1::-step][::-1]  # the last one is kept
    return {"metric": name, "axis": curve.axis, "points": [[x, _value(y)] for x, y in points]}


def _value(y: float) -> float | str:
    return y if math.isfinite(y) else _NAMES_OF_VALUES[str(y)]
