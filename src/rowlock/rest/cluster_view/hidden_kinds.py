"""Kinds that this server may not list or watch in the cluster, and the notices about them.

Objects known from before are kept: losing a right does not mean that they were deleted, and the history of runs must not say so.
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
"""Kinds that every answer needs: while one of them is hidden, every request fails with the cluster's refusal."""
TOLD_AFTER_S = 30.0
"""Seconds of refusals before a kind that was readable counts as hidden, because a starting API server briefly refuses what it
allows later."""
_SPREAD_S = 1.0
"""Seconds over which the retries are spread when a pause ends because another kind became readable."""


class HiddenKinds:
    """The hidden kinds of one informer cache."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused_since: dict[Kind, float] = {}
        self._sentences: dict[Kind, str] = {}
        self._over = asyncio.Event()
        """Set to end the current pauses; then replaced."""

    async def pause(self, seconds: float) -> None:
        """Wait before a refused kind is requested again: `seconds`, or less if another refused kind becomes readable."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
                await asyncio.sleep(random.uniform(0.0, _SPREAD_S))

    def note_refusal(self, kind: Kind, sentence: str, *, is_known: bool) -> None:
        """The cluster refused to list the kind. `is_known`: it was read before."""
        since = self._refused_since.setdefault(kind, self._clock())
        if not is_known or self._clock() - since >= TOLD_AFTER_S:
            self._sentences[kind] = sentence

    def note_shown(self, kind: Kind) -> None:
        """The kind was read. If it was refused before, all pauses end, since rights usually return for all kinds at once."""
        self._sentences.pop(kind, None)
        if self._refused_since.pop(kind, None) is not None:
            self._over.set()
            self._over = asyncio.Event()

    def has(self, kind: Kind) -> bool:
        """Whether the kind is hidden."""
        return kind in self._sentences

    def sentences(self) -> list[str]:
        """A sentence for each hidden kind, with the cluster's refusal."""
        return [
            f"the cluster does not show {kind.plural} to this server: {why}" for kind, why in self._sentences.items()
        ]

    def require_necessary(self) -> None:
        """Raises Forbidden if one of the `NECESSARY` kinds is hidden."""
        for kind in NECESSARY if self._sentences else ():
            if kind in self._sentences:
                raise Forbidden(f"the cluster does not show {kind.plural} to this server: {self._sentences[kind]}")
