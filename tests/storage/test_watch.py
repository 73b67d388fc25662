"""Watches: every change once, in order, whatever is trimmed, compacted or slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.storage.conftest import Opened, config, run, story, take

from rowlock import errors, kinds, objects
from rowlock.api import Change
from rowlock.controllers.view.state import FIRST_KEY, StoredChange
from rowlock.objects import Object
from rowlock.selectors import parse_labels
from rowlock.storage import read_verbs, watch_cache
from rowlock.storage import store as module
from rowlock.storage import watcher as watching
from rowlock.storage.read_verbs import Selection
from rowlock.storage.watch_cache import LISTENERS_PER_TURN
from rowlock.storage.watcher import LIST_CHUNK, Watcher

CM, NS = kinds.CONFIG_MAP, kinds.NAMESPACE


def test_state_then_bookmark_then_changes(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path) as store:
            await store.create(CM, config("b"))
            await store.create(CM, config("a"))
            watch = store.watch(CM)
            first = await take(watch, 3)
            assert story(first) == [("Added", "a"), ("Added", "b"), ("Bookmark", "")]
            assert first[-1].revision == store.revision
            await store.update(CM, config("a", data="2"))
            await store.delete(CM, "default", "b")
            modified, deleted = await take(watch, 2)
            assert modified.old and modified.old["data"] == {"a": "1"} and modified.object["data"] == {"a": "2"}
            assert deleted.type == "Deleted" and objects.revision(deleted.object) == deleted.revision

    run(body())


@pytest.mark.parametrize("all_kinds", [True, False])
def test_a_long_first_state_is_that_of_one_moment_and_lets_others_have_their_turn(*, all_kinds: bool) -> None:
    async def body() -> None:
        async with Opened(None) as store:
            await asyncio.gather(*(store.create(CM, config(f"c{n:04}")) for n in range(3 * LIST_CHUNK)))
            watch = store.changes() if all_kinds else store.watch(CM)
            await take(watch, 2)
            turns = 0

            async def others() -> None:
                nonlocal turns
                await store.update(CM, config("c0700", data="later"))
                await store.delete(CM, "default", "c0701")
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.ensure_future(others())
            state = [change async for change in _until_bookmark(watch)]
            assert turns >= 2, "nobody else had a turn"
            told = {objects.name(change.object): change.object for change in state if change.kind == CM}
            assert told["c0700"]["data"] == {"a": "1"} and "c0701" in told
            assert story(await take(watch, 2)) == [("Modified", "c0700"), ("Deleted", "c0701")]
            task.cancel()

    run(body())


def test_writes_during_a_long_first_state_are_not_lost() -> None:
    """Memory and journal may have lost the first of them when the state ends: the server died at its start of "too old resource version"."""

    async def body() -> None:
        async with Opened(None, window=8) as store:
            await asyncio.gather(*(store.create(CM, config(f"c{n:04}")) for n in range(5 * module.CHANGES_PER_TURN)))
            feed, written, updated = store.changes(), 0, list[Change]()
            async for change in feed:
                if change.type == "Added" and change.kind == CM and int(objects.name(change.object)[1:]) % 20 == 0:
                    await store.update(CM, config("c0001", data=str(written)))
                    written += 1
                updated += [change] if change.type == "Modified" else []
                if len(updated) == written > 8:
                    break
            assert [change.object["data"]["a"] for change in updated] == [str(n) for n in range(written)]

    run(body())


async def _until_bookmark(watch: AsyncIterator[Change]) -> AsyncIterator[Change]:
    async for change in watch:
        if change.type == "Bookmark":
            return
        yield change


def test_many_long_first_states_share_no_turn() -> None:
    """Of a thousand watches that begin together, each turn of the loop encodes one batch of one, not one of each."""

    async def body() -> None:
        async with Opened(None) as store:
            await asyncio.gather(*(store.create(CM, config(f"c{n:04}")) for n in range(3 * LIST_CHUNK)))
            turn, batches = 0, list[int]()

            async def read(watcher: Watcher) -> None:
                while (await watcher.next())[0].type != "Bookmark":
                    batches.append(turn)

            tasks = [asyncio.create_task(read(store.follow(Selection(CM)))) for _ in range(20)]
            while not all(task.done() for task in tasks):
                # now and then a look takes long: others wait for it meanwhile
                store.watch_cache.list_looks._spent = 1.0 if turn % 20 < 10 else 0.0
                await asyncio.sleep(0)
                turn += 1
            assert len(batches) == 60 and max(Counter(batches).values()) <= 2, batches

    run(body())


def test_a_selective_watch_looks_through_what_it_does_not_select_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred watches of one label among 5,000 jobs began with turns of 0.4 s."""
    monkeypatch.setattr(watching, "LIST_LOOKS", 10)

    async def body() -> None:
        async with Opened(None) as store:
            for n in range(100):
                await store.create(CM, config(f"c{n:03}"))
            monkeypatch.setattr(store.watch_cache.list_looks, "_seconds", 1e-9)  # each piece takes a turn's time
            looked, turns = list[int](), [0]
            matches = Selection.matches

            def count(selection: Selection, obj: Object) -> bool:
                looked.append(turns[0])
                return matches(selection, obj)

            monkeypatch.setattr(Selection, "matches", count)
            none = store.follow(Selection(CM, labels=parse_labels("colour=red")))
            found = asyncio.create_task(none.next())
            while not found.done():
                await asyncio.sleep(0)
                turns[0] += 1
            assert (await found)[0].type == "Bookmark"
            assert len(looked) == 100 and max(Counter(looked).values()) <= 10

    run(body())


