"""A Decision as calls of the `Api`: in which order, what goes together, and what each outcome means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rowlock import objects
from rowlock.api import Api, Bind, Create, Delete, Patch, Record, Run, Update, Write, WriteOptions
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

Called = Create | Update | Patch | Delete | Bind


@dataclass(frozen=True, slots=True)
class Step:
    """A write and the records that follow it: they are told only if it succeeds."""

    write: Called
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A write that ended its turn."""

    write: Called
    error: ApiError

    @property
    def outdated(self) -> bool:
        """The view was old: somebody wrote first, or it is gone. Nothing to tell anybody; look again."""
        if isinstance(self.error, Conflict):
            return True
        return isinstance(self.error, NotFound) and isinstance(self.write, Update | Patch | Bind)


def steps(writes: Sequence[Write]) -> tuple[list[Record], list[Step]]:
    """Records that come before any write, and the writes with theirs."""
    early: list[Record] = []
    found: list[Step] = []
    for item in writes:
        if not isinstance(item, Record):
            found.append(Step(item))
        elif found:
            found[-1] = replace(found[-1], records=(*found[-1].records, item))
        else:
            early.append(item)
    return early, found


def batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Runs of writes that may go together: of one class and kind, each on another object."""
    for _, run in groupby(steps, key=_sort):
        batch: list[Step] = []
        seen: set[Key] = set()
        for step in run:
            target = _target(step.write)
            if target in seen:
                yield batch
                batch, seen = [], set()
            batch.append(step)
            if target.name:
                seen.add(target)
        yield batch


def _sort(step: Step) -> tuple[type, Kind | None, str]:
    write = step.write
    subresource = write.subresource if isinstance(write, Update | Patch) else ""
    return type(write), None if isinstance(write, Bind) else write.kind, subresource


def _target(write: Called) -> Key:
    match write:
        case Create() | Update():
            return objects.key(write.object)
        case Patch() | Delete():
            return Key(write.namespace, write.name)
        case Bind():
            return Key(write.namespace, write.pod)


async def write(api: Api, write: Called, run: Run | None = None) -> Object | None:
    """One call. What the API says about the object then, if it says anything. What is made in a run is made in its
    order: nothing comes to be behind what was refused."""
    match write:
        case Create():
            return await api.create(write.kind, write.object, options=WriteOptions(run=run))
        case Update():
            return await api.update(write.kind, write.object, subresource=write.subresource)
        case Patch(kind, namespace, name, patch):
            return await api.patch(kind, namespace, name, patch, type=write.type, subresource=write.subresource)
        case Delete():
            try:
                return await api.delete(write.kind, write.namespace, write.name, options=write.options)
            except NotFound:
                return None  # already gone counts as deleted
        case Bind():
            annotations = dict(write.annotations) or None
            await api.bind(write.namespace, write.pod, write.node, annotations=annotations, uid=write.uid)
            return None


def records(step: Step, result: Object | BaseException | None) -> Sequence[Record]:
    """What to tell about a write that has been tried."""
    if not isinstance(result, ApiError):
        return step.records
    failed = step.write.failed if isinstance(step.write, Create | Delete) else ()
    return [replace(record, message=record.message.replace("{error}", result.message)) for record in failed]
