"""Which of the things that happen to a run are told, and in which words. Pure: made from the recorder's notes, nothing is kept here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowlock import objects
from rowlock.archive.records import PhaseStep
from rowlock.diagnosis.remarks import EVENT_REASONS, NOT_FINITE
from rowlock.diagnosis.root_cause import format_duration
from rowlock.objects import Object
from rowlock.workloads.history import event_time
from rowlock.workloads.run_options.notify import EVENTS, STARTED

LEAST_WAIT = 10.0
"""Seconds that a job must have waited for its start to be told."""
_WAITING = frozenset({"Creating", "Pending", "Resuming"})
_RUNNING = frozenset({"Running", "Degraded"})
_GOING = frozenset({"Deleting", "Deleted"})
_ENDS = {"Failed": "failed", "Completed": "completed"}
_OF_REASON = {"JobHangs": "hangs", EVENT_REASONS[NOT_FINITE]: "nan", "Evict": "preempted", "GpusIdle": "idle"}
"""The reason of an Event about a job → what it tells."""
assert {STARTED, *_ENDS.values(), *_OF_REASON.values()} == set(EVENTS)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened. `key` is the same after a restart of the server, and another one for each thing of a run."""

    key: str
    event: str
    at: float
    sentence: str
    """What happened, as it follows the job's name: `failed: …`."""


def notices_of_phases(phases: Sequence[PhaseStep], verdict: str) -> list[Notice]:
    """Starts after a wait, and the end, once `verdict` is known."""
    found: list[Notice] = []
    waits_since: float | None = None
    for step in phases:
        if step.phase in _WAITING:
            waits_since = step.at if waits_since is None else waits_since
        elif step.phase in _RUNNING and waits_since is not None:
            if (waited := step.at - waits_since) >= LEAST_WAIT:
                words = f"started after waiting {format_duration(waited)}."
                found.append(Notice(f"started-{len(found) + 1}", STARTED, step.at, words))
            waits_since = None
        elif step.phase not in ("Initializing", *_RUNNING):
            waits_since = None
    last = next(
        (step for step in reversed(phases) if step.phase not in _GOING), None
    )  # the verdict may come after the deletion
    if last is not None and verdict and (event := _ENDS.get(last.phase)):
        found.append(Notice(event, event, last.at, _end_words(event, phases, last.at, verdict)))
    return found


def _end_words(event: str, phases: Sequence[PhaseStep], ended: float, verdict: str) -> str:
    if event == "failed":
        return f"failed: {verdict}"
    began = next((step.at for step in phases if step.phase in _RUNNING), phases[0].at)
    took = f"completed after {format_duration(max(0.0, ended - began))}"
    doubt = verdict.partition("It completed, but ")[2]
    return f"{took}, but {doubt}" if doubt else f"{took}."


def notice_of_event(event: Object) -> Notice | None:
    """What an Event about a job itself tells; None for all others. Its pods' and its gang's Events say the same once more."""
    word = _OF_REASON.get(str(event.get("reason")))
    if word is None or (event.get("involvedObject") or {}).get("kind") in ("Pod", "PodGroup"):
        return None
    stamp, message = event_time(event), str(event.get("message") or "")
    try:
        at = objects.seconds(stamp)
    except ValueError:  # anybody may write Events
        return None
    begins = {
        "hangs": "hangs: ",
        "nan": "",
        "preempted": "was preempted, and starts again when there is room: ",
        "idle": "is idle: ",
    }[word]
    return Notice(f"{word}-{at:.0f}", word, at, begins + " ".join(message.split("\n", 1)[0].split()))