def test_a_batch_of_large_objects_is_short() -> None:
    async def body() -> None:
        async with Opened(None) as store:
            for n in range(6):
                await store.create(CM, config(f"c{n}", data="x" * 100_000))
            watcher, sizes = store.follow(Selection(CM)), list[int]()
            while (batch := await watcher.next())[0].type != "Bookmark":
                sizes.append(len(batch))
            assert sizes == [3, 3]

    run(body())


def test_since_yields_everything_after_it_and_nothing_else(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path) as store:
            revisions = [objects.revision(await store.create(CM, config(f"c{n}"))) for n in range(6)]
            await store.create(kinds.SECRET, {"metadata": {"name": "s", "namespace": "default"}})
            found = await take(store.watch(CM, since=revisions[2]), 3)
            assert [c.revision for c in found] == revisions[3:]

    run(body())


def test_a_watch_of_one_namespace_sleeps_through_the_others(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path, window=8) as store:
            await store.create(NS, {"metadata": {"name": "quiet"}})
            watch = store.watch(CM, "quiet", since=store.revision)
            following = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            for n in range(60):  # far more than memory holds: a sleeper loses nothing by it
                await store.create(CM, config(f"c{n}"))
            await store.create(CM, config("mine", "quiet"))
            assert story([await following]) == [("Added", "mine")]

    run(body())


def test_a_slow_watcher_reads_the_journal(tmp_path: Path) -> None:
    async def body() -> None:
        async with Opened(tmp_path / "cluster.db", window=8) as store:
            watch = store.watch(CM, since=store.revision)
            following = asyncio.ensure_future(anext(watch))
            await store.create(CM, config("c000"))
            await following
            for n in range(1, 60):
                await store.create(CM, config(f"c{n:03d}"))
            await store.update(CM, config("c001", data="2"))
            changes = await take(watch, 60)
            assert [objects.name(c.object) for c in changes[:-1]] == [f"c{n:03d}" for n in range(1, 60)]
            assert changes[-1].old and changes[-1].old["data"] == {"a": "1"}

    run(body())


def test_a_slow_watcher_of_memory_hears_expired() -> None:
    async def body() -> None:
        async with Opened(None, window=8) as store:
            for n in range(60):
                await store.create(CM, config(f"c{n}"))
            with pytest.raises(errors.Expired, match=r"too old resource version: 3 \(\d+\)"):
                await anext(store.watch(CM, since=3))
            with pytest.raises(errors.Expired):
                await anext(store.watch(CM, since=10_000))
            token = (await store.list(CM, limit=1)).token
            for n in range(60):
                await store.update(CM, config("c1", data=f"v{n}"))
            with pytest.raises(errors.Expired, match="The provided continue parameter is too old"):
                await store.list(CM, token=token)

    run(body())


