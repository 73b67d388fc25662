"""One archive of several servers: one writes and all answer; whoever dies, nothing is lost, doubled, or taken back."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.archive.test_archive import NOW, run_record, the_log

from rowlock.archive import database, shared_archive
from rowlock.archive.bucket import BucketChunks, DirectoryBucket, StorageFailed, UnusableBucket
from rowlock.archive.log_intake import AsideLog
from rowlock.archive.retention import Retention
from rowlock.archive.shared_archive import SharedArchive, claim_bucket, directory_of


class Storage(DirectoryBucket):
    """A directory that refuses what it is told to, with or without having done it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.mkdir(exist_ok=True)
        self.make_folders()
        self.refuses, self.does_nevertheless = False, False
        self.error = StorageFailed("ReadTimeout: the storage did not answer")
        self.writes = 0

    def write(self, name: str, content: bytes) -> None:
        self.writes += 1
        if not self.refuses or self.does_nevertheless:
            super().write(name, content)
        if self.refuses:
            raise self.error


class CountsLooks(Storage):
    """A directory that counts how often somebody asked what there is."""

    looks = 0

    def names(self, folder: str) -> dict[str, int]:
        self.looks += 1
        return super().names(folder)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.archive.archive._RETRY", 0.02)
    monkeypatch.setattr("rowlock.archive.archive._LOOK", 0.0)
    monkeypatch.setattr(SharedArchive, "_gather", 0.01)
    monkeypatch.setattr(SharedArchive, "_pause", 0.02)


@asynccontextmanager
async def server(
    tmp_path: Path, name: str, storage: DirectoryBucket | None = None, *, leads: bool = False, cluster: str = ""
) -> AsyncIterator[SharedArchive]:
    """A server's copy, at work; at the end it dies without a word."""
    storage = storage or Storage(tmp_path / "bucket")
    archive = SharedArchive(tmp_path / name, storage, Retention(), lambda: NOW, cluster=cluster)
    task = asyncio.create_task(archive.run())
    try:
        if leads:
            await archive.lead()
        yield archive
    finally:
        archive.follow()  # as if it had been killed: what it still has is not written
        task.cancel()
        await asyncio.wait({task})


async def phases(archive: SharedArchive) -> dict[str, str]:
    assert await archive.settle(200), archive.problem
    return {record.uid: record.phase for record in await archive.read(database.read_headers)}


async def put(archive: SharedArchive, uid: str, phase: str = "Running") -> None:
    archive.put(f"run/{uid}", database.put_run(run_record(uid, phase=phase)))
    assert await archive.settle(200), archive.problem


def followed(directory: Path, pod: str, *lines: str, correction: bool = False) -> AsideLog:
    """As the collector of logs hands it over."""
    place = directory / "following" / pod
    place.mkdir(parents=True)
    (place / "main.0.log").write_text("".join(f"2026-11-23T21:00:00.000000000Z {line}\n" for line in lines))
    return AsideLog(str(place / "main.0.log"), "ns", pod, f"uid-{pod}", "main", 0, "u-1", is_correction=correction)


async def logs_of(archive: SharedArchive) -> dict[str, list[str]]:
    assert await archive.settle(200), archive.problem
    records = await archive.read(database.read_logs, "u-1")
    return {record.pod: await the_log(archive, record) for record in records}


def test_what_one_writes_all_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader, server(tmp_path, "b") as follower:
            await put(leader, "u-1")
            assert await phases(follower) == {"u-1": "Running"} and leader.is_leading and not follower.is_leading
            await put(leader, "u-1", "Completed")
            assert await phases(follower) == {"u-1": "Completed"}
            follower.put("run/u-1", database.put_run(run_record("u-1", phase="Nonsense")))
            assert await phases(follower) == {"u-1": "Completed"}, "who does not lead writes nothing"

    asyncio.run(body())


