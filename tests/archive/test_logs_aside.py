"""A kubelet puts logs aside while the archive takes others of the same pod: whatever comes in between, none is lost."""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import remove_pod

from rowlock.archive import database, log_intake
from rowlock.archive.archive import Archive
from rowlock.archive.database import Statement
from rowlock.kubelet.pod.directory import EARLIER_RUNS, PodCard, PodDirectories

CARD = PodCard("runai-default", "train-worker-0", "uid-1", "node", "", 5.0, owner="job-1")


class InterruptedArchive(Archive):
    """Something happens in the middle of a round: what was found is being written."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def _store(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> None:
        super()._store(connection, statements)
        happens, self.meanwhile = self.meanwhile, lambda: None
        happens()

    def work(self, connection: sqlite3.Connection) -> None:
        """One round of its thread, which looks around as well."""
        self._last_look = float("-inf")
        self._work_round(connection)


def open_archive(data: Path) -> InterruptedArchive:
    archive = InterruptedArchive(data / "archive")
    archive.watch_spool(data / "logs")
    archive.watch_spool(data / "logs" / EARLIER_RUNS)
    return archive


@pytest.fixture
def archive(tmp_path: Path) -> InterruptedArchive:
    return open_archive(tmp_path)


@pytest.fixture
def connection(archive: InterruptedArchive) -> Iterator[sqlite3.Connection]:
    with closing(archive._open()) as connection:
        yield connection


@pytest.fixture
def directories(archive: InterruptedArchive, tmp_path: Path) -> PodDirectories:
    directories = PodDirectories(tmp_path, archive.take_logs)
    directories.write_card(CARD)
    return directories


def write_log(directories: PodDirectories, container: str, run: int = 0) -> None:
    directory = directories.container_directory(CARD.uid, container)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"log.{run}").write_bytes(b"2026-11-23T21:00:00.000000000Z hello\n")


def archived(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    return [(log.container, log.number) for log in database.read_logs(connection, CARD.owner)]


def begin_third_run(directories: PodDirectories, container: str) -> None:
    """The log of the first one goes aside."""
    write_log(directories, container)
    directories.drop_old_runs(CARD, container, 2)


def interrupt(monkeypatch: pytest.MonkeyPatch, call: int, happens: Callable[[], object]) -> None:
    """Something happens once, before this one of the calls that change directories."""
    calls = itertools.count()

    def wrap(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*args: Any, **options: Any) -> None:
            if next(calls) == call:
                happens()
            change(*args, **options)

        return changed

    for name in ("mkdir", "rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))


def remove_with(directories: PodDirectories, container: str) -> None:
    write_log(directories, container)
    remove_pod(directories, CARD)


@pytest.mark.parametrize("is_killed", [False, True], ids=["the server goes on", "the server is killed"])
def test_a_log_that_comes_while_others_are_taken_is_taken(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    tmp_path: Path,
    *,
    is_killed: bool,
) -> None:
    """Its announcement was swallowed, and its directory marked as archived."""
    remove_with(directories, "first")

    def put_second_aside() -> None:
        remove_with(directories, "second")
        if is_killed:  # before the archive comes to it
            archive._directories.clear()

    archive.meanwhile = put_second_aside
    archive.work(connection)
    if is_killed:
        archive = open_archive(tmp_path)
        archive.work(connection)
    assert sorted(archived(connection)) == [("first", 0), ("second", 0)]
    assert not archive._directories and log_intake.find_new_directories(tmp_path / "logs") == []


def test_a_log_that_comes_when_others_are_taken_is_found_by_the_next_server(
    archive: InterruptedArchive, connection: sqlite3.Connection, directories: PodDirectories, tmp_path: Path
) -> None:
    remove_with(directories, "first")
    archive.work(connection)
    remove_with(directories, "second")
    open_archive(tmp_path).work(connection)
    assert sorted(archived(connection)) == [("first", 0), ("second", 0)]


def test_what_could_not_be_written_waits(
    archive: InterruptedArchive, connection: sqlite3.Connection, directories: PodDirectories
) -> None:
    remove_with(directories, "first")

    def fail() -> None:
        raise OSError(28, "No space left on device")

    archive.meanwhile = fail
    with pytest.raises(OSError, match="No space"):
        archive.work(connection)
    assert len(archive._directories) == 1
    archive.work(connection)
    assert not archive._directories


def test_the_archive_may_look_at_any_moment(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log whose owner came later was the log of no job."""
    rename = os.rename

    def rename_and_look(*paths: str | Path) -> None:
        rename(*paths)
        archive.work(connection)

    write_log(directories, "first")
    write_log(directories, "second")
    monkeypatch.setattr(os, "rename", rename_and_look)
    remove_pod(directories, CARD)
    archive.work(connection)
    assert sorted(archived(connection)) == [("first", 0), ("second", 0)]


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("who", ["the kubelet", "the archive"])
def test_an_earlier_runs_log_is_taken_whoever_is_interrupted(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    monkeypatch: pytest.MonkeyPatch,
    *,
    who: str,
    call: int,
) -> None:
    """The archive removes a directory that it has emptied, into which the kubelet moves the next one."""

    def put_aside() -> None:
        begin_third_run(directories, "second")

    def take() -> None:
        archive.work(connection)

    begin_third_run(directories, "first")
    interrupted, *others = (put_aside, take) if who == "the kubelet" else (take, put_aside)
    with monkeypatch.context() as patch:
        interrupt(patch, call, lambda: others.pop()())
        interrupted()
    for late in others:  # there were fewer calls
        late()
    archive.work(connection)
    assert sorted(archived(connection)) == [("first", 0), ("second", 0)]
    assert os.listdir(directories.logs / EARLIER_RUNS) == []


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.ENOENT], ids=["a full disk", "no attempt is left"])
def test_a_log_that_cannot_be_put_aside_stays_until_its_pod_goes(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    monkeypatch: pytest.MonkeyPatch,
    refusal: int,
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(refusal, os.strerror(refusal))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        begin_third_run(directories, "first")
    assert (directories.container_directory(CARD.uid, "first") / "log.0").exists()
    remove_pod(directories, CARD)
    archive.work(connection)
    assert archived(connection) == [("first", 0)]


@pytest.mark.parametrize(
    "make", [lambda p: p.symlink_to("/etc/passwd"), os.mkfifo, os.mkdir], ids=["link", "fifo", "dir"]
)
def test_what_a_program_has_put_in_its_logs_place_is_no_log(
    directories: PodDirectories, make: Callable[[Path], None]
) -> None:
    container = directories.container_directory(CARD.uid, "first")
    container.mkdir()
    make(container / "log.0")
    directories.drop_old_runs(CARD, "first", 2)
    assert os.listdir(container) == [] and not (directories.logs / EARLIER_RUNS).exists()


def refuse_bad_log(monkeypatch: pytest.MonkeyPatch, logs: Path, call: str, code: int) -> None:
    """Every `call` for the log of the container `bad`, or for what else its directory needs, fails with this error."""
    real, (bad,) = getattr(os, call), list(logs.rglob("bad.0.log"))

    def refused(what: Any, *args: Any, **options: Any) -> Any:
        is_bad = os.path.samestat(os.fstat(what), bad.stat()) if isinstance(what, int) else what == str(bad)
        if is_bad or str(what).endswith((".owner.json", CARD.uid)):
            raise OSError(code, os.strerror(code), str(bad))
        return real(what, *args, **options)

    monkeypatch.setattr(os, call, refused)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "scandir", "pread"])
