"""The archive: what is handed over is there after any end of the server, and its troubles are its own."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import os
import sqlite3
import threading
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rowlock.api import LogOptions
from rowlock.archive import archive as archive_module
from rowlock.archive import database, redaction, retention
from rowlock.archive.archive import Archive
from rowlock.archive.reading import read_archived_log
from rowlock.archive.records import LogRecord, RunRecord
from rowlock.archive.retention import Retention

NOW = 1_800_000_000.0


def run_record(uid: str = "u-1", **fields: object) -> RunRecord:
    record = RunRecord(uid, f"id-{uid}", "train", "runai-default", "ns-1", "default", "PyTorchJob", NOW)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


@asynccontextmanager
async def working(directory: Path, keep: Retention | None = None, spool: Path | None = None) -> AsyncIterator[Archive]:
    archive = Archive(directory / "archive", keep, lambda: NOW)
    if spool is not None:
        archive.watch_spool(spool)
    task = asyncio.create_task(archive.run())
    try:
        yield archive
    finally:
        task.cancel()
        await asyncio.wait({task})


def put_aside(spool: Path, pod: str = "train-worker-0", run: int = 0, lines: int = 3, owner: str = "u-1") -> Path:
    """As a kubelet does with the log of a pod that goes."""
    directory = spool / f"runai-default_{pod}_uid-{pod}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ".owner.json").write_text(f'{{"uid": "{owner}"}}')
    text = "".join(f"2026-11-23T21:00:{n % 60:02}.000000000Z line {n}\n" for n in range(lines))
    (directory / f"main.{run}.log").write_text(text)
    return directory


async def the_log(archive: Archive, record: LogRecord, **options: object) -> list[str]:
    pieces = [piece async for piece in read_archived_log(archive, record, LogOptions(**options))]  # type: ignore[arg-type]
    return b"".join(pieces).decode().splitlines()


def test_the_latest_of_a_key_is_written_and_read_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with working(tmp_path) as archive:
            archive.put("run/u-1", database.put_run(run_record(phase="Running")))
            archive.put("run/u-1", database.put_run(run_record(phase="Failed", body={"job": {"a": 1}})))
            assert await archive.settle()
        later = Archive(tmp_path / "archive")
        (record,) = await later.read(lambda d: list(database.read_runs(d)))
        assert (record.phase, record.body) == ("Failed", {"job": {"a": 1}})

    asyncio.run(body())


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with working(tmp_path) as archive:
            await asyncio.sleep(0)
            archive.put("run/u-1", database.put_run(run_record()))
        assert len(await archive.read(database.read_headers)) == 1

    asyncio.run(body())


def test_logs_are_taken_in_wherever_the_server_died(tmp_path: Path) -> None:
    """Put aside while nobody worked: the next server finds them."""
    spool = tmp_path / "logs"
    directory = put_aside(spool, lines=100)
    large = put_aside(spool, pod="train-master-0", lines=0)
    noise = b"".join(b"2026-11-23T21:00:00.000000000Z %s\n" % os.urandom(40).hex().encode() for _ in range(5000))
    (large / "main.0.log").write_bytes(noise)
    earlier = put_aside(spool / ".earlier", run=7)

    async def body() -> None:
        async with working(tmp_path, spool=spool) as archive:
            archive.watch_spool(spool / ".earlier")
            archive.take_logs(str(earlier))
            assert await archive.settle(200)
            while len(records := await archive.read(database.read_logs, "u-1")) < 3:
                await asyncio.sleep(0.01)
            by_run = {(r.pod, r.number): r for r in records}
            small, big = by_run["train-worker-0", 0], by_run["train-master-0", 0]
            assert not small.file and big.file and (archive.logs / big.file).stat().st_size == big.stored
            assert gzip.decompress((archive.logs / big.file).read_bytes()) == noise
            assert await the_log(archive, small, tail=2) == ["line 98", "line 99"]
            assert (await the_log(archive, small, timestamps=True))[0].startswith("2026-11-23T21:00:00")
            assert await the_log(archive, small, limit_bytes=4) == ["line"]
            assert len(await the_log(archive, big)) == 5000
            assert not earlier.exists(), "nobody else reads it"
            assert (directory / ".archived").exists() and (directory / "main.0.log").exists()

    asyncio.run(body())


def test_a_log_that_lost_its_beginning_begins_with_a_line(tmp_path: Path) -> None:
    directory = put_aside(tmp_path / "logs", lines=0)
    with (directory / "main.0.log").open("wb") as file:
        file.truncate(1 << 20)  # given back to the disk
        file.seek(1 << 20)
        file.write(b"half a line\n2026-11-23T21:00:01.000000000Z whole\n")

    async def body() -> None:
        async with working(tmp_path) as archive:
            archive.take_logs(str(directory))
            assert await archive.settle(200)
            (record,) = await archive.read(database.read_logs, "u-1")
            assert await the_log(archive, record) == ["whole"]

    asyncio.run(body())


@pytest.mark.parametrize(
    "make", [lambda p: p.symlink_to("/etc/passwd"), os.mkfifo, os.mkdir], ids=["link", "fifo", "dir"]
)
def test_what_is_no_log_is_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    directory = put_aside(tmp_path / "logs")
    make(directory / "other.0.log")

    async def body() -> None:
        async with working(tmp_path) as archive:
            archive.take_logs(str(directory))
            assert await archive.settle(200)
            assert [r.container for r in await archive.read(database.read_logs, "u-1")] == ["main"]

    asyncio.run(body())


def test_a_full_disk_is_said_once_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archive_module, "_RETRY", 0.05)
    monkeypatch.setattr(archive_module, "_SETTLE", 0.01)
    full = threading.Event()
    full.set()
    check = Archive._check_space

    def check_space(self: Archive) -> None:
        if full.is_set():
            raise OSError(28, "No space left on device", str(self.directory))
        check(self)

    monkeypatch.setattr(Archive, "_check_space", check_space)
    directory = put_aside(tmp_path / "logs")

    async def body() -> None:
        async with working(tmp_path) as archive:
            archive.put("run/u-1", database.put_run(run_record()))
            archive.take_logs(str(directory))
            assert not await archive.settle(600)  # at once: `rowlock describe` waited 6 s on a full disk
            assert "No space left" in archive.problem
            full.clear()
            while archive.problem:
                await asyncio.sleep(0.01)
            assert await archive.settle(200)
            assert len(await archive.read(database.read_headers)) == 1
            assert len(await archive.read(database.read_logs, "u-1")) == 1

    asyncio.run(body())
    said = [record.message for record in caplog.records if record.name == archive_module.__name__]
    assert len(said) == 2 and "takes nothing now" in said[0] and "works again" in said[1]


def test_a_reader_waits_for_what_was_there_before_it_and_for_nothing_else(tmp_path: Path) -> None:
    async def body() -> None:
        async with working(tmp_path) as archive:
            more = threading.Event()

            def hand_over() -> None:
                for n in itertools.count():
                    if more.wait(0.0001):
                        return
                    archive.put(f"run/{n % 100}", database.put_run(run_record(f"u-{n % 100}")))

            thread = threading.Thread(target=hand_over)
            thread.start()
            try:
                for _ in range(5):
                    assert await archive.settle(600)
            finally:
                more.set()
                await asyncio.to_thread(thread.join)

    asyncio.run(body())


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "MAX_PENDING", 3)
    archive = Archive(tmp_path / "archive")
    for n in range(5):
        archive.put(f"run/{n}", database.put_run(run_record(f"u-{n}")))
    archive.put("run/0", database.put_run(run_record("u-0", phase="Failed")))
    assert archive.dropped == 2


@pytest.mark.parametrize("content", [b"this is no database at all, " * 100, None], ids=["damaged", "later"])
def test_an_unusable_file_costs_the_archive_alone(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "archive" / "archive.db"
    path.parent.mkdir()
    if content is None:
        other = sqlite3.connect(path)
        other.execute(f"PRAGMA user_version = {database.FORMAT + 1}")
        other.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()

    async def body() -> None:
        async with working(tmp_path) as archive:
            archive.put("run/u-1", database.put_run(run_record()))
            assert not await archive.settle(0.5)
            assert "move it away" in archive.problem
        assert path.read_bytes() == before

    asyncio.run(body())


def test_the_oldest_runs_that_ended_go_first_and_it_is_said(tmp_path: Path) -> None:
    connection = database.open_database(tmp_path / "archive.db", writes=True)
    logs = tmp_path / "logs"
    logs.mkdir()
    day = 86400.0
    for n, finished in enumerate((NOW - 100 * day, NOW - 50 * day, NOW - 40 * day, None)):
        blob = os.urandom(20_000)
        log = LogRecord(f"p-{n}", "main", 0, f"u-{n}", "ns", "pod", NOW, 1, 1 << 20, f"p-{n}.gz")
        (logs / log.file).write_bytes(b"x")
        statements = [
            database.put_run(run_record(f"u-{n}", name=f"run-{n}", finished=finished, phase="Completed")),
            database.put_log(log, blob),
        ]
        database.write_all(connection, statements)

    def cut(keep: Retention) -> int:
        def remove(names: list[str]) -> None:
            for name in names:
                (logs / name).unlink()

        return retention.cut(connection, keep, NOW, store=database.write_all, remove_files=remove)

    assert cut(Retention(90 * day, 1 << 30)) == 1
    assert [r.name for r in database.read_headers(connection)] == ["run-1", "run-2", "run-3"]
    assert cut(Retention(90 * day, 3 << 20)) > 0
    assert [r.name for r in database.read_headers(connection)][-1] == "run-3", "what has not ended stays"
    assert not (logs / "p-0.gz").exists() and (logs / "p-3.gz").exists()
    assert "run-1" in database.read_notes(connection)[retention.CUT_NOTE]
    connection.close()


def test_values_of_secret_variables_are_not_kept() -> None:
    env = [
        {"name": "WANDB_API_KEY", "value": 'hu"sh hush'},
        {"name": "LR", "value": "0.1"},
        {"name": "MY_TOKEN", "value": ""},
    ]
    job = {
        "metadata": {"annotations": {"request": '{"value":"hu\\"sh hush"}', "typed": "run -e 'WANDB_API_KEY=hu\"sh hush'"}},
        "spec": {"template": [{"env": env}]},
    }  # fmt: skip
    kept = redaction.redact(job, redaction.secret_values(job))
    assert (
        "hush" not in str(kept)
        and "0.1" in str(kept)
        and kept["spec"]["template"][0]["env"][0]["value"] == "(not kept)"
    )
    assert redaction.redact({"env": [{"name": "LR", "value": "1"}]}, []) == {"env": [{"name": "LR", "value": "1"}]}


def test_a_file_of_the_first_format_is_read_and_written_on(tmp_path: Path) -> None:
    path = tmp_path / "archive.db"
    connection = database.open_database(path, writes=True)
    connection.execute(
        "INSERT INTO runs VALUES ('u-1', 'id', 'old', 'ns', 'ns-1', 'p', 'PyTorchJob', 1.0, 2.0, NULL, 'Completed', 1, '', ?)",
        (zlib.compress(b'{"job": {"kind": "PyTorchJob"}}', 1),),
    )
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    connection = database.open_database(path, writes=True)
    large = {"text": "x" * 100_000}
    database.write_all(connection, [database.put_run(run_record("u-2", name="new", body=large))])
    runs = {record.name: record.body for record in database.read_runs(connection)}
    assert runs == {"old": {"job": {"kind": "PyTorchJob"}}, "new": large}
    (stored,) = connection.execute("SELECT length(body) FROM runs WHERE name = 'new'").fetchone()
    assert stored < 10_000
    assert connection.execute("PRAGMA user_version").fetchone() == (database.FORMAT,)
    connection.close()


def test_a_file_that_has_no_tables_yet_is_no_archive_yet(tmp_path: Path) -> None:
    (tmp_path / "archive.db").touch()
    with pytest.raises(FileNotFoundError):
        database.open_database(tmp_path / "archive.db", writes=False)
    database.open_database(tmp_path / "archive.db", writes=True).close()
    reader = database.open_database(tmp_path / "archive.db", writes=False)
    assert database.read_headers(reader) == []
    reader.close()
