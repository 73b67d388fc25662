"""`--max-time`: how long a job may run, counted while its ranks run: not while it waits, is suspended, or fetches its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock import objects
from rowlock.objects import Object

MAX_TIME_ANNOTATION = "rowlock.dev/max-time"
"""Job annotation: seconds that it may run."""
ENDED_ANNOTATION = "rowlock.dev/ended-because"
"""Annotation of a job that this server ended: the sentence that says why."""
_ENDED_GROUP = "kubeflow.org/"
_LONGEST = 500
"""Characters of the sentence: anybody who may change a job may write a longer one."""
_RUNNING = frozenset({"Running", "Degraded"})


def max_time_of(job: Object) -> float | None:
    """The seconds that the job may run; None = unlimited, also if the annotation is no number, or somebody has written it on a kind that the
    patch would not end."""
    if not str(job.get("apiVersion") or "").startswith(_ENDED_GROUP):
        return None
    text = str(objects.annotations(job).get(MAX_TIME_ANNOTATION) or "")
    return float(text) if objects.is_digits(text) and len(text) < 12 and int(text) else None


def end_reason(job: Object) -> str:
    """The sentence of a job that this server ended; "" for others."""
    return str(objects.annotations(job).get(ENDED_ANNOTATION) or "")[:_LONGEST]


def seconds_run(phases: Sequence[tuple[float, str, str]], now: float) -> float:
    """How long a job has run, from its phases: (when each began, its name, its message)."""
    ends = [*(step[0] for step in phases[1:]), now]
    return sum(max(0.0, end - step[0]) for step, end in zip(phases, ends, strict=False) if step[1] in _RUNNING)


def end_patch(job: Object, limit: float) -> dict[str, Any]:
    """The patch that ends a job which has reached its limit."""
    sentence = f"It was stopped: it reached its --max-time of {time_text(limit)}."
    meta = {"uid": objects.uid(job), "annotations": {ENDED_ANNOTATION: sentence}}
    return {"metadata": meta, "spec": {"runPolicy": ending_policy(job)}}


def ending_policy(job: Object) -> dict[str, Any]:
    """The part of the run policy that ends a job: its operator fails it, since its deadline has passed, and deletes its pods, which get SIGTERM
    and their grace. Kubeflow's operator leaves them where the job has no cleanPodPolicy, so one is set."""
    policy: dict[str, Any] = {"activeDeadlineSeconds": 1}
    if objects.dig(job, "spec.runPolicy.cleanPodPolicy", "None") == "None":
        policy |= {"cleanPodPolicy": "Running"}
    return policy


def time_text(seconds: float) -> str:
    """A duration as a person would have typed it: `90 s`, `45 min`, `2 h`, `1.5 h`."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size and (seconds / size * 10) % 1 == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
