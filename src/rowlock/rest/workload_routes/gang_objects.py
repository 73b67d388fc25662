"""What the scheduler of a real cluster needs: fields of the job, an existing queue, and an object that declares the gang."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound
from rowlock.gangs.dialects import Dialect, priority_class_of
from rowlock.gangs.host_image import require_images
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.workloads.phase import STARTED_BY_ANNOTATION

DressJob = Callable[[Dialect, Mapping[str, int]], Object]
"""Adds a scheduler's fields to a job; the mapping has the value of its PriorityClass, if the cluster has it."""


async def dress_for_scheduler(call: RestCall, job: Object, dress: DressJob) -> Object:
    """The job with the fields that the real cluster's scheduler needs, which `dress` adds. Adds a notice for the caller if an eviction
    would end the job. Raises BadRequest if the scheduler could not start it."""
    dialect = call.context.settings.dialect
    if dialect is None:
        return job
    nodes = list(call.context.cache.nodes())
    refuse_host_image(call, job)
    causes = list(dialect.refusals(job, nodes))
    name = priority_class_of(job)
    classes = await _find_class_value(call, name) if dialect.scheduler_name and name else {}
    if dialect.scheduler_name and name and not classes:
        message = (
            f"the cluster has no PriorityClass {name!r}, and {dialect.title} would take the job for `train`:"
            " `rowlock manifests | kubectl apply -f -` makes Run:ai's priority classes"
        )
        causes.append(Cause("unknown", message, "priorityClass"))
    if causes:
        raise BadRequest(causes[0].message, causes=causes)
    dressed, notices = dialect.share_gpus(dress(dialect, classes), nodes)
    call.notices.extend(filter(None, [dialect.notice(dressed, classes), *notices]))
    return dressed


def refuse_host_image(call: RestCall, obj: Object) -> None:
    """Raises BadRequest for a real cluster whose nodes would pull `rowlock.dev/host` from the internet."""
    if call.context.settings.dialect is not None:
        require_images(obj, call.context.cache.nodes())


async def _find_class_value(call: RestCall, name: str) -> dict[str, int]:
    try:
        found = await call.context.api.get(kinds.PRIORITY_CLASS, "", name)
    except NotFound:
        return {}
    return {name: int(found.get("value") or 0)}


async def require_queue(call: RestCall, job: Object) -> None:
    """Raises BadRequest, which says what to create, if the real cluster lacks the queue that its scheduler needs."""
    dialect = call.context.settings.dialect
    queue = dialect.needed_queue(job) if dialect is not None else None
    if queue is None or dialect is None:
        return
    try:
        await call.context.api.get(queue.kind, queue.namespace, queue.name)
    except NotFound:
        where = f" in the namespace {queue.namespace}" if queue.namespace else ""
        message = (
            f"{dialect.title} has no {queue.kind.name} {queue.name!r}{where}, and would never start the job: make one of that name"
            f" ({queue.kind.api_version})"
        )
        raise BadRequest(message, causes=[Cause("unknown", message, "projectId")]) from None


async def create_gang(call: RestCall, job: Object, *, may_exist: bool = False) -> None:
    """Create the object that makes the real cluster's scheduler start the job's pods together. `may_exist`: an earlier attempt
    of this submit may have created it. Raises ApiError."""
    dialect = call.context.settings.dialect
    gang = dialect.gang_object(job) if dialect is not None else None
    if gang is None:
        return
    kind = dialect.group_kind if dialect is not None else None
    assert kind is not None
    try:
        await call.context.api.create(kind, gang, options=WriteOptions(manager="rowlock"))
    except AlreadyExists:
        if not may_exist:
            raise


def refuse_queued(job: Object) -> None:
    """Raises Conflict for a job whose suspension is controlled by a scheduler (Kueue)."""
    if starter := objects.annotations(job).get(STARTED_BY_ANNOTATION):
        raise Conflict(
            f"{starter} starts and suspends {objects.name(job)}, and would undo this at once: set `spec.active` of its Workload"
            f" (`kubectl get workloads -n {objects.namespace(job)}`), or delete the job"
        )
