"""Lists and watches the kinds of a real cluster for the informer cache, and tracks which of them were read.

An expired watch starts again with a list, of which only the differences are applied. A kind that the cluster does not serve counts
as empty. A kind that it refuses to list keeps its known objects and is retried.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence

from rowlock import objects
from rowlock.api import Api, Change
from rowlock.controllers.supervisor import back_off
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.controllers.view.state import State
from rowlock.errors import ApiError, Expired, Forbidden, NotFound, Unavailable
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.cluster_view.hidden_kinds import HiddenKinds
from rowlock.selectors import EVERYTHING, Selector

_RETRY_DELAY, _MAX_RETRY_DELAY = 0.2, 10.0
"""Seconds before a failed kind is listed again, the first and the longest delay; with jitter, so that kinds do not retry at once."""
_LASTING_WATCH = 120.0  # seconds after which a watch counts as successful and the delay is reset, as in client-go
_CHANGES_AT_ONCE = 500  # differences after a list that are applied in one turn; more are applied in slices
_ABSENT_KIND_DELAY = 15.0  # seconds before a kind is tried again that is not served, or was refused twice
_REFUSED_DELAY = 1.0  # seconds after the first refusal, since a starting API server briefly refuses everything


class Reflector:
    """Feeds a state, whose observers see each change. `notify` is called when a kind has been read completely or refused."""

    def __init__(
        self,
        followed: Sequence[Kind],
        selectors: Mapping[Kind, Selector],
        state: State,
        notify: Callable[[], None],
    ) -> None:
        """`selectors`: label selectors for kinds of which only some objects are followed."""
        self._kinds, self._selectors = followed, selectors
        self._state, self._notify = state, notify
        self.hidden = HiddenKinds()
        self._synced: set[Kind] = set()
        self._absent: set[Kind] = set()
        self._errors: dict[Kind, str] = {}

    # ------------------------------------------------------------ what was read

    def is_absent(self, kind: Kind) -> bool:
        """Whether the cluster does not serve the kind."""
        return kind in self._absent

    def follows(self, kind: Kind, obj: Object) -> bool:
        """Whether a write of this object will reach the cache."""
        return kind in self._synced and kind not in self._absent and self.is_selected(kind, obj)

    def has_synced(self) -> bool:
        """Whether all kinds were read."""
        return len(self._synced) == len(self._kinds)

    def can_answer(self) -> bool:
        """Whether all kinds were read, except hidden ones."""
        return all(kind in self._synced or self.hidden.has(kind) for kind in self._kinds)

    def knows(self, wanted: Sequence[Kind]) -> bool:
        """Whether these kinds were read."""
        return self._synced.issuperset(wanted)

    def unread_error(self) -> Unavailable:
        """An error that says which kinds were not read yet, and why."""
        missing = ", ".join(kind.plural for kind in self._kinds if kind not in self._synced)
        reason = next(iter(self._errors.values()), "")
        hint = f": the cluster answers `{reason}`" if reason else "; try again in a moment"
        return Unavailable(f"the server has not read the cluster's {missing} yet{hint}")

    def note_read(self, kind: Kind) -> None:
        """All objects of this kind were read."""
        self._synced.add(kind)

    def is_selected(self, kind: Kind, obj: Object) -> bool:
        """Whether the labels of an object are those of which its kind is followed."""
        return kind not in self._selectors or self._selectors[kind].matches(objects.labels(obj))

    # ------------------------------------------------------------ a real cluster

    async def watch(self, api: Api) -> None:
        """Follow every kind until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._watch_forever(api, kind), name=f"catalog {kind.plural}")

    async def _watch_forever(self, api: Api, kind: Kind) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._watch_once(api, kind)
            except Expired:
                pass  # the known objects stay until everything has been listed again
            except NotFound:
                self._mark_absent(kind)
                await asyncio.sleep(_ABSENT_KIND_DELAY)
                continue
            except Forbidden as error:
                delay = _ABSENT_KIND_DELAY if kind in self._errors else _REFUSED_DELAY
                self._errors[kind] = error.message
                self.hidden.note_refusal(kind, error.message, is_known=kind in self._synced)
                self._notify()  # so that requests stop waiting for this kind
                await self.hidden.pause(delay)
                continue
            except ApiError as error:
                failures = failures if kind in self._errors else 0  # no error noted: it worked until now
                self._errors[kind] = error.message
            failures = 1 if time.monotonic() - began > _LASTING_WATCH else failures + 1
            await asyncio.sleep(back_off(failures, _RETRY_DELAY, _MAX_RETRY_DELAY) * random.uniform(0.75, 1.25))

    def _mark_absent(self, kind: Kind) -> None:
        """The cluster does not serve the kind (its CRD is not installed): drop all objects of it."""
        for key in self._state.keys(kind):
            self._take(kind, key, None)
        self._absent.add(kind)
        self._errors.pop(kind, None)
        self._synced.add(kind)
        self._notify()

    async def _watch_once(self, api: Api, kind: Kind) -> None:
        """List and watch a kind. The first bookmark ends the list; then its differences to the known objects are applied."""
        state: dict[Key, Object] | None = {}
        async for change in api.watch(kind, since=None, labels=self._selectors.get(kind, EVERYTHING), bookmarks=True):
            if change.type == "Bookmark":
                if state is not None:
                    await self._take_state(kind, state)
                    state = None
                    self._synced.add(kind)
                    self._absent.discard(kind)
                    self._errors.pop(kind, None)
                    self.hidden.note_shown(kind)
                    self._notify()
                continue
            key, obj = objects.key(change.object), None if change.type == "Deleted" else change.object
            if state is None:
                self._take(kind, key, obj)
            elif obj is None:
                state.pop(key, None)
            else:
                state[key] = obj

    async def _take_state(self, kind: Kind, state: dict[Key, Object]) -> None:
        """Apply the differences to the known objects: up to `_CHANGES_AT_ONCE` in one turn of the event loop, more in slices."""
        budget = TurnBudget()
        news: list[tuple[Key, Object | None]] = []
        for key, obj in state.items():
            await budget.pause_if_due()
            known = self._state.metadata(kind, *key)
            if known is None or not objects.is_same_version({"metadata": known}, obj):
                news.append((key, obj))
        news += [(key, None) for key in self._state.keys(kind) if key not in state]
        for key, changed in news:
            if len(news) > _CHANGES_AT_ONCE:
                await budget.pause_if_due()
            self._take(kind, key, changed)

    def _take(self, kind: Kind, key: Key, obj: Object | None) -> None:
        """Apply an object's current state; None if it was deleted."""
        old = self._state.get(kind, *key)
        if obj is not None:
            self._state.apply(Change("Modified" if old else "Added", objects.revision(obj), kind, obj, old))
        elif old is not None:
            self._state.apply(Change("Deleted", objects.revision(old), kind, old, old))
