"""Long lists are read in pages: by everybody who asks for all, and by watches of a server that streams no lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.kube.scripted import Answer, Asked, Scripted, refusal

from rowlock import kinds
from rowlock.api import Change, Page
from rowlock.errors import Expired, Internal
from rowlock.kube.client import PAGE, Kube
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.objects import Object

NAMES = ("a", "b", "c")


def item(name: str) -> Object:
    """As a server lists it: without its kind."""
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "resourceVersion": "5",
            "managedFields": [{"manager": "m"}],
        }
    }


def pages(asked: Asked, items: Callable[[str], Object] = item) -> Answer:
    """One object a page."""
    number = int(asked.query.get("continue", "0"))
    more = str(number + 1) if number + 1 < len(NAMES) else ""
    return Answer(body={"metadata": {"resourceVersion": "7", "continue": more}, "items": [items(NAMES[number])]})


def play(
    act: Callable[[Kube], Awaitable[Any]], where: Path, *answers: Any, decoder: ObjectDecoder | None = None
) -> tuple[Any, list[Asked]]:
    async def run() -> tuple[Any, list[Asked]]:
        async with Scripted(*answers).running() as server:
            async with Kube.connect(server.kubeconfig(where), decoder=decoder) as kube:
                return await act(kube), server.asked

    return asyncio.run(run())


async def list_pods(kube: Kube) -> Page:
    return await kube.list(kinds.POD, "n")


async def first_state(kube: Kube) -> list[Change]:
    """What a watch tells up to its first bookmark."""
    told: list[Change] = []
    async with aclosing(cast(Any, kube.watch(kinds.POD, "n", bookmarks=True))) as changes:
        async for change in cast(AsyncIterator[Change], changes):
            told.append(change)
            if change.type == "Bookmark":
                break
    return told


def test_a_list_of_all_is_asked_for_in_pages(tmp_path: Path) -> None:
    page, asked = play(list_pods, tmp_path, pages)
    assert [o["metadata"]["name"] for o in page.items] == list(NAMES)
    assert (page.revision, page.token) == (7, "") and {o["kind"] for o in page.items} == {"Pod"}
    assert [(a.query["limit"], a.query.get("continue")) for a in asked] == [
        (str(PAGE), None),
        (str(PAGE), "1"),
        (str(PAGE), "2"),
    ]


def test_a_list_whose_pages_expired_is_asked_for_at_once(tmp_path: Path) -> None:
    gone = Answer(410, refusal(410, "Expired", "the continue token is too old"))
    whole = Answer(body={"metadata": {"resourceVersion": "8"}, "items": [item(name) for name in NAMES]})
    page, asked = play(list_pods, tmp_path, pages, gone, whole)
    assert len(page.items) == 3 and page.revision == 8 and "limit" not in asked[-1].query
    with pytest.raises(Expired):
        play(list_pods, tmp_path, gone)


@pytest.mark.parametrize("decoder", [None, ObjectDecoder()], ids=["as they are", "shared"])
def test_a_watch_of_a_server_that_streams_no_lists_begins_with_pages(
    tmp_path: Path, decoder: ObjectDecoder | None
) -> None:
    unknown = Answer(422, refusal(422, "Invalid", "sendInitialEvents is forbidden"))

    def typed(name: str) -> Object:
        return item(name) | (
            {"apiVersion": "v1", "kind": "Pod"} if name == "b" else {}
        )  # as custom resources are listed

    told, asked = play(first_state, tmp_path, unknown, lambda a: pages(a, typed), decoder=decoder)
    assert [(c.type, c.object.get("metadata", {}).get("name")) for c in told] == [
        *(("Added", n) for n in NAMES),
        ("Bookmark", None),
    ]
    assert told[-1].revision == 7 and {c.revision for c in told[:-1]} == {5}
    assert all((c.object["apiVersion"], c.object["kind"]) == ("v1", "Pod") for c in told[:-1])
    assert all(("managedFields" in c.object["metadata"]) == (decoder is None) for c in told[:-1])
    assert [a.query.get("continue") for a in asked[1:]] == [None, "1", "2"]


def test_what_is_no_list_is_said(tmp_path: Path) -> None:
    unknown = Answer(422, refusal(422, "Invalid", "no"))
    for body in (b"<html>", b'{"metadata": {}, "items": [7]}'):
        with pytest.raises(Internal, match=r"pods is none|no object"):
            play(first_state, tmp_path, unknown, Answer(body=body))
