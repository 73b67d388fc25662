"""What is on disk: recovery, kill -9, a second server, damage, a full disk, compaction under load."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.storage.conftest import Opened, config, run, story, take

from rowlock import errors, kinds, objects
from rowlock.api import WriteOptions, WriteSequence
from rowlock.storage import journal
from rowlock.storage.group_commit import HISTORY_SECONDS
from rowlock.storage.journal import Journal
from rowlock.storage.store import Store

CM = kinds.CONFIG_MAP


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cluster.db"


def test_everything_is_there_after_a_restart(file: Path) -> None:
    async def before() -> tuple[list[objects.Object], int, int]:
        async with Opened(file) as store:
            begun = store.revision
            for name in "abc":
                await store.create(CM, config(name))
            await store.update(CM, config("a", data="2"))
            await store.delete(CM, "default", "c")
            return list((await store.list(CM)).items), store.revision, begun

    async def after(begun: int) -> tuple[list[objects.Object], int, list[tuple[str, str]]]:
        async with Opened(file) as store:
            watched = await take(store.watch(CM, since=begun), 5)
            assert store.get_encoded(CM, "default", "a")
            return list((await store.list(CM)).items), store.revision, story(watched)

    items, revision, begun = run(before())
    again, then, watched = run(after(begun))
    assert again == items and then == revision
    assert watched == [("Added", "a"), ("Added", "b"), ("Added", "c"), ("Modified", "a"), ("Deleted", "c")]
    assert file.stat().st_mode & 0o777 == 0o600


WRITER = """
import asyncio, sys
from pathlib import Path
from rowlock import kinds
from rowlock.storage.store import Store

async def main():
    store = Store.open(Path(sys.argv[1]))
    await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
    async def client(c):
        for n in range(100000):
            await store.create(kinds.CONFIG_MAP, {"metadata": {"name": f"c-{c}-{n}", "namespace": "default"}})
            print(f"c-{c}-{n}", flush=True)
    await asyncio.gather(*(client(c) for c in range(8)))

