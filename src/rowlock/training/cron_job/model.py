"""What the CronJob controller reads of a CronJob and its Jobs; and the Job that it makes at a start. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock.kinds import BATCH_JOB
from rowlock.objects import (
    Object,
    dig,
    is_condition_true,
    labels,
    name,
    namespace,
    owner_reference,
    seconds,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.training.batch_job.model import COMPLETE, FAILED
from rowlock.training.batch_job.template import SCHEDULING_LABELS
from rowlock.training.cron_job.schedule import Schedule, parse
from rowlock.training.cron_job.zones import UTC_ZONE, Zone, load_zone

SCHEDULED_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a Job with the time of the start that it was made for."""
EVENT_SOURCE = "cronjob-controller"


@dataclass(frozen=True, slots=True)
class ObservedCronJob:
    """A CronJob, and the Jobs that it controls."""

    object: Object
    jobs: Sequence[Object]

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.object.get("spec") or {}
        return spec

    @property
    def active(self) -> list[Object]:
        """The references of `status.active`."""
        return list(dig(self.object, "status.active") or ())

    @property
    def last_start(self) -> float:
        """When the last start was made, or the CronJob itself: starts until then are not due any more."""
        text = dig(self.object, "status.lastScheduleTime") or dig(self.object, "metadata.creationTimestamp")
        return seconds(text)

    def zone(self, local: Zone) -> Zone:
        """The zone of its schedule. Raises ZoneError."""
        called = self.spec.get("timeZone")
        return local if called is None else load_zone(str(called))

    def schedule(self, local: Zone) -> Schedule:
        """Raises ScheduleError, ZoneError."""
        return parse(str(self.spec.get("schedule") or ""), self.zone(local))


def end_of(job: Object) -> str:
    """`Complete`, `Failed`, or "" for a Job that has not ended."""
    return next((type_ for type_ in (COMPLETE, FAILED) if is_condition_true(job, type_)), "")


def job_name(cron: Object, start: int) -> str:
    """The name of the Job for a start: with the minute, so that no start has two."""
    return f"{name(cron)}-{start // 60}"


def start_of(job: Object) -> float | None:
    """The start that a Job was made for; None if its annotation has no time, as of a Job that a user has made."""
    text = annotations_of(job).get(SCHEDULED_ANNOTATION, "")
    try:
        return seconds(text) if re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", text, re.ASCII) else None
    except ValueError:
        return None


def is_made_by(job: Object, cron: Object) -> bool:
    """Whether the controller made this Job of the CronJob, for a start, and no user did."""
    start = start_of(job)
    return start is not None and name(job) == job_name(cron, int(start))


def build_job(observed: ObservedCronJob, start: int) -> Object:
    """The Job for a start: the template, with the time of the start in the CronJob's zone (UTC where it names none). Labels of the CronJob
    that the scheduler reads hold for its Jobs, too, unless the template has its own."""
    cron, template = observed.object, observed.spec.get("jobTemplate") or {}
    own = {key: value for key, value in labels(cron).items() if key in SCHEDULING_LABELS}
    shown = datetime.fromtimestamp(start, UTC).astimezone(observed.zone(UTC_ZONE).info).isoformat()
    metadata: Object = {"name": job_name(cron, start), "namespace": namespace(cron)}
    if job_labels := own | labels(template):
        metadata["labels"] = job_labels
    metadata["annotations"] = {**annotations_of(template), SCHEDULED_ANNOTATION: shown.replace("+00:00", "Z")}
    metadata["ownerReferences"] = [owner_reference(cron)]
    return {
        "apiVersion": BATCH_JOB.api_version,
        "kind": BATCH_JOB.name,
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


def reference(job: Object) -> Object:
    """A Job as `status.active` names it."""
    meta = job.get("metadata") or {}
    head = {"kind": BATCH_JOB.name, "namespace": namespace(job), "name": name(job), "uid": uid(job)}
    return {**head, "apiVersion": BATCH_JOB.api_version, "resourceVersion": meta.get("resourceVersion", "")}
