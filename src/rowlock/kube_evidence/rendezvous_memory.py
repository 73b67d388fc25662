"""How long the ranks of a job have been seen in a rendezvous, from one question to the next.

Ranks that have all come may take a while to meet, so a single look cannot tell a rendezvous that goes well from one that does not. Nobody
watches on a real cluster; so what earlier questions saw is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rowlock.diagnosis.observation import RankObservation, Verdict
from rowlock.diagnosis.rendezvous import MEETINGS

_MAX_JOBS = 1000
"""Jobs that are remembered; the one that was asked about least recently is forgotten first."""
_FIRST_TIME = "They were seen there for the first time: ask again in half a minute."
_Ranks = frozenset[tuple[str, int]]
"""Pods and pids."""


class RendezvousMemory:
    """What was seen of rendezvous. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, tuple[_Ranks, float]] = {}
        """By job (its uid): the ranks that were seen in a rendezvous all together, and since when."""

    def note(self, job: str, observations: Sequence[RankObservation]) -> list[RankObservation]:
        """The observations of a job (its uid) with the time since which all of them have been in the rendezvous."""
        ranks, since = self._since.pop(job, (frozenset(), 0.0))
        if not observations or any(look.awaited_collective not in MEETINGS for look in observations):
            return list(observations)
        now = frozenset((look.pod, look.pid) for look in observations)
        self._since[job] = (now, since if now == ranks else self._clock())
        while len(self._since) > _MAX_JOBS:
            del self._since[next(iter(self._since))]
        together = max(0.0, self._clock() - self._since[job][1])
        return [replace(look, together=together) for look in observations]


def with_advice(verdict: Verdict, observations: Sequence[RankObservation]) -> Verdict:
    """A verdict that says of ranks that are in a rendezvous for the first time that it is too early to tell."""
    is_first = bool(observations) and all(look.together == 0.0 for look in observations)
    return (
        replace(verdict, sentence=f"{verdict.sentence} {_FIRST_TIME}") if is_first and not verdict.is_hang else verdict
    )
