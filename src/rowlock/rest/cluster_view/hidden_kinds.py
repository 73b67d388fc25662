"""Kinds that the cluster does not show to this server, because a right is missing, and what is said of them.

What was known of them before is kept: a right that is taken away deletes nothing, and the history of runs must not say so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

from rowlock import kinds
from rowlock.errors import Forbidden
from rowlock.kinds import Kind

NECESSARY = (kinds.NAMESPACE, kinds.QUEUE, kinds.POD)
"""Without these no answer would be true: while the cluster does not show them, its refusal is every answer."""
TOLD_AFTER_S = 30.0
"""Seconds of refusals before something is said of a kind that was shown before: an API server that starts refuses for a moment
what it allows later."""
_SPREAD_S = 1.0
"""Seconds over which kinds are asked for that waited for another one to be shown."""


class HiddenKinds:
    """Of one cache of the cluster."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_since: dict[Kind, float] = {}
        self._sentences: dict[Kind, str] = {}
        self._over = asyncio.Event()
        """Of the present pauses."""

    async def pause(self, seconds: float) -> None:
        """Before a kind is asked for that was refused: so long, or until another one is shown."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
                await asyncio.sleep(random.uniform(0.0, _SPREAD_S))

    def note_refusal(self, kind: Kind, sentence: str, *, is_known: bool) -> None:
        """The cluster refuses to show the kind, of which something `is_known` from before or nothing."""
        since = self._refused_since.setdefault(kind, self._clock())
        if not is_known or self._clock() - since >= TOLD_AFTER_S:
            self._sentences[kind] = sentence

    def note_shown(self, kind: Kind) -> None:
        """The cluster shows the kind. Where it refused it, all pauses end: rights come back for all kinds at once."""
        self._sentences.pop(kind, None)
        if self._refused_since.pop(kind, None) is not None:
            self._over.set()
            self._over = asyncio.Event()

    def has(self, kind: Kind) -> bool:
        """Whether the kind is one of them."""
        return kind in self._sentences

    def sentences(self) -> list[str]:
        """One for each kind, with the cluster's refusal."""
        return [
            f"the cluster does not show {kind.plural} to this server: {why}" for kind, why in self._sentences.items()
        ]

    def require_necessary(self) -> None:
        """Raises Forbidden where a kind is hidden that every answer needs."""
        for kind in NECESSARY if self._sentences else ():
            if kind in self._sentences:
                raise Forbidden(f"the cluster does not show {kind.plural} to this server: {self._sentences[kind]}")
