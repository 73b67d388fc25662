"""Events live an hour, from when they were last seen or, when they came late, from when they were written."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.conftest import NOW
from tests.system.cluster import EVENT, Cluster

from rowlock import kinds, objects
from rowlock.api import Delete
from rowlock.controllers.view.state import State, StoredChange
from rowlock.kinds import Kind
from rowlock.system import event_expiry, registry
from rowlock.system.event_expiry import EventExpiry

WRITTEN = 1_000_000.0


def gone(event: dict[str, Any], now: float) -> bool:
    meta = {"namespace": "d", "name": "e", "creationTimestamp": objects.timestamp(WRITTEN)}
    view = State()
    added = StoredChange("Added", 1, kinds.EVENT, {**event, "metadata": meta}, key=objects.Key("d", "e"))
    view.apply(added)
    expiry = EventExpiry()
    (key,) = expiry.keys(view, added)
    return bool(expiry.decide(view, key, now).writes)


@pytest.mark.parametrize(
    ("event", "lives"),
    [
        ({}, 3600),
        ({"lastTimestamp": objects.timestamp(WRITTEN + 100)}, 3700),
        ({"lastTimestamp": None, "series": {"lastObservedTime": objects.timestamp(WRITTEN + 200)}}, 3800),
        ({"eventTime": objects.timestamp(WRITTEN - 7200)}, 3600),  # told two hours late: a real server keeps it as long
        ({"firstTimestamp": "x", "lastTimestamp": objects.timestamp(WRITTEN - 90_000), "count": 2}, 3600),
    ],
)
def test_an_event_lives_an_hour(event: dict[str, Any], lives: int) -> None:
    assert not gone(event, WRITTEN + lives - 1)
    assert gone(event, WRITTEN + lives)


def test_events_live_an_hour(cluster: Cluster) -> None:
    for name, seen in (("old", NOW), ("new", NOW + 600)):
        event = {"metadata": {"name": name, "namespace": "default"}, "lastTimestamp": objects.timestamp(seen)}
        cluster.create(EVENT, event)
    cluster.pass_time(3_599)
    assert cluster.names(EVENT) == ["new", "old"]
    cluster.pass_time(61)
    assert cluster.names(EVENT) == ["new"]
    cluster.pass_time(600)
    assert cluster.names(EVENT) == []


def test_a_delete_that_failed_is_tried_again_and_a_crowd_goes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_expiry, "_EVENTS_PER_SWEEP", 4)
    view, expiry, now = State(), EventExpiry(), WRITTEN + event_expiry.EVENT_TTL
    for number in range(6):
        meta = {"namespace": "d", "name": f"e{number}", "creationTimestamp": objects.timestamp(WRITTEN)}
        key = objects.Key("d", f"e{number}")
        added = StoredChange("Added", number + 1, kinds.EVENT, {"metadata": meta}, key=key)
        view.apply(added)
        expiry.keys(view, added)
    sweep = objects.Key("", "events")
    first, second = expiry.decide(view, sweep, now), expiry.decide(view, sweep, now)
    assert (len(first.writes), first.requeue_after, len(second.writes)) == (4, 0.0, 2)
    assert second.requeue_after is not None
    again = [len(expiry.decide(view, sweep, now + second.requeue_after).writes) for _ in range(2)]
    assert again == [4, 2], "what could not be deleted was forgotten"


def fill(namespace: str, numbers: range, view: State, expiry: EventExpiry) -> None:
    """Events a second apart, each as old as its number is small."""
    for number in numbers:
        key = objects.Key(namespace, f"e{number}")
        meta = {"namespace": key.namespace, "name": key.name, "creationTimestamp": objects.timestamp(WRITTEN + number)}
        added = StoredChange("Added", number + 1, kinds.EVENT, {"metadata": meta}, key=key)
        view.apply(added)
        expiry.keys(view, added)


def test_too_many_events_make_room_where_there_are_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_expiry, "MAX_EVENTS", 100)
    view, expiry, sweep = State(), EventExpiry(), objects.Key("", "events")
    fill("quiet", range(10), view, expiry)
    fill("noisy", range(10, 100), view, expiry)
    assert not expiry.decide(view, sweep, WRITTEN + 100).writes
    fill("noisy", range(100, 105), view, expiry)
    writes = expiry.decide(view, sweep, WRITTEN + 105).writes
    assert [write.name for write in writes if isinstance(write, Delete)] == [f"e{number}" for number in range(10, 20)]
    assert all(isinstance(write, Delete) and write.namespace == "noisy" for write in writes)


def test_a_crowd_makes_room_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing looks at all events at once: with 20,000 of them that held up the event loop for 70 ms, each minute."""
    monkeypatch.setattr(event_expiry, "MAX_EVENTS", 100)
    monkeypatch.setattr(event_expiry, "_EVENTS_PER_SWEEP", 10)
    view, expiry, sweep = State(), EventExpiry(), objects.Key("", "events")
    fill("quiet", range(10), view, expiry)
    fill("noisy", range(10, 133), view, expiry)
    gone, slices, revision, looks = list[str](), list[int](), 1_000, list[objects.Key]()
    get = view.get

    def count_looks(kind: Kind, namespace: str, name: str) -> Any:
        looks.append(objects.Key(namespace, name))
        return get(kind, namespace, name)

    monkeypatch.setattr(view, "get", count_looks)
    for _ in range(20):
        looks.clear()
        decision = expiry.decide(view, sweep, WRITTEN + 140)
        assert len(looks) <= 20
        slices.append(len(decision.writes))
        for write in decision.writes:
            assert isinstance(write, Delete)
            revision += 1
            event = {"metadata": {"namespace": write.namespace, "name": write.name}}
            key = objects.Key(write.namespace, write.name)
            removed = StoredChange("Deleted", revision, kinds.EVENT, event, key=key)
            view.apply(removed)
            assert not expiry.keys(view, removed)
            gone.append(write.name)
        if decision.requeue_after != 0.0:
            break
    assert slices == [10, 10, 10, 8, 0], "33 too many, and then room for five more"
    assert gone == [f"e{number}" for number in range(10, 48)]
    fill("noisy", range(133, 139), view, expiry)
    assert len(expiry.decide(view, sweep, WRITTEN + 140).writes) == 6, "what is gone is no longer counted"


def test_a_shorter_life(cluster: Cluster) -> None:
    cluster.controllers = registry.deleting_controllers(event_ttl=20.0)
    cluster.create(EVENT, {"metadata": {"name": "e", "namespace": "default"}, "lastTimestamp": objects.timestamp(NOW)})
    cluster.pass_time(19)
    assert cluster.names(EVENT) == ["e"]
    cluster.pass_time(12)
    assert cluster.names(EVENT) == []