asyncio.run(main())
"""


def test_kill_9_loses_nothing_that_was_acknowledged(file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        acknowledged = [writer.stdout.readline().strip() for _ in range(300)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read().split("\n")[:-1]

    async def body() -> None:
        async with Opened(file) as store:
            there = {objects.name(o) for o in store.view.all(CM)}
            assert set(acknowledged) <= there

    run(body())


def test_a_second_server_is_told_who_is_there(file: Path) -> None:
    async def body() -> None:
        async with Opened(file):
            with pytest.raises(errors.Unavailable, match=r"another rowlock server \(pid \d+\) uses the data directory"):
                Store.open(file)
            link = file.parent.with_name("link")
            link.symlink_to(file.parent)
            with pytest.raises(errors.Unavailable, match="another rowlock server"):
                Store.open(link / file.name)
        async with Opened(file):
            pass

    run(body())


def damage_header(file: Path) -> None:
    file.write_bytes(b"not a database at all" + file.read_bytes()[21:])


def damage_value(file: Path) -> None:
    content = file.read_bytes()
    assert content.count(b"find me") == 1
    file.write_bytes(content.replace(b"find me", b"fInd me"))


def damage_length(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: 4096 * 2])


@pytest.mark.parametrize("damage", [damage_header, damage_value, damage_length])
def test_a_damaged_file_is_refused_in_one_sentence_and_left_alone(file: Path, damage: object) -> None:
    async def body() -> None:
        async with Opened(file) as store:
            for n in range(50):
                await store.create(CM, config(f"c{n}", data="x" * 2000))
            await store.create(CM, config("a", data="find me"))

    run(body())
    damage(file)  # type: ignore[operator]  # parametrize has no better type
    content = file.read_bytes()
    with pytest.raises(errors.Unavailable, match=r"is damaged \(.*\); rowlock changed nothing in it: restore a backup"):
        Store.open(file)
    assert file.read_bytes() == content


def test_a_newer_format_is_refused(file: Path) -> None:
    log = sqlite3.connect(file)
    log.execute("PRAGMA user_version = 99")
    log.close()
    with pytest.raises(errors.Unavailable, match="was written by a newer rowlock"):
        Store.open(file)


def test_a_full_disk_refuses_writes_and_heals(file: Path) -> None:
    async def body() -> None:
        async with Opened(file) as store:
            await store.create(CM, config("before"))
            log = store._journal._log  # type: ignore[union-attr]  # to make SQLite's disk small
            pages = log.execute("PRAGMA page_count").fetchone()[0]
            log.execute(f"PRAGMA max_page_count = {pages + 4}")
            writes = (store.create(CM, config(f"big{n}", data="x" * 9_000)) for n in range(4))
            results = await asyncio.gather(*writes, return_exceptions=True)
            assert all(isinstance(r, errors.Unavailable) and "is full" in r.message for r in results)
            assert not store.takes_writes()
            assert [objects.name(o) for o in (await store.list(CM)).items] == ["before"]
            log.execute("PRAGMA max_page_count = 1000000")
            made = await store.create(CM, config("big0", data="y"))
            assert await store.get(CM, "default", "big0") == made
            assert store.takes_writes()

    run(body())

    async def again() -> None:
        async with Opened(file) as store:
            assert [objects.name(o) for o in (await store.list(CM)).items] == ["before", "big0"]

    run(again())


@pytest.mark.parametrize("pace", [0.0, 1.0], ids=["by the event loop", "by the writer thread"])
def test_a_failed_commit_ends_a_sequence(file: Path, pace: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before it is lost: nothing behind it is made, not even what comes before the writers are told."""

    async def body() -> None:
        async with Opened(file) as store:
            assert store._journal and store._group_commit
            store._group_commit._pace = pace  # how long the disk seems to take decides who writes
            append, discard, outcomes = store._journal.append, store.core.discard_staged, list[Exception]()
            options = WriteOptions(sequence=WriteSequence())

            def issue_the_next() -> None:
                try:
                    store.create(CM, config("meanwhile"), options=options).send(None)
                except (errors.NotTried, StopIteration) as error:  # StopIteration: it was made
                    outcomes.append(error)

            def refuse(*_: object) -> None:
                monkeypatch.setattr(store._journal, "append", append)
                raise errors.Unavailable("the disk is full")

            def discard_and_go_on() -> None:
                discard()
                asyncio.get_running_loop().call_soon(issue_the_next)  # it runs before the writers do

            monkeypatch.setattr(store._journal, "append", refuse)
            monkeypatch.setattr(store.core, "discard_staged", discard_and_go_on)
            with pytest.raises(errors.Unavailable, match="the disk is full"):
                await store.create(CM, config("first"), options=options)
            with pytest.raises(errors.NotTried):
                await store.create(CM, config("later"), options=options)
            assert [type(outcome) for outcome in outcomes] == [errors.NotTried]
            assert not (await store.list(CM)).items

    run(body())


