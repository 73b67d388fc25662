"""`--after` and `--start-after`: a job that is suspended until others have ended, or a time has come. The server resumes it then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.body_fields import Fields

AFTER_ANNOTATION = "rowlock.dev/after"
"""Annotation of a waiting job: the jobs that it waits for, as `NAME/UID`, or `NAME/UID/succeeded`, with spaces between."""
START_AFTER_ANNOTATION = "rowlock.dev/start-after"
"""Annotation of a waiting job: the time before which it does not start (RFC 3339)."""
BLOCKED_ANNOTATION = "rowlock.dev/after-failed"
"""Annotation of a waiting job: the name of the job that it waits for and that has not succeeded."""
NO_ORDER: dict[str, None] = dict.fromkeys((AFTER_ANNOTATION, START_AFTER_ANNOTATION, BLOCKED_ANNOTATION))
"""The patch of annotations after which the job waits for nothing."""
_STARTED_GROUP = "kubeflow.org/"
_MOST, _LONGEST = 20, 8_192
"""Jobs that one job may wait for, and the characters of the annotation that are read: anybody may write a longer one."""


class Awaited(NamedTuple):
    """A job that another one waits for. `uid` "" = not looked up yet."""

    name: str
    uid: str = ""
    must_succeed: bool = False


def parse_after(top: Fields) -> tuple[Awaited, ...]:
    """The field `after`: items of `job` and `succeeded`. Mistakes are added to its errors."""
    items = top.items("after")
    if len(items) > _MOST:
        top.add_error("after", "max", f"names {len(items)} jobs; {_MOST} are allowed.")
    found = []
    for item in items[:_MOST]:
        item.allow_only("job", "succeeded")
        if not (name := item.text("job")):
            item.add_error("job", "required", "needs the name of a job.")
        found.append(Awaited(name, must_succeed=item.flag("succeeded")))
    return tuple(found)


def parse_start_after(top: Fields) -> str:
    """The field `startAfter`, a time with its zone; "" if it is absent. Mistakes are added to its errors."""
    text = top.text("startAfter")
    if not text:
        return ""
    try:
        at = objects.seconds(text)
    except ValueError:
        at = -1.0
    if at < 0 or not (text.endswith("Z") or "+" in text[10:] or "-" in text[10:]):
        top.add_error("startAfter", "format", "must be a time with its zone, such as 2026-12-24T22:00:00Z.")
        return ""
    return objects.timestamp(at)


def order_annotations(after: Sequence[Awaited], start_after: str) -> dict[str, str]:
    """The annotations of a job that waits; {} for others."""
    words = " ".join("/".join((one.name, one.uid, *(["succeeded"] if one.must_succeed else []))) for one in after)
    return {name: text for name, text in ((AFTER_ANNOTATION, words), (START_AFTER_ANNOTATION, start_after)) if text}


def awaited_jobs(job: Object) -> list[Awaited]:
    """The jobs that a job waits for; what is malformed is left out."""
    text = str(objects.annotations(job).get(AFTER_ANNOTATION) or "")[:_LONGEST]
    words = (word.split("/") for word in text.split()[:_MOST])
    return [Awaited(word[0], word[1], word[2:] == ["succeeded"]) for word in words if len(word) in (2, 3)]


def start_time(job: Object) -> float:
    """The time before which the job does not start; 0.0 = none."""
    try:
        return objects.seconds(objects.annotations(job).get(START_AFTER_ANNOTATION))
    except ValueError:
        return 0.0


def order_sentence(job: Object) -> str:
    """What the job waits for before it may start; "" if its annotations name nothing."""
    if not str(job.get("apiVersion") or "").startswith(_STARTED_GROUP):
        return ""  # the server starts jobs of this group alone
    notes = objects.annotations(job)
    waits = [f"for {one.name} to {'succeed' if one.must_succeed else 'end'}" for one in awaited_jobs(job)]
    if START_AFTER_ANNOTATION in notes:
        waits.append(f"until {notes[START_AFTER_ANNOTATION][:40]}")
    if not waits:
        return ""
    sentence = f"It waits {' and '.join(waits)}"
    name = objects.name(job)
    if blocker := notes.get(BLOCKED_ANNOTATION):
        return f"{sentence}, and {blocker} has not succeeded: `rowlock resume {name}` starts it anyway."
    return f"{sentence}; `rowlock resume {name}` starts it now."


def start_patch(job: Object) -> dict[str, Any]:
    """The patch that starts a job which has waited."""
    return {"metadata": {"uid": objects.uid(job), "annotations": NO_ORDER}, "spec": {"runPolicy": {"suspend": False}}}
