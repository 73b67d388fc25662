"""The loop with small controllers on a real store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE

from rowlock import controllers, kinds, objects
from rowlock.api import LARGE_WRITE, Change, Controller, Create, Decision, Delete, Patch, Record, Update, View, Write
from rowlock.controllers.writer import FailedWrite, batch_steps, plan_steps
from rowlock.errors import Cause, invalid
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store

CM, SECRET, EVENT = kinds.CONFIG_MAP, kinds.SECRET, kinds.EVENT
Decide = Callable[[View, Key, float], Decision]


class Toy:
    """A controller from a function; remembers its turns."""

    def __init__(self, decide: Decide, name: str = "toy", watched: tuple[Kind, ...] = (CM,)) -> None:
        self.name, self.kinds, self._decide = name, watched, decide
        self.turns: list[Key] = []

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [objects.key(change.object)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        self.turns.append(key)
        return self._decide(view, key, now)


def config(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


def secret(name: str, value: str = "") -> Object:
    return {"metadata": {"name": name, "namespace": "default"}} | ({"data": {"v": value}} if value else {})


def told(obj: Object, message: str = "done", reason: str = "Done") -> Record:
    return Record(obj, "Normal", reason, message, "toy")


def play(
    toys: Sequence[Controller],
    settled: Callable[[Store], bool],
    begin: Callable[[Store], Any],
    path: Path | None = None,
    **options: Any,
) -> Store:
    """Run controllers on a fresh store until `settled` holds after some change."""

    async def body() -> Store:
        store = Store.open(path)
        await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
        loop = asyncio.create_task(controllers.run(store, store.view, toys, store.changes(), **options))
        await begin(store)
        while not settled(store):
            assert not loop.done(), loop.result()
            await asyncio.sleep(0.001)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await store.close()
        return store

    return asyncio.run(asyncio.wait_for(body(), PATIENCE))


def count(store: Store, kind: Kind) -> int:
    return store.view.count(kind)


def test_writes_of_a_decision_go_into_one_commit(tmp_path: Path) -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        if list(view.all(SECRET)):
            return Decision()
        parent = view.get(CM, *key)
        assert parent
        writes: list[Write] = []
        for number in range(300):
            writes += [Create(SECRET, secret(f"s-{number:03d}")), told(parent, f"made {number}")]
        return Decision(tuple(writes))

    def settled(store: Store) -> bool:
        return count(store, SECRET) == 300 and count(store, EVENT) > 0

    store = play([Toy(decide)], settled, lambda s: s.create(CM, config("a")), tmp_path / "cluster.db")
    assert store.commits < 10 and count(store, EVENT) == 25  # the cap: 25 at once per object


@pytest.mark.parametrize("size", [0, LARGE_WRITE])  # large ones are checked in another thread, and keep their place
@pytest.mark.parametrize("on_disk", [True, False])
def test_what_comes_after_a_refused_creation_is_not_made(tmp_path: Path, on_disk: bool, size: int) -> None:
    """They go out together, but mean one after the other: the operator stops at the first pod that is refused."""

    def decide(view: View, key: Key, now: float) -> Decision:
        parent = view.get(CM, *key)
        assert parent
        made = [
            Create(SECRET, secret(name, "x" * size), (told(parent, f"{name}: {{error}}", "Refused"),))
            for name in ("a", "b", "c")
        ]
        return Decision(tuple(item for create in made for item in (create, told(parent, objects.name(create.object)))))

    async def begin(store: Store) -> None:
        await store.create(SECRET, secret("b"))
        await store.create(CM, config("x"))

    def settled(store: Store) -> bool:
        return len(toy.turns) > 2 and count(store, EVENT) > 1

    toy = Toy(decide)
    store = play([toy], settled, begin, tmp_path / "cluster.db" if on_disk else None)
    assert sorted(objects.name(s) for s in store.view.all(SECRET)) == ["a", "b"]
    said = {event["message"] for event in store.view.all(EVENT)}
    assert said == {"a", 'b: secrets "b" already exists', 'a: secrets "a" already exists'}


def _made_and_said(view: View, key: Key, now: float) -> Decision:
    """What a job's operator writes: pods, services, and what became of the job."""
    parent = view.get(CM, *key)
    assert parent
    if parent["data"].get("state") == "made":
        return Decision()
    return Decision(
        (
            Create(SECRET, secret("first")),
            Create(CM, config("beside", state="made")),
            Create(SECRET, secret("second")),
            Update(CM, {**parent, "data": {"state": "made"}}),
        )
    )


