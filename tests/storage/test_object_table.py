"""A state that keeps finished objects as JSON answers as one that keeps everything decoded."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from rowlock import kinds
from rowlock.api import Change
from rowlock.controllers.view.object_table import ObjectList, is_seldom_read
from rowlock.controllers.view.state import FIRST_KEY, State, StoredChange
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.read_verbs import Selection, objects_at_revision
from rowlock.storage.staged_view import StagedView

KINDS = (kinds.POD, kinds.PYTORCHJOB, kinds.EVENT, kinds.NODE)
OWNER, LABEL = "n0-uid", "training.kubeflow.org/job-name"


def _object(kind: Kind, key: Key, revision: int, rng: random.Random) -> Object:
    meta: dict[str, Any] = {"name": key.name, "uid": f"{key.name}-uid", "resourceVersion": str(revision)}
    if key.namespace:
        meta["namespace"] = key.namespace
    if rng.random() < 0.5:
        meta["labels"] = {LABEL: rng.choice("ab"), "other": rng.choice("ab")}
    if rng.random() < 0.2:
        meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}
    if rng.random() < 0.5:
        meta["ownerReferences"] = [{"uid": OWNER}]
    phase = rng.choice(("Running", "Succeeded"))
    conditions = [{"type": phase, "status": "True"}]
    return {"metadata": meta, "status": {"phase": phase, "conditions": conditions}}


def _change(plain: State, kind: Kind, key: Key, revision: int, rng: random.Random) -> StoredChange | None:
    old = plain.get(kind, *key)
    if rng.random() < 0.3:
        if old is None:
            return None
        return StoredChange("Deleted", revision, kind, old, old, msgspec.json.encode(old), revision - 1, key)
    new = _object(kind, key, revision, rng)
    return StoredChange("Modified" if old else "Added", revision, kind, new, old, msgspec.json.encode(new), 0, key)


def _shown(metadata: Object | None) -> Object | None:
    """Of an object that is kept as JSON the fields without a value are None, of a decoded one they are missing."""
    return None if metadata is None else {name: value for name, value in metadata.items() if value is not None}


def _read(state: State, kind: Kind) -> list[Any]:
    """Every way to read the objects of a kind."""
    names = [(space, f"n{i}") for space in ("", "x", "y") for i in range(8)]
    staged, selection = StagedView(state), Selection(kind)
    return [
        [state.get(kind, space, name) for space, name in names],
        [state.get_encoded(kind, space, name) for space, name in names],
        [_shown(view.metadata(kind, space, name)) for view in (state, staged) for space, name in names],
        [view.has_ended(kind, space, name) for view in (state, staged) for space, name in names],
        [
            (list(view.all(kind, space)), list(view.keys(kind, space)))
            for view in (state, staged)
            for space in ("", "x")
        ],
        [list(view.by_owner(kind, OWNER)) for view in (state, staged)],
        [list(view.by_label(kind, "x", label, "a")) for view in (state, staged) for label in (LABEL, "other")],
        list(state.items(kind, "", Key("x", "n3"))),
        list(state.freeze(kind)),
        state.all_encoded(kind),
        state.count(kind, "", Key("x", "n3")),
        list(objects_at_revision(state, selection, (), FIRST_KEY)),
        state.revision,
    ]


@pytest.mark.parametrize("seed", range(30))
def test_same_answers_with_few_decoded(seed: int) -> None:
    rng = random.Random(seed)
    plain, small = State(decoded_limit=10_000), State(decoded_limit=rng.choice((0, 1, 3)))
    for revision in range(1, 150):
        kind = rng.choice(KINDS)
        key = Key("" if kind is kinds.NODE else rng.choice("xy"), f"n{rng.randrange(8)}")
        change = _change(plain, kind, key, revision, rng)
        if change is not None:
            plain.apply(change)
            small.apply(change)
        if rng.random() < 0.2:
            assert _read(small, kind) == _read(plain, kind)
    for kind in KINDS:
        assert _read(small, kind) == _read(plain, kind)
    recovered = State(decoded_limit=2)
    for kind in KINDS:
        for key, _, encoded in plain.freeze(kind):
            recovered.load(kind, key, encoded)
    recovered.advance_revision(plain.revision)
    for kind in KINDS:
        assert _read(recovered, kind) == _read(plain, kind)


def _put(state: State, kind: Kind, name: str, phase: str, revision: int) -> Object:
    obj = {"metadata": {"name": name, "namespace": "x", "resourceVersion": str(revision)}, "status": {"phase": phase}}
    state.apply(StoredChange("Added", revision, kind, obj, None, msgspec.json.encode(obj), 0, Key("x", name)))
    return obj


def test_only_the_latest_finished_objects_stay_decoded() -> None:
    state = State(decoded_limit=2)
    ended = [_put(state, kinds.POD, f"ended-{i}", "Failed", i) for i in range(5)]
    running = _put(state, kinds.POD, "running", "Running", 9)
    held = [state.get_encoded_if_newest(kinds.POD, obj) is not None for obj in ended]
    assert held == [False, False, False, True, True]
    assert state.get(kinds.POD, "x", "running") is running
    first = state.get(kinds.POD, "x", "ended-0")  # read: it is one of the latest two now
    assert first == ended[0] and first is not ended[0]
    assert state.get(kinds.POD, "x", "ended-0") is first
    assert state.get_encoded_if_newest(kinds.POD, ended[3]) is None


def test_what_an_unfinished_job_owns_stays_decoded_until_its_end() -> None:
    state = State(decoded_limit=2)

    def put(kind: Kind, name: str, revision: int, *, owner: str = "", status: Object | None = None) -> Object:
        meta: dict[str, Any] = {"name": name, "namespace": "x", "uid": f"{name}-uid", "resourceVersion": str(revision)}
        if owner:
            meta["ownerReferences"] = [{"uid": f"{owner}-uid"}]
        obj = {"metadata": meta, "status": status or {}}
        key = Key("x", name)
        state.apply(StoredChange("Added", revision, kind, obj, None, msgspec.json.encode(obj), 0, key))
        return obj

    def decoded(owned: list[tuple[Kind, Object]]) -> int:
        return sum(state.get_encoded_if_newest(kind, obj) is not None for kind, obj in owned)

    def put_owned(job: str, revision: int) -> list[tuple[Kind, Object]]:
        services = [(kinds.SERVICE, put(kinds.SERVICE, f"{job}-{i}", revision, owner=job)) for i in range(5)]
        ended = put(kinds.POD, f"{job}-0", revision, owner=job, status={"phase": "Succeeded"})
        return [*services, (kinds.POD, ended)]

    put(kinds.PYTORCHJOB, "a", 1)
    put(kinds.PYTORCHJOB, "b", 1)
    of_a, of_b = put_owned("a", 2), put_owned("b", 3)
    for i in range(5):
        put(kinds.EVENT, f"event-{i}", 4 + i)
    assert (decoded(of_a), decoded(of_b)) == (6, 6)
    done = put(kinds.PYTORCHJOB, "a", 20, status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    assert (decoded(of_a), decoded(of_b)) == (2, 6)  # the two latest of everything that is seldom read
    state.apply(Change("Deleted", 21, kinds.PYTORCHJOB, done))
    job = state.get(kinds.PYTORCHJOB, "x", "b")
    assert job is not None
    state.apply(Change("Deleted", 22, kinds.PYTORCHJOB, job))
    assert decoded(of_a) + decoded(of_b) == 2

    recovered = State(decoded_limit=2)  # what was not decoded at a start stays decoded once it was read
    service = Key("x", "c-0")
    recovered.load(
        kinds.SERVICE, service, msgspec.json.encode({"metadata": {"name": "c-0", "ownerReferences": [{"uid": "c"}]}})
    )
    recovered.load(kinds.PYTORCHJOB, Key("x", "c"), msgspec.json.encode({"metadata": {"name": "c", "uid": "c"}}))
    first = recovered.get(kinds.SERVICE, *service)
    for i in range(5):
        _put(recovered, kinds.EVENT, f"event-{i}", "", i)
    assert recovered.get(kinds.SERVICE, *service) is first


def test_a_list_reads_each_object_when_it_is_asked_for() -> None:
    state = State(decoded_limit=0)
    for i in range(3):
        _put(state, kinds.EVENT, f"e{i}", "", i)
    found = state.all(kinds.EVENT)
    assert isinstance(found, ObjectList) and len(found) == 3 and found
    state.apply(Change("Deleted", 9, kinds.EVENT, found[0]))
    assert [obj["metadata"]["name"] for obj in found] == ["e0", "e1", "e2"]  # as it was when it was asked for
    assert [obj["metadata"]["name"] for obj in found[1:]] == ["e1", "e2"]
    assert found[2] is not found[2] and found[2] == found[2]


@pytest.mark.parametrize(
    "kind, status, expected",
    [
        (kinds.POD, {"phase": "Succeeded"}, True),
        (kinds.POD, {"phase": "Running"}, False),
        (kinds.POD, {}, False),
        (kinds.PYTORCHJOB, {"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
        (kinds.PYTORCHJOB, {"conditions": [{"type": "Failed", "status": "False"}]}, False),
        (kinds.BATCH_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        (kinds.JOB_SET, {"conditions": [{"type": "Completed", "status": "True"}]}, True),
        (kinds.PYTORCHJOB, {}, False),
        (kinds.EVENT, {}, True),
        (kinds.NODE, {"phase": "Succeeded"}, False),
    ],
)
def test_what_need_not_stay_decoded(kind: Kind, status: Object, expected: bool) -> None:
    assert is_seldom_read(kind, {"status": status}) is expected
