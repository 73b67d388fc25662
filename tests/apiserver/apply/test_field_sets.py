"""Sets of fields as managedFields write them."""

from __future__ import annotations

import random
from typing import Any

from rowlock.apiserver.apply import field_sets
from rowlock.apiserver.apply.field_sets import Path

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