def test_quiet_watches_get_bookmarks(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BOOKMARK_INTERVAL", 0.01)

    async def body() -> None:
        async with Opened(path) as store:
            watch = store.watch(CM, since=store.revision, bookmarks=True)
            (mark,) = await take(watch, 1)
            assert mark.type == "Bookmark" and mark.revision == store.revision

    run(body())


def test_changes_of_all_kinds_survive_a_burst_larger_than_memory(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path, window=8) as store:
            feed = store.changes()
            assert story(await take(feed, 2)) == [("Added", "default"), ("Bookmark", "")]
            following = asyncio.ensure_future(anext(feed))
            await asyncio.sleep(0)
            await asyncio.gather(*(store.create(CM, config(f"c{n}")) for n in range(50)))
            seen = [await following, *await take(feed, 49)]
            assert len({objects.name(c.object) for c in seen}) == 50

    if path is not None:
        run(body())


def test_the_encoded_object_travels_along(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path) as store:
            await store.create(CM, config("a"))
            change = (await take(store.watch(CM), 1))[0]
            assert isinstance(change, StoredChange) and change.encoded == store.get_encoded(CM, "default", "a")
            assert msgspec.json.decode(change.encoded) == change.object

    run(body())


def test_news_elsewhere_does_not_hide_what_a_watch_was_woken_for() -> None:
    async def body() -> None:
        async with Opened(None) as store:
            await store.create(NS, {"metadata": {"name": "quiet"}})
            following = asyncio.ensure_future(anext(store.watch(CM, "quiet", since=store.revision)))
            await asyncio.sleep(0)
            await store.create(CM, config("mine", "quiet"))
            await store.create(CM, config("other"))  # in the same turn: the watch has been woken, but has not looked
            assert story([await asyncio.wait_for(following, 200)]) == [("Added", "mine")]

    run(body())


def test_who_can_pass_news_on_is_not_woken() -> None:
    """Every change once and in order, whichever way it goes, also while it changes from one to the other."""

    async def body() -> None:
        async with Opened(None) as store:
            heard: dict[int, list[str]] = {}
            open_ = True

            async def listen(number: int) -> None:
                following = store.follow(Selection(CM, "default" if number % 2 else ""), since=store.revision)
                names = heard[number] = []

                def at_once(changes: Sequence[Change]) -> bool:
                    if open_ or number % 3:
                        names.extend(objects.name(change.object) for change in changes)
                        return True
                    return False

                while True:
                    names.extend(f"{objects.name(change.object)} awake" for change in await following.next(at_once))

            listeners = [asyncio.ensure_future(listen(number)) for number in range(3 * LISTENERS_PER_TURN)]
            await asyncio.sleep(0)
            for number in range(20):
                open_ = not 5 <= number < 10
                await store.create(CM, config(f"c{number:02d}"))
                for _ in range(number % 7):  # so many turns of the loop before the next news
                    await asyncio.sleep(0)
            while any(len(names) < 20 for names in heard.values()):
                await asyncio.sleep(0)
            for task in listeners:
                task.cancel()
            plain = [f"c{number:02d}" for number in range(20)]
            assert all([name.split()[0] for name in names] == plain for names in heard.values())
            assert all(heard[number] == plain for number in heard if number % 3), "woken for nothing"
            assert any("awake" in name for name in heard[0])

    run(body())


def test_a_watcher_that_fails_while_it_is_told_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with Opened(None) as store:
            heard: list[Change] = []

            def broken(changes: Sequence[Change]) -> bool:
                raise ZeroDivisionError

            def sound(changes: Sequence[Change]) -> bool:
                heard.extend(changes)
                return True

            first, second = (store.follow(Selection(CM), since=store.revision) for _ in range(2))
            tasks = [asyncio.ensure_future(first.next(broken)), asyncio.ensure_future(second.next(sound))]
            await asyncio.sleep(0)
            await store.create(CM, config("a"))
            await asyncio.wait_for(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED), 200)
            assert story(heard) == [("Added", "a")]
            assert tasks[0].done() and story(list(tasks[0].result())) == [("Added", "a")]  # it hears of it another way
            tasks[1].cancel()

    run(body())
    assert "could not pass changes on" in caplog.text


