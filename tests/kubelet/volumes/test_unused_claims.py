"""When the directory of a claim goes: at once with a claim that was deleted, after a week without one that was ever known."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.patch.patches import Patcher
from rowlock.kubelet.volumes.claims import DIRECTORY_ANNOTATION, RETENTION_SECONDS, correct_directories, remove_unused
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.volumes.volumes import claim_directory
from rowlock.storage.store import Store

CLAIM: dict[str, Any] = {
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
NOW = 1_700_000_000.0


async def _cluster_with_claim(data: Path) -> tuple[Store, VolumeDirectories, Path]:
    store = Store.open(None, patches=Patcher())
    await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
    claim = await store.create(kinds.PERSISTENT_VOLUME_CLAIM, CLAIM)
    directory = data / "claims" / claim_directory(claim)
    directory.mkdir(parents=True)
    (directory / "weights").write_text("precious")
    return store, VolumeDirectories(data), directory


def test_a_claim_that_was_deleted_takes_its_directory_with_it(tmp_path: Path) -> None:
    async def body() -> None:
        store, directories, directory = await _cluster_with_claim(tmp_path)
        await remove_unused(store, directories, (), NOW)
        await store.delete(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data")
        await remove_unused(store, directories, {("default", "data")}, NOW)
        assert directory.is_dir(), "a pod uses it"
        await remove_unused(store, directories, (), NOW)
        assert not directory.exists() and not directories.known_claims

    asyncio.run(body())


def test_a_claim_that_nobody_knows_is_kept_for_a_week_after_its_last_write(tmp_path: Path) -> None:
    async def body() -> None:
        _, directories, directory = await _cluster_with_claim(tmp_path)
        store = Store.open(None)
        for path in (directory, directory / "weights"):
            os.utime(path, (NOW + 100, NOW + 100))
        for seconds in (0.0, RETENTION_SECONDS - 1, RETENTION_SECONDS + 1):
            await remove_unused(store, directories, (), NOW + seconds)
            assert (directory / "weights").read_text() == "precious"
        await remove_unused(store, directories, (), NOW + 100 + RETENTION_SECONDS + 1)
        assert os.listdir(tmp_path / "claims") == [".gone"] and not os.listdir(tmp_path / "claims" / ".gone")

    asyncio.run(body())


def test_a_claim_that_is_known_again_begins_anew(tmp_path: Path) -> None:
    """The newer database was put back."""

    async def body() -> None:
        store, directories, directory = await _cluster_with_claim(tmp_path)
        await remove_unused(Store.open(None), directories, (), NOW)
        assert directories.claim_mark(directory.name).exists()
        await remove_unused(store, directories, (), NOW + 2 * RETENTION_SECONDS)
        assert directory.is_dir() and not directories.claim_mark(directory.name).exists()
        assert objects.uid(await store.get(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data")) in directory.name

    asyncio.run(body())


def test_a_claim_says_where_it_lies_after_a_restore_elsewhere(tmp_path: Path) -> None:
    async def body() -> None:
        store, directories, directory = await _cluster_with_claim(tmp_path)
        await correct_directories(store, store.view, directories)
        claim = await store.get(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data")
        assert DIRECTORY_ANNOTATION not in objects.annotations(claim), "no pod has used it yet"
        await store.patch(
            kinds.PERSISTENT_VOLUME_CLAIM,
            "default",
            "data",
            {"metadata": {"annotations": {DIRECTORY_ANNOTATION: "/old/claims/x"}}},
        )
        await correct_directories(store, store.view, directories)
        claim = await store.get(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data")
        assert objects.annotations(claim)[DIRECTORY_ANNOTATION] == str(directory)
        revision = store.revision
        await correct_directories(store, store.view, directories)
        assert store.revision == revision

    asyncio.run(body())
