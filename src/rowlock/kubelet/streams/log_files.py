"""Finds the file of a requested log: container, run, deleted pods; and the error when there is none.

The errors are those of a real API server: for a container that has not started, a previous run or a container that does
not exist. How files are read is in `logs.py`.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping

from rowlock import kinds
from rowlock.api import LOG, LogOptions, View
from rowlock.errors import ApiError, BadRequest, not_found
from rowlock.kubelet.files.log_writer import DEFAULT_LOG_LIMIT
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import (
    NO_FACTS,
    all_containers,
    container_statuses,
    main_containers,
)
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.streams import logs
from rowlock.objects import Key, Object, condition, dig, is_deleting, key, phase
from rowlock.objects import name as name_of
from rowlock.objects import uid as uid_of

_REMOVAL_TIMEOUT = 5.0
"""Seconds that a reader waits for the logs of a pod that is being removed."""


class PodLogs:
    """The logs of all pods of this machine; of deleted ones while they are kept."""

    def __init__(
        self,
        view: View,
        directories: PodDirectories,
        pod_states: Mapping[str, PodState],
        log_limit: int = DEFAULT_LOG_LIMIT,
    ) -> None:
        self._view, self._directories, self._pod_states, self._log_limit = view, directories, pod_states, log_limit
        self._watcher = logs.LogWatcher()
        self._arrivals: dict[Key, set[asyncio.Event]] = {}

    async def read_log(self, namespace: str, pod_name: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        """A container's log, as `Api.log` has it. Raises ApiError before the first byte."""
        pod = self._view.get(kinds.POD, namespace, pod_name)
        if pod is None:
            pod_key = Key(namespace, pod_name)
            async for piece in self._read_deleted_pod_log(pod_key, options, not_found("pods", pod_name)):
                yield piece
            return
        container = select_container(pod, options.container)
        if options.start_timeout and await self._wait_for_start(Key(namespace, pod_name), container, options):
            pod = self._view.get(kinds.POD, namespace, pod_name) or pod
        state = self._pod_states.get(uid_of(pod))
        facts = state.containers.get(container, NO_FACTS) if state else NO_FACTS
        number = facts.run.number if facts.run is not None else None
        if options.previous:
            if not number:
                absent = BadRequest(f'previous terminated container "{container}" in pod "{pod_name}" not found')
                if not options.owner:
                    raise absent
                async for piece in self._read_deleted_pod_log(key(pod), options, absent, uid_of(pod)):
                    yield piece
                return
            number -= 1
        if number is None or state is None or (facts.run is not None and not facts.run.started and not facts.run.exit):
            raise BadRequest(_absence(pod, container))
        path = self._directories.container_directory(state.card.uid, container) / f"log.{number}"

        def is_finished() -> bool:
            run = state.containers[container].run
            return run is None or run.number > number or run.exit is not None

        with state.watch_facts() as woken:
            async for piece in logs.read(path, options, is_finished, woken, self._watcher, log_limit=self._log_limit):
                yield piece

    def announce_pod(self, pod_key: Key) -> None:
        """Wakes the followers that wait for the start of a pod, which the kubelet has now."""
        for event in self._arrivals.get(pod_key, ()):
            event.set()

    async def _wait_for_start(self, pod_key: Key, container: str, options: LogOptions) -> bool:
        """Waits until a container that is being started has started, or cannot, or `start_timeout` is over. Returns whether it waited.

        Otherwise a client that creates a pod and reads its log at once would poll, and each poll would slow down the start that it
        waits for."""
        has_waited = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.start_timeout):
                while (pod := self._view.get(kinds.POD, *pod_key)) is not None:
                    state = self._pod_states.get(uid_of(pod))
                    if not _is_on_its_way(pod, state, container):
                        break
                    has_waited = True
                    await (self._wait_for_pod(pod_key) if state is None else state.wait_for_change())
        return has_waited

    async def _wait_for_pod(self, pod_key: Key) -> None:
        event = asyncio.Event()
        waiting = self._arrivals.setdefault(pod_key, set())
        waiting.add(event)
        try:
            await event.wait()
        finally:
            waiting.discard(event)
            if not waiting:
                self._arrivals.pop(pod_key, None)

    def _is_leaving(self, pod_key: Key, present_uid: str) -> bool:
        """Whether a pod of that name, other than that with `present_uid`, is deleted but still has its directory."""
        return bool(self._directories.present_uids(pod_key) - {present_uid})

    async def _read_deleted_pod_log(
        self, pod_key: Key, options: LogOptions, absent: ApiError, present_uid: str = ""
    ) -> AsyncIterator[bytes]:
        """The log of the last deleted pod of that name; `present_uid`: the existing one. Raises `absent` if nothing is kept."""
        deadline = time.monotonic() + _REMOVAL_TIMEOUT
        while self._is_leaving(pod_key, present_uid) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)  # its logs are in neither place meanwhile, but those of an earlier pod may be
        find = self._directories.find_deleted_pod_log
        path = await asyncio.to_thread(find, pod_key.namespace, pod_key.name, options.container, options.owner)
        if path is None:
            raise absent
        woken, limit = asyncio.Event(), self._log_limit
        async for piece in logs.read(path, options, lambda: True, woken, self._watcher, log_limit=limit):
            yield piece

    def close(self) -> None:
        self._watcher.close()


def _is_on_its_way(pod: Object, state: PodState | None, container: str) -> bool:
    """Whether it has not started, and no known problem prevents that."""
    if phase(pod) not in ("", "Pending") or is_deleting(pod):
        return False
    if state is None:
        return (condition(pod, "PodScheduled") or {}).get("status") != "False"
    facts = state.containers.get(container, NO_FACTS)
    return not (facts.problem or facts.pull.under_way or (facts.run and (facts.run.started or facts.run.exit)))


def select_container(pod: Object, requested: str) -> str:
    """The container to read. Raises BadRequest as the real server does."""
    mains = [c["name"] for c in main_containers(pod)]
    if requested:
        if requested not in [c["name"] for c in all_containers(pod)]:
            raise BadRequest(f"container {requested} is not valid for pod {name_of(pod)}")
        return requested
    if len(mains) > 1:
        choices = " ".join(c["name"] for c in all_containers(pod))
        raise BadRequest(f"a container name must be specified for pod {name_of(pod)}, choose one of: [{choices}]")
    return str(mains[0])


def _absence(pod: Object, container: str) -> str:
    """Why nothing can be read of the container."""
    status = next((s for s in container_statuses(pod) if s["name"] == container), None)
    if dig(status, "state.terminated") is not None:
        return (
            f'the log of container "{container}" in pod "{name_of(pod)}" is not in this data directory: it ended before the directory was '
            "restored from a backup, which leaves `pods` out, or `pods` was lost"
        )
    reason = dig(status, "state.waiting.reason", "ContainerCreating")
    return f'container "{container}" in pod "{name_of(pod)}" is waiting to start: {reason}'
