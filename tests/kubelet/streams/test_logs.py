"""Reading logs: stamps off, tail, since, limits, follow; whatever way the bytes are cut."""

import asyncio
import ctypes
import os
import re
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

from rowlock.api import LogOptions
from rowlock.kubelet.files import log_writer
from rowlock.kubelet.files.log_writer import TIMESTAMP_WIDTH, LineTimestamper, LogFile, punch
from rowlock.kubelet.streams import logs
from rowlock.kubelet.streams.logs import LogWatcher, TimestampStripper, read
from rowlock.objects import seconds

LINES = [(f"2026-01-01T00:00:{i:02}.000000001Z ", f"line {i}") for i in range(10)]
STORED = "".join(f"{stamp}{text}\n" for stamp, text in LINES).encode()
TEXT = "".join(f"{text}\n" for _, text in LINES).encode()


def _read(path: Path, **options: object) -> bytes:
    async def whole() -> bytes:
        chosen = LogOptions(**options)  # type: ignore[arg-type] # names of options
        return b"".join([p async for p in read(path, chosen, lambda: True, asyncio.Event(), LogWatcher())])

    return asyncio.run(whole())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log.0").write_bytes(STORED)
    return tmp_path / "log.0"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TEXT),
        ({"timestamps": True}, STORED),
        ({"tail": 2}, b"line 8\nline 9\n"),
        ({"tail": 0}, b""),
        ({"tail": 99}, TEXT),
        ({"limit_bytes": 6}, b"line 0"),
        ({"tail": 1, "limit_bytes": 3}, b"lin"),
        ({"since": seconds("2026-01-01T00:00:08Z")}, b"line 8\nline 9\n"),
        ({"since": seconds("2026-01-01T00:00:08Z"), "tail": 1}, b"line 9\n"),
        ({"since": seconds("2027-01-01T00:00:00Z")}, b""),
        ({"since": 0.0}, TEXT),
        ({"follow": True}, TEXT),
    ],
)
def test_options(path: Path, options: dict[str, object], expected: bytes) -> None:
    assert _read(path, **options) == expected


def test_a_last_line_without_end(path: Path) -> None:
    path.write_bytes(STORED[:-1])
    assert _read(path) == TEXT[:-1] and _read(path, tail=1) == b"line 9"


@pytest.mark.parametrize("size", [1, 2, 7, TIMESTAMP_WIDTH - 1, TIMESTAMP_WIDTH, TIMESTAMP_WIDTH + 1, 100])
def test_stamps_come_off_however_the_stream_is_cut(size: int) -> None:
    plain = TimestampStripper()
    assert b"".join(plain(STORED[i : i + size]) for i in range(0, len(STORED), size)) == TEXT
    plain = TimestampStripper()
    assert b"".join(plain(STORED[i : i + size]) for i in range(0, len(STORED) - 1, size)).startswith(TEXT[:-size])


@pytest.mark.parametrize("chunks", [[b"a\nb\n"], [b"a", b"b\nc"], [b"\n\n"], [b"a\n", b"\nb"], [b"x" * 70000, b"\n"]])
def test_what_is_stamped_is_read_back(tmp_path: Path, chunks: list[bytes]) -> None:
    stamp = LineTimestamper()
    (tmp_path / "log.0").write_bytes(b"".join(stamp(chunk) for chunk in chunks))
    assert _read(tmp_path / "log.0") == b"".join(chunks)


@pytest.mark.parametrize("tail", [1, 9_000, 10_000, 19_999, 20_000, 20_001, 10**17])
@pytest.mark.parametrize("end", [b"", b"a line without end"])
def test_the_last_lines_of_a_long_log(path: Path, tail: int, end: bytes) -> None:
    lines = [f"{LINES[0][0]}line {n}\n".encode() for n in range(20_000 - bool(end))] + [
        LINES[0][0].encode() + end
    ] * bool(end)
    path.write_bytes(b"".join(lines))
    assert _read(path, tail=tail, timestamps=True) == b"".join(lines[-tail:])
    assert _read(path, tail=tail, timestamps=True, since=0.0) == b"".join(lines[-tail:])


