"""Reads scalars from TensorBoard's event files, as PyTorch's `SummaryWriter.add_scalar` and `tf.summary.scalar` write them.

A file is a list of records (length, its checksum, data, its checksum), each an Event in protocol buffers. Any program may
have written the file, so lengths are limited, a record that is cut off or malformed ends the file, and names are cleaned.
Checksums are not checked: a wrong number in a plot does no harm.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from rowlock.curves.curves import MAX_CURVES, MAX_POINTS, Curve

MAX_FILE = 256 << 20
"""Where reading of one file ends, in bytes from its beginning."""
MAX_RECORD = 1 << 20
"""The most bytes of one event; larger ones (images, models) are skipped."""
MAX_TAG = 100
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_FLOAT_TYPE, _DOUBLE_TYPE = 1, 2
"""Values of `dtype` in a TensorProto."""
_NO_NAME = re.compile(r"[^\w./ ()%@+-]")


class Scalar(NamedTuple):
    """One value. `time`: when it was written, in seconds since the epoch; `tag`: its name."""

    time: float
    step: int
    tag: str
    value: float


class EventFile(NamedTuple):
    """One file. `begun`: seconds since the epoch, from its name; `place`: its directory, relative to the one that was searched."""

    path: str
    begun: float
    place: str


@dataclass(frozen=True, slots=True)
class RunPlaces:
    """Where a run may have written event files. Times in seconds since the epoch."""

    uid: str
    namespace: str
    namespace_uid: str
    checkpoints: str
    """The uid under which its checkpoints lie: its own, or that of the run it resumed."""
    directories: tuple[str, ...]
    """Working directories, which other runs may share."""
    pods: Mapping[str, str]
    """Uid → name."""
    users: frozenset[int | None]
    """The users that its pods ask for; None = the server's own."""
    began: float
    ended: float | None


@dataclass(slots=True)
class ReadingBudget:
    """What may still be read for one answer: reading must end, whatever programs have written."""

    bytes: int = 64 << 20
    records: int = 300_000

    @property
    def is_spent(self) -> bool:
        return self.bytes <= 0 or self.records <= 0


def read_scalars(file: BinaryIO, budget: ReadingBudget) -> Iterator[Scalar]:
    """The scalars of one file, in its order, as far as the budget goes. Raises OSError."""
    for event in _read_records(file, budget):
        try:
            yield from _parse_event(event)
        except (ValueError, struct.error):
            continue


def _read_records(file: BinaryIO, budget: ReadingBudget) -> Iterator[bytes]:
    position = 0
    while position < MAX_FILE and not budget.is_spent:
        header = file.read(12)
        if len(header) < 12:
            return
        (length,) = struct.unpack("<Q", header[:8])
        position += 16 + length
        budget.records -= 1
        if length > MAX_FILE:
            return
        if length > MAX_RECORD:
            file.seek(length + 4, 1)
            continue
        data = file.read(length + 4)
        budget.bytes -= len(data)
        if len(data) < length + 4:
            return
        yield data[:length]


class EventCurves:
    """Collects the scalars of a run's files."""

    def __init__(self) -> None:
        self._written: dict[str, dict[str, dict[int, Scalar]]] = {}
        """Tag → place → step → scalar."""

    def add(self, place: str, scalar: Scalar) -> None:
        """Add a value; the last one for a step counts, because a later attempt repeats some steps."""
        if scalar.tag not in self._written and len(self._written) >= MAX_CURVES:
            return
        points = self._written.setdefault(scalar.tag, {}).setdefault(place, {})
        known = points.get(scalar.step)
        if known is None or known.time <= scalar.time:
            points[scalar.step] = scalar

    def curves(self) -> dict[str, Curve]:
        """The curves by name. A name that occurs in several directories gets its directory as a prefix (but for the top one)."""
        found: dict[str, Curve] = {}
        for tag, places in self._written.items():
            for place, points in places.items():
                found[tag if len(places) == 1 or place == "." else f"{place}/{tag}"] = _to_curve(points)
        return dict(list(found.items())[:MAX_CURVES])


def _to_curve(points: Mapping[int, Scalar]) -> Curve:
    """The curve of these points; if there are too many, every n-th is kept, including the last."""
    every = -(-len(points) // MAX_POINTS)
    steps = sorted(points, reverse=True)[::every][::-1]
    return Curve("step", points=[(float(step), points[step].value) for step in steps])


def _parse_event(data: bytes) -> Iterator[Scalar]:
    time, step, summaries = 0.0, 0, []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, float):
            time = value
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes) and (found := _parse_value(value)) is not None:
                yield Scalar(time if math.isfinite(time) else 0.0, step, *found)


def _parse_value(data: bytes) -> tuple[str, float] | None:
    """The tag and the number of a Summary.Value; None when the value is not a scalar."""
    tag, number = "", None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            tag = _NO_NAME.sub("_", value.decode(errors="replace"))[:MAX_TAG]
        elif field == 2 and isinstance(value, float):
            number = value
        elif field == 8 and isinstance(value, bytes):
            number = _parse_tensor(value)
    return (tag, number) if tag and number is not None else None


def _parse_tensor(data: bytes) -> float | None:
    """The number of a tensor without dimensions; None for any other tensor."""
    kind, numbers = 0, []
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes) and any(number == 2 for number, _ in _fields(value)):
            return None  # a tensor with dimensions: a histogram or an image
        elif field in (4, 5, 6):
            numbers += _unpack_numbers(value, double=field == 6 or (field == 4 and kind == _DOUBLE_TYPE))
    return numbers[0] if len(numbers) == 1 and kind in (_FLOAT_TYPE, _DOUBLE_TYPE) else None


def _unpack_numbers(value: float | int | bytes, *, double: bool) -> list[float]:
    if isinstance(value, float):
        return [value]
    code, size = ("<d", 8) if double else ("<f", 4)
    return (
        [number for (number,) in struct.iter_unpack(code, value)]
        if isinstance(value, bytes) and len(value) == size
        else []
    )


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the fields of a protocol buffer message in order. Raises ValueError, struct.error when it is malformed."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _read_varint(data, position)
            yield key >> 3, number
        elif kind == _DOUBLE:
            yield key >> 3, float(struct.unpack_from("<d", data, position)[0])
            position += 8
        elif kind == _FLOAT:
            yield key >> 3, float(struct.unpack_from("<f", data, position)[0])
            position += 4
        elif kind == _BYTES:
            size, position = _read_varint(data, position)
            if size > len(data) - position:
                raise ValueError("a field is longer than its message")
            yield key >> 3, data[position : position + size]
            position += size
        else:
            raise ValueError(f"there is no wire type {kind}")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise ValueError("a number does not end")