def test_objects_of_several_kinds_and_a_status_wait_for_the_disk_once(tmp_path: Path) -> None:
    commits = []

    async def begin(store: Store) -> None:
        await store.create(CM, config("a"))
        commits.append(store.commits)

    def settled(store: Store) -> bool:
        return (store.view.get(CM, "default", "a") or {}).get("data") == {"state": "made"}

    store = play([Toy(_made_and_said)], settled, begin, tmp_path / "cluster.db")
    assert (count(store, SECRET), count(store, CM)) == (2, 2)
    assert store.commits - commits[0] == 1


def test_no_status_says_that_what_was_refused_is_made() -> None:
    async def begin(store: Store) -> None:
        await store.create(CM, config("beside", state="made"))  # has the name that is to be made
        await store.create(CM, config("a"))

    toy = Toy(_made_and_said)
    store = play([toy], lambda _: len(toy.turns) > 4, begin)
    assert [objects.name(o) for o in store.view.all(SECRET)] == ["first"]
    assert (store.view.get(CM, "default", "a") or {}).get("data") == {}


@pytest.mark.parametrize("with_status", [True, False])
def test_nothing_rests_on_a_refused_update_but_others_of_its_kind_are_tried(with_status: bool) -> None:
    """A Service that somebody else has changed is not adopted, so the job's status does not say that it was."""

    def decide(view: View, key: Key, now: float) -> Decision:
        outdated = {**secret("a"), "metadata": {**secret("a")["metadata"], "resourceVersion": "1"}}
        parent = view.get(CM, *key)
        assert parent
        status = (Update(CM, {**parent, "data": {"n": "1"}}),) if with_status else ()
        return Decision((Update(SECRET, outdated), Update(SECRET, {**secret("b"), "data": {"n": "MQ=="}}), *status))

    async def begin(store: Store) -> None:
        for name in ("a", "b"):
            await store.create(SECRET, secret(name))
        await store.create(CM, config("x"))

    toy = Toy(decide)
    store = play([toy], lambda _: len(toy.turns) > 3, begin)
    assert "data" not in (store.view.get(SECRET, "default", "a") or {})
    assert ("data" in (store.view.get(SECRET, "default", "b") or {})) is not with_status
    assert (store.view.get(CM, "default", "x") or {}).get("data") == {}


def test_a_cluster_that_keeps_no_order_gets_one_kind_at_a_time() -> None:
    decision = (
        Create(SECRET, secret("a")),
        Create(SECRET, secret("b")),
        Create(CM, config("c")),
        Update(CM, config("c", n="1")),
        Update(CM, config("d")),
    )
    steps = plan_steps(decision)[1]
    assert [len(batch) for batch in batch_steps(steps)] == [2, 1, 2]
    assert [len(batch) for batch in batch_steps(steps, keeps_order=True)] == [3, 2]  # `c` as it was made first


def test_warnings_have_an_allowance_of_their_own() -> None:
    """As in client-go: a chatty controller does not use up what its failures are told with."""

    def decide(view: View, key: Key, now: float) -> Decision:
        parent = view.get(CM, *key)
        assert parent
        chatter = [told(parent, f"noise {number}") for number in range(40)]
        return Decision((*chatter, Record(parent, "Warning", "Failed", "it failed", "toy")))

    store = play([Toy(decide)], lambda s: count(s, EVENT) >= 26, lambda s: s.create(CM, config("a")))
    assert [e["reason"] for e in store.view.all(EVENT) if e["type"] == "Warning"] == ["Failed"]


