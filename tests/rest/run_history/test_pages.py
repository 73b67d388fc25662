"""A page of runs is looked for, and not cut out of a list of everything that ever ran."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rowlock.rest.run_history import runs


@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (3, 0), (3, 2), (3, 3), (50, 1), (2, 4), (2, 9), (2, 10**9)])
@pytest.mark.parametrize("sees", ["all", "odd"])
def test_pages_are_those_of_the_whole_list(monkeypatch: pytest.MonkeyPatch, limit: int, offset: int, sees: str) -> None:
    stored, asked = list(range(9)), list[int]()

    async def ask(call: Any, question: Any, where: str, values: list[Any], *, limit: int, offset: int) -> list[int]:
        asked.append(limit)
        return stored[offset:][:limit]

    monkeypatch.setattr(runs, "ask_archive", ask)
    monkeypatch.setattr(runs, "is_visible", lambda call, record, verb: record % 2 == 1)
    monkeypatch.setattr(runs, "_ROWS_PER_LOOK", 2)
    cache = SimpleNamespace(projects=lambda: {"a": None})
    call = SimpleNamespace(rights=None if sees == "all" else object(), context=SimpleNamespace(cache=cache))
    found = asyncio.run(runs._read_visible(cast(Any, call), "", [], limit, offset))
    visible = stored if sees == "all" else [one for one in stored if one % 2]
    assert cast(list[int], found) == visible[offset:][:limit]
    assert max(asked) <= (limit if sees == "all" else 2)