@pytest.mark.parametrize("put_aside", [begin_third_run, remove_with])
def test_a_shortage_loses_no_log(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    monkeypatch: pytest.MonkeyPatch,
    *,
    put_aside: Callable[[PodDirectories, str], None],
    call: str,
    code: int,
) -> None:
    """The only copy was deleted, or was the log of no job."""
    put_aside(directories, "bad")
    with monkeypatch.context() as patch:
        refuse_bad_log(patch, directories.logs, call, code)
        with pytest.raises(OSError, match=os.strerror(code)):
            archive.work(connection)
    archive.work(connection)
    assert archived(connection) == [("bad", 0)]


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "pread"])
def test_a_log_that_cannot_be_read_stops_no_other(
    archive: InterruptedArchive,
    connection: sqlite3.Connection,
    directories: PodDirectories,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    call: str,
    code: int,
) -> None:
    """The archive tried it again every five seconds, and did nothing else."""
    for container in ("bad", "good"):
        write_log(directories, container)
    remove_pod(directories, replace(CARD, owner=""))
    refuse_bad_log(monkeypatch, directories.logs, call, code)
    archive.work(connection)
    texts = {
        log.container: zlib.decompress(database.read_log_body(connection, log) or b"", 31)
        for log in database.read_logs(connection, "")
    }
    assert b"hello" in texts["good"]
    told = texts["bad"].decode() if call == "pread" else caplog.text
    assert "cannot be read" in told and os.strerror(code) in told
    assert not archive._directories


def test_what_could_be_read_of_a_log_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, path = os.pread, tmp_path / "log"
    path.write_bytes(b"x" * (2 << 20))

    def read_first_only(fd: int, size: int, offset: int) -> bytes:
        if offset:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", read_first_only)
    with log_intake.open_regular(str(path)) as source:
        packed = log_intake.compress_log(source, tmp_path / "taken.gz", check_space=lambda: None)
    first, said = zlib.decompress(packed.body or b"", 31).splitlines()
    assert first == b"x" * (1 << 20) and b" rowlock: the rest of this log cannot be read: " in said
