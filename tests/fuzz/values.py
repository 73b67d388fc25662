"""Objects at random, from the table of types: mostly well-formed, sometimes a little wrong, now and then absurd."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from random import Random
from typing import Any

from rowlock.apiserver.schema import types
from rowlock.kinds import Kind

TEXTS = (
    "", "a", "b-1", "Default", "x" * 64, "x" * 300, "ünï", "\u0000", "\ud800", "😀", "a/b", "../..", "%2e", "null", "1Gi",
    "100m", "-1", "1e9999999999", "0.1", "2026-01-02T03:04:05Z", "2026-99-99T03:04:05Z", "IfNotPresent", "Always",
    "ClusterIP", "None", "$(X)", "{{", "a=b", "app in (x)", " ", "\n", "example.com/x",
)  # fmt: skip
NUMBERS = (0, 1, -1, 3, 65535, 65536, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, 10**40, 0.5, -0.0, 1e300)
JUNK: tuple[Any, ...] = (None, True, "x", 7, [], {}, [[]], [None], {"a": None}, 1.5, "\ud800")
NAMES = ("a", "b", "c-1", "d.e", "canary")


def junk(random: Random) -> Any:
    """A copy, for whoever gets it may change it."""
    return copy.deepcopy(random.choice(JUNK))


@dataclass
class Grower:
    """Makes values; `wild` is how often a value is not what the schema says."""

    random: Random
    wild: float = 0.03
    budget: int = 120

    def body(self, kind: Kind, namespace: str, name: str) -> Any:
        made = self.value(types.schema_of(kind))
        if not isinstance(made, dict):
            return made
        made |= {"apiVersion": kind.api_version, "kind": kind.name}
        meta: dict[str, Any] = {"name": name} | ({"namespace": namespace} if kind.namespaced else {})
        if self.random.random() < 0.4:
            grown = self.value(types.schema(types.META))
            meta = (grown if isinstance(grown, dict) else {}) | meta
        if self.random.random() < 0.9:
            meta.pop("resourceVersion", None)
        made["metadata"] = meta
        return self.spoiled(made) if self.random.random() < 0.15 else made

    def value(self, node: types.Schema, depth: int = 0) -> Any:
        """A value of this schema."""
        random = self.random
        self.budget -= 1
        if random.random() < self.wild:
            return junk(random)
        ref = node.get("$ref", "")
        if ref in (types.QUANTITY, types.INT_OR_STRING, types.TIME, types.MICRO_TIME):
            return random.choice(("1", "500m", "1Gi", 3, "2026-01-02T03:04:05Z", "25%", *random.sample(TEXTS, 2)))
        node = types.resolve_ref(node)
        kind = node.get("type")
        if "properties" in node:
            return self._struct(node, depth)
        if kind == "array":
            count = 0 if depth > 7 or self.budget < 0 else random.choice((0, 1, 1, 2, 3))
            return [self.value(node.get("items") or {}, depth + 1) for _ in range(count)]
        if kind == "object" or "additionalProperties" in node:
            more = node.get("additionalProperties")
            child = more if isinstance(more, dict) else {}
            return {random.choice(TEXTS): self.value(child, depth + 1) for _ in range(random.choice((0, 1, 2)))}
        return self._scalar(node, kind)

    def _struct(self, node: types.Schema, depth: int) -> dict[str, Any]:
        made = {}
        required = node.get("required") or ()
        chance = 0.0 if self.budget < 0 or depth > 7 else 0.6 if depth < 2 else 0.15
        for key, child in node["properties"].items():
            if key in required or self.random.random() < chance:
                made[key] = self.value(child, depth + 1)
        if self.random.random() < self.wild:
            made["unknownField"] = junk(self.random)
        return made

    def _scalar(self, node: types.Schema, kind: str | None) -> Any:
        random = self.random
        if "enum" in node and random.random() < 0.8:
            return random.choice(node["enum"])
        if kind == "boolean":
            return random.random() < 0.5
        if kind in ("integer", "number"):
            return random.choice((1, 2, 10, 30, *random.sample(NUMBERS, 1)))
        if kind == "string":
            return random.choice(("a", "b-1", "main", "busybox:1", *random.sample(TEXTS, 1)))
        return junk(random)

    def spoiled(self, value: Any) -> Any:
        """The same with one thing in it replaced."""
        random = self.random
        if isinstance(value, dict) and value and random.random() < 0.8:
            key = random.choice(list(value))
            return {**value, key: self.spoiled(value[key])}
        if isinstance(value, list) and value and random.random() < 0.8:
            at = random.randrange(len(value))
            return [*value[:at], self.spoiled(value[at]), *value[at + 1 :]]
        return random.choice(
            (junk(random), random.choice(TEXTS), random.choice(NUMBERS), nested(random.choice((5, 90, 3000))))
        )


def nested(depth: int) -> Any:
    made: Any = "deep"
    for _ in range(depth):
        made = {"a": made} if depth % 2 else [made]
    return made


def json_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "[" * 3000


def text_of(value: Any, random: Random) -> bytes:
    """As JSON, sometimes not quite: cut, twisted, doubled, in another encoding."""
    text = json_text(value)
    made = text.encode()
    roll = random.random()
    if roll < 0.9:
        return made
    if roll < 0.92 and len(made) > 2:
        at = random.randrange(len(made))
        return made[:at] + bytes([random.randrange(256)]) + made[at + 1 :]
    if roll < 0.94:
        return made[: random.randrange(len(made) + 1)]
    if roll < 0.95:
        return text.encode(random.choice(("utf-16", "utf-32", "utf-8-sig")))
    if roll < 0.96:
        return made.replace(b"1", random.choice((b"NaN", b"1e999", b"-Infinity", b"01", b"9" * 400, b"1E400")), 1)
    if roll < 0.98:
        return made.replace(b"{", b'{"metadata":{},"spec":1,"a":1,"a":2,', 1)
    return random.randbytes(random.choice((0, 1, 30, 2000)))
