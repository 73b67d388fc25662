"""Sets of fields as managedFields write them."""

from __future__ import annotations

import random
from typing import Any

from rowlock import kinds
from rowlock.apiserver.apply import field_sets
from rowlock.apiserver.apply.field_sets import Path
from rowlock.apiserver.schema import types

STEPS = ["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0"]


def random_fields(rng: random.Random) -> set[Path]:
    return {tuple(rng.choice(STEPS) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(0, 8))}


def test_what_a_tree_contains_are_its_paths() -> None:
    rng = random.Random(7)
    for _ in range(500):
        fields = random_fields(rng)
        tree: dict[str, Any] = field_sets.tree_of(fields)
        for path in random_fields(rng) | fields | {p[:-1] for p in fields if len(p) > 1}:
            assert field_sets.contains(tree, path) is (path in fields), (tree, path)


def test_a_set_of_thousands_of_names_is_spelled_as_one_by_one() -> None:
    names = [*(f"a/f{n}" for n in range(100)), 'with "quotes"', "é\n\u0000\u2028", ""]
    tree = field_sets.new_object_fields({"metadata": {"name": "x", "finalizers": names}}, types.schema_of(kinds.POD))
    node = types.field_schema(types.schema(types.META), "finalizers")
    assert node is not None
    steps: dict[str, Any] = {field_sets.path_element(name, node): {} for name in names}
    assert tree == {"f:metadata": {"f:finalizers": {".": {}, **steps}}}
