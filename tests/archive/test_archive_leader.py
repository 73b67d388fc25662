"""Which of several servers writes their archive: one that can."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.archive.test_archive import run_record
from tests.archive.test_shared_archive import Storage, phases, server, short_waits
from tests.waiting import until_async as until

from rowlock import kinds
from rowlock.archive import database
from rowlock.archive.bucket import MissingObject, StorageFailed
from rowlock.archive.shared_archive import SharedArchive
from rowlock.kube.leader_election import LeaseTimes
from rowlock.kube.rights import ARCHIVE_LEASE
from rowlock.kube_evidence import archive_leader
from rowlock.kube_evidence.archive_leader import ArchiveLeader
from rowlock.storage.store import Store

TIMES = LeaseTimes(duration=30.0, deadline=20.0, retry=0.02)
"""A Lease is taken when it was given back, and not because it ran out."""
__all__ = ["short_waits"]


async def lease_store() -> Store:
    store = Store.open(None)
    await store.create(kinds.NAMESPACE, {"metadata": {"name": ARCHIVE_LEASE[0]}})
    return store


class Replica:
    """A server that hands a run to its archive whenever it is the one that records."""

    def __init__(self, name: str, archive: SharedArchive, store: Store) -> None:
        self.name, self.archive = name, archive
        self._leader = ArchiveLeader(store, archive, name, TIMES)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self._leader.run(self._record))

    async def _record(self) -> None:
        for number in range(10_000):
            uid = f"{self.name}-{number}"
            self.archive.put(f"run/{uid}", database.put_run(run_record(uid)))
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture
def full(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of servers whose disk is full now, or refuses with the given number of an error."""
    names: set[str] = set()
    code: int = getattr(request, "param", errno.ENOSPC)
    check = SharedArchive._check_space

    def check_space(self: SharedArchive) -> None:
        if self.directory.name in names:
            raise OSError(code, os.strerror(code), str(self.directory))
        check(self)

    monkeypatch.setattr(SharedArchive, "_check_space", check_space)
    monkeypatch.setattr(archive_leader, "OWN_DISK_S", 0.2)
    monkeypatch.setattr(archive_leader, "_LOOK_S", 0.02)
    return names


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.ENOENT], indirect=True)
def test_a_leader_whose_disk_takes_nothing_lets_another_one_write(tmp_path: Path, full: set[str]) -> None:
    async def body() -> None:
        store, storage = await lease_store(), Storage(tmp_path / "bucket")
        async with AsyncExitStack() as stack:
            archives = [await stack.enter_async_context(server(tmp_path, name, storage)) for name in ("a", "b")]
            a, b = (Replica(name, archive, store) for name, archive in zip("ab", archives, strict=True))
            a.start()
            await until(lambda: a.archive.is_leading)
            b.start()
            full.add("a")
            await until(lambda: b.archive.is_leading)
            assert not a.archive.is_leading
            async with asyncio.timeout(200):
                while "b-0" not in await phases(b.archive):
                    await asyncio.sleep(0.01)
            full.clear()
            await b.stop()
            await until(lambda: a.archive.is_leading)
            await a.stop()

    asyncio.run(body())


@pytest.mark.parametrize("error", [StorageFailed("no answer"), MissingObject("The bucket does not exist")])
def test_a_storage_that_takes_nothing_changes_no_leader(tmp_path: Path, full: set[str], error: StorageFailed) -> None:
    async def body() -> None:
        store, storage = await lease_store(), Storage(tmp_path / "bucket")
        async with server(tmp_path, "a", storage) as archive, server(tmp_path, "b", storage) as other:
            a, b = Replica("a", archive, store), Replica("b", other, store)
            a.start()
            await until(lambda: a.archive.is_leading)
            b.start()
            storage.refuses, storage.error = True, error
            await until(lambda: bool(a.archive.problem))
            assert a.archive.own_trouble_s == 0
            storage.refuses = False
            await until(lambda: not a.archive.problem)
            assert a.archive.is_leading and not b.archive.is_leading
            await a.stop()
            await b.stop()

    asyncio.run(body())


def test_nobody_whose_disk_is_full_begins(tmp_path: Path, full: set[str]) -> None:
    async def body() -> None:
        store = await lease_store()
        async with server(tmp_path, "a") as archive:
            full.add("a")
            a = Replica("a", archive, store)
            a.start()
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not a.archive.is_leading
            full.clear()
            await until(lambda: a.archive.is_leading)
            await a.stop()

    asyncio.run(body())
