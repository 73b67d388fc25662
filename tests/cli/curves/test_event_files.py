"""TensorBoard's event files: what libraries wrote is read; what an enemy wrote costs nothing and breaks nothing."""

from __future__ import annotations

import base64
import math
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from rowlock.cli.curves.event_directories import find_event_files, read_event_curves
from rowlock.cli.curves.event_files import MAX_RECORD, MAX_TAG, read_scalars
from rowlock.cli.curves.tensorboard import _make_links

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


def write(path: Path, *records: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))
    return str(path)


def test_what_libraries_write_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "f", WRITTEN, record(TENSOR), record(HISTOGRAM))
    found = [(scalar.tag, scalar.step, scalar.value) for scalar in read_scalars(path)]
    assert found == [("train/loss", 1, 0.5), ("train/loss", 2, 0.25), ("accuracy", 7, 0.75)]


def test_a_file_that_is_still_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    for length in range(len(WRITTEN)):
        assert len(list(read_scalars(write(tmp_path / "f", WRITTEN[:length])))) <= 2
    assert len(list(read_scalars(write(tmp_path / "f", WRITTEN[:-1])))) == 1


def test_noise_is_passed_over(tmp_path: Path) -> None:
    """Whatever bytes there are: no error, no endless loop, and what stands before and behind in whole records is read."""
    draw = random.Random(7)
    for _ in range(300):
        damaged = bytearray(draw.randbytes(draw.randrange(60)) if draw.random() < 0.5 else TENSOR)
        if damaged:
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path = write(tmp_path / "f", record(event(b"a", 1.0)), record(bytes(damaged)), record(event(b"b", 2.0)))
        tags = [scalar.tag for scalar in read_scalars(path)]
        assert tags[0] == "a" and tags[-1] == "b"
        list(read_scalars(write(tmp_path / "g", draw.randbytes(500))))


def test_lengths_that_lie_cost_nothing(tmp_path: Path) -> None:
    lies = struct.pack("<QI", 1 << 62, 0)
    assert list(read_scalars(write(tmp_path / "f", lies, WRITTEN))) == []
    image = record(b"x" * (MAX_RECORD + 1))
    assert len(list(read_scalars(write(tmp_path / "f", image, WRITTEN)))) == 2, "a large image is passed over"
    endless = b"\x2a" + b"\xff" * 12
    assert list(read_scalars(write(tmp_path / "f", record(endless)))) == []


def test_names_and_numbers_are_harmless(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f",
        record(event(b"a\x1b[2Jb\n", 1.0)),
        record(event(b"t" * 110, 1.0)),
        record(event(b"loss", math.nan, time=math.inf)),
        record(event(b"", 1.0)),
    )
    first, second, third = read_scalars(path)
    assert first.tag == "a__2Jb_" and len(second.tag) == MAX_TAG and math.isnan(third.value) and third.time == 0.0


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.out.tfevents.1000.h")
    assert list(read_scalars(str(tmp_path / "events.out.tfevents.1000.h"))) == []
    (tmp_path / "link").symlink_to(tmp_path / "events.out.tfevents.1000.h")
    with pytest.raises(OSError, match="symbolic"):
        list(read_scalars(str(tmp_path / "link")))


# ---------------------------------------------------------------- whose they are


def run_of(directory: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "fit",
        "id": "0123456789",
        "checkpointsOf": "uid-1",
        "createdAt": "1970-01-01T00:16:40Z",
        "finishedAt": "1970-01-01T00:33:20Z",
        "deletedAt": None,
        "ranks": [{"pod": "fit-master-0"}],
        "ran": {"workingDir": str(directory), "code": None},
        **more,
    }


def test_a_file_of_another_run_in_the_same_directory_is_not_taken(tmp_path: Path) -> None:
    work, data = tmp_path / "work", tmp_path / "data"
    mine = [
        write(data / "checkpoints" / "uid-1" / "tb" / "events.out.tfevents.5.host", WRITTEN),
        write(work / "runs" / "events.out.tfevents.1500.fit-master-0", WRITTEN),
        write(work / "runs" / "events.out.tfevents.1600.my-laptop.7.v2", WRITTEN),
    ]
    write(work / "runs" / "events.out.tfevents.900.my-laptop", WRITTEN)
    write(work / "runs" / "events.out.tfevents.900.fit-master-0", WRITTEN)
    write(work / "runs" / "events.out.tfevents.1500.other-worker-1", WRITTEN)
    write(work / "runs" / "events.out.tfevents.3000.my-laptop", WRITTEN)
    write(work / ".git" / "events.out.tfevents.1500.my-laptop", WRITTEN)
    (work / "loop").symlink_to(work)
    assert [file.path for file in find_event_files(str(data), run_of(work))] == mine
    unfinished = run_of(work, finishedAt=None)
    assert len(find_event_files(str(data), unfinished)) == 4, "it may still write"


def test_curves_of_one_name_in_several_directories_are_told_apart(tmp_path: Path) -> None:
    for place, value in (("train", 1.0), ("val", 2.0)):
        records = [record(event(b"loss", value, step, time=step)) for step in (1, 2)]
        write(tmp_path / place / "events.out.tfevents.1500.h", *records)
    write(
        tmp_path / "val" / "events.out.tfevents.1501.h",
        record(event(b"loss", 9.0, 2, time=9.0)),
        record(event(b"lr", 0.5)),
    )
    curves = read_event_curves(str(tmp_path / "data"), run_of(tmp_path))
    assert {name: curve.points for name, curve in curves.items()} == {
        "train/loss": [(1.0, 1.0), (2.0, 1.0)],
        "val/loss": [(1.0, 2.0), (2.0, 9.0)],
        "lr": [(1.0, 0.5)],
    }


def test_links_are_those_of_now(tmp_path: Path) -> None:
    top, (one, two) = tmp_path / "links", (write(tmp_path / name, b"") for name in ("one", "two"))
    _make_links(str(top), {str(top / "a b" / "f"): one, str(top / "c" / "f"): two})
    _make_links(str(top), {str(top / "a b" / "f"): two})
    assert os.readlink(top / "a b" / "f") == two and not os.path.lexists(top / "c" / "f")
