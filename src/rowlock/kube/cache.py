"""List and watch kinds, and keep a `View` of them for controllers.

One task follows each kind. A watch that expired starts again with a list, and only the differences become changes. Other
errors are retried for ever with back-off and jitter; `watch_errors` has a sentence about each, and the view keeps the
last known state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType

from rowlock.api import Api, Change, View
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.controllers.waiters import Waiters
from rowlock.errors import ApiError, Expired, Forbidden, NotFound, Unsupported
from rowlock.kinds import Kind
from rowlock.kube.cached_view import CachedView, Replacement
from rowlock.kube.rate_limit import Backoff
from rowlock.objects import Key, Object, key, labels
from rowlock.selectors import EVERYTHING, Selector

log = logging.getLogger("rowlock.kube")
MISSING_KIND_BACKOFF = (10.0, 60.0)
"""First and longest delay in seconds between two attempts to follow a kind that the cluster does not serve or forbids to watch."""
CHANGES_PER_SLICE = 512
"""Changes that are delivered before the event loop runs other tasks."""


class Cache:
    """`async with TaskGroup() as tasks: tasks.create_task(cache.run())`; then `view` and `changes()`."""

    def __init__(
        self,
        api: Api,
        kinds: Sequence[Kind],
        *,
        backoff: Callable[[], Backoff] = Backoff,
        selectors: Mapping[Kind, Selector] = MappingProxyType({}),
    ) -> None:
        """`selectors`: of these kinds only the objects with such labels are followed."""
        self._api, self._selectors = api, selectors
        self._kinds = tuple(kinds)
        self._backoff = backoff
        self._view = CachedView()
        self._unsynced = set(self._kinds)
        self._subscribers: list[asyncio.Queue[Change]] = []
        self._waiters = Waiters[tuple[Kind, Key]]()
        self.synced = asyncio.Event()
        """Set when every kind was listed once; a kind that the cluster does not serve counts as empty."""
        self.watch_errors: dict[Kind, str] = {}
        """Kind → why it cannot be watched right now."""

    @property
    def view(self) -> View:
        """The objects as known from the watches."""
        return self._view

    async def run(self) -> None:
        """List and watch every kind until cancelled, as a client-go reflector does."""
        if not self._kinds:
            self.synced.set()
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(kind))

    async def changes(self) -> AsyncIterator[Change]:
        """Wait until synced; then yield the state as Added changes, a bookmark, and all further changes."""
        await self.synced.wait()
        queue: asyncio.Queue[Change] = asyncio.Queue()
        state = self._view.initial_changes()
        self._subscribers.append(queue)  # no await since the state was read: no change is missed
        try:
            for number, change in enumerate(state, 1):
                yield change
                if number % CHANGES_PER_SLICE == 0:
                    await asyncio.sleep(0)
            while True:
                for _ in range(CHANGES_PER_SLICE):
                    yield await queue.get()
                await asyncio.sleep(0)  # getting from a full queue never yields: let other tasks run
        finally:
            self._subscribers.remove(queue)

    def follows(self, kind: Kind, obj: Object) -> bool:
        """Whether this object is followed."""
        return kind in self._kinds and self._selectors.get(kind, EVERYTHING).matches(labels(obj))

    async def wait_for_object(self, kind: Kind, key: Key, condition: Callable[[Object | None], bool]) -> None:
        """Wait until `condition` holds for the object in the view (None = it does not exist), without a time limit."""
        await self._waiters.wait_until((kind, key), lambda: condition(self._view.get(kind, key.namespace, key.name)))

    # ------------------------------------------------------------ one kind

    async def _follow(self, kind: Kind) -> None:
        since: int | None = None
        backoff, missing_backoff = self._backoff(), Backoff(*MISSING_KIND_BACKOFF)
        while True:
            try:
                async for revision in self._watch_once(kind, since):
                    since = revision
                    backoff.reset()
                    missing_backoff.reset()
                delay = backoff.next_delay()  # wait also after a watch that simply ended
            except Expired:
                since, delay = None, backoff.next_delay()
                log.info("the watch of %s expired: listing again", kind.resource)
            except (NotFound, Unsupported) as error:
                since, delay = None, missing_backoff.next_delay()
                await self._commit(Replacement(self._view, kind), self._view.revision)
                self._mark_synced(kind)
                self._report_error(kind, f"the cluster has no {kind.resource}: {error.message}")
            except ApiError as error:
                is_hidden = isinstance(error, Forbidden) and kind in self._unsynced  # rights are seldom granted soon
                delay = (missing_backoff if is_hidden else backoff).next_delay()
                self._report_error(kind, f"cannot follow {kind.resource}: {error.message}")
            await asyncio.sleep(delay)

    async def _watch_once(self, kind: Kind, since: int | None) -> AsyncIterator[int]:
        """Follow one watch; yields the revisions from which a next watch can resume."""
        replacement = Replacement(self._view, kind) if since is None else None
        watch = self._api.watch(kind, since=since, labels=self._selectors.get(kind, EVERYTHING), bookmarks=True)
        async with aclosing(watch) as changes:  # type: ignore[type-var]  # watches are generators
            async for change in changes:
                if replacement is None:
                    self._publish(self._view.apply(change))
                elif change.type != "Bookmark":
                    replacement.take(change)
                    continue  # an incomplete list cannot be resumed
                else:
                    await self._commit(replacement, change.revision)
                    replacement = None
                self._mark_synced(kind)
                yield change.revision

    async def _commit(self, replacement: Replacement, revision: int) -> None:
        """Replace the view's state of a kind. All but the last step runs in slices; until then readers see the old state."""
        budget = TurnBudget()
        for _ in replacement.prepare():
            await budget.pause_if_due()
        self._publish(replacement.commit(revision))

    def _mark_synced(self, kind: Kind) -> None:
        self.watch_errors.pop(kind, None)
        self._unsynced.discard(kind)
        if not self._unsynced:
            self.synced.set()

    def _report_error(self, kind: Kind, sentence: str) -> None:
        if self.watch_errors.get(kind) != sentence:
            log.warning("%s", sentence)
        self.watch_errors[kind] = sentence

    def _publish(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for queue in self._subscribers:
                queue.put_nowait(change)
            if change.kind is not None:
                self._waiters.wake((change.kind, key(change.object)))
