"""Logs over REST: of one pod, and of all pods of a workload in one stream, every line under its rank.

Nothing of a log is kept here; `Api.log` gives the bytes. A followed stream waits for pods that have not started,
goes on through restarts of a rank, and ends when the workload has. Ranks that outlive the master are heard to their
end; one that was started again is not heard for ever: it may wait for a master that is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import StreamingResponse

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.errors import ApiError, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.server.call import Call
from rowlock.server.catalog import Catalog
from rowlock.server.workloads import find
from rowlock.workloads import pods as ranks
from rowlock.workloads.fields import nearest
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.present import Workload

_PARAMETERS = (
    "follow", "tail", "tailLines", "since", "sinceSeconds", "sinceTime", "timestamps", "previous", "container",
    "limitBytes", "prefix",
)  # fmt: skip
_FIRST = 0.25
"""Seconds to wait for the first bytes, so that a refusal is still a status code."""
_DRAIN = 2.0
"""Seconds that followers may go on after the end; a parameter server, or a rank of a failed job, may never end."""
_OUTLIVING = 30.0
"""Seconds after the end of a job in which ranks that were started again are still heard."""
_QUEUE = 1000


def options(call: Call) -> LogOptions:
    """The query as LogOptions. Raises BadRequest."""
    asked = call.only(*_PARAMETERS)
    since = _number(asked, "sinceSeconds") or _number(asked, "since")
    moment = objects.seconds(_time(asked.get("sinceTime"))) or None
    return LogOptions(
        container=asked.get("container", ""),
        follow=_true(asked, "follow"),
        previous=_true(asked, "previous"),
        tail=_whole(asked, "tail", "tailLines"),
        since=call.room.clock() - since if since is not None else moment,
        timestamps=_true(asked, "timestamps"),
        limit_bytes=_whole(asked, "limitBytes"),
    )


def _true(asked: dict[str, str], name: str) -> bool:
    value = asked.get(name, "false")
    if value not in ("true", "false"):
        raise BadRequest(f"{name} must be true or false, but is {value!r}.")
    return value == "true"


def _whole(asked: dict[str, str], *names: str) -> int | None:
    for name in names:
        value = asked.get(name)
        if value and value != "-1":
            if not value.isdigit():
                raise BadRequest(f"{name} must be a whole number no less than 0, but is {value!r}.")
            return int(value)
    return None


def _number(asked: dict[str, str], name: str) -> float | None:
    value = asked.get(name)
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        raise BadRequest(f"{name} must be a number of seconds, but is {value!r}.") from None


def _time(text: str | None) -> str | None:
    try:
        objects.seconds(text)
    except ValueError:
        raise BadRequest(f"sinceTime must be an RFC 3339 time, but is {text!r}.") from None
    return text


# ---------------------------------------------------------------- endpoints


async def of_pod(call: Call) -> Any:
    asked, workload, word = options(call), find(call), str(call.path["pod"])
    pod = next((p for p in workload.pods if word in (objects.name(p), objects.uid(p))), None)
    if pod is None:
        names = [objects.name(p) for p in workload.pods]
        job = objects.name(workload.job)
        raise NotFound(f"Failed to find pod: '{word}' of job: '{job}'.{nearest(word, names)}")
    source = _source(call, workload)
    if asked.follow:
        return await _streamed(source.followed(pod, asked))
    if not objects.dig(pod, "spec.nodeName", ""):
        raise BadRequest(f"{objects.name(pod)} has not started yet: {_why(workload)}. Follow with -f to wait.")
    return await _streamed(source.read(pod, asked))


def _why(workload: Workload) -> str:
    now = workload.standing()
    return (now.message or f"it is {now.phase}").rstrip(".")


async def merged(call: Call) -> Any:
    asked, workload = options(call), find(call)
    source = _source(call, workload)
    if asked.follow:
        return await _streamed(source.follow_all(asked))
    if not any(started(pod) for pod in workload.pods):
        now = workload.standing()
        name = objects.name(workload.job)
        if now.phase in ("Stopping", "Stopped"):
            raise BadRequest(f"{name} is suspended and has no pods: `rowlock resume {name}` starts it again.")
        raise BadRequest(f"no pod of {name} has started yet: {_why(workload)}. Follow with -f to wait.")
    return await _streamed(source.read_all(workload, asked))


def _source(call: Call, workload: Workload) -> _Source:
    return _Source(call.room.api, call.room.catalog, objects.uid(workload.job), call.room.clock)


async def _streamed(lines: AsyncIterator[bytes]) -> StreamingResponse:
    """The stream as a response; what fails at once is raised, and so gets its status code."""
    first = asyncio.ensure_future(anext(lines, None))
    done, _ = await asyncio.wait({first}, timeout=_FIRST)
    if done:
        first.result()

    async def body() -> AsyncIterator[bytes]:
        try:
            chunk = await first
            if chunk is not None:
                yield chunk
                async for chunk in lines:
                    yield chunk
        except ApiError as error:
            yield f"rowlock: the log ends here: {error.message}\n".encode()
        finally:
            first.cancel()
            await _closed(lines)

    return StreamingResponse(body(), media_type="text/plain; charset=utf-8")


async def _closed(lines: AsyncIterator[bytes]) -> None:
    close = getattr(lines, "aclose", None)
    if close is not None:
        await close()


# ---------------------------------------------------------------- sources


def started(pod: Object) -> bool:
    """There is (or was) a process of the main container."""
    states = objects.dig(pod, "status.containerStatuses", [])
    return any(
        (s.get("state") or {}).keys() & {"running", "terminated"} or (s.get("lastState") or {}).get("terminated")
        for s in states
    )


def attempt(pod: Object) -> tuple[str, int]:
    """One life of a rank: pod and restart."""
    states = objects.dig(pod, "status.containerStatuses", [])
    return objects.uid(pod), max((int(s.get("restartCount") or 0) for s in states), default=0)


async def split(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Chunks as whole lines, each with its newline."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest + b"\n"


async def first(lines: AsyncIterator[bytes], count: int | None) -> AsyncIterator[bytes]:
    """No more than `count` of them: a log may grow while it is read."""
    if count == 0:
        return
    async for line in lines:
        yield line
        if count is not None and (count := count - 1) == 0:
            return


def _without_time(line: bytes) -> bytes:
    return line.partition(b" ")[2]


@dataclass(frozen=True, slots=True)
class _Source:
    """Reads and follows the logs of one workload's pods."""

    api: Api
    catalog: Catalog
    uid: str
    clock: Callable[[], float]

    def read(self, pod: Object, asked: LogOptions) -> AsyncIterator[bytes]:
        return self.api.log(objects.namespace(pod), objects.name(pod), asked)

    async def followed(self, pod: Object, asked: LogOptions) -> AsyncIterator[bytes]:
        """One pod, waited for when it has not started."""
        name = objects.name(pod)

        def ready() -> bool:
            workload = self.catalog.workload(self.uid)
            mine = [p for p in workload.pods if objects.name(p) == name] if workload else []
            return not mine or started(mine[0]) or self.over()

        await self.catalog.until(self.uid, ready, None)
        workload = self.catalog.workload(self.uid)
        if not started(pod) and not any(objects.name(p) == name for p in (workload.pods if workload else ())):
            raise NotFound(f"{name} was deleted before it started.")
        async for chunk in self.read(pod, asked):
            yield chunk

    def over(self) -> bool:
        return self.catalog.workload(self.uid) is None or self.catalog.standing(self.uid).phase in TERMINAL

    def _finished(self) -> bool:
        """The master's end completes a job, but the other ranks' last words and exit codes are wanted too."""
        workload = self.catalog.workload(self.uid)
        if workload is None:
            return True
        if not self.over():
            return False
        ranked = ranks.ranked(workload.job) and self.catalog.standing(self.uid).phase == "Completed"
        left = self._running(workload)
        return not ranked or not left or (self._patience() == 0 and all(attempt(pod)[1] for pod in left))

    @staticmethod
    def _running(workload: Workload) -> list[Object]:
        return [pod for pod in workload.pods if objects.phase(pod) not in ("Succeeded", "Failed")]

    def _patience(self) -> float | None:
        """Seconds in which ranks that were started again are still heard; None while the job is not over."""
        workload = self.catalog.workload(self.uid)
        ended = objects.seconds(objects.dig(workload.job, "status.completionTime", None)) if workload else 0.0
        return max(ended + _OUTLIVING - self.clock(), 0.0) if ended and self.over() else None

    # -------------------------------------------------------- all, at rest

    async def read_all(self, workload: Workload, asked: LogOptions) -> AsyncIterator[bytes]:
        """Every pod's log, merged by time."""
        dated = replace(asked, timestamps=True)
        sources = [
            (self._tag(workload, p), first(split(self.read(p, dated)), asked.tail)) for p in workload.pods if started(p)
        ]
        heads = [(await anext(lines, None), tag, lines) for tag, lines in sources]
        waiting = [(line, tag, lines) for line, tag, lines in heads if line is not None]
        while waiting:
            place = min(range(len(waiting)), key=lambda n: waiting[n][0].partition(b" ")[0])
            line, tag, lines = waiting[place]
            yield tag + (line if asked.timestamps else _without_time(line))
            following = await anext(lines, None)
            if following is None:
                waiting.pop(place)
            else:
                waiting[place] = (following, tag, lines)

    def _tag(self, workload: Workload, pod: Object) -> bytes:
        return f"[{ranks.tag(workload.job, pod)}] ".encode()

    # -------------------------------------------------------- all, followed

    async def follow_all(self, asked: LogOptions) -> AsyncIterator[bytes]:
        """Every pod's log as it is written, through restarts, until the workload is over."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE)
        feeder = asyncio.create_task(self._feed(queue, asked))
        try:
            while (line := await queue.get()) is not None:
                yield line
            await feeder
        finally:
            feeder.cancel()
            await asyncio.wait({feeder})

    async def _feed(self, queue: asyncio.Queue[bytes | None], asked: LogOptions) -> None:
        """Start a follower for every life of every rank; then drain."""
        followers: dict[tuple[str, int], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                workload = self.catalog.workload(self.uid)
                for pod in workload.pods if workload else ():
                    if started(pod) and attempt(pod) not in followers and workload:
                        tag = self._tag(workload, pod)
                        followers[attempt(pod)] = tasks.create_task(self._follow(pod, tag, queue, asked))
                if self._finished():
                    break
                await self._changed(followers)
            if followers:
                await asyncio.wait(followers.values(), timeout=_DRAIN)
            heard = {life for life, follower in followers.items() if follower.done()}
            for follower in followers.values():
                follower.cancel()
        if farewell := self._farewell(heard):
            await queue.put(farewell)
        await queue.put(None)

    def _farewell(self, heard: set[tuple[str, int]]) -> bytes:
        """Who is not heard any more although it runs. A rank heard to its end ran: the word of its end is on the way."""
        workload = self.catalog.workload(self.uid)
        left = self._running(workload) if workload and ranks.ranked(workload.job) else []
        left = [pod for pod in left if attempt(pod) not in heard]
        if not workload or not left or self._patience() is None:
            return b""
        job, names = objects.name(workload.job), ", ".join(objects.name(pod) for pod in left)
        run = "run" if len(left) > 1 else "runs"
        hint = f"`rowlock logs -f {job} --pod {objects.name(left[0])}`"
        return f"rowlock: {job} is over, but {names} still {run}: {hint} goes on; `rowlock delete {job}` ends them.\n".encode()

    async def _changed(self, known: dict[tuple[str, int], Any]) -> None:
        def news() -> bool:
            workload = self.catalog.workload(self.uid)
            if workload is None or self._finished():
                return True
            return any(started(p) and attempt(p) not in known for p in workload.pods)

        await self.catalog.until(self.uid, news, self._patience() or None)

    async def _follow(self, pod: Object, tag: bytes, queue: asyncio.Queue[bytes | None], asked: LogOptions) -> None:
        try:
            async for line in split(self.read(pod, asked)):
                await queue.put(tag + line)
        except ApiError:
            return  # the pod went between being seen and being read: its next life has a follower of its own
