"""List and watch every kind that somebody decides about, and keep a `View` of it: what controllers run on.

Each kind is followed by a task of its own. A watch that expired begins again with the state, and only the difference
is told. Whatever else goes wrong is waited out with back-off and jitter, for ever: `troubles` says what and where,
in a sentence, and the view keeps showing what was seen last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing

from rowlock.api import Api, Change, View
from rowlock.errors import ApiError, Expired, NotFound
from rowlock.kinds import Kind
from rowlock.kube.limits import Backoff
from rowlock.kube.mirror import Mirror

log = logging.getLogger("rowlock.kube")
ABSENT = (10.0, 60.0)
"""Seconds, first and most, between looks for a kind that the cluster does not have (its CRD is not installed)."""


class Cache:
    """`async with TaskGroup() as tasks: tasks.create_task(cache.run())`; then `view` and `changes()`."""

    def __init__(self, api: Api, kinds: Sequence[Kind], *, backoff: Callable[[], Backoff] = Backoff) -> None:
        self._api = api
        self._kinds = tuple(kinds)
        self._backoff = backoff
        self._mirror = Mirror()
        self._unseen = set(self._kinds)
        self._subscribers: list[asyncio.Queue[Change]] = []
        self.synced = asyncio.Event()
        """Set when every kind has been listed once (a kind that the cluster does not have counts as empty)."""
        self.troubles: dict[Kind, str] = {}
        """What keeps a kind from being followed right now."""

    @property
    def view(self) -> View:
        return self._mirror

    async def run(self) -> None:
        """Until cancelled."""
        if not self._kinds:
            self.synced.set()
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(kind))

    async def changes(self) -> AsyncIterator[Change]:
        """Waits until synced; then the state as Added changes, a bookmark, and everything that happens."""
        await self.synced.wait()
        queue: asyncio.Queue[Change] = asyncio.Queue()
        state = self._mirror.everything()
        self._subscribers.append(queue)  # no await since the state was taken: nothing falls between
        try:
            for change in state:
                yield change
            while True:
                yield await queue.get()
        finally:
            self._subscribers.remove(queue)

    # ------------------------------------------------------------ one kind

    async def _follow(self, kind: Kind) -> None:
        since: int | None = None
        backoff, absent = self._backoff(), Backoff(*ABSENT)
        while True:
            try:
                async for revision in self._seen(kind, since):
                    since = revision
                    backoff.reset()
                    absent.reset()
                wait = backoff.wait()  # a watch that just ends is strange enough to be gentle
            except Expired:
                since, wait = None, backoff.wait()
                log.info("the watch of %s expired: listing again", kind.resource)
            except NotFound as error:
                since, wait = None, absent.wait()
                self._tell(self._mirror.replace(kind, (), self._mirror.revision))
                self._listed(kind)
                self._trouble(kind, f"the cluster has no {kind.resource}: {error.message}")
            except ApiError as error:
                wait = backoff.wait()
                self._trouble(kind, f"cannot follow {kind.resource}: {error.message}")
            await asyncio.sleep(wait)

    async def _seen(self, kind: Kind, since: int | None) -> AsyncIterator[int]:
        """Follows one watch; yields the revisions from which it could be resumed."""
        state: list[Change] | None = [] if since is None else None
        async with aclosing(self._api.watch(kind, since=since, bookmarks=True)) as changes:  # type: ignore[type-var]  # watches are generators
            async for change in changes:
                if state is None:
                    self._tell(self._mirror.apply(change))
                elif change.type != "Bookmark":
                    state.append(change)
                    continue  # half a list is nothing to resume from
                else:
                    self._tell(self._mirror.replace(kind, (c.object for c in state), change.revision))
                    state = None
                self._listed(kind)
                yield change.revision

    def _listed(self, kind: Kind) -> None:
        self.troubles.pop(kind, None)
        self._unseen.discard(kind)
        if not self._unseen:
            self.synced.set()

    def _trouble(self, kind: Kind, sentence: str) -> None:
        if self.troubles.get(kind) != sentence:
            log.warning("%s", sentence)
        self.troubles[kind] = sentence

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for queue in self._subscribers:
                queue.put_nowait(change)