def test_who_leads_next_has_everything(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as first:
            await put(first, "u-1")
        async with server(tmp_path, "b", leads=True) as second:
            assert await phases(second) == {"u-1": "Running"}
            await put(second, "u-2")
            async with server(tmp_path, "a") as first:  # it has come back, with its copy
                assert await phases(first) == {"u-1": "Running", "u-2": "Running"}
                second.follow()
                await first.lead()
                await put(first, "u-1", "Failed")
                assert await phases(second) == {"u-1": "Failed", "u-2": "Running"}

    asyncio.run(body())


def test_the_last_words_of_a_leader_that_was_replaced_take_nothing_back(tmp_path: Path) -> None:
    """A process that was suspended in the middle of a write wakes up, and does not know that it leads no more."""

    async def body() -> None:
        async with (
            server(tmp_path, "a", leads=True) as old,
            server(tmp_path, "b") as new,
            server(tmp_path, "c") as other,
        ):
            await put(old, "u-1")
            old._last_look = float("inf")  # it does not see either that another one writes
            await new.lead()
            await put(new, "u-1", "Completed")
            assert await phases(other) == {"u-1": "Completed"}
            await put(old, "u-1", "Running")
            await put(old, "u-2", "Running")
            merged = {"u-1": "Completed", "u-2": "Running"}
            assert await phases(other) == merged
            old.follow()
            while await phases(old) != merged:
                await asyncio.sleep(0.01)
            while await phases(new) != merged:  # it looks for such words now and then
                await asyncio.sleep(0.01)
            async with server(tmp_path, "late comer") as late_comer:
                assert await phases(late_comer) == merged

    asyncio.run(body())


def test_who_sees_that_another_one_writes_stops(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as old, server(tmp_path, "b") as new:
            await put(old, "u-1")
            await new.lead()
            await put(new, "u-1", "Completed")
            while old.is_leading:
                await asyncio.sleep(0.01)
            old.put("run/u-1", database.put_run(run_record("u-1", phase="Running")))
            assert await phases(old) == {"u-1": "Completed"} == await phases(new)

    asyncio.run(body())


@pytest.mark.parametrize("does_nevertheless", [False, True])
def test_a_storage_that_does_not_answer_is_said_and_costs_nothing(tmp_path: Path, does_nevertheless: bool) -> None:
    async def body() -> None:
        storage = Storage(tmp_path / "bucket")
        async with server(tmp_path, "a", storage, leads=True) as leader, server(tmp_path, "b") as follower:
            await put(leader, "u-1")
            storage.refuses, storage.does_nevertheless = True, does_nevertheless
            tried = storage.writes
            leader.put("run/u-2", database.put_run(run_record("u-2", phase="Running")))
            assert not await leader.settle(20) and "the storage did not answer" in leader.problem
            while storage.writes < tried + 2:
                await asyncio.sleep(0.01)
            leader.put("run/u-2", database.put_run(run_record("u-2", phase="Completed")))
            storage.refuses = False
            while not await leader.settle(20):
                await asyncio.sleep(0.01)
            expected = {"u-1": "Running", "u-2": "Completed"}
            assert await phases(leader) == await phases(follower) == expected and not leader.problem

    asyncio.run(body())


def test_logs_that_a_follower_has_are_written_by_it_when_it_leads(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as first, server(tmp_path, "b") as second:
            for archive in (first, second):
                archive.take_log(followed(archive.directory, "done", "of both"))
            second.take_log(
                followed(second.directory, "cut-off", "of the second alone")
            )  # the first dies before its end
            assert await logs_of(first) == {"done": ["of both"]}
            while (second.directory / "following" / "done").exists():  # it is in the archive
                await asyncio.sleep(0.01)
            assert (second.directory / "following" / "cut-off").exists()
            first.follow()
            await second.lead()
            expected = {"done": ["of both"], "cut-off": ["of the second alone"]}
            assert await logs_of(second) == expected == await logs_of(first)
            assert not list((second.directory / "following").iterdir())

    asyncio.run(body())


def test_what_was_read_once_more_takes_the_place_of_what_was_wrong(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader, server(tmp_path, "b") as follower:
            leader.take_log(followed(leader.directory, "p", "of the next life"))
            assert await logs_of(follower) in ({}, {"p": ["of the next life"]})
            await logs_of(leader)
            leader.take_log(followed(leader.directory / "again", "p", "its own", correction=True))
            assert await logs_of(leader) == {"p": ["its own"]} == await logs_of(follower)

    asyncio.run(body())


def test_long_logs_are_in_the_bucket_alone_and_go_with_their_run(tmp_path: Path) -> None:
    lines = [f"{n} {n * 7919 % 1_000_003}" for n in range(60_000)]

    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader, server(tmp_path, "b") as follower:
            leader.put("run/u-1", database.put_run(run_record("u-1", phase="Completed", finished=NOW - 10)))
            leader.take_log(followed(leader.directory, "long", *lines))
            assert await logs_of(follower) in ({}, {"long": lines})
            assert await logs_of(leader) == {"long": lines} == await logs_of(follower)
            assert not list(leader.logs.iterdir()) and list((tmp_path / "bucket" / "logs").iterdir())
            leader._keep = Retention(age=1.0)
            while await phases(leader):
                await asyncio.sleep(0.01)
            assert await phases(follower) == {} and await logs_of(follower) == {}
            assert not list((tmp_path / "bucket" / "logs").iterdir())

    asyncio.run(body())


def test_many_segments_become_a_snapshot_from_which_others_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_archive, "_MAX_SEGMENTS", 5)
    monkeypatch.setattr(shared_archive, "_GRACE", 0.0)
    written = tmp_path / "bucket" / "writes"

    def names(suffix: str) -> list[str]:
        return sorted(path.name for path in written.glob(f"*{suffix}"))

    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader:
            async with server(tmp_path, "asleep") as asleep:
                await put(leader, "u-0")
                assert await phases(asleep) == {"u-0": "Running"}
            for n in range(1, 8):
                await put(leader, f"u-{n}")
            while not names(".db") or len(names(".seg")) > 6:
                await put(leader, "u-1")
            await put(leader, "u-0", "Completed")
            expected = await phases(leader)
            assert len(expected) == 8 and expected["u-0"] == "Completed"
            for name in ("asleep", "new"):  # one that missed what has been removed, and one that never read anything
                async with server(tmp_path, name) as other:
                    assert await phases(other) == expected
                    assert not other.problem
            assert len(names(".db")) <= 2, "earlier snapshots are removed"

    asyncio.run(body())


def test_who_leads_soon_after_a_snapshot_makes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be hundreds of MiB. When the followers' time to read what it covers is over, that is removed all the same."""
    monkeypatch.setattr(shared_archive, "_MAX_SEGMENTS", 5)
    storage = CountsLooks(tmp_path / "bucket")

    def names(suffix: str) -> list[str]:
        return sorted(path.name for path in (tmp_path / "bucket" / "writes").glob(f"*{suffix}"))

    async def body() -> None:
        async with server(tmp_path, "a", storage, leads=True) as first:
            while not names(".db"):
                await put(first, "u-1")
            await put(first, "u-2")
        (made,), covered = names(".db"), names(".seg")[:5]
        for name in ("b", "a", "new"):
            async with server(tmp_path, name, storage, leads=True) as later:
                await put(later, f"u-{name}")
                looks = storage.looks
                while storage.looks < looks + 3:
                    await asyncio.sleep(0.01)
                assert names(".db") == [made], "the one that there is tells enough"
        assert set(covered) <= set(names(".seg")), "followers may be reading them"
        monkeypatch.setattr(shared_archive, "_GRACE", 0.0)
        async with server(tmp_path, "b", leads=True) as later:
            await put(later, "u-3")
            while set(covered) & set(names(".seg")):
                await asyncio.sleep(0.01)
            async with server(tmp_path, "newer") as other:
                assert await phases(other) == dict.fromkeys(("u-1", "u-2", "u-3", "u-a", "u-b", "u-new"), "Running")

    asyncio.run(body())


def test_a_copy_of_another_archive_is_not_mixed_in(tmp_path: Path) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as archive:
            await put(archive, "u-1")
        async with server(tmp_path, "a", Storage(tmp_path / "other")) as archive:
            assert await phases(archive) == {}

    asyncio.run(body())


def test_segments_of_a_later_version_are_left_alone(tmp_path: Path) -> None:
    async def body() -> None:
        storage = Storage(tmp_path / "bucket")
        storage.write("writes/00000009-aaaaaaaa-00000001.seg", b"rowlock9 and so on")
        async with server(tmp_path, "a", storage) as archive:
            assert not await archive.settle(20)
            assert "give all servers of an archive the same version" in archive.problem

    asyncio.run(body())


def test_chunks_can_be_read_again_and_end_where_the_object_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.archive.bucket.CHUNK", 4)
    storage = Storage(tmp_path)
    storage.write("logs/x", b"0123456789")
    chunks: Iterable[bytes] = BucketChunks(storage, "logs/x")
    assert list(chunks) == [b"0123", b"4567", b"89"] == list(chunks)
    storage.remove(["logs/x", "logs/never"])
    assert list(chunks) == []


class ShowsLate(Storage):
    """A directory whose listing shows later files and not yet an earlier one."""

    hidden = ""

    def names(self, folder: str) -> dict[str, int]:
        return {
            name: size for name, size in super().names(folder).items() if not name.endswith(self.hidden or "nothing")
        }


def test_a_segment_that_is_listed_after_a_later_one_is_read_in_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        storage = ShowsLate(tmp_path / "bucket")
        async with server(tmp_path, "a", leads=True) as leader:
            await put(leader, "u-1")
            await put(leader, "u-1", "Completed")
            await put(leader, "u-2")
            storage.hidden = "-00000002.seg"
            async with server(tmp_path, "b", storage) as follower:
                assert await phases(follower) == {"u-1": "Completed", "u-2": "Running"}
            (tmp_path / "bucket" / next(iter(storage.names("writes")))).with_name("x").touch()  # it is not ours
            assert "are missing" not in caplog.text

    asyncio.run(body())


def test_segments_that_are_gone_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader:
            await put(leader, "u-1")
            await put(leader, "u-2")
            next((tmp_path / "bucket" / "writes").glob("*-00000002.seg")).unlink()
            async with server(tmp_path, "b") as follower:
                assert await phases(follower) == {"u-2": "Running"}
            assert "are missing; what they told is lost" in caplog.text

    asyncio.run(body())


def test_two_clusters_do_not_share_an_archive(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "bucket")
    for _ in range(2):
        claim_bucket(storage, "cluster-a")
    with pytest.raises(UnusableBucket, match=r"is the archive of another cluster \(cluster-a\): give each cluster"):
        claim_bucket(storage, "cluster-b")
    claim_bucket(storage, "cluster-a")
    places = {directory_of(tmp_path, bucket, c) for bucket in (storage, Storage(tmp_path / "x")) for c in ("a", "b")}
    assert len(places) == 4, "a copy, and the logs that wait there, are of one archive"


def test_of_two_clusters_that_come_at_once_none_is_mixed_in(tmp_path: Path) -> None:
    class Raced(Storage):
        def write(self, name: str, content: bytes) -> None:
            super().write(name, content)
            super().write("writes/cluster-faster", b"")

    storage = Raced(tmp_path / "bucket")
    with pytest.raises(UnusableBucket, match="another cluster"):
        claim_bucket(storage, "slower")
    assert storage.names("writes").keys() == {"writes/cluster-faster"}


def test_a_storage_that_is_empty_all_at_once_is_not_believed(tmp_path: Path) -> None:
    """A directory that is not mounted any more, a bucket that was emptied: nothing is written there, and all is well once it is back."""

    async def body() -> None:
        storage = Storage(tmp_path / "bucket")
        claim_bucket(storage, "c")
        async with (
            server(tmp_path, "a", leads=True, cluster="c") as leader,
            server(tmp_path, "b", cluster="c") as follower,
        ):
            await put(leader, "u-1")
            assert await phases(follower) == {"u-1": "Running"}
            (tmp_path / "bucket").rename(tmp_path / "elsewhere")
            (tmp_path / "bucket").mkdir()
            leader.put("run/u-2", database.put_run(run_record("u-2")))
            for archive in (leader, follower):
                while not archive.problem:
                    await archive.settle(20)
                assert "mounted" in archive.problem and str(tmp_path / "bucket") in archive.problem
            assert not list((tmp_path / "bucket").iterdir())
            assert {r.uid for r in await follower.read(database.read_headers)} == {"u-1"}, "its copy answers"
            (tmp_path / "bucket").rmdir()
            (tmp_path / "elsewhere").rename(tmp_path / "bucket")
            for archive in (leader, follower):
                while not await archive.settle(20) or len(await archive.read(database.read_headers)) < 2:
                    await asyncio.sleep(0.01)
            (tmp_path / "bucket" / "writes" / "cluster-c").unlink()
            while not follower.problem:
                await follower.settle(20)
            assert "writes/cluster-c is gone from it" in follower.problem

    asyncio.run(body())


class SlowStorage(Storage):
    """Nothing is read before three objects are asked for at once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.has_three, self.was_serial = itertools.count(1), threading.Event(), False

    def read(self, name: str) -> bytes:
        if next(self.asked) >= 3:
            self.has_three.set()
        if not self.has_three.wait(20):
            self.was_serial = True
        return super().read(name)


def test_who_starts_does_not_wait_for_one_segment_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_archive, "_READ_AHEAD", 4)

    async def body() -> None:
        async with server(tmp_path, "a", leads=True) as leader:
            for number in range(10):
                await put(leader, f"u-{number}")
        slow = SlowStorage(tmp_path / "bucket")
        assert len(slow.names("writes")) > 8
        async with server(tmp_path, "b", slow) as follower:
            assert len(await phases(follower)) == 10
        assert not slow.was_serial

    asyncio.run(body())
