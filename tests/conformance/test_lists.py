"""Lists: pages at one revision, selectors, and what they must not mix."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.conformance.world import World

from rowlock import kinds
from rowlock.api import Page
from rowlock.errors import ApiError, BadRequest, Expired
from rowlock.objects import Object, name
from rowlock.selectors import parse_fields, parse_labels


async def _seven(world: World) -> None:
    for number in range(7):
        given = world.job(f"j{number}")
        given["metadata"]["labels"] = {"parity": "odd" if number % 2 else "even", "number": str(number)}
        await world.create(given)


async def _pages(world: World, limit: int) -> list[Page]:
    pages = [await world.api.list(kinds.PYTORCHJOB, world.namespace, limit=limit)]
    while pages[-1].token:
        pages.append(await world.api.list(kinds.PYTORCHJOB, world.namespace, limit=limit, token=pages[-1].token))
    return pages


def _names(items: Sequence[Object]) -> list[str]:
    return [name(item) for item in items]


async def test_pages_make_the_whole(world: World) -> None:
    await _seven(world)
    pages = await _pages(world, 3)
    assert [_names(p.items) for p in pages] == [["j0", "j1", "j2"], ["j3", "j4", "j5"], ["j6"]]
    assert [p.remaining for p in pages] == [4, 1, None]
    assert len({p.revision for p in pages}) == 1


async def test_pages_show_one_moment(world: World) -> None:
    await _seven(world)
    first = await world.api.list(kinds.PYTORCHJOB, world.namespace, limit=3)
    await world.api.delete(kinds.PYTORCHJOB, world.namespace, "j4")
    await world.create(world.job("j5b"))
    rest = await world.api.list(kinds.PYTORCHJOB, world.namespace, token=first.token)
    assert _names(rest.items) == ["j3", "j4", "j5", "j6"]
    assert rest.revision == first.revision


async def test_a_wrong_token_is_refused(world: World) -> None:
    with pytest.raises((BadRequest, Expired)):
        await world.api.list(kinds.PYTORCHJOB, world.namespace, limit=3, token="nonsense")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("parity=odd", "j1 j3 j5"),
        ("parity==odd,number!=3", "j1 j5"),
        ("number in (1,2,9)", "j1 j2"),
        ("number notin (1,2)", "j0 j3 j4 j5 j6"),
        ("!parity", ""),
        ("parity,number=0", "j0"),
        ("number>4", "j5 j6"),
        ("number<2,parity=even", "j0"),
    ],
)
async def test_labels_select(world: World, labels: str, expected: str) -> None:
    await _seven(world)
    page = await world.api.list(kinds.PYTORCHJOB, world.namespace, labels=parse_labels(labels))
    assert _names(page.items) == expected.split()


async def test_pages_of_a_selection(world: World) -> None:
    await _seven(world)
    labels = parse_labels("parity=even")
    first = await world.api.list(kinds.PYTORCHJOB, world.namespace, labels=labels, limit=2)
    rest = await world.api.list(kinds.PYTORCHJOB, world.namespace, labels=labels, limit=2, token=first.token)
    assert _names([*first.items, *rest.items]) == ["j0", "j2", "j4", "j6"] and first.remaining is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("metadata.name=b", "b"),
        ("metadata.name!=b", "a c"),
        ("spec.nodeName=node-1", "c"),
        ("spec.nodeName=", "a b"),
        ("status.phase=Pending,spec.nodeName!=node-1", "a b"),
        ("status.phase=Running", ""),
    ],
)
async def test_fields_select(world: World, fields: str, expected: str) -> None:
    for each in "abc":
        await world.create(world.pod(each))
    await world.api.bind(world.namespace, "c", "node-1")
    page = await world.api.list(kinds.POD, world.namespace, fields=parse_fields(fields))
    assert _names(page.items) == expected.split()


async def test_unknown_fields_are_refused(world: World) -> None:
    world.beyond_the_store("which fields a kind selects by is the API server's table")
    with pytest.raises(ApiError) as caught:
        await world.api.list(kinds.POD, world.namespace, fields=parse_fields("spec.colour=red"))
    assert caught.value.code == 400 and "spec.colour" in caught.value.message


async def test_a_list_of_all_namespaces_is_sorted(world: World) -> None:
    await world.create(world.job("b"))
    await world.create(world.job("a"))
    page = await world.api.list(kinds.PYTORCHJOB)
    places = [(o["metadata"]["namespace"], o["metadata"]["name"]) for o in page.items]
    assert places == sorted(places) and (world.namespace, "a") in places


async def test_no_such_namespace_is_an_empty_list(world: World) -> None:
    assert (await world.api.list(kinds.PYTORCHJOB, "nobody-made-this")).items == []
