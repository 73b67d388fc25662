"""Backups: made while a server writes, restored whole or not at all; older formats are upgraded, damage is named."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.storage.conftest import Opened, config, run

from rowlock import errors, kinds, objects
from rowlock.archive.database import open_database, put_log, read_logs, write_all
from rowlock.archive.records import LogRecord
from rowlock.storage import backup, log_format
from rowlock.storage.backup import create_backup, describe_backup, is_part, restore_backup
from rowlock.storage.store import Store

CM = kinds.CONFIG_MAP
NOW = datetime(2026, 1, 2, tzinfo=UTC)
OLD = Path(__file__).parents[1] / "data" / "storage" / "cluster-format-1.db.gz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    (directory / "token").write_text("t" * 32)
    (directory / "ca.key").write_text("key")
    return directory


async def _names(data: Path) -> list[str]:
    async with Opened(data / "cluster.db") as store:
        return [objects.name(o) for o in store.view.all(CM)]


def test_a_backup_of_a_working_store_is_one_moment_of_it(data: Path, tmp_path: Path) -> None:
    async def body() -> tuple[list[str], int]:
        async with Opened(data / "cluster.db") as store:

            async def write(writer: int) -> None:
                for n in range(200):
                    await store.create(CM, config(f"c-{writer}-{n:03}"))

            writers = asyncio.gather(*(write(w) for w in range(4)))
            while store.view.count(CM) < 40:
                await asyncio.sleep(0)
            acknowledged = [objects.name(o) for o in store.view.all(CM)]
            manifest = await asyncio.to_thread(create_backup, data, tmp_path / "b.tar", NOW)
            await writers
            return acknowledged, manifest.revision

    acknowledged, revision = run(body())
    restored = tmp_path / "restored"
    assert restore_backup(tmp_path / "b.tar", restored).revision == revision

    async def after() -> None:
        async with Opened(restored / "cluster.db") as store:
            there = {objects.name(o) for o in store.view.all(CM)}
            assert set(acknowledged) <= there
            assert max(objects.revision(o) for o in store.view.all(CM)) <= revision
            for writer in range(4):
                mine = sorted(name for name in there if name.startswith(f"c-{writer}-"))
                assert mine == [f"c-{writer}-{n:03}" for n in range(len(mine))], "of a later moment, or with a gap"

    run(after())
    assert (restored / "token").read_text() == "t" * 32
    assert (restored / "ca.key").stat().st_mode & 0o777 == 0o600
    assert restored.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "b.tar").stat().st_mode & 0o777 == 0o600, "it holds Secrets"


def test_a_backup_has_accounts_keys_history_and_the_audit_log(data: Path, tmp_path: Path) -> None:
    """The archive is copied while its thread writes: its rows, and the logs beside it that they name."""
    kept = {
        "accounts.json": "a",
        "credentials.json": "c",
        "service-account.key": "s",
        "audit.jsonl": "{}",
        "audit.jsonl.1": "{}",
    }
    for name, text in kept.items():
        (data / name).write_text(text)
    (data / "claims").mkdir()
    (data / "claims" / "default_data_u").mkdir()
    run(_names(data))
    logs = data / "archive" / "logs"
    archive = open_database(data / "archive" / "archive.db", writes=True)
    logs.mkdir()
    for name in ("p.main.0.gz", "nobody.names.it.gz", "../../escape"):
        (logs / name.replace("/", "_")).write_bytes(gzip.compress(name.encode()))
    for number, name in enumerate(("p.main.0.gz", "was.removed.gz", "../../escape")):
        write_all(archive, [put_log(LogRecord("p", "main", number, "r", "default", "p", 0.0, 1, 1, name), None)])
    archive.execute("BEGIN IMMEDIATE")  # it is at work
    try:
        manifest = create_backup(data, tmp_path / "b.tar", NOW)
    finally:
        archive.execute("ROLLBACK")
        archive.close()
    assert set(manifest.files) == {
        "cluster.db", "token", "ca.key", *kept, "archive/archive.db", "archive/logs/p.main.0.gz",
    }  # fmt: skip
    said = describe_backup(tmp_path / "b.tar", manifest, data)
    assert "service-account.key" in said and "the archive (history, 1 large logs)" in said
    assert f"Not in it: {data}/claims; copy what you need" in said
    restored = tmp_path / "restored"
    restore_backup(tmp_path / "b.tar", restored)
    assert {name: (restored / name).read_text() for name in kept} == kept
    with contextlib.closing(open_database(restored / "archive" / "archive.db", writes=False)) as copy:
        assert [log.number for log in read_logs(copy, "r")] == [0, 1, 2]
    assert gzip.decompress((restored / "archive" / "logs" / "p.main.0.gz").read_bytes()) == b"p.main.0.gz"
    assert (restored / "archive").stat().st_mode & 0o777 == 0o700


def test_what_the_server_writes_meanwhile_makes_no_backup_useless(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the sums and the copy the audit log grows and is rotated, and accounts are replaced: the restore found wrong sums."""
    run(_names(data))
    (data / "audit.jsonl").write_text('{"n": 1}\n{"n": 2')
    (data / "accounts.json").write_text("before")
    write = backup._write_tar

    def write_late(*given: Any) -> None:
        with (data / "audit.jsonl").open("a") as audit:
            audit.write("}\n")
        (data / "audit.jsonl").rename(data / "audit.jsonl.1")
        (data / "audit.jsonl").write_text('{"n": 3}\n')
        (data / "new").write_text("after")
        (data / "new").rename(data / "accounts.json")
        write(*given)

    monkeypatch.setattr(backup, "_write_tar", write_late)
    create_backup(data, tmp_path / "b.tar", NOW)
    restore_backup(tmp_path / "b.tar", tmp_path / "restored")
    assert (tmp_path / "restored" / "audit.jsonl").read_text() == '{"n": 1}\n', (
        "a line that is half written is left out"
    )
    assert (tmp_path / "restored" / "accounts.json").read_text() == "before"