def _note_searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """For each search for the last lines: how far back it may go, and whether it holds up the event loop."""
    searches, search, loop_thread = list[tuple[int, bool]](), logs._tail_offset, threading.get_ident()

    def noted(file: BinaryIO, bounds: tuple[int, int], lines: int) -> int:
        searches.append((bounds[1] - bounds[0], threading.get_ident() == loop_thread))
        return search(file, bounds, lines)

    monkeypatch.setattr(logs, "_tail_offset", noted)
    return searches


def test_a_long_search_for_the_last_lines_holds_up_nobody_and_a_short_one_asks_no_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(STORED * 10_000)
    searches = _note_searches(monkeypatch)
    assert _read(path, tail=10) == TEXT
    assert searches == [(logs._BLOCK, True)]
    searches.clear()
    assert _read(path, tail=50_000) == TEXT * 5_000
    assert searches == [(logs._BLOCK, True), (len(STORED) * 10_000, False)]


def test_the_last_lines_are_looked_for_no_further_back_than_a_log_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have made its log one line of 4 GiB, with a byte here and there in it."""
    searches, limit = _note_searches(monkeypatch), 1 << 20
    with path.open("wb") as file:
        for offset in range((1 << 32) - (1 << 24), 1 << 32, 1 << 18):
            os.pwrite(file.fileno(), b"x", offset)

    async def first_piece() -> None:
        log = read(path, LogOptions(tail=1), lambda: True, asyncio.Event(), LogWatcher(), log_limit=limit)
        await anext(log)
        await log.aclose()  # type: ignore[attr-defined] # it is a generator

    asyncio.run(first_piece())
    assert max(length for length, _ in searches) <= limit
    path.write_bytes(STORED * 10_000)  # more than is kept, as after a start with a smaller limit: whole lines, too
    searches.clear()

    async def whole() -> bytes:
        options, woken = LogOptions(tail=10**6), asyncio.Event()
        return b"".join([p async for p in read(path, options, lambda: True, woken, LogWatcher(), log_limit=limit)])

    assert (TEXT * 10_000).endswith(b"\n" + asyncio.run(whole()))
    assert limit - 100 < searches[-1][0] <= limit


def test_a_log_is_read_in_pieces_of_the_size_that_is_asked_for(path: Path) -> None:
    async def pieces() -> list[bytes]:
        options = LogOptions(timestamps=True, read_size=100)
        return [p async for p in read(path, options, lambda: True, asyncio.Event(), LogWatcher())]

    read_pieces = asyncio.run(pieces())
    assert b"".join(read_pieces) == STORED and max(map(len, read_pieces)) == 100


def test_only_a_follower_watches_the_file_and_no_library_is_opened_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ctypes, "CDLL")
    watched, watch_file = list[Path](), LogWatcher.watch_file

    def noted(self: LogWatcher, path: Path, woken: asyncio.Event) -> AbstractContextManager[bool]:
        watched.append(path)
        return watch_file(self, path, woken)

    monkeypatch.setattr(LogWatcher, "watch_file", noted)
    assert _read(path) == TEXT and not watched
    assert _read(path, follow=True) == TEXT and watched == [path]


def test_stamping_is_cheap() -> None:
    chunk, stamp = b"a line of output as programs write them, some words\n" * 1260, LineTimestamper()
    begin = time.process_time()
    for _ in range(160):
        stamp(chunk)
    assert time.process_time() - begin < 2, "10 MiB took two seconds of CPU; a pod may write 100 MB/s"


def test_a_follower_is_woken_by_new_lines_and_by_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.0"
    path.write_bytes(b"")

    async def body() -> None:
        over, done, watcher = asyncio.Event(), False, LogWatcher()
        follower = read(path, LogOptions(follow=True), lambda: done, over, watcher)
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        for stamp, text in LINES[:3]:
            waiting = asyncio.ensure_future(anext(follower))
            await asyncio.sleep(0)
            os.write(file, f"{stamp}{text}\n".encode())
            assert await asyncio.wait_for(waiting, 200) == f"{text}\n".encode()
        last = asyncio.ensure_future(_rest(follower))
        await asyncio.sleep(0)
        os.write(file, STORED[-(TIMESTAMP_WIDTH + 7) :])
        done = True
        over.set()
        assert await asyncio.wait_for(last, 200) == b"line 9\n"
        os.close(file)
        watcher.close()

    asyncio.run(body())


async def _rest(follower: object) -> bytes:
    return b"".join([piece async for piece in follower])  # type: ignore[attr-defined] # an async iterator


def test_no_file_is_an_empty_log(tmp_path: Path) -> None:
    assert _read(tmp_path / "none") == b""


def _written(path: Path, lines: int, limit: int) -> None:
    log = LogFile(str(path), limit)
    for first in range(0, lines, 500):
        log.write(b"".join(b"line %07d of the noisy program\n" % n for n in range(first, first + 500)))
    os.close(log._fd)


def _holes(path: Path) -> bool:
    with path.open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        return punch(file.fileno(), 0, 1 << 19)


def test_only_the_newest_part_of_a_log_is_kept(tmp_path: Path) -> None:
    if not _holes(tmp_path / "probe"):
        pytest.skip("files cannot have holes here")
    path, limit = tmp_path / "log.0", 1 << 20
    _written(path, 100_000, limit)
    told = path.stat()
    assert told.st_size > 6 << 20 and told.st_blocks * 512 <= limit + (64 << 10)
    kept = _read(path).splitlines()
    assert kept[-1] == b"line 0099999 of the noisy program" and len(kept) > 8_000
    first = int(kept[0].split()[1])
    assert kept == [b"line %07d of the noisy program" % n for n in range(first, 100_000)]
    assert _read(path, tail=2).count(b"\n") == 2 and _read(path, tail=10**6).splitlines() == kept
    assert _read(path, since=0.0).splitlines() == kept
    assert b"\0" not in _read(path, timestamps=True)


def test_a_follower_that_was_slower_than_the_log_goes_on_with_what_is_kept(tmp_path: Path) -> None:
    if not _holes(tmp_path / "probe"):
        pytest.skip("files cannot have holes here")
    path, over = tmp_path / "log.0", False

    async def whole() -> list[bytes]:
        pieces = []
        async for piece in read(path, LogOptions(follow=True), lambda: over, asyncio.Event(), LogWatcher()):
            pieces.append(piece)
            if len(pieces) == 1:
                ended()
        return pieces

    def ended() -> None:
        nonlocal over
        with path.open("r+b") as file:
            assert punch(file.fileno(), 0, path.stat().st_size // 2 // 65536 * 65536)
        over = True

    _written(path, 40_000, 1 << 30)
    lines = b"".join(asyncio.run(whole())).split(b"\n")
    whole_lines = [n for n in lines if n.startswith(b"line ") and n.endswith(b"program")]
    assert whole_lines[0].startswith(b"line 0000000") and whole_lines[-1].startswith(b"line 0039999")
    assert len(lines) - len(whole_lines) <= 2 and b"\0" not in b"".join(lines)


@pytest.mark.parametrize("timestamps", [True, False])
def test_what_a_slow_follower_has_missed_is_said_where_it_is_missing(tmp_path: Path, *, timestamps: bool) -> None:
    if not _holes(tmp_path / "probe"):
        pytest.skip("files cannot have holes here")
    path, pieces = tmp_path / "log.0", list[bytes]()
    _written(path, 40_000, 1 << 30)
    size, half = path.stat().st_size, path.stat().st_size // 2 // 65536 * 65536

    async def follow() -> None:
        options = LogOptions(follow=True, timestamps=timestamps)
        async for piece in read(path, options, lambda: bool(pieces), asyncio.Event(), LogWatcher()):
            if not pieces:
                with path.open("r+b") as file:
                    assert punch(file.fileno(), 0, half)
            pieces.append(piece)

    asyncio.run(follow())
    first, rest = pieces[0], b"".join(pieces[1:])
    said = re.search(rb"(?:^|\n)([^\n]*)rowlock: (\d+) bytes of this log are missing here: [^\n]*\n", rest)
    assert said is not None and b"are missing here" not in rest[said.end() :]
    before, after = first + rest[: said.start()], rest[said.end() :]
    assert after.endswith(b"line 0039999 of the noisy program\n")
    if timestamps:
        assert len(before) + int(said[2]) + len(after) == size
        assert said[1] == after[:31]  # it stands at the time of the next line, where logs are merged
    else:
        assert said[1] == b"" and after.startswith(b"line ") and b"\0" not in before + after


def test_where_files_cannot_have_holes_an_old_log_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "punch", lambda *_: False)
    _written(tmp_path / "log.0", 100_000, 1 << 20)
    assert (tmp_path / "log.0").stat().st_size <= 1 << 20
    assert _read(tmp_path / "log.0").endswith(b"line 0099999 of the noisy program\n")
