"""Remarks from the logs of ranks that exited with 0: the end of each log is read, the whole only on suspicion."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rowlock.curves.curves import Curve
from rowlock.curves.endings import last_place, not_finite_since, read_text, unchanged_since
from rowlock.diagnosis import remarks
from rowlock.diagnosis.remarks import Remark
from rowlock.kubelet.files import untrusted

MAX_RANKS = 16
"""Ranks whose logs are compared."""
_TAIL_BYTES = 8 * 1024
_MAX_BYTES = 4 << 20
"""The most bytes that are read of a whole log; of a longer one, its end."""


def remarks_of_logs(logs: Sequence[tuple[str, Path]]) -> list[Remark]:
    """The remarks on a job. `logs`: rank and log of every rank, ordered by rank. Runs in a thread."""
    found: list[Remark] = []
    places: dict[str, tuple[str, float, float]] = {}
    for rank, path in logs[:MAX_RANKS]:
        curves = read_text(_read_tail(path, _TAIL_BYTES))
        if not any(remark.kind in (remarks.NOT_FINITE, remarks.UNCHANGED) for remark in found):
            found += _remarks_of_loss(rank, path, curves)
        if (place := last_place(curves)) is not None:
            places[rank] = place[0].axis, place[0].x, place[1]
    if len(logs) > 1 and len(places) == len(logs) and (remark := remarks.compare_lengths(places)) is not None:
        found.append(remark)
    return [replace(remark, at=time.time()) for remark in found]


def _remarks_of_loss(rank: str, path: Path, tail: dict[str, Curve]) -> list[Remark]:
    if not_finite_since(tail) is None and unchanged_since(tail) is None:
        return []
    curves = read_text(_read_tail(path, _MAX_BYTES))
    if (point := not_finite_since(curves)) is not None:
        return [remarks.non_finite_loss(rank, point.metric, f"{point.axis} {point.x:g}", point.value)]
    if (point := unchanged_since(curves)) is not None:
        return [remarks.constant_loss(rank, point.metric, point.value, len(curves[point.metric].points))]
    return []


def _read_tail(path: Path, size: int) -> str:
    """The last `size` bytes of a log, without an incomplete first line."""
    tail = untrusted.read_tail(str(path), size)
    if len(tail) == size:
        tail = tail.partition(b"\n")[2]
    return tail.decode(errors="replace")