def test_a_backup_of_an_earlier_version_is_restored(data: Path, tmp_path: Path) -> None:
    """Format 1 had no archive and no accounts; a later format is refused by the version that made it."""
    run(_names(data))
    made = create_backup(data, tmp_path / "b.tar", NOW)
    for number, version in ((1, "0.1"), (made.format + 1, "9.9")):
        file = tmp_path / f"{number}.tar"
        with tarfile.open(tmp_path / "b.tar") as old, tarfile.open(file, "w") as new:
            for member in old.getmembers():
                content = old.extractfile(member)
                assert content is not None
                text = content.read()
                if member.name == "manifest.json":
                    text = json.dumps({**json.loads(text), "format": number, "version": version}).encode()
                    member.size = len(text)
                new.addfile(member, io.BytesIO(text))
    assert restore_backup(tmp_path / "1.tar", tmp_path / "one").revision == made.revision
    with pytest.raises(errors.BadRequest, match=r"made by a newer rowlock \(9\.9"):
        restore_backup(tmp_path / f"{made.format + 1}.tar", tmp_path / "later")
    assert not (tmp_path / "later").exists()


@pytest.mark.parametrize(
    "name", ["../token", "archive/logs/../../token", "archive/logs/.x", "archive/logs/a/b", "/etc/x", "audit.jsonl.10"]
)
def test_a_backup_names_no_other_files(name: str) -> None:
    assert not is_part(name)


def test_a_backup_holds_nothing_that_was_deleted(data: Path, tmp_path: Path) -> None:
    async def body() -> None:
        async with Opened(data / "cluster.db") as store:
            assert store._group_commit
            store._group_commit.kept_revisions = 0
            await store.create(CM, config("a", data="do-not-find-me"))
            await store.delete(CM, "default", "a")
            for _ in range(60):  # compaction comes along with writes
                await store.create(CM, config("b"))
                await store.delete(CM, "default", "b")

    run(body())
    for file in data.iterdir():
        assert b"do-not-find-me" not in file.read_bytes(), file
    create_backup(data, tmp_path / "b.tar", NOW)
    assert b"do-not-find-me" not in (tmp_path / "b.tar").read_bytes()


def test_neither_a_file_nor_a_directory_is_ever_replaced(data: Path, tmp_path: Path) -> None:
    run(_names(data))
    file = tmp_path / "b.tar"
    create_backup(data, file, NOW)
    with pytest.raises(errors.BadRequest, match="is there already: choose another name"):
        create_backup(data, file, NOW)
    with pytest.raises(errors.BadRequest, match=r"holds no cluster .* --data-dir"):
        create_backup(tmp_path / "nowhere", tmp_path / "c.tar", NOW)
    with pytest.raises(errors.BadRequest, match="is not empty, and a restore replaces nothing"):
        restore_backup(file, data)
    (tmp_path / "empty").mkdir()
    restore_backup(file, tmp_path / "empty")
    assert {p.name for p in tmp_path.iterdir()} == {"data", "b.tar", "empty"}, "nothing half done is left"


