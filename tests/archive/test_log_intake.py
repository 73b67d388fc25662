"""What a log costs the archive is bounded by what is kept of it, whatever its pod has made of the file."""

from __future__ import annotations

import errno
import gzip
import itertools
import os
from pathlib import Path

import pytest

from rowlock.archive import log_intake
from rowlock.archive.log_intake import CompressedLog

FIRST, SECOND = (b"2026-11-23T21:00:0%d.000000000Z the %s\n" % (n, word) for n, word in ((1, b"first"), (2, b"second")))
BLOCK = 1 << 16
"""More than the block of any file system: what lies so far apart has a hole between."""
MIB = 1 << 20


def write_pieces(path: Path, pieces: dict[int, bytes], size: int = 0) -> Path:
    """A file with these contents at their offsets, and nothing else up to its size."""
    with path.open("wb") as file:
        for offset, content in pieces.items():
            file.seek(offset)
            file.write(content)
        file.truncate(max(size, file.tell()))
    return path


def take_in(path: Path, limit: int = log_intake.MAX_LOG_BYTES) -> tuple[CompressedLog, bytes]:
    """What is said of a log that is taken in, and its text."""
    target = path.with_name("taken.gz")
    with log_intake.open_regular(str(path)) as source:
        packed = log_intake.compress_log(source, target, limit, check_space=lambda: None)
    text = gzip.decompress(target.read_bytes() if packed.body is None else packed.body)
    assert packed.size == len(text)
    return packed, text


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ({}, b""),
        ({0: FIRST}, FIRST),
        ({BLOCK: b"half a line\n" + FIRST}, FIRST),
        ({0: FIRST, 1 << 32: SECOND}, FIRST + SECOND),
        ({0: FIRST, (1 << 32) + 77: SECOND}, FIRST + SECOND),
        ({(1 << 32) + 77: FIRST, (1 << 32) + BLOCK * 3: SECOND}, FIRST + SECOND),
        ({0: FIRST + b"\0 is text\n"}, FIRST + b"\0 is text\n"),
    ],
    ids=["nothing", "one line", "the beginning gone", "a hole", "within a block", "no beginning", "zeros"],
)
def test_holes_are_not_read(tmp_path: Path, pieces: dict[int, bytes], text: bytes) -> None:
    """A pod that had truncated its log to a few TiB held the archive for hours."""
    for size in (0, 8 << 30):
        assert take_in(write_pieces(tmp_path / "log", pieces, size))[1] == text


def test_of_too_much_the_newest_is_kept_and_a_line_says_so(tmp_path: Path) -> None:
    lines = [b"2026-11-23T21:%02d:%02d.000000000Z line\n" % divmod(n, 60) for n in range(3000)]
    path = write_pieces(tmp_path / "log", {0: b"".join(lines)})
    packed, text = take_in(path, 1000)
    said, *kept = text.splitlines(keepends=True)
    assert kept == lines[-len(kept) :] and 900 < sum(map(len, kept)) <= 1000
    assert b"rowlock: older lines are left out" in said and b"1000 bytes" in said
    assert packed.began == log_intake.line_time(said) == log_intake.line_time(kept[0])
    assert take_in(path, os.path.getsize(path))[1] == b"".join(lines)


def test_of_too_many_pieces_the_newest_are_kept(tmp_path: Path) -> None:
    path = write_pieces(tmp_path / "log", {n * BLOCK: b"x" * (BLOCK // 2) for n in range(10)} | {10 * BLOCK: FIRST})
    _, text = take_in(path, BLOCK)
    assert text.count(b"x") <= BLOCK and text.endswith(b"x" + FIRST)


def test_zeros_that_were_written_are_no_more_than_text(tmp_path: Path) -> None:
    for end in (b"", FIRST):
        packed, text = take_in(write_pieces(tmp_path / "log", {0: b"\0" * (3 * MIB) + end}), MIB)
        assert packed.size < MIB + 200 and b"rowlock: older lines" in text and text.endswith(end)


@pytest.mark.parametrize("trouble", ["system", "file system"])
def test_where_holes_are_not_known_the_newest_bytes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    def refuse(fd: int, position: int, whence: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    path = write_pieces(tmp_path / "log", {(8 << 30): FIRST})
    if trouble == "system":
        monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    else:
        monkeypatch.setattr(os, "lseek", refuse)
    packed, text = take_in(path, MIB)
    assert packed.size < MIB + 200 and text.endswith(FIRST)


def test_a_file_of_endless_pieces_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pieces(tmp_path / "log", {n * BLOCK: b"x" for n in range(100)} | {100 * BLOCK: FIRST})
    monkeypatch.setattr(log_intake, "_MAX_PIECES", 10)
    looks, seek = itertools.count(), os.lseek

    def count(fd: int, position: int, whence: int) -> int:
        next(looks)
        return seek(fd, position, whence)

    monkeypatch.setattr(os, "lseek", count)
    packed, text = take_in(path, 4 * BLOCK)
    assert packed.size <= 4 * BLOCK + 200 and text.endswith(FIRST)
    assert next(looks) <= 20


def test_a_log_is_not_what_fills_the_disk(tmp_path: Path) -> None:
    """Space is asked for before each MiB of it, not once."""
    path, target = write_pieces(tmp_path / "log", {0: os.urandom(5 * MIB)}), tmp_path / "taken.gz"
    asked = itertools.count(1)

    def check_space() -> None:
        if next(asked) == 3:
            raise OSError(errno.ENOSPC, "less than 64 MiB are free")

    with log_intake.open_regular(str(path)) as source, pytest.raises(OSError, match="64 MiB"):
        log_intake.compress_log(source, target, check_space=check_space)
    assert os.listdir(tmp_path) == ["log"]
