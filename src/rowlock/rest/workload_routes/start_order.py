"""The jobs that a submit names with `after`: looked up, so that a job waits for these and not for later ones of the same names."""

from __future__ import annotations

from dataclasses import replace

from rowlock import objects
from rowlock.errors import BadRequest, Cause
from rowlock.gangs.dialects import Dialect
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.own_options import OwnOptions
from rowlock.workloads.run_options.start_order import Awaited


def find_awaited(cache: InformerCache, own: OwnOptions, project: Project, dialect: Dialect | None) -> OwnOptions:
    """The options with the uids of the awaited jobs. Only jobs that exist can be named, so no two wait for each other. Raises
    BadRequest, also where a queue of the scheduler starts jobs."""
    if own.is_ordered and dialect is not None and dialect.job_queue_label:
        message = f"{dialect.title} starts jobs here, and would not wait for others. Leave after and startAfter out."
        raise BadRequest(message, causes=[Cause("unsupported", message, "after")])
    return replace(own, after=tuple(_find(cache, one, project) for one in own.after)) if own.after else own


def _find(cache: InformerCache, awaited: Awaited, project: Project) -> Awaited:
    jobs = [job for job in cache.jobs_named(project.namespace, awaited.name) if not objects.is_deleting(job)]
    if not jobs:
        known = (objects.name(job) for uid in cache.job_uids() if (job := cache.job(uid)) and _is_in(job, project))
        message = f"there is no job {awaited.name[:60]!r} in project {project.name}.{did_you_mean(awaited.name, known)}"
        raise BadRequest(
            f"{message} `rowlock list` shows those that a job can wait for.",
            causes=[Cause("unknown", message, "after")],
        )
    return awaited._replace(uid=objects.uid(jobs[0]))


def _is_in(job: Object, project: Project) -> bool:
    return objects.namespace(job) == project.namespace