def test_a_conflict_looks_again() -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        obj = view.get(CM, *key)
        assert obj
        if "done" in obj["data"]:
            return Decision()
        stale = objects.with_field(obj, "metadata.resourceVersion", "1") if len(toy.turns) < 3 else obj
        after = Create(SECRET, secret("after"))
        return Decision((Update(CM, objects.with_field(stale, "data.done", "yes")), after))

    toy = Toy(decide)
    store = play([toy], lambda s: count(s, SECRET) == 1, lambda s: s.create(CM, config("a")))
    assert len(toy.turns) >= 3 and (store.view.get(CM, "default", "a") or {})["data"] == {"done": "yes"}


def test_a_bug_is_logged_and_costs_only_its_key(caplog: pytest.LogCaptureFixture) -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        if key.name == "bad" and len([k for k in toy.turns if k.name == "bad"]) < 3:
            raise ZeroDivisionError("oops")
        return Decision((Create(SECRET, secret(key.name)),) if view.get(SECRET, *key) is None else ())

    async def begin(store: Store) -> None:
        await store.create(CM, config("bad"))
        await store.create(CM, config("good"))

    toy = Toy(decide)
    with caplog.at_level(logging.ERROR):
        play([toy], lambda s: count(s, SECRET) == 2, begin)
    assert "toy default/bad" in caplog.text and "ZeroDivisionError: oops" in caplog.text


def test_a_patch_for_an_earlier_object_of_the_same_name_is_only_outdated() -> None:
    write = Patch(SECRET, "default", "a", {"metadata": {"uid": "earlier"}, "data": {}})
    causes = {field: Cause("FieldValueInvalid", "field is immutable", field) for field in ("metadata.uid", "data")}
    outdated = {field: FailedWrite(write, invalid("Secret", "a", [one])).is_outdated for field, one in causes.items()}
    assert outdated == {"metadata.uid": True, "data": False}


def test_refusals_are_told_and_tried_again() -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        obj = view.get(CM, *key)
        assert obj
        failed = Record(obj, "Warning", "FailedCreate", "no: {error}", "toy")
        space = "nowhere" if len(toy.turns) < 3 else "default"
        made = {"metadata": {"name": "s", "namespace": space}}
        return Decision((Create(SECRET, made, (failed,)), told(obj))) if not list(view.all(SECRET)) else Decision()

    toy = Toy(decide)
    store = play([toy], lambda s: count(s, EVENT) == 2, lambda s: s.create(CM, config("a")))
    events = {e["reason"]: e for e in store.view.all(EVENT, "default")}
    failed = events["FailedCreate"]
    assert failed["message"] == 'no: namespaces "nowhere" not found'
    assert failed["involvedObject"]["name"] == "a" and failed["source"] == {"component": "toy"}
    assert events["Done"]["count"] == 1


def test_who_is_stuck_looks_again_though_nothing_wakes_him() -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        if len(toy.turns) < 4:
            return Decision(requeue=True)
        return Decision((Create(SECRET, secret("s")),)) if not list(view.all(SECRET)) else Decision()

    toy = Toy(decide)
    play([toy], lambda s: count(s, SECRET) == 1, lambda s: s.create(CM, config("a")))
    assert len(toy.turns) == 4


def test_equal_records_are_counted() -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        obj = view.get(CM, *key)
        return Decision((told(obj),), requeue_after=0.0 if len(toy.turns) < 4 else None) if obj else Decision()

    def settled(store: Store) -> bool:
        return [e["count"] for e in store.view.all(EVENT)] == [4]

    toy = Toy(decide)
    store = play([toy], settled, lambda s: s.create(CM, config("a")))
    (event,) = store.view.all(EVENT)
    prefix, _, digits = objects.name(event).rpartition(".")
    assert prefix == "a" and len(digits) == 16 and objects.namespace(event) == "default"


def test_already_gone_counts_as_deleted() -> None:
    def decide(view: View, key: Key, now: float) -> Decision:
        if view.get(SECRET, *key):
            return Decision()
        return Decision((Delete(CM, "default", "ghost"), Create(SECRET, secret(key.name))))

    play([Toy(decide)], lambda s: count(s, SECRET) == 1, lambda s: s.create(CM, config("a")))


