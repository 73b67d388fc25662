"""A list of everything becomes the view's in one go: who reads meanwhile sees what was before, and afterwards what is now."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Change
from rowlock.kube import cached_view
from rowlock.kube.cached_view import CachedView, Replacement
from rowlock.objects import Object

POD = kinds.POD


def pod(name: str, revision: int, owner: str = "job") -> Object:
    meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(revision)}
    return {"metadata": {**meta, "ownerReferences": [{"uid": owner}], "labels": {"pod-group-name": owner}}}


def fill(view: CachedView, *pods: Object) -> None:
    replace(view, *pods)


def replace(view: CachedView, *pods: Object, revision: int = 9) -> list[Change]:
    replacement = Replacement(view, POD)
    for one in pods:
        replacement.take(Change("Added", 1, POD, one))
    for _ in replacement.prepare():
        pass
    return replacement.commit(revision)


def contents(view: CachedView) -> dict[str, Any]:
    """What every kind of question answers."""
    versions = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in view.all(POD)}
    by_owner = {owner: [o["metadata"]["name"] for o in view.by_owner(POD, owner)] for owner in ("job", "other")}
    by_label = [o["metadata"]["name"] for o in view.by_label(POD, "team", "pod-group-name", "other")]
    return {"versions": versions, "owners": by_owner, "label": by_label, "revision": view.revision}


@pytest.mark.parametrize("in_place", [0, 500], ids=["made anew", "in place"])
def test_readers_see_the_old_state_or_the_new_one(monkeypatch: pytest.MonkeyPatch, in_place: int) -> None:
    monkeypatch.setattr(cached_view, "CHANGES_IN_PLACE", in_place)
    view, expected = CachedView(), CachedView()
    fill(view, *(pod(f"p{n}", 1) for n in range(20)))
    new = [*(pod(f"p{n}", 1) for n in range(5)), *(pod(f"p{n}", 2, "other") for n in range(5, 10)), pod("q", 3)]
    before = contents(view)
    replacement = Replacement(view, POD)
    for one in reversed(new):
        replacement.take(Change("Added", 1, POD, one))
        assert contents(view) == before
    steps = 0
    for _ in replacement.prepare():
        steps += 1
        assert contents(view) == before
    assert steps >= 20
    changes = replacement.commit(40)
    fill(expected, *new)
    assert contents(view) == {**contents(expected), "revision": 40}
    told = {(change.type, change.object["metadata"]["name"], change.old is not None) for change in changes}
    assert told == {
        *(("Deleted", f"p{n}", True) for n in range(10, 20)),
        *(("Modified", f"p{n}", True) for n in range(5, 10)),
        ("Added", "q", False),
    }


def test_what_did_not_change_is_not_told() -> None:
    view = CachedView()
    fill(view, pod("a", 1), pod("b", 1))
    kept = view.get(POD, "team", "a")
    assert replace(view, pod("a", 1), pod("b", 1)) == []
    assert view.get(POD, "team", "a") is kept, "and the known object stays"


def test_the_last_word_about_an_object_counts() -> None:
    """A state may tell of an object twice, when it changes while it is read."""
    view = CachedView()
    fill(view, pod("a", 1))
    replacement = Replacement(view, POD)
    for kind, revision in (("Added", 2), ("Added", 1)):
        replacement.take(Change(kind, revision, POD, pod("a", revision)))  # type: ignore[arg-type]
    replacement.take(Change("Added", 1, POD, pod("b", 1)))
    replacement.take(Change("Deleted", 2, POD, pod("b", 1)))
    for _ in replacement.prepare():
        pass
    assert replacement.commit(3) == []
    assert [o["metadata"]["name"] for o in view.all(POD)] == ["a"]


def test_a_kind_that_is_gone_is_empty() -> None:
    view = CachedView()
    fill(view, pod("a", 1), pod("b", 1))
    assert [change.type for change in replace(view)] == ["Deleted", "Deleted"]
    assert not list(view.all(POD)) and not list(view.by_owner(POD, "job"))


def test_a_new_subscriber_is_told_the_state_at_its_call() -> None:
    """Its changes are made one by one as they are taken, while the view goes on."""
    view = CachedView()
    fill(view, pod("a", 1), pod("b", 1))
    told = view.initial_changes()
    replace(view, pod("b", 5), pod("c", 6), revision=40)
    changes = list(told)
    assert [(one.type, one.revision) for one in changes] == [("Added", 1), ("Added", 1), ("Bookmark", 9)]
    assert [one.object["metadata"]["name"] for one in changes[:2]] == ["a", "b"]


def test_a_large_new_state_is_made_into_changes_before_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand changes made at once hold up the event loop."""
    monkeypatch.setattr(cached_view, "CHANGES_IN_PLACE", 0)
    view = CachedView()
    replacement = Replacement(view, POD)
    for number in range(50):
        replacement.take(Change("Added", 1, POD, pod(f"p{number}", number + 1)))
    steps = sum(1 for _ in replacement.prepare())

    def refuse(*facts: object) -> Change:
        raise AssertionError("this should have been made before")

    monkeypatch.setattr(cached_view, "_change_to", refuse)
    assert len(replacement.commit(60)) == 50 and steps >= 100