def test_a_disk_that_stalls_does_not_hold_up_the_event_loop(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that writes its checkpoint makes an fsync of ours last for seconds; whoever only reads is served meanwhile."""

    async def body() -> None:
        async with Opened(file) as store:
            assert store._journal and store._group_commit
            store._group_commit._pace = 0.0  # it was quick until now: a lone write is waited for
            append, was_served, outcomes = store._journal.append, threading.Event(), list[bool]()

            def stall(*arguments: Any) -> None:
                outcomes.append(was_served.wait(timeout=20))
                append(*arguments)

            monkeypatch.setattr(store._journal, "append", stall)
            writing = asyncio.create_task(store.create(CM, config("a")))
            while not store._group_commit._busy:
                await asyncio.sleep(0)
            assert not (await store.list(CM)).items, "it is not durable yet"
            was_served.set()
            made = await writing
            assert outcomes == [True] and await store.get(CM, "default", "a") == made
            await store.create(CM, config("b"))

    run(body())


def test_compaction_keeps_pace_with_writes(file: Path) -> None:
    async def body() -> int:
        async with Opened(file) as store:
            commits = store._group_commit
            assert commits and store._journal
            commits.kept_revisions = 100
            await asyncio.gather(*(store.create(CM, config(f"c{n}")) for n in range(20)))
            for n in range(100):
                await asyncio.gather(*(store.update(CM, config(f"c{c}", data=str(n))) for c in range(20)))
            await store.delete(CM, "default", "c19")
            rows = store._journal._log.execute("SELECT count(*) FROM log").fetchone()[0]
            assert 100 <= rows <= 100 + 20 + 40
            with pytest.raises(errors.Expired, match="too old resource version: 1 "):
                store.watch_cache.trim(store.revision)
                await anext(store.watch(CM, since=1))
            missed = await take(store.watch(CM, since=store.revision - 50), 50)
            assert len(missed) == 50 and missed[-1].type == "Deleted"
            return store.revision

    revision = run(body())

    async def again() -> None:
        async with Opened(file) as store:
            assert store.revision == revision and store.view.count(CM) == 19

    run(again())


def test_history_is_forgotten_after_five_minutes(file: Path) -> None:
    """A few writes a minute are less than the revisions that are kept, and a deleted Secret must go all the same."""
    now = time.monotonic()

    async def body() -> None:
        nonlocal now
        async with Opened(file) as store:
            commits = store._group_commit
            assert commits and store._journal
            commits._clock = lambda: now
            await store.create(CM, config("secret", data="do-not-find-me"))
            await store.delete(CM, "default", "secret")
            for _ in range(60):
                now += HISTORY_SECONDS / 30
                await store.create(CM, config("b"))
                await store.delete(CM, "default", "b")
            rows = store._journal._log.execute("SELECT count(*) FROM log WHERE name = 'secret'").fetchone()[0]
            assert rows == 0
            assert store.revision < commits.kept_revisions

    run(body())


def test_a_start_gives_back_what_a_peak_left_free(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SMALL_FILE", 1 << 20)

    async def peak() -> None:
        async with Opened(file) as store:
            store._group_commit.kept_revisions = 0  # type: ignore[union-attr]
            for number in range(100):
                await store.create(CM, {**config(f"n{number}"), "data": {"k": "x" * 100_000}})
            for number in range(99):
                await store.delete(CM, "default", f"n{number}")
            for number in range(200):
                await store.create(CM, config(f"small{number}"))

    async def left() -> tuple[int, int]:
        async with Opened(file) as store:
            return len((await store.list(CM)).items), store.revision

    run(peak())
    large = file.stat().st_size
    found = run(left())
    assert large > 7 << 20 and file.stat().st_size < large // 4
    assert found == run(left()) == (201, 1 + 100 + 99 + 200)


def test_revisions_never_go_back_even_when_all_rows_are_gone(file: Path) -> None:
    async def body() -> int:
        async with Opened(file) as store:
            assert store._group_commit
            store._group_commit.kept_revisions = 0
            await store.create(CM, config("a"))
            await store.delete(CM, "default", "a")
            return objects.revision(await store.create(CM, config("b")))

    first = run(body())
    assert run(body_again(file)) > first


async def body_again(file: Path) -> int:
    async with Opened(file) as store:
        return objects.revision(await store.create(CM, config("c")))


def test_writes_after_close_are_refused(file: Path) -> None:
    async def body() -> None:
        store = Store.open(file)
        await store.close()
        with pytest.raises(errors.Unavailable, match="shutting down"):
            await store.create(kinds.NAMESPACE, {"metadata": {"name": "x"}})
        Journal(file).close()

    run(body())