def test_no_bookmark_runs_ahead_of_news() -> None:
    """They come when the time of quiet is over, but before the watcher has said so."""

    async def body() -> None:
        async with Opened(None) as store:
            following = Watcher(store, Selection(CM), since=store.revision, bookmark_interval=0.0)

            def change() -> None:
                with pytest.raises(StopIteration):  # in memory a write waits for nothing
                    store.create(CM, config("a")).send(None)

            task = asyncio.ensure_future(following.next())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.0, change)
            assert story(list(await asyncio.wait_for(task, 200))) == [("Added", "a")]
            assert (await asyncio.wait_for(following.next(), 200))[0].type == "Bookmark"

    run(body())


def test_who_watches_a_pod_sees_its_end_before_it_goes(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path) as store:
            made = await store.create(kinds.POD, {"metadata": {"name": "p", "namespace": "default"}, "spec": {}})
            await store.delete(kinds.POD, "default", "p")
            ending, gone = await take(store.watch(kinds.POD, since=objects.revision(made)), 2)
            assert [ending.type, gone.type] == ["Modified", "Deleted"]
            assert objects.is_deleting(ending.object) and ending.object["metadata"]["generation"] == 2

    run(body())


def test_what_goes_with_its_last_finalizer_is_told_as_it_was(path: Path | None) -> None:
    async def body() -> None:
        async with Opened(path) as store:
            await store.create(CM, {"metadata": {"name": "a", "namespace": "default", "finalizers": ["e.test/a"]}})
            ending = await store.delete(CM, "default", "a")
            last = await store.patch(CM, "default", "a", {"metadata": {"finalizers": None}})
            assert "finalizers" not in last["metadata"] and objects.revision(last) == objects.revision(ending)
            (gone,) = await take(store.watch(CM, since=objects.revision(ending)), 1)
            assert gone.type == "Deleted" and gone.object["metadata"]["finalizers"] == ["e.test/a"]

    run(body())


def test_the_history_of_a_removed_namespace_is_not_for_the_next_owner_of_its_name(path: Path | None) -> None:
    """A watch from an earlier revision told of the Secrets that the former owner had deleted."""

    async def body() -> None:
        async with Opened(path) as store:
            await store.create(NS, {"metadata": {"name": "team"}})
            before = objects.revision(await store.create(CM, config("theirs", namespace="team")))
            await store.check_is_same_namespace("team", before - 1)
            await store.delete(CM, "team", "theirs")
            page = await store.list(CM, "default", limit=1)
            assert page.revision == store.revision
            deleting = await store.delete(NS, "", "team")
            await store.update(NS, {**deleting, "spec": {"finalizers": []}}, subresource="finalize")
            await store.create(NS, {"metadata": {"name": "team"}})
            since = store.revision
            await store.create(CM, config("own", namespace="team"))
            for trimmed in (False, True):
                with pytest.raises(errors.Expired, match="the namespace team was deleted after it"):
                    await store.check_is_same_namespace("team", before - 1)
                if not trimmed:
                    with pytest.raises(errors.Expired):
                        await store.list(CM, "team", limit=1, token=read_verbs.encode_token(before, FIRST_KEY))
                    await store.check_is_same_namespace("other", before - 1)
                    await store.check_is_same_namespace("team", since)
                if path is None:
                    break
                store.watch_cache.trim(store.revision)

    run(body())


def test_large_objects_that_change_again_and_again_are_not_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,048 changes of an object of 1.5 MiB were gigabytes. Whoever waits gets each change all the same, whoever comes late those of the
    journal."""
    monkeypatch.setattr(watch_cache, "WINDOW_BYTES", 100_000)

    async def body() -> None:
        async with Opened(tmp_path / "cluster.db") as store:
            begin = objects.revision(await store.create(CM, config("c", data="x" * 10_000)))
            watch = store.watch(CM, since=begin)
            for n in range(100):
                await store.update(CM, config("c", data=f"{n:03}" + "x" * 10_000))
                assert (await take(watch, 1))[0].object["data"]["a"].startswith(f"{n:03}")
            kept = store.watch_cache.changes_after(CM, 0)
            assert 9 <= len(kept) <= 15
            late = await take(store.watch(CM, since=begin), 100)
            assert [change.object["data"]["a"][:3] for change in late] == [f"{n:03}" for n in range(100)]

    run(body())