def test_a_file_that_cannot_be_opened_is_named_with_the_reason(data: Path, tmp_path: Path) -> None:
    run(_names(data))
    before = sorted(tmp_path.rglob("*"))
    for file, reason in ((tmp_path / "none.tar", "No such file or directory"), (data, "Is a directory")):
        with pytest.raises(errors.BadRequest) as refusal:
            restore_backup(file, tmp_path / "below" / "new")
        sentence = f"the backup {file} cannot be read ({reason}): name a file that `rowlock backup` wrote"
        assert str(refusal.value) == sentence
    nowhere = tmp_path / "none" / "b.tar"
    with pytest.raises(errors.BadRequest) as refusal:
        create_backup(data, nowhere, NOW)
    sentence = f"{nowhere} cannot be written ({nowhere.parent} is no directory): choose another place for the backup"
    assert str(refusal.value) == sentence
    assert sorted(tmp_path.rglob("*")) == before


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:9_000])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-20_000] ^= 1
    file.write_bytes(content)


def _no_tar(file: Path) -> None:
    file.write_text("hello")


def _climb(file: Path) -> None:
    """A manifest that names a file elsewhere."""
    with tarfile.open(file, "w") as tar:
        for name, text in (
            ("manifest.json", json.dumps({"format": 1, "version": "", "made": "", "revision": 1, "objects": {}, "files": {"cluster.db": "", "../x": ""}})),
            ("../x", "evil"),
        ):  # fmt: skip
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


@pytest.mark.parametrize("harm", [_cut, _flip, _no_tar, _climb])
def test_a_backup_that_is_not_whole_restores_nothing(data: Path, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    run(_names(data))
    file = tmp_path / "b.tar"
    create_backup(data, file, NOW)
    harm(file)
    with pytest.raises(errors.BadRequest, match="is no whole backup of rowlock"):
        restore_backup(file, tmp_path / "new")
    assert {p.name for p in tmp_path.iterdir()} == {"data", "b.tar"}


def test_a_file_of_the_first_format_is_upgraded(tmp_path: Path) -> None:
    """The file was written by the last commit that had format 1, by a server with a job."""
    file = tmp_path / "cluster.db"
    file.write_bytes(gzip.decompress(OLD.read_bytes()))
    for _ in range(2):
        store = Store.open(file)
        assert {objects.name(o): o["data"] for o in store.view.all(CM, "default") if "a" in o["data"]} == {
            "kept": {"a": "1"},
            "changed": {"a": "3"},
        }
        job = store.view.get(kinds.by_resource("pytorchjobs.kubeflow.org"), "runai-default", "old")
        assert job and job["status"]["conditions"]
        run(store.close())
    log = sqlite3.connect(file)
    assert log.execute("PRAGMA user_version").fetchone() == (log_format.FORMAT,)
    log.close()


def test_a_damaged_file_of_the_first_format_is_not_upgraded(tmp_path: Path) -> None:
    file = tmp_path / "cluster.db"
    file.write_bytes(gzip.decompress(OLD.read_bytes()).replace(b'"a":"3"', b'"a":"4"'))
    with pytest.raises(errors.Unavailable, match="wrong checksums: configmaps default/changed at revision 42"):
        Store.open(file)
    log = sqlite3.connect(file)
    assert log.execute("PRAGMA user_version").fetchone() == (1,)
    log.close()


@pytest.mark.parametrize("column", ["name = 'other'", "verb = 2", "namespace = 'kube-system'", "value = 'text'"])
def test_every_column_is_under_the_checksum_and_every_damaged_object_is_named(data: Path, column: str) -> None:
    async def body() -> None:
        async with Opened(data / "cluster.db") as store:
            for n in range(9):
                await store.create(CM, config(f"c{n}"))

    run(body())
    log = sqlite3.connect(data / "cluster.db")
    log.execute(f"UPDATE log SET {column} WHERE name IN ('c3', 'c5')")
    log.commit()
    log.close()
    pattern = r"configmaps \S+ at revision \d+, configmaps \S+ at revision \d+\).*`rowlock restore FILE"
    with pytest.raises(errors.Unavailable, match=pattern):
        Store.open(data / "cluster.db")
    with pytest.raises(errors.Unavailable, match=pattern):
        create_backup(data, data.parent / "b.tar", NOW)
    assert not (data.parent / "b.tar").exists()
