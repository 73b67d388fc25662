"""What the scheduler's side says to what comes in: pods, jobs, queues and PodGroups.

On a real cluster KAI's webhooks look at pods and queues; a job whose pods they would refuse is admitted there and hangs
without a pod. Here the job itself is refused, at once. What a real one admits and then holds for ever (a queue that is
not there, a pod larger than any node) is admitted here too, with a warning that kubectl prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.api import View, WriteOptions
from rowlock.errors import Cause, Forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.scheduling import reading
from rowlock.scheduling.admission import (
    denial,
    group_causes,
    queue_causes,
    queue_warning,
    share_refusal,
    share_warning,
)
from rowlock.scheduling.requests import pool_of
from rowlock.training.defaults import read
from rowlock.training.group import queue_of
from rowlock.training.registry import FRAMEWORKS
from rowlock.workloads.possible import never_fits

GUARDED = frozenset({kinds.POD, kinds.QUEUE, kinds.POD_GROUP, *kinds.JOBS})


def causes(kind: Kind, new: Object, view: View | None) -> Iterator[Cause]:
    """What is wrong with a Queue or a PodGroup, one cause per field."""
    if kind is kinds.QUEUE:
        yield from queue_causes(new, lambda name: view.get(kinds.QUEUE, "", name) if view else None)
    elif kind is kinds.POD_GROUP:
        yield from group_causes(new)


def review(
    kind: Kind, old: Object | None, new: Object, options: WriteOptions, view: View | None, *, now: float = 0.0
) -> None:
    """Raises Forbidden for pods, and jobs whose pods, ask for shares of GPUs that there are not; warns of the rest."""
    if kind is kinds.POD:
        if old is None:
            _share(objects.annotations(new), new.get("spec") or {}, "metadata.annotations", options)
            _warn_pod(new, options, view)
    elif kind in FRAMEWORKS and (old is None or old.get("spec") != new.get("spec")):
        for where, template in _templates(kind, new):
            notes = (template.get("metadata") or {}).get("annotations") or {}
            _share(notes, template.get("spec") or {}, f"{where}.metadata.annotations", options)
        if old is None and view is not None:
            _warn_job(kind, new, options, view, now)


def _share(notes: Mapping[str, str], spec: Mapping[str, Any], at: str, options: WriteOptions) -> None:
    if why := share_refusal(notes, spec, at):
        raise Forbidden(denial(why))
    if text := share_warning(notes, at):
        options.warnings.append(text)


def _templates(kind: Kind, job: Object) -> Iterator[tuple[str, Object]]:
    field = FRAMEWORKS[kind].replicas
    for role, replica in (objects.dig(job, f"spec.{field}") or {}).items():
        yield f"spec.{field}.{role}.template", (replica or {}).get("template") or {}


def _warn_pod(pod: Object, options: WriteOptions, view: View | None) -> None:
    """Only of a queue that it names itself: pods of jobs inherit theirs, and pods are made by the thousand."""
    wanted = next((q for label in reading.QUEUE_LABELS if (q := objects.labels(pod).get(label))), "")
    if wanted and view is not None and not reading.foreign(pod) and view.get(kinds.QUEUE, "", wanted) is None:
        options.warnings.append(queue_warning(wanted, lambda _: None, ()))


def _warn_job(kind: Kind, job: Object, options: WriteOptions, view: View, now: float) -> None:
    asked = read(FRAMEWORKS[kind], job)
    wanted = queue_of(asked, view.get(kinds.NAMESPACE, "", asked.namespace))
    text = queue_warning(wanted, lambda name: view.get(kinds.QUEUE, "", name), view.all(kinds.QUEUE))
    if text:
        options.warnings.append(text)
    for where, template in _templates(kind, job):
        text = never_fits(template, view.all(kinds.NODE), now, pool_of(job))
        if text:
            options.warnings.append(f"{where}: {text}")
