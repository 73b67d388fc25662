"""Large writes, which are checked in another thread: the same outcome as on the event loop, and nothing of others is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.storage.conftest import Clock, config, counted_ids, run
from tests.waiting import until_async

from rowlock import api, kinds, objects
from rowlock.api import LARGE_WRITE, View, WriteOptions, is_large
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.storage.rehearsal import Rehearsal
from rowlock.storage.store import Store
from rowlock.storage.write_verbs import AlwaysAdmit

CM, POD, SERVICE = kinds.CONFIG_MAP, kinds.POD, kinds.SERVICE
LARGE = "x" * LARGE_WRITE
POD_SPEC = {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}


def pod(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": POD_SPEC}


def service(name: str) -> Object:
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def opened(admission: Callable[[View], Any] | None = None, path: Path | None = None) -> Store:
    def chain(view: View) -> AdmissionChain:
        return AdmissionChain(view, Clock())

    store = Store.open(
        path, admission=admission or chain, patches=Patcher(Clock()), clock=Clock(), new_uid=counted_ids()
    )
    await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
    return store


async def story(path: Path | None) -> list[object]:
    """Each verb once, with what it gave, refused and warned of."""
    store = await opened(path=path)
    told: list[object] = []

    async def note(act: Callable[[WriteOptions], Any], **options: Any) -> None:
        own = WriteOptions(manager="me", validation="Warn", warnings=[], **options)
        try:
            told.append(await act(own))
        except ApiError as error:
            told.append((type(error), error.message))
        told.extend(own.warnings)

    def patch(what: Any, type: Any, name: str = "a") -> Callable[[WriteOptions], Any]:
        return lambda options: store.patch(CM, "default", name, what, type=type, options=options)

    odd = {**config("b"), "colour": "red"}
    refuses = {"review": lambda old, new: _refuse(new)}
    await note(lambda options: store.create(CM, config("a", labels={"x": "y"}), options=options))
    await note(lambda options: store.create(CM, config("a"), options=options))
    await note(lambda options: store.create(CM, odd, options=options))
    await note(lambda options: store.create(CM, config("c"), options=options), dry_run=True)
    await note(lambda options: store.create(CM, config("d"), options=options), **refuses)
    await note(lambda options: store.create(POD, {**pod("p"), "spec": {"containers": []}}, options=options))
    await note(lambda options: store.create(POD, pod("p"), options=options))
    await note(lambda options: store.create(SERVICE, service("s"), options=options))
    await note(lambda options: store.create(SERVICE, service("t"), options=options))
    await note(lambda options: store.update(CM, {**config("a"), "data": {"k": "v"}}, options=options))
    await note(lambda options: store.update(CM, {**config("a"), "data": {"k": "v"}}, options=options))
    await note(lambda options: store.update(CM, config("none"), options=options))
    await note(patch({"data": {"more": "1"}}, "merge"))
    await note(patch([{"op": "add", "path": "/data/list", "value": "1"}], "json"))
    await note(patch([{"op": "remove", "path": "/data/none"}], "json"))
    await note(patch({"data": {"z": "1"}}, "merge", "none"))
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"k": "v"}}
    await note(patch(applied, "apply", "new"))
    finalized = {**config("f"), "metadata": {"name": "f", "namespace": "default", "finalizers": ["a/b"]}}
    await note(lambda options: store.create(CM, finalized, options=options))
    await store.delete(CM, "default", "f")
    await note(lambda options: store.update(CM, config("f"), options=options))
    told.append([obj for kind in (CM, POD, SERVICE) for obj in store.view.all(kind)])
    told.append(store.revision)
    await store.close()
    return told


def _refuse(new: Object) -> None:
    raise Forbidden(f"not {objects.name(new)}")


def test_every_verb_gives_what_it_gives_on_the_loop(
    tmp_path: Path, path: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = run(story(path))
    monkeypatch.setattr(api, "LARGE_WRITE", 0)
    large = run(story(path and tmp_path / "another.db"))
    assert small == large
    refusals = [told[0] for told in small if isinstance(told, tuple)]
    assert refusals.count(NotFound) == 2 and {AlreadyExists, Forbidden, Invalid} <= set(refusals)
    assert 'unknown field "colour"' in small


class SlowAdmission(AlwaysAdmit):
    """Reads a list of the view, then takes until somebody lets it."""

    def __init__(self, view: View, read: Callable[[View], Any]) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self._view, self._read = view, read
        self.threads: list[str] = []

    def create(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        if is_large(obj):
            self.threads.append(threading.current_thread().name)
            seen = len(list(self._read(self._view) or ()))
            self.begun.release()
            assert self.go_on.acquire(timeout=200)
            return {**obj, "data": {"seen": str(seen)}}
        return obj


def test_a_decision_counts_only_while_what_it_was_made_of_holds() -> None:
    """A quota that two large writes pass at once would be none."""

    async def body() -> None:
        made: list[SlowAdmission] = []

        class Both(AlwaysAdmit):
            def __init__(self, view: View) -> None:
                made.append(SlowAdmission(view, lambda view: view.all(CM, "default")))
                self.create = made[-1].create  # type: ignore[method-assign]

        store = await opened(Both)
        creating = asyncio.ensure_future(store.create(CM, config("large", annotations={"a": LARGE})))
        while len(made) < 2:
            await asyncio.sleep(0)
        assert await asyncio.to_thread(made[1].begun.acquire, timeout=200)
        await store.create(CM, config("between"))  # the loop goes on, and what was read no longer holds
        made[1].go_on.release()
        while len(made) < 3:
            await asyncio.sleep(0)
        assert await asyncio.to_thread(made[2].begun.acquire, timeout=200)
        await store.create(kinds.SECRET, config("of no interest"))
        made[2].go_on.release()
        assert (await creating)["data"] == {"seen": "1"} and len(made) == 3
        assert threading.main_thread().name not in made[1].threads + made[2].threads

    run(body())


def test_namespaces_take_turns() -> None:
    """Hundreds of large writes of one tenant are not all before the first of another."""

    async def body() -> None:
        store = await opened()
        await store.create(kinds.NAMESPACE, {"metadata": {"name": "flood"}})
        ended: list[str] = []

        async def create(space: str, name: str) -> None:
            await store.create(CM, {"metadata": {"name": name, "namespace": space}, "data": {"k": LARGE}})
            ended.append(space)

        flood = [asyncio.ensure_future(create("flood", f"f{n}")) for n in range(40)]
        await asyncio.sleep(0)
        await create("default", "one")
        assert ended.index("default") < 4
        await asyncio.gather(*flood)

    run(body())


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_large_write_leaves_no_cycle(is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server collects those once an hour: each change of an object of 0.6 MiB left 2 MiB behind until then."""
    made = list[weakref.ref[object]]()
    begin = Rehearsal.__init__

    def note(rehearsal: Rehearsal, *args: Any) -> None:
        begin(rehearsal, *args)
        made.extend((weakref.ref(rehearsal), weakref.ref(rehearsal._recorded)))

    monkeypatch.setattr(Rehearsal, "__init__", note)

    async def body() -> None:
        store = await opened()
        await store.create(CM, config("c", data=LARGE))
        made.clear()
        gc.disable()
        try:
            if is_refused:
                with suppress(AlreadyExists):  # `pytest.raises` would keep it, and so all that it has passed through
                    await store.create(CM, config("c", data=LARGE))
                    raise AssertionError("it was not refused")
            else:
                await store.update(CM, config("c", data=LARGE + "y"))
            await until_async(lambda: all(one() is None for one in made), "they are freed without a collection")
        finally:
            gc.enable()
        assert made

    run(body())
