"""Objects of watches are decoded as msgspec decodes them, and what is equal is there once."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.kube.scripted import Answer, Asked, Scripted

from rowlock import kinds
from rowlock.errors import Internal
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.kube.watches.watch_stream import parse_change


def random_json(rng: random.Random, depth: int = 0) -> Any:
    if depth < 5 and rng.random() < 0.5:
        size = rng.randrange(5)
        if rng.random() < 0.5:
            return [random_json(rng, depth + 1) for _ in range(size)]
        return {random_text(rng): random_json(rng, depth + 1) for _ in range(size)}
    return rng.choice((None, True, False, rng.randrange(-(2**53), 2**53), rng.random() * 1e9, random_text(rng), "", 0))


def random_text(rng: random.Random) -> str:
    return "".join(rng.choice('ab"\\/\n\x01 {}[]:,é€\U0001f680') for _ in range(rng.randrange(6)))


def pod(number: int, revision: int = 1, **metadata: Any) -> dict[str, Any]:
    meta = {"name": f"p-{number}", "namespace": "team", "uid": f"uid-{number}", "resourceVersion": str(revision)}
    containers = [{"name": "main", "env": [{"name": "RANK", "value": str(number)}, {"name": "A", "value": "long" * 9}]}]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {**meta, **metadata},
        "spec": {"containers": containers, "tolerations": [{"operator": "Exists"}]}, "status": {"phase": "Running"},
    }  # fmt: skip


def encode(obj: Any) -> bytes:
    return json.dumps(obj).encode()


@pytest.mark.parametrize("max_pool_bytes", [0, 64, 2**20])
def test_what_comes_out_is_what_went_in(max_pool_bytes: int) -> None:
    decoder, rng = ObjectDecoder(max_pool_bytes), random.Random(max_pool_bytes)
    for number in range(500):
        metadata = {"uid": f"u-{number}", "resourceVersion": "1", "labels": random_json(rng)}
        obj = {"spec": random_json(rng), "status": random_json(rng), random_text(rng): 1, "metadata": metadata}
        assert decoder.decode(encode(obj)) == obj


def test_equal_parts_of_different_objects_are_one() -> None:
    decoder = ObjectDecoder()
    one, other = decoder.decode(encode(pod(1))), decoder.decode(encode(pod(2)))
    assert one["spec"]["tolerations"] is other["spec"]["tolerations"]
    assert one["spec"]["containers"][0]["env"][1] is other["spec"]["containers"][0]["env"][1]
    assert [o["spec"]["containers"][0]["env"][0]["value"] for o in (one, other)] == ["1", "2"]
    assert one["status"]["phase"] is other["status"]["phase"]


def test_who_wrote_which_field_is_left_out() -> None:
    assert "managedFields" not in ObjectDecoder().decode(encode(pod(1, managedFields=[{"manager": "x"}])))["metadata"]


def test_an_object_that_somebody_holds_is_found_and_others_are_forgotten() -> None:
    decoder = ObjectDecoder()
    held = [decoder.decode(encode(pod(n))) for n in range(10)]
    for n in range(10, 10_000):
        decoder.decode(encode(pod(n)))
    gc.collect()
    assert all(decoder.decode(encode(pod(n))) is held[n] for n in range(10))
    assert len(decoder._objects) < 2 * 2048 + 10  # those that nobody holds do not pile up
    newer = decoder.decode(encode(pod(1, 2)))
    assert newer is not held[1] and newer["metadata"]["resourceVersion"] == "2"


def test_objects_without_a_uid_or_a_revision_are_never_taken_for_one_another() -> None:
    decoder, nameless = ObjectDecoder(), {"metadata": {}, "spec": {"a": 1}}
    assert decoder.decode(encode(nameless)) is not decoder.decode(encode(nameless))


def test_the_pool_forgets_what_is_not_seen_again() -> None:
    decoder = ObjectDecoder(max_pool_bytes=10_000)
    for n in range(2000):
        decoder.decode(encode(pod(n)))
    assert sum(map(len, decoder._young)) < 20_000 and sum(map(len, decoder._old)) < 20_000


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"1", b'"a"', b'{"type":"ADDED"}', b'{"type":"ADDED","object":null}', b'{"type":"ADDED","object":[]}',
     b'{"type":"ADDED","object":{}}', b'{"type":"ADDED","object":{"metadata":7}}', b'{"type":3,"object":{}}', b"\xff",
     b'{"type":"ADDED","object":{"metadata":{"uid":5}}}'],
)  # fmt: skip
def test_a_line_that_is_no_change_is_refused(line: bytes) -> None:
    with pytest.raises(Internal):
        parse_change(kinds.POD, line, ObjectDecoder())


def test_deeply_nested_objects_cost_no_more_than_their_text() -> None:
    deep = '{"a":' * 500 + "1" + "}" * 500
    decoded = ObjectDecoder().decode(f'{{"metadata":{{"uid":"u","resourceVersion":"1"}},"spec":{deep}}}'.encode())
    assert json.dumps(decoded["spec"], separators=(",", ":")) == deep


def test_two_caches_of_one_process_hold_the_same_objects(tmp_path: Path) -> None:
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}

    def answer(asked: Asked) -> Answer:
        if "sendInitialEvents" not in asked.query:
            return Answer(lines=[])
        state = [{"type": "ADDED", "object": pod(n, 3, managedFields=[{"manager": "x"}])} for n in range(5)]
        return Answer(lines=[*state, {"type": "BOOKMARK", "object": end}])

    async def run() -> None:
        server, decoder = Scripted(answer), ObjectDecoder()
        async with server.running():
            config, limits = server.kubeconfig(tmp_path), Limits(qps=0)
            async with (
                Kube.connect(config, limits=limits, decoder=decoder) as one,
                Kube.connect(config, limits=limits, decoder=decoder) as other,
            ):
                caches = [Cache(kube, (kinds.POD,)) for kube in (one, other)]
                tasks = [asyncio.create_task(cache.run()) for cache in caches]
                async with asyncio.timeout(200):
                    for cache in caches:
                        await cache.synced.wait()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        first, second = (list(cache.view.all(kinds.POD)) for cache in caches)
        assert len(first) == 5 and all(a is b for a, b in zip(first, second, strict=True))

    asyncio.run(run())
