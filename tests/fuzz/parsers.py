"""The parsers alone, fed at random: whatever comes in, nothing but an ApiError comes out, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.requests import directed, operation, selector
from tests.fuzz.values import NUMBERS, TEXTS, Grower, json_text, junk, text_of

from rowlock import kinds, quantity, selectors
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.http import request_body
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.schema import protobuf
from rowlock.errors import ApiError
from rowlock.objects import Object

SLOW_S = 5.0
"""Seconds of CPU for one input; more is an attack that works."""
POD: Object = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "fuzzed", "labels": {"a": "b"}, "uid": "1"},
    "spec": {"containers": [{"name": "c", "image": "x:1", "env": [{"name": "A", "value": "1"}]}], "volumes": []},
}  # fmt: skip


def read(value: Any) -> Any:
    """As the server's own edge has it: JSON, and not too deep."""
    return request_body.json_of(json_text(value).encode())


def _patch(random: Random) -> Any:
    kind = random.choice(("json", "merge", "strategic", "apply"))
    patch: Any
    patch = [operation(random) for _ in range(3)] if kind == "json" else Grower(random).body(kinds.POD, "fuzzed", "a")
    patch = read(directed(random, patch) if kind == "strategic" else patch)
    if kind == "apply" and not (isinstance(patch, dict) and isinstance(patch.get("metadata"), dict)):
        return None  # the door refuses that before
    return Patcher().apply(kinds.POD, POD, patch, kind, WriteOptions(manager="fuzz", force=True))  # type: ignore[arg-type]  # one of four


def _admitted(random: Random) -> Any:
    kind = random.choice(kinds.KINDS)
    obj = read(Grower(random).body(kind, "fuzzed", "a"))
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return None
    obj = {**obj, "apiVersion": kind.api_version, "kind": kind.name}  # as the store hands it on
    return AdmissionChain().create(kind, obj, WriteOptions(manager="fuzz"))


def _quantity(random: Random) -> Any:
    digits = "".join(random.choices("0123456789.+-eEinumkKMGTP ", k=random.randrange(12)))
    text: Any = random.choice(
        (digits, *random.sample(TEXTS, 1), *random.sample(NUMBERS, 1), f"1e{random.randrange(10**6)}")
    )
    return quantity.canonicalize(text), quantity.millis(text), quantity.integer_value(text)


def _twisted(random: Random) -> str:
    text = selector(random)
    return "".join(c for c in text if random.random() < 0.95)


PARSERS: dict[str, Callable[[Random], Any]] = {
    "label selector": lambda r: selectors.parse_labels(_twisted(r)),
    "field selector": lambda r: selectors.parse_fields(_twisted(r)),
    "quantity": _quantity,
    "patch": _patch,
    "admission": _admitted,
    "json": lambda r: request_body.decode_strict_json(text_of(Grower(r).body(kinds.POD, "fuzzed", "a"), r)),
    "yaml": lambda r: request_body.yaml_of(
        text_of(Grower(r).body(kinds.POD, "fuzzed", "a"), r).replace(b'"', b"", r.randrange(9))
    ),
    "protobuf": lambda r: protobuf.decode(b"k8s\x00" + r.randbytes(r.randrange(200))),
    "junk patch": lambda r: Patcher().apply(kinds.POD, POD, read(junk(r)), "strategic", WriteOptions()),
}


def parse_at_random(seed: str, seconds: float, count: int = 10**9) -> list[str]:
    """Findings, each with what repeats it."""
    deadline, wrong = time.monotonic() + seconds, []
    for number in range(count):
        for name, parse in PARSERS.items():
            began = time.thread_time()
            try:
                parse(Random(f"{seed}:{name}:{number}"))
            except ApiError:
                pass
            except Exception as error:  # noqa: BLE001  # that it may be anything is the point
                wrong.append(f"{name}, Random('{seed}:{name}:{number}'): {error!r}")
            if time.thread_time() - began > SLOW_S:
                wrong.append(f"{name}, Random('{seed}:{name}:{number}'): took {time.thread_time() - began:.1f} s")
        if time.monotonic() > deadline or len(wrong) > 50:
            break
    return wrong
