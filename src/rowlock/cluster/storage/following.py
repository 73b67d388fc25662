"""A watcher's place in what happens: the list it begins with, then all that there is to tell, by the batch.

No generator but one method, because a thousand watchers hear of each change: every layer between the news and the wire
counts a thousand times. Who can pass news on at once gives `next` a way to, and is not even woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from rowlock.api import Change
from rowlock.cluster.storage.history import Cursor, Ear, History
from rowlock.cluster.storage.reading import Wanted
from rowlock.cluster.storage.state import Stored
from rowlock.kinds import Kind

AtOnce = Callable[[Sequence[Change]], bool]
"""Passes changes on, all or none of them, without waiting for anything; False: it cannot now."""

LISTED = 256
"""Objects of the first list that go together."""


class Past(Protocol):
    """What a follower asks of the store."""

    history: History

    @property
    def revision(self) -> int: ...

    async def reach(self, since: int) -> None:
        """Waits for a revision that is not durable yet. Raises Expired for one that never was."""
        ...

    async def missed(self, kind: Kind | None, since: int) -> tuple[Sequence[Stored], int]:
        """Changes that memory no longer has, and up to which revision they go. Raises Expired."""
        ...


class Following:
    """Follows one kind (`wanted`) or everything (None), after `since`; or after the objects `listed` and a bookmark that
    says so, which is the state now."""

    def __init__(
        self,
        past: Past,
        wanted: Wanted | None = None,
        *,
        since: int | None = None,
        listed: Sequence[Change] = (),
        quiet: float | None = None,
    ) -> None:
        self._past, self._wanted, self._quiet = past, wanted, quiet
        self._kind: Kind | None = wanted.kind if wanted else None
        self._namespace = wanted.namespace if wanted else ""
        self._since = past.revision if since is None else since
        self._cursor: Cursor | None = None
        self._first: Iterator[Sequence[Change]] = iter(())
        if since is None:
            self._cursor = past.history.cursor(self._kind, self._namespace)
            self._first = iter([*_pieces(listed), (Change("Bookmark", self._since),)])

    async def next(self, at_once: AtOnce | None = None) -> Sequence[Change]:
        """What there is to tell now, as soon as there is something: changes, or one bookmark: after the first list, and
        after `quiet` seconds without any. Raises Expired when too much has happened since the last call.

        While it waits, changes go to `at_once`; those that it does not take are the answer."""
        for batch in self._first:
            return batch
        past = self._past
        if self._since > past.revision:
            await past.reach(self._since)
        ear = self._ear(at_once) if at_once else None
        while True:
            if self._cursor is None and self._since >= past.history.floor:
                self._cursor = past.history.cursor(self._kind, self._namespace, self._since)
            found: Sequence[Stored] | None = self._cursor.take() if self._cursor else None
            if found is None:  # memory has moved on: the journal knows
                self._cursor = None
                found, self._since = await past.missed(self._kind, self._since)
            else:
                self._since = past.revision
            if seen := self._seen(found):
                return seen
            if self._cursor and not await self._cursor.wait(self._quiet, ear):
                return (Change("Bookmark", past.revision),)

    def _ear(self, at_once: AtOnce) -> Ear:
        """What hears of news in our namespace while nobody is awake."""
        whole = self._wanted is None or not self._wanted.selective

        def hear(found: Sequence[Stored]) -> bool:
            seen = found if whole else self._seen(found)
            if seen and not at_once(seen):
                return False
            self._since = found[-1].revision
            return True

        return hear

    def _seen(self, found: Sequence[Stored]) -> Sequence[Change]:
        wanted = self._wanted
        if wanted is None:
            return found
        return [seen for change in found if (seen := wanted.seen(change)) is not None]


def _pieces(listed: Sequence[Change]) -> Iterable[Sequence[Change]]:
    return (listed[start : start + LISTED] for start in range(0, len(listed), LISTED))
