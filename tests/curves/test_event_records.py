"""TensorBoard's event files: what libraries wrote is read; what an enemy wrote costs nothing and breaks nothing."""

from __future__ import annotations

import base64
import io
import math
import random
import struct

from rowlock.curves.event_records import MAX_RECORD, MAX_TAG, EventCurves, ReadingBudget, Scalar, read_scalars

WRITTEN = base64.b64decode(
    "GAAAAAAAAACjf0siCXfYfd2TwdpBGg1icmFpbi5FdmVudDoyPjAeNCAAAAAAAAAAKe2pUAlDgH7dk8HaQRABKhMKEQoKdHJhaW4vbG9zcxUAAAA/orxMbyAA"
    "AAAAAAAAKe2pUAn+iH7dk8HaQRACKhMKEQoKdHJhaW4vbG9zcxUAAIA+HHb+1g=="
)
"""By tensorboardX 2.6: train/loss 0.5 at step 1, 0.25 at step 2."""
TENSOR = base64.b64decode("CQAAAAAAAFlAEAcqJQojCghhY2N1cmFjeUIKCAESACoEAABAP0oLCgkKB3NjYWxhcnM=")
"""An event with TensorBoard 2.21's own messages, as tf.summary.scalar writes it: accuracy 0.75 at step 7."""
HISTOGRAM = base64.b64decode(
    "CQAAAAAAQFlAEAgqYApeCgRoaXN0QlYIAhIIEgIIAxICCAMiSAAAAAAAAPA/AAAAAAAA8D8AAAAAAADwPwAAAAAAAPA/AAAAAAAA8D8AAAAAAADwPwAAAAAA"
    "APA/AAAAAAAA8D8AAAAAAADwPw=="
)
"""The same with a tensor of 3 x 3."""


def record(data: bytes) -> bytes:
    return struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0)


def event(tag: bytes, value: float, step: int = 1, time: float = 0.0) -> bytes:
    """An Event with one scalar; for short tags and small steps."""
    inner = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return b"\x09" + struct.pack("<d", time) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary


def read(*records: bytes, budget: ReadingBudget | None = None) -> list[Scalar]:
    return list(read_scalars(io.BytesIO(b"".join(records)), budget or ReadingBudget()))


def test_what_libraries_write_is_read() -> None:
    found = [(scalar.tag, scalar.step, scalar.value) for scalar in read(WRITTEN, record(TENSOR), record(HISTOGRAM))]
    assert found == [("train/loss", 1, 0.5), ("train/loss", 2, 0.25), ("accuracy", 7, 0.75)]


def test_a_file_that_is_still_written_is_read_as_far_as_it_goes() -> None:
    for length in range(len(WRITTEN)):
        assert len(read(WRITTEN[:length])) <= 2
    assert len(read(WRITTEN[:-1])) == 1


def test_noise_is_passed_over() -> None:
    """Whatever bytes there are: no error, no endless loop, and what stands before and behind in whole records is read."""
    draw = random.Random(7)
    for _ in range(300):
        damaged = bytearray(draw.randbytes(draw.randrange(60)) if draw.random() < 0.5 else TENSOR)
        if damaged:
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        found = read(record(event(b"a", 1.0)), record(bytes(damaged)), record(event(b"b", 2.0)))
        assert found[0].tag == "a" and found[-1].tag == "b"
        read(draw.randbytes(500))


def test_lengths_that_lie_cost_nothing() -> None:
    assert read(struct.pack("<QI", 1 << 62, 0), WRITTEN) == []
    assert len(read(record(b"x" * (MAX_RECORD + 1)), WRITTEN)) == 2, "a large image is passed over"
    assert read(record(b"\x2a" + b"\xff" * 12)) == []


def test_reading_ends_with_its_budget() -> None:
    many = record(event(b"loss", 1.0)) * 9
    assert len(read(many, budget=ReadingBudget(records=4))) == 4
    budget = ReadingBudget(bytes=len(many) // 3)
    assert 2 <= len(read(many, budget=budget)) <= 5 and budget.is_spent


def test_names_and_numbers_are_harmless() -> None:
    first, second, third = read(
        record(event(b"a\x1b[2Jb\n", 1.0)),
        record(event(b"t" * 110, 1.0)),
        record(event(b"loss", math.nan, time=math.inf)),
        record(event(b"", 1.0)),
    )
    assert first.tag == "a__2Jb_" and len(second.tag) == MAX_TAG and math.isnan(third.value) and third.time == 0.0


def test_curves_of_one_name_in_several_directories_are_told_apart() -> None:
    collected = EventCurves()
    for place, value in (("train", 1.0), ("val", 2.0)):
        for step in (1, 2):
            collected.add(place, Scalar(float(step), step, "loss", value))
    collected.add("val", Scalar(9.0, 2, "loss", 9.0))
    collected.add("val", Scalar(1.0, 2, "loss", 7.0))
    collected.add("val", Scalar(1.0, 1, "lr", 0.5))
    assert {name: curve.points for name, curve in collected.curves().items()} == {
        "train/loss": [(1.0, 1.0), (2.0, 1.0)],
        "val/loss": [(1.0, 2.0), (2.0, 9.0)],
        "lr": [(1.0, 0.5)],
    }
