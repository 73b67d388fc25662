"""Carries out a Decision as `Api` calls: their order, their batches, and the meaning of each outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rowlock import objects
from rowlock.api import Api, Bind, Create, Delete, Patch, Record, Update, Write, WriteOptions, WriteSequence, is_large
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

ApiWrite = Create | Update | Patch | Delete | Bind


@dataclass(frozen=True, slots=True)
class Step:
    """A write and the records that follow it, which are emitted only if it succeeds."""

    write: ApiWrite
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that ended its turn."""

    write: ApiWrite
    error: ApiError

    @property
    def is_outdated(self) -> bool:
        """Whether the write failed because the view was stale: the object has changed, is gone, or a patch names the uid of an earlier
        object of its name, which an API server calls invalid. Retried without a log line."""
        if isinstance(self.error, Conflict) or any(cause.field == "metadata.uid" for cause in self.error.causes):
            return True
        return isinstance(self.error, NotFound) and isinstance(self.write, Update | Patch | Bind)


def plan_steps(writes: Sequence[Write]) -> tuple[list[Record], list[Step]]:
    """The records that come before any write, and each write with the records after it."""
    early_records: list[Record] = []
    result: list[Step] = []
    for item in writes:
        if not isinstance(item, Record):
            result.append(Step(item))
        elif result:
            result[-1] = replace(result[-1], records=(*result[-1].records, item))
        else:
            early_records.append(item)
    return early_records, result


def batch_steps(steps: Sequence[Step], *, keeps_order: bool = False) -> Iterator[list[Step]]:
    """Batches of writes that may be issued together: of one class and kind, each on a different object. With `keeps_order` (the API
    keeps the order of concurrent calls) a job's pods, services and status are one batch: each batch waits for the disk once."""
    for _, group in groupby(steps, key=_ordered_batch_key if keeps_order else _batch_key):
        batch: list[Step] = []
        targets: set[tuple[Kind | None, Key]] = set()
        for step in group:
            target = _target_key(step.write)
            if target in targets:
                yield batch
                batch, targets = [], set()
            batch.append(step)
            if target[1].name:
                targets.add(target)
        yield batch


def is_sequence(batch: Sequence[Step]) -> bool:
    """Whether later writes of the batch depend on earlier ones. Updates of one kind do not: each is tried, even if others fail."""
    return any(isinstance(step.write, Create) for step in batch) or len({_batch_key(step) for step in batch}) > 1


def is_large_write(write: ApiWrite) -> bool:
    """Whether the API may check it beside the event loop, so that writes that are issued after it may come before it."""
    return isinstance(write, Create | Update) and is_large(write.object)


def _batch_key(step: Step) -> tuple[type, Kind | None, str]:
    write = step.write
    subresource = write.subresource if isinstance(write, Update | Patch) else ""
    return type(write), None if isinstance(write, Bind) else write.kind, subresource


def _ordered_batch_key(step: Step) -> tuple[type, Kind | None, str]:
    return (Create, None, "") if isinstance(step.write, Create | Update) else _batch_key(step)


def _target_key(write: ApiWrite) -> tuple[Kind | None, Key]:
    match write:
        case Create() | Update():
            return write.kind, objects.key(write.object)
        case Patch() | Delete():
            return write.kind, Key(write.namespace, write.name)
        case Bind():
            return None, Key(write.namespace, write.pod)


async def execute_write(api: Api, write: ApiWrite, sequence: WriteSequence | None = None) -> Object | None:
    """Make one `Api` call; return the resulting object, if any. Creates and updates of a `sequence` take effect in order: after
    a refused one, later ones raise NotTried."""
    match write:
        case Create():
            options = WriteOptions(sequence=sequence, manager=write.manager)
            return await api.create(write.kind, write.object, options=options)
        case Update():
            options = WriteOptions(sequence=sequence, manager=write.manager)
            return await api.update(write.kind, write.object, subresource=write.subresource, options=options)
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


def records_for(step: Step, result: Object | BaseException | None) -> Sequence[Record]:
    """The records to emit about a write that has been tried."""
    if not isinstance(result, ApiError):
        if (
            isinstance(step.write, Create) and isinstance(result, dict) and not objects.name(step.write.object)
        ):  # the API has named it
            return [replace(r, message=r.message.replace("{name}", objects.name(result))) for r in step.records]
        return step.records
    failure_records = step.write.failure_records if isinstance(step.write, Create | Update | Delete) else ()
    if isinstance(step.write, Update) and isinstance(result, Conflict):
        return ()
    return [_about_refusal(record, result.message) for record in failure_records]


def _about_refusal(record: Record, why: str) -> Record:
    told = f"{why[: record.longest_error]} ..." if 0 < record.longest_error < len(why) else why
    return replace(record, message=record.message.replace("{error}", told))
