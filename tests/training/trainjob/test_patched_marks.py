"""Labels and annotations that `runtimePatches` bring to the JobSet itself go with the patch, and those of others stay: Trainer applies the
JobSet as the field manager `trainer`, so the API server takes away what it no longer names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.training.test_mpi_key import NAME, SPACE, CountedKeys, do, world

from rowlock.api import WriteOptions
from rowlock.kinds import JOB_SET, TRAIN_JOB
from rowlock.objects import Key, meta
from rowlock.training.trainjob.controller import TrainJobController


def patch_of(**marks: dict[str, str]) -> dict[str, Any]:
    spec = {"template": {"metadata": marks}}
    return {"spec": {"runtimePatches": [{"manager": "tests.rowlock.dev/me", "trainingRuntimeSpec": spec}]}}


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_what_a_patch_brought_goes_with_it(part: str) -> None:
    async def play() -> list[dict[str, str]]:
        store, controller, key = await world(), TrainJobController(CountedKeys()), Key(SPACE, NAME)
        found = []

        async def look() -> None:
            await do(store, controller.decide(store.view, key, 1.0))
            jobset = store.view.get(JOB_SET, *key)
            assert jobset is not None
            found.append(dict(meta(jobset).get(part) or {}))

        await store.patch(TRAIN_JOB, *key, patch_of(**{part: {"a.dev/one": "1", "two": "2", "kept": "k"}}))
        await look()
        by_hand = {"metadata": {part: {"mine": "m", "two": "changed", "three": "3"}}}
        await store.patch(JOB_SET, *key, by_hand, options=WriteOptions(manager="kubectl-label"))
        await store.patch(TRAIN_JOB, *key, patch_of(**{part: {"kept": "k", "three": "of-the-patch"}}))
        await look()
        await store.patch(TRAIN_JOB, *key, {"spec": {"runtimePatches": None}})
        await look()
        await store.close()
        return found

    first, second, last = asyncio.run(play())
    assert first == {"a.dev/one": "1", "two": "2", "kept": "k"}
    assert second == {"mine": "m", "two": "changed", "kept": "k", "three": "of-the-patch"}
    assert last == {"mine": "m", "two": "changed"}