def test_one_key_is_never_decided_twice_at_once() -> None:
    """Fifty changes of one object while its turn runs make one more turn, not fifty."""

    def decide(view: View, key: Key, now: float) -> Decision:
        obj = view.get(CM, *key)
        assert obj
        seen = obj["data"]["n"]
        return Decision((Patch(SECRET, "default", "s", {"data": {"seen": seen}}),))

    async def begin(store: Store) -> None:
        await store.create(SECRET, secret("s"))
        await store.create(CM, config("a", n="0"))
        await asyncio.gather(*(store.patch(CM, "default", "a", {"data": {"n": str(n)}}) for n in range(1, 50)))

    def settled(store: Store) -> bool:
        found = store.view.get(SECRET, "default", "s")
        return bool(found and found.get("data") == {"seen": "49"})

    toy = Toy(decide)
    play([toy], settled, begin)
    assert len(toy.turns) < 10


def test_changes_while_a_key_settles_are_decided_on_together() -> None:
    """Each key has its own time: another one is decided on at once."""
    changes, decided_at = 30, list[int]()

    def decide(view: View, key: Key, now: float) -> Decision:
        parent = view.get(CM, *key)
        assert parent
        if key.name == "large":
            decided_at.append(int(parent["data"]["at"]))
        return Decision(settle=0.2 if key.name == "large" else 0.0)

    toy = Toy(decide)

    async def begin(store: Store) -> None:
        await store.create(CM, config("large", at="0"))
        for number in range(1, changes + 1):
            await store.patch(CM, "default", "large", {"data": {"at": str(number)}})
            if number == 1:
                await store.create(CM, config("small"))

    play([toy], lambda store: bool(decided_at) and decided_at[-1] == changes, begin)
    assert len(decided_at) < changes / 2 and Key("default", "small") in toy.turns


def test_waits_for_a_view_that_lags_behind_its_own_writes() -> None:
    class Lagging:
        """A view that shows the store as it was, until it is told."""

        def __init__(self, store: Store) -> None:
            self._store, self.revision = store, 0

        def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
            return [o for o in self._store.view.all(kind, namespace) if objects.revision(o) <= self.revision]

        def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
            return next((o for o in self.all(kind, namespace) if objects.name(o) == name), None)

        owned = labelled = all

    def decide(view: View, key: Key, now: float) -> Decision:
        made = [objects.name(o) for o in view.all(SECRET)]
        name = {"metadata": {"generateName": "s-", "namespace": "default"}}
        return Decision(() if made else (Create(SECRET, name),), requeue_after=0.0 if not made else None)

    async def body() -> int:
        store = Store.open()
        await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
        await store.create(CM, config("a"))
        view = Lagging(store)

        async def changes() -> Any:
            async for change in store.changes():
                yield change
                await asyncio.sleep(0.02)  # the network
                view.revision = store.revision
                yield Change("Bookmark", store.revision)
                if len(toy.turns) >= 2 and store.view.count(SECRET):
                    return

        toy = Toy(decide)
        await controllers.run(store, view, [toy], changes())  # type: ignore[arg-type]  # duck enough
        return store.view.count(SECRET)

    assert asyncio.run(asyncio.wait_for(body(), PATIENCE)) == 1


def test_nobody_decides_before_the_whole_state_was_told_and_nobody_waits_for_that() -> None:
    """A garbage collector that knows half of the state would collect the other half; a server that starts with
    ten thousand objects answers while it reads them."""
    told_before: list[int] = []
    steps = 0

    def decide(view: View, key: Key, now: float) -> Decision:
        told_before.append(len(toy.told))
        return Decision(())

    class Informed(Toy):
        def __init__(self, decide: Decide) -> None:
            super().__init__(decide)
            self.told: list[Key] = []

        def keys(self, view: View, change: Change) -> Iterable[Key]:
            self.told.append(objects.key(change.object))
            return super().keys(view, change)

    toy = Informed(decide)

    async def body() -> None:
        nonlocal steps
        store = Store.open()
        await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
        for n in range(1_000):
            await store.create(CM, config(f"c{n}"))
        loop = asyncio.create_task(controllers.run(store, store.view, [toy], store.changes()))
        while len(told_before) < 1_000:
            steps += 1
            await asyncio.sleep(0)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 200))
    assert set(told_before) == {1_000}
    assert steps >= 16, "the event loop was kept for the whole state at once"
