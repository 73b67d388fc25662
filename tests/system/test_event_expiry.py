"""Events live an hour, from when they were last seen or, when they came late, from when they were written."""

from __future__ import annotations

from typing import Any

import pytest
from tests.storage.conftest import NOW
from tests.system.cluster import EVENT, Cluster

from rowlock import kinds, objects
from rowlock.storage.state import State, StoredChange
from rowlock.system.event_expiry import EventExpiry

WRITTEN = 1_000_000.0


def gone(event: dict[str, Any], now: float) -> bool:
    meta = {"namespace": "d", "name": "e", "creationTimestamp": objects.timestamp(WRITTEN)}
    view = State()
    view.apply(StoredChange("Added", 1, kinds.EVENT, {**event, "metadata": meta}))
    return bool(EventExpiry().decide(view, objects.Key("", "events"), now).writes)


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
