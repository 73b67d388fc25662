"""Who failed first, and why: one sentence over all ranks.

Cause comes before time: a rank with an error of its own, a death by signal or by memory explains peers whose connections
broke, even when clocks and buffers say otherwise. Among causes the earliest wins. The others are counted, never hidden.
"""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rowlock.verdicts.traces import AS_SEEN, Trouble

TOGETHER = 30.0
"""Seconds: deaths closer than this to the one before belong to the same incident."""
_HINTS = {
    signals.SIGBUS: "often a full /dev/shm: give it an emptyDir volume with `medium: Memory`",
    signals.SIGSEGV: "memory was accessed that is not there: native code, or a library that does not fit",
    signals.SIGABRT: "the program gave itself up",
}


_ASKED = "the job was suspended, scaled down or preempted, a pod was deleted, or a probe failed"


@dataclass(frozen=True, slots=True)
class Death:
    """The end of one run of one rank that did not succeed. Times in seconds since the epoch."""

    rank: str
    """As people say it: `rank 1`, `worker-0`."""
    pod: str
    node: str
    code: int
    started: float
    finished: float
    run: int = 0
    signal: int = 0
    stopped: bool = False
    """The platform itself had asked it to end."""
    reason: str = ""
    """Kubernetes' word where the code does not say it: OOMKilled, StartError…"""
    message: str = ""
    trouble: Trouble | None = None
    said: str = ""
    """The last line of its log, where no error was recognised in it."""

    @property
    def first(self) -> float:
        """When it went wrong, as well as is known."""
        return self.trouble.at if self.trouble is not None and self.trouble.at else self.finished

    @property
    def who(self) -> str:
        """The rank that its log names; of a pod of several ranks that is one of them."""
        named = self.trouble.rank if self.trouble is not None else None
        return self.rank if named is None else f"rank {named}"

    @property
    def echo(self) -> bool:
        """It died of another's death."""
        if self.reason == "OOMKilled":
            return False
        if self.trouble is not None:
            return self.trouble.secondary
        return self.stopped or self.signal == signals.SIGTERM

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def death(plain: dict[str, Any]) -> Death:
    """The inverse of `Death.plain`."""
    found = plain.get("trouble")
    return Death(**{**plain, "trouble": Trouble(**found) if found else None})


def incidents(deaths: Sequence[Death]) -> list[list[Death]]:
    """Deaths that belong together, in order of time."""
    found: list[list[Death]] = []
    for each in sorted(deaths, key=lambda d: d.finished):
        if found and each.finished - found[-1][-1].finished <= TOGETHER:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def culprit(incident: Sequence[Death]) -> Death:
    """The death that explains the others."""
    return min(incident, key=lambda d: (d.echo, d.first))


def asked(incident: Sequence[Death]) -> bool:
    """Nobody failed: the platform itself had asked each of them to end."""
    return all(d.stopped and d.reason != "OOMKilled" for d in incident)


def ended(code: int, signal: int, reason: str = "", message: str = "") -> str:
    """How a program ended, in words: `was killed with SIGKILL (exit code 137)`. `message` says why it could not start."""
    if reason == "OOMKilled":
        return "was killed for its memory"
    if reason == "StartError":
        return f"could not start: {message}"
    number = signal or (code - 128 if 128 < code < 128 + signals.NSIG else 0)
    if number in {s.value for s in signals.Signals}:
        return f"was killed with {signals.Signals(number).name} (exit code {code})"
    return f"ended with exit code {code}"


def sentence(incident: Sequence[Death], ranks: int = 0) -> str:
    """What happened. `ranks`: how many the job has, 0 = unknown."""
    if asked(incident):
        names = sorted({d.rank for d in incident})
        plural = "was" if len(names) == 1 else "were"
        return f"Nobody failed: {listed(names)} {plural} asked to end ({_ASKED})."
    cause = culprit(incident)
    others = {d.rank for d in incident if d.rank != cause.rank}
    echoes = {d.rank for d in incident if d.echo} & others
    said = f"{cause.who} (pod {cause.pod}, node {cause.node}) {_why(cause)}"
    if cause.echo:
        said = f"{said}; no rank left an error of its own, so whoever went first did so in silence"
    if not others:
        return said + "."
    count = f"all {len(others)} others" if ranks and len(others) == ranks - 1 and ranks > 2 else listed(sorted(others))
    if others == echoes:
        return f"{said}; {count} then lost {'it' if not cause.echo else 'their peers'} and ended too."
    own = sorted(others - echoes)
    tail = f", and {listed(sorted(echoes))} lost a peer" if echoes else ""
    return f"{said}; {listed(own)} failed {_as(cause, incident, own)}{tail}."


def _as(cause: Death, incident: Sequence[Death], others: Sequence[str]) -> str:
    """How the others' own failures stand to the one that is told."""
    alike = {_kind(cause)} == {_kind(d) for d in incident if d.rank in others}
    return "the same way" if alike else "too, but later" if len(others) == 1 else "as well, but later"


def _kind(death: Death) -> tuple[object, ...]:
    error = (death.trouble.kind, death.trouble.text) if death.trouble is not None else (death.said,)
    return (death.code, death.signal, death.reason, death.message, *error)


def _why(cause: Death) -> str:
    how = ended(cause.code, cause.signal, cause.reason, cause.message)
    if cause.reason == "StartError":
        return how
    after = f" after {span(cause.finished - cause.started)}" if cause.finished > cause.started > 0 else ""
    if cause.reason == "OOMKilled":
        return f"{how}{after}" + (f": {cause.message}" if cause.message else "")
    if cause.trouble is not None:
        if cause.trouble.text == AS_SEEN:
            return f"{cause.trouble.kind}{after}, {AS_SEEN}"
        return f"{how}{after}: {cause.trouble}"
    number = cause.signal
    if number == signals.SIGKILL and not cause.stopped:
        return (
            f"{how}{after}; not by rowlock, and it left no error: somebody's `kill -9`, or the kernel short of memory"
        )
    if hint := _HINTS.get(signals.Signals(number) if number in {s.value for s in signals.Signals} else signals.SIGCHLD):
        return f"{how}{after}; {hint}"
    if cause.said:
        return f"{how}{after}; the last line of its log: {cause.said}"
    return f"{how}{after} and left no error in its log"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names for a sentence: `a, b and 3 more`."""
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def span(seconds: float) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
