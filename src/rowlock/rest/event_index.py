"""An index of a real cluster's Events by their object, because an API server has none and reads all Events of a
namespace for each query.

One watch feeds it. Events are kept as JSON text, in a fifth of the memory of objects. While the index is incomplete (at the
start, while the cluster does not answer, or because there are too many) `is_complete` is False, and callers query the cluster.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import msgspec

from rowlock import kinds, objects
from rowlock.api import Api, Change, Page
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, Expired, Forbidden
from rowlock.objects import Object
from rowlock.workloads.history import create_failure_messages, events_of, tells_failed_create
from rowlock.workloads.runai_json import Workload

MAX_EVENTS = 60_000
"""Most Events kept: about 60 MiB."""
PAGE = 500
"""Events in one page of a list, limited for the sake of memory and the event loop."""
_RETRY_DELAY, _MAX_RETRY_DELAY = 1.0, 30.0


@dataclass(slots=True)
class _EventNamespace:
    """Events of one namespace by the name of the object that they are about; `names` are sorted."""

    names: list[str] = field(default_factory=list)
    events: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Name of the object → name of the event → the event."""
    subjects: dict[str, str] = field(default_factory=dict)
    """Name of the event → name of the object."""
    failed_creates: set[str] = field(default_factory=set)
    """Names of the events that report a failed creation."""


class EventIndex:
    """The index. `run` keeps it up to date; queries do not wait."""

    def __init__(self, api: Api, max_events: int = MAX_EVENTS) -> None:
        self._api, self._max_events = api, max_events
        self._namespaces: dict[str, _EventNamespace] = {}
        self._count = 0
        self.is_complete = False

    async def run(self) -> None:
        """List and watch the cluster's Events until cancelled. Runs as a task of the server."""
        delay = _RETRY_DELAY
        while True:
            try:
                revision = await self._read_all()
                self.is_complete, delay = self._count <= self._max_events, _RETRY_DELAY
                async for change in self._api.watch(kinds.EVENT, since=revision):
                    self._apply(change)
            except Expired:
                pass  # some were missed: list again; until then the index answers from what it has
            except ApiError:
                delay = min(delay * 2, _MAX_RETRY_DELAY)
                self.is_complete = False
            await asyncio.sleep(delay * random.uniform(0.75, 1.25))

    def about(self, namespace: str, job: Object) -> Iterator[Object]:
        """Events about the job, its PodGroup, and objects whose names begin with the job's: its pods, also deleted ones."""
        space, job_name = self._namespaces.get(namespace), objects.name(job)
        if space is None:
            return
        for name in (job_name, f"pg-{job_name}-{objects.uid(job)}"):
            yield from map(msgspec.json.decode, space.events.get(name, {}).values())
        prefix = f"{job_name}-"
        for position in range(bisect_left(space.names, prefix), len(space.names)):
            if not space.names[position].startswith(prefix):
                return
            yield from map(msgspec.json.decode, space.events[space.names[position]].values())

    def failed_creates(self, namespace: str) -> Iterator[Object]:
        """Events of the namespace that report a failed creation."""
        space = self._namespaces.get(namespace)
        for event_name in space.failed_creates if space else ():
            assert space is not None
            yield msgspec.json.decode(space.events[space.subjects[event_name]][event_name])

    async def _read_all(self) -> int:
        """List all Events into a new index, then replace the content of this one. Returns the revision of the list."""
        fresh, revision, budget = EventIndex(self._api, self._max_events), 0, TurnBudget()
        async for page in pages_of_events(self._api):
            for event in page.items:
                await budget.pause_if_due()
                fresh._put(event)
            revision = page.revision
            if fresh._count > self._max_events:
                break
        self._namespaces, self._count = fresh._namespaces, fresh._count
        return revision

    def _apply(self, change: Change) -> None:
        if change.type == "Deleted":
            self._remove(objects.namespace(change.object), objects.name(change.object))
        elif change.type != "Bookmark":
            self._put(change.object)
            self.is_complete = self.is_complete and self._count <= self._max_events

    def _put(self, event: Object) -> None:
        namespace, event_name = objects.namespace(event), objects.name(event)
        self._remove(namespace, event_name)
        if self._count > self._max_events:
            return
        subject = str(objects.dig(event, "involvedObject.name") or "")
        space = self._namespaces.setdefault(namespace, _EventNamespace())
        if subject not in space.events:
            space.events[subject] = {}
            insort(space.names, subject)
        metadata = {field: value for field, value in objects.meta(event).items() if field != "managedFields"}
        space.events[subject][event_name] = msgspec.json.encode({**event, "metadata": metadata})
        space.subjects[event_name] = subject
        if tells_failed_create(event):
            space.failed_creates.add(event_name)
        self._count += 1

    def _remove(self, namespace: str, event_name: str) -> None:
        space = self._namespaces.get(namespace)
        subject = space.subjects.pop(event_name, None) if space else None
        if space is None or subject is None:
            return
        self._count -= 1
        space.failed_creates.discard(event_name)
        events = space.events[subject]
        del events[event_name]
        if not events:
            del space.events[subject]
            del space.names[bisect_left(space.names, subject)]
            if not space.names:
                del self._namespaces[namespace]


async def pages_of_events(api: Api) -> AsyncIterator[Page]:
    """All Events of the cluster, page by page to limit memory. Raises ApiError."""
    token = ""
    while True:
        page = await api.list(kinds.EVENT, limit=PAGE, token=token)
        yield page
        if not page.token:
            return
        token = page.token


async def workload_events(api: Api, index: EventIndex | None, workload: Workload) -> list[Object]:
    """The workload's events, oldest first; from the index when it is complete."""
    namespace = objects.namespace(workload.job)
    known = index.about(namespace, workload.job) if index is not None and index.is_complete else None
    events = known if known is not None else (await api.list(kinds.EVENT, namespace)).items
    return events_of(workload, events)


async def failure_messages(api: Api, index: EventIndex | None, namespace: str) -> dict[str, str]:
    """Uid of a job or of a part → why something that it makes could not be created; {} if the caller or this server may not list events."""
    if index is not None and index.is_complete:
        return create_failure_messages(index.failed_creates(namespace))
    try:
        return create_failure_messages((await api.list(kinds.EVENT, namespace)).items)
    except Forbidden:
        return {}
