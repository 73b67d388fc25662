"""A followed log of a real cluster that outlives its streams: when one ends or breaks, the next goes on where it was (`LogPosition`).

A stream tells nothing of its end: an API server answers alike when the container has ended, when its kubelet was restarted, and when a proxy has
closed the connection. So the pod is looked at. While the container runs, its log is followed again; once it has ended, the rest is read without
following; after a restart that rest is the "previous" log; when the pod is gone it is in the archive. Otherwise the reader gets an error.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from rowlock import objects
from rowlock.api import LogOptions
from rowlock.errors import ApiError, Forbidden, NotFound, Timeout, Unauthorized, Unavailable
from rowlock.kinds import POD, Kind
from rowlock.kube.followed_logs.position import LogPosition
from rowlock.objects import Object
from rowlock.workloads.pods import ended_runs, previous_number

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
"""Pauses before the next try. A thousand readers lose their streams at once, so each pause is drawn at random from its upper half."""
STATUS_LAG_S = 1.5
"""A log ends before the status of its pod says that the container has ended: seconds for which that is waited for."""
NOTICE_S, GIVE_UP_S = 30.0, 600.0
"""Seconds without an answer until the reader is told that there is none, and until the log ends with an error."""
REST_S = 20.0
"""Seconds for which the rest of a log is tried to be read whose container has ended: its node may be gone."""
_GAP_S = 3.0
"""Seconds until a stream that does not go on where the last one ended counts as a rotated log, and no longer as that of the next run."""
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
PodsOf = Callable[[str], Sequence[Object]]
"""The uid of a job → its pods, as a watch shows them."""


class LogCluster(Protocol):
    """What is asked of a cluster; implemented by `Kube`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object: ...

    def read_stream(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]: ...

    def read_kept(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """The run of a container whose log is followed."""

    pod_uid: str
    container: str
    number: int

    @classmethod
    def of(cls, pod: Object, container: str) -> ContainerRun:
        """The one whose log the API server gives for this pod now."""
        name = container or objects.annotations(pod).get(_DEFAULT_CONTAINER) or ""
        name = name or next((str(one.get("name")) for one in objects.dig(pod, "spec.containers", [])), "")
        status = _status_of(pod, name)
        number = int(status.get("restartCount") or 0)
        if "waiting" in (status.get("state") or {}):
            number = max(previous_number(status), 0)
        return cls(objects.uid(pod), name, number)


def _status_of(pod: Object, container: str) -> Object:
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for status in objects.dig(pod, f"status.{field}", []):
            if status.get("name") == container:
                return dict(status)
    return {}


def next_part(pod: Object | None, run: ContainerRun) -> str:
    """Where the rest of its log is: "follow" while it runs, "current" or "previous" once it has ended, "archive" when the node has it no more."""
    if pod is None or objects.uid(pod) != run.pod_uid:
        return "archive"
    for ended in ended_runs(pod):
        if (ended.container, ended.number) == (run.container, run.number):
            return "current" if ended.is_current else "previous"
    return "archive" if int(_status_of(pod, run.container).get("restartCount") or 0) > run.number else "follow"


class PodLogFollower:
    """Follows the log of one run of a container to its end. `chunks` raises ApiError when what is missing cannot be had."""

    def __init__(self, cluster: LogCluster, namespace: str, pod: str, options: LogOptions, pods_of: PodsOf) -> None:
        self._cluster, self._namespace, self._pod, self._options = cluster, namespace, pod, options
        self._pods_of = pods_of
        shown = self._shown_pod()
        self._run = ContainerRun.of(shown, options.container) if shown is not None else None
        self._position = LogPosition(timestamps=options.timestamps)
        self._began, self._streams, self._has_answered = time.time(), 0, False
        self._failing_since: float | None = None
        self._is_noticed, self._pause = False, _FIRST_PAUSE_S

    async def chunks(self) -> AsyncGenerator[bytes]:
        part, accepts_gap = "follow", False
        while True:
            error: ApiError | None = None
            try:
                async with aclosing(self._read(part, accepts_gap)) as stream:
                    async for chunk in stream:
                        yield chunk
            except ApiError as raised:
                if not self._may_be_repeated(raised):
                    raise
                error = raised
            is_elsewhere = self._position.is_elsewhere
            if error is None and not is_elsewhere:
                self._failing_since, self._is_noticed = None, False
                if part != "follow":
                    yield self._position.finish()
                    return
                await self._await_status()
            elif notice := self._note_failure():
                yield notice
            tried, part = part, await self._choose_part(part, error)
            if part == "":
                return
            accepts_gap = is_elsewhere and part == tried and (part == "previous" or self._seconds_failing() >= _GAP_S)
            await self._sleep()

    # ------------------------------------------------------------ one stream

    async def _read(self, part: str, accepts_gap: bool) -> AsyncGenerator[bytes]:
        since = self._position.begin()
        options = replace(
            self._options, timestamps=True, limit_bytes=None, follow=part == "follow", previous=part == "previous"
        )
        if since is not None:
            options = replace(options, since=float(since), tail=None)
        elif options.tail == 0 and self._streams:
            options = replace(options, since=max(options.since or 0.0, self._began), tail=None)
        self._streams += 1
        if accepts_gap:
            yield self._position.accept_gap() + self._say(
                "the log was rotated while it could not be read: lines are missing here"
            )
        if part == "archive":
            source = self._cluster.read_kept(self._namespace, self._pod, replace(options, owner=self._options.owner))
        else:
            source = self._cluster.read_stream(self._namespace, self._pod, options)
        async for chunk in source:
            self._has_answered = True
            if new := self._position.feed(chunk):
                self._pause, self._is_noticed = _FIRST_PAUSE_S, False
                yield new
            if self._position.is_elsewhere:
                return
            self._failing_since = None
        if part == "archive" and since is not None and not self._position.has_found_place:
            raise NotFound(f"the archive does not have the end of the log of {self._pod} yet")

    def _may_be_repeated(self, error: ApiError) -> bool:
        """Whether another request may be answered. What refuses the first one is the reader's to know."""
        if isinstance(error, Forbidden | Unauthorized):
            return False
        return self._has_answered or isinstance(error, Unavailable | Timeout)

    # ------------------------------------------------------------ between streams

    async def _choose_part(self, part: str, error: ApiError | None) -> str:
        """What to read next; "" = nothing, since the log is complete. Raises ApiError."""
        failing = self._seconds_failing()
        if part == "archive":
            if failing >= REST_S:
                raise self._incomplete("its pod is gone, and its end is not kept", error)
            return part
        try:
            pod = await self._look()
        except (Unavailable, Timeout) as unanswered:
            if failing >= GIVE_UP_S:
                raise self._incomplete("the cluster does not answer", unanswered) from unanswered
            return part
        if self._run is None and pod is not None:
            self._run = ContainerRun.of(pod, self._options.container)
        following = next_part(pod, self._run) if self._run is not None else "archive"
        if following == "archive":
            return "" if error is None and not self._position.is_elsewhere and part == "follow" else following
        if following != "follow" and failing >= REST_S and error is not None:
            return "archive"
        if failing >= GIVE_UP_S:
            raise self._incomplete("it cannot be read", error)
        return following

    async def _look(self) -> Object | None:
        """The pod as the API server has it; None if there is none of this name. Raises Unavailable, Timeout."""
        try:
            return await self._cluster.get(POD, self._namespace, self._pod)
        except NotFound:
            return None
        except (Unavailable, Timeout):
            raise
        except ApiError:
            return self._shown_pod()  # a user who may read the log may not be allowed to read the pod

    def _shown_pod(self) -> Object | None:
        pods = self._pods_of(self._options.owner)
        return next((pod for pod in pods if objects.name(pod) == self._pod), None)

    async def _await_status(self) -> None:
        """After a complete stream: wait until the pod's status shows the end of the run, for a while."""
        deadline = time.monotonic() + STATUS_LAG_S
        while self._run and next_part(self._shown_pod(), self._run) == "follow" and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def _sleep(self) -> None:
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)

    def _seconds_failing(self) -> float:
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    def _note_failure(self) -> bytes:
        """The line that tells the reader of a long silence, once."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if self._seconds_failing() < NOTICE_S or self._is_noticed or self._position.is_within_line:
            return b""
        self._is_noticed = True
        return self._say(f"the log of {self._pod} could not be read for {NOTICE_S:.0f} s; it goes on here when it can")

    def _say(self, text: str) -> bytes:
        stamp = objects.micro_timestamp(time.time()) + " " if self._options.timestamps else ""
        return f"{stamp}rowlock: {text}\n".encode()

    def _incomplete(self, why: str, error: ApiError | None) -> Unavailable:
        seconds = round(self._seconds_failing())
        cause = f" ({error.message})" if error is not None else ""
        return Unavailable(
            f"the log of {self._pod} broke off {seconds} s ago, and {why}{cause}; the job is not affected: follow it again"
        )


async def limit_bytes(chunks: AsyncGenerator[bytes], count: int | None) -> AsyncGenerator[bytes]:
    """At most `count` bytes; None = all."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk if count is None else chunk[:count]
            if count is not None and (count := count - len(chunk)) <= 0:
                return
