"""Damage that SQLite does not tell of: a journal that ends early, an older file, a page that leaves rows out."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.storage.conftest import Opened, config, run

from rowlock import errors, kinds, objects
from rowlock.storage.log_format import damage_error
from rowlock.storage.recovery import NOTE_NAME
from rowlock.storage.store import Store

CM = kinds.CONFIG_MAP
WRITER = """
import asyncio, sys
from pathlib import Path
from tests.storage.conftest import Opened, config
from rowlock import kinds

async def main():
    async with Opened(Path(sys.argv[1])) as store:
        for n in range(60):
            await store.create(kinds.CONFIG_MAP, config(f"c{n}", data="x" * 700))
        print(store.revision, flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, int]:
    """The database of a server that was killed, so that its journal is still there; and its last revision."""
    file = tmp_path / "cluster.db"
    argv = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writer:
        assert writer.stdout
        revision = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
    return file, revision


def names(file: Path, *, accepts_loss: bool = False) -> set[str]:
    async def body() -> set[str]:
        store = Store.open(file, accepts_loss=accepts_loss)
        try:
            return {objects.name(one) for one in store.view.all(CM)}
        finally:
            await store.close()

    return run(body())


def contents(file: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in file.parent.iterdir() if path.name not in ("cluster.db-shm", "lock")
    }


def test_what_was_killed_is_whole(killed: tuple[Path, int]) -> None:
    file, revision = killed
    assert int(file.with_name(NOTE_NAME).read_text().split()[0]) == revision
    assert names(file) == {f"c{n}" for n in range(60)}


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_or_a_cut_in_the_journal_is_no_loss_without_a_word(killed: tuple[Path, int], seed: int) -> None:
    """Either all is there, or the start is refused and nothing was changed: neither the database nor the rest of the journal."""
    file, revision = killed
    journal, draw = file.with_name("cluster.db-wal"), random.Random(seed)
    content = bytearray(journal.read_bytes())
    place = draw.randrange(len(content))
    if seed % 3:
        content[place] ^= 1 << draw.randrange(8)
    else:
        del content[place:]
    journal.write_bytes(content)
    before = contents(file)
    try:
        assert names(file) == {f"c{n}" for n in range(60)}
    except errors.Unavailable as refusal:
        assert re.search(
            rf"cluster.db (ends at revision \d+, but changes up to revision {revision} |is damaged)", refusal.message
        )
        assert contents(file) == before


def test_an_older_database_is_refused_or_gone_on_with_behind_what_was_lost(tmp_path: Path) -> None:
    file, older = tmp_path / "cluster.db", tmp_path / "older"

    async def write(*new: str) -> int:
        async with Opened(file) as store:
            for name in new:
                await store.create(CM, config(name))
            return store.revision

    early = run(write("a"))
    shutil.copy(file, older)
    late = run(write("b", "c"))
    shutil.copy(older, file)
    pattern = (
        f"ends at revision {early}, but changes up to revision {late} were written to it: the last {late - early} are missing.*"
        "put the newer files back, or restore a backup.*`rowlock up --accept-loss` goes on without"
    )
    for _ in range(2):
        with pytest.raises(errors.Unavailable, match=pattern):
            Store.open(file)

    async def go_on() -> tuple[str, int]:
        store = Store.open(file, accepts_loss=True)
        try:
            with pytest.raises(errors.Expired):
                await anext(store.watch(CM, since=late - 1))
            made = await store.create(CM, config("d"))
            return store.notice, objects.revision(made)
        finally:
            await store.close()

    notice, revision = run(go_on())
    assert notice == (
        f"--accept-loss: the {late - early} changes after revision {early} of cluster.db are lost, up to revision {late}"
    )
    assert revision == late + 1, "no client takes it for one of those that were lost"
    assert names(file) == {"a", "d"}


@pytest.mark.parametrize("left", [b"", b"nonsense", b"\xff" * 200, b"000000000000000099 00000000\n"])
def test_a_damaged_note_is_made_anew(tmp_path: Path, left: bytes) -> None:
    file, note = tmp_path / "cluster.db", tmp_path / NOTE_NAME

    async def write() -> None:
        async with Opened(file) as store:
            await store.create(CM, config("a"))

    run(write())
    good = note.read_bytes()
    note.write_bytes(left)

    async def again() -> str:
        async with Opened(file) as store:
            return store.notice

    notice = run(again())
    assert ("cluster.revision could not be read and was made anew" in notice) == bool(left)
    assert note.read_bytes()[: len(good)] == good
    assert run(again()) == ""


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("elsewhere")], ids=["directory", "link"])
@pytest.mark.parametrize("name", ["cluster.db", "cluster.db-wal", NOTE_NAME, "lock"])
def test_what_is_no_file_is_named(tmp_path: Path, name: str, make: object) -> None:
    file, there = tmp_path / "cluster.db", tmp_path / name
    run(_write_one(file))
    there.unlink(missing_ok=True)
    make(there)  # type: ignore[operator]  # parametrize has no better type
    with pytest.raises(errors.Unavailable, match=re.escape(name)) as refusal:
        Store.open(file)
    assert re.search("remove|look at|move|restore|put", refusal.value.message)
    assert there.is_symlink() or there.is_dir()
    assert not (tmp_path / "elsewhere").exists()


async def _write_one(file: Path) -> None:
    async with Opened(file) as store:
        await store.create(CM, config("a"))


def test_a_journal_without_its_database_is_not_thrown_away(killed: tuple[Path, int]) -> None:
    """SQLite removes the journal of a database that is new."""
    file, _ = killed
    journal, whole = file.with_name("cluster.db-wal"), file.read_bytes()
    for is_missing in (True, False):
        file.unlink()
        if not is_missing:
            file.touch()
        with pytest.raises(
            errors.Unavailable, match=r"cluster.db is (missing|empty), but .*cluster.db-wal.*put the database back"
        ):
            Store.open(file)
        assert journal.stat().st_size
        file.write_bytes(whole)
    assert len(names(file)) == 60


def test_a_page_that_leaves_rows_out_is_damage(tmp_path: Path) -> None:
    """No checksum of a row is wrong then: the row is not read."""
    file = tmp_path / "cluster.db"

    async def write() -> None:
        async with Opened(file) as store:
            for n in range(200):
                await store.create(CM, config(f"c{n}", data="x" * 300))

    run(write())
    content = bytearray(file.read_bytes())
    size, damaged = int.from_bytes(content[16:18], "big"), 0
    for page in range(1, len(content) // size):
        if (
            content[page * size] == 0x0D and content[page * size + 4] > 1
        ):  # a leaf of the table, and the count of its rows
            content[page * size + 4] -= 1
            damaged += 1
            break
    assert damaged
    file.write_bytes(content)
    with sqlite3.connect(file) as log:
        assert log.execute("SELECT count(*) FROM log").fetchone()
    with pytest.raises(errors.Unavailable, match=r"cluster\.db is damaged"):
        Store.open(file)
    assert file.read_bytes() == bytes(content)
    assert "restore a backup" in damage_error(file, "x").message
