"""Which file a question about a log means: container, run, deleted pods; and the words when there is none.

The answers are those of a real API server: a container that has not started, a previous run that is not there, a
container that does not exist. How files are read is in `logs.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rowlock.api import LogOptions
from rowlock.cluster.node import logs
from rowlock.cluster.node.pod_directory import PodDirectories
from rowlock.cluster.node.pod_facts import NO_FACTS, all_containers, init_containers, main_containers
from rowlock.cluster.node.tended import Tended
from rowlock.errors import BadRequest, not_found
from rowlock.objects import Key, Object, dig
from rowlock.objects import name as name_of


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of the pod that was asked for."""

    directories: PodDirectories
    watcher: logs.Watcher
    pod: Object | None
    tended: Tended | None


def container_of(pod: Object, wanted: str) -> str:
    """The container that is meant. Raises BadRequest as the real server."""
    mains = [c["name"] for c in main_containers(pod)]
    if wanted:
        if wanted not in [c["name"] for c in all_containers(pod)]:
            raise BadRequest(f"container {wanted} is not valid for pod {name_of(pod)}")
        return wanted
    if len(mains) > 1:
        inits = [c["name"] for c in init_containers(pod)]
        choices = f"choose one of: [{' '.join(mains)}]" + (
            f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        )
        raise BadRequest(f"a container name must be specified for pod {name_of(pod)}, {choices}")
    return str(mains[0])


async def read(source: Source, where: Key, options: LogOptions) -> AsyncIterator[bytes]:
    """The bytes. Raises ApiError before the first one."""
    if source.pod is None:
        async for piece in _kept(source, where, options):
            yield piece
        return
    container = container_of(source.pod, options.container)
    tended = source.tended
    known = tended.containers.get(container, NO_FACTS) if tended else NO_FACTS
    number = known.run.number if known.run is not None else None
    if options.previous:
        if not number:
            raise BadRequest(f'previous terminated container "{container}" in pod "{where.name}" not found')
        number -= 1
    if number is None or tended is None or (known.run is not None and not known.run.started and not known.run.exit):
        raise BadRequest(_waiting(source.pod, container))
    path = source.directories.container(tended.card.uid, container) / f"log.{number}"

    def finished() -> bool:
        run = tended.containers[container].run
        return run is None or run.number > number or run.exit is not None

    def changed() -> asyncio.Event:
        return tended.changed

    async for piece in logs.read(path, options, finished, changed, source.watcher):
        yield piece


def _waiting(pod: Object, container: str) -> str:
    statuses = [*dig(pod, "status.containerStatuses", ()), *dig(pod, "status.initContainerStatuses", ())]
    found = next((s for s in statuses if s["name"] == container), None)
    reason = dig(found, "state.waiting.reason", "ContainerCreating")
    return f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {reason}'


async def _kept(source: Source, where: Key, options: LogOptions) -> AsyncIterator[bytes]:
    path = source.directories.kept_log(where.namespace, where.name, options.container)
    if path is None:
        raise not_found("pods", where.name)
    over = asyncio.Event()
    over.set()
    async for piece in logs.read(path, options, lambda: True, lambda: over, source.watcher):
        yield piece
