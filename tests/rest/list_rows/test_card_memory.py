"""The memory of a node's cards, as the informer cache knows it: each change costs one node, and a heartbeat nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.rest.list_rows.fed_state import put

from rowlock import kinds
from rowlock.controllers.view.state import State
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.list_rows import object_facts
from rowlock.scheduling.model import from_objects
from rowlock.scheduling.model.snapshot import Node
from rowlock.storage.store import Store


def gpu_node(name: str, gpus: int, memory: int, heartbeat: str = "") -> Object:
    labels = {"nvidia.com/gpu.memory": str(memory)}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
    status = {"capacity": {"nvidia.com/gpu": str(gpus)}, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def test_a_heartbeat_parses_no_node_and_a_change_parses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = from_objects.parse_node

    def count(obj: Object) -> Node:
        parsed.append(obj["metadata"]["name"])
        return parse(obj)

    monkeypatch.setattr(object_facts, "parse_node", count)

    async def play() -> None:
        store = Store.open(None)
        cache = InformerCache(store)
        running = asyncio.create_task(cache.run())
        await cache.wait_for_sync()

        async def seen(condition: Callable[[], bool]) -> None:
            assert await cache.wait_until("", condition, 30)

        def facts(name: str) -> Object:
            return next((node for node in cache.nodes() if node["metadata"]["name"] == name), {})

        async def replace(node: Object, subresource: str = "") -> None:
            current = await store.get(kinds.NODE, "", node["metadata"]["name"])
            metadata = {**current["metadata"], "labels": node["metadata"]["labels"]}
            written = await store.update(kinds.NODE, {**node, "metadata": metadata}, subresource=subresource)
            revision = written["metadata"]["resourceVersion"]
            await seen(lambda: facts(node["metadata"]["name"])["metadata"]["resourceVersion"] == revision)

        for node in (gpu_node("a", 2, 16_000), gpu_node("b", 4, 40_000), gpu_node("c", 0, 100)):
            await store.create(kinds.NODE, node)
        await seen(lambda: cache.card_memory("b") == 40_000 and bool(facts("c")))
        assert [cache.card_memory(name) for name in ("a", "b", "c", "", "gone")] == [16_000, 40_000, 0, 16_000, 0]

        parsed.clear()
        await replace(gpu_node("b", 4, 40_000, "2026-01-02T03:04:05Z"), subresource="status")
        assert parsed == [] and cache.card_memory("") == 16_000
        await replace(gpu_node("b", 4, 8_000))
        assert parsed == ["b"] and cache.card_memory("") == cache.card_memory("b") == 8_000
        await store.delete(kinds.NODE, "", "b")
        await seen(lambda: not facts("b"))
        assert parsed == ["b"] and (cache.card_memory("b"), cache.card_memory("")) == (0, 16_000)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(play())


def test_a_node_that_was_made_again_has_its_cards() -> None:
    """A watch that was away shows the new node of this name in place of the old one, with the same labels and cards."""
    state = State()
    cache = InformerCache(Store.open(None), view=state)
    for uid in ("first", "second"):
        node = gpu_node("a", 2, 16_000)
        put(state, kinds.NODE, {**node, "metadata": {**node["metadata"], "uid": uid}})
        assert (cache.card_memory("a"), cache.card_memory("")) == (16_000, 16_000)
