"""Shots without end: places of objects that are filled, as each verb that carries objects, and the shapes of `known.py`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.hostile.limits.known import KNOWN
from tests.hostile.limits.shots import (
    APPLY,
    JSON_PATCH,
    MERGE,
    OBJECT_BYTES,
    SMALL,
    STRATEGIC,
    Path,
    Shot,
    Value,
    collection,
    filled,
    places,
    put,
    small,
)

from rowlock.apiserver.schema.types import Schema
from rowlock.kinds import Kind


def drawn(seed: str) -> Iterator[Shot]:
    """Shots without end; the same seed gives the same ones."""
    dice, number = Random(seed), 0
    every = {kind: places(kind) for kind in SMALL}
    while True:
        number += 1
        if dice.random() < 0.25:
            yield from dice.choice(KNOWN)(dice, f"k{number}")
            continue
        kind = dice.choice(tuple(SMALL))
        path, node = dice.choice(every[kind])
        yield from carried(dice, kind, f"s{number}", path, node)


def carried(dice: Random, kind: Kind, name: str, path: Path, node: Schema) -> Iterator[Shot]:
    """One place of one kind, filled; by a create, and by what may follow one."""
    room = dice.choice((20_000, 200_000, OBJECT_BYTES))
    if path[:2] == ("metadata", "annotations"):
        room = min(room, 250_000)
    full = small(kind, name)
    value = filled(dice, node, room)
    put(full, path, value)
    size = len(value) if isinstance(value, dict | list) else len(str(value))
    what = f"{kind.name} {'.'.join(map(str, path))} of {size}"
    dry, at = dice.choice(("", "?dryRun=All")), collection(kind)
    if dice.random() < 0.5:
        yield Shot(f"create {what}{dry}", "POST", at + dry, full)
    else:
        yield Shot(f"create small for {what}", "POST", at, small(kind, name))
    patch: dict[str, Value] = {}
    put(patch, path, value)
    way = dice.choice(("put", MERGE, STRATEGIC, APPLY, JSON_PATCH))
    if way == "put":
        yield Shot(f"put {what}{dry}", "PUT", f"{at}/{name}{dry}", full)
    elif way == JSON_PATCH:
        pointer = "/" + "/".join(map(str, path))
        yield Shot(
            f"json patch {what}{dry}",
            "PATCH",
            f"{at}/{name}{dry}",
            [{"op": "add", "path": pointer, "value": value}],
            way,
        )
    elif way == APPLY:
        query = f"?fieldManager=near&force=true{dry.replace('?', '&')}"
        yield Shot(f"apply {what}{dry}", "PATCH", f"{at}/{name}{query}", full, way)
    else:
        yield Shot(f"{way.split('/')[1]} {what}{dry}", "PATCH", f"{at}/{name}{dry}", patch, way)
    yield Shot(f"list after {what}", "GET", at)
    yield Shot(
        f"delete {what}",
        "DELETE",
        f"{at}/{name}",
        {"propagationPolicy": dice.choice(("Background", "Foreground", "Orphan"))},
    )
