"""Logs of the archive are read piece by piece, whatever is in them and whatever of them is wanted."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from rowlock.api import LogOptions
from rowlock.archive.archive import Archive
from rowlock.archive.log_intake import _MAX_LINE, FileChunks, read_lines
from rowlock.archive.reading import _HELD_LINES, _select_lines
from rowlock.archive.records import LogRecord

NOBODY = cast(sqlite3.Connection, None)


def pack(path: Path, text: bytes) -> FileChunks:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    path.write_bytes(compressor.compress(text) + compressor.flush())
    return FileChunks(path)


@pytest.mark.parametrize("tail", [0, 1, _HELD_LINES, _HELD_LINES + 1, 4_999, 5_000, 10**9])
def test_the_last_lines(tmp_path: Path, tail: int) -> None:
    chunks = pack(tmp_path / "log", b"".join(b"2026-11-25T00:00:00.000000 line %d\n" % n for n in range(5_000)))
    found = list(_select_lines(chunks, LogOptions(tail=tail)))
    assert found == [b"line %d\n" % n for n in range(max(0, 5_000 - tail), 5_000)]
    since = list(_select_lines(chunks, LogOptions(tail=tail, since=2e9)))
    assert since == []


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    lines = list(read_lines(pack(tmp_path / "log", b"x" * (5 * _MAX_LINE) + b"\nlast\n")))
    assert lines[-1] == b"last\n" and max(map(len, lines)) < 2 * _MAX_LINE
    assert sum(line.count(b"x") for line in lines) == 5 * _MAX_LINE


def test_a_large_log_is_not_held(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.logs.mkdir()
    record: Any = LogRecord("u", "main", 0, "", "ns", "p", 0.0, 1, 1, "u.main.0.gz")
    assert list(archive.read_log_chunks(NOBODY, record)) == []
    (archive.logs / record.file).write_bytes(b"x" * (1 << 20))
    chunks = archive.read_log_chunks(NOBODY, record)
    assert max(map(len, chunks)) < 1 << 17 and sum(map(len, chunks)) == 1 << 20
