"""Logs over REST: of one pod, or of all pods of a workload in one stream, every line prefixed with its rank.

No logs are stored here; `Api.log` reads them, also those kept of deleted pods. A followed stream waits for pods that have not
started, continues through restarts of a rank, and ends with the workload. Ranks that outlive the master are followed to their
end, but a restarted one only for a limited time, because it may wait for a master that has completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.responses import Response

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.rest.log_streams.backlog import BacklogOrder, started_before
from rowlock.rest.log_streams.bars import show_bars
from rowlock.rest.log_streams.lines import (
    STATE,
    LineTag,
    lines_of_local_rank,
    merge_by_time,
    merge_options,
    split_lines,
    take_lines,
)
from rowlock.rest.log_streams.log_response import LogIncomplete, close_stream, stream_response
from rowlock.rest.log_streams.options import PARAMETERS, parse_bool, parse_count, parse_log_options
from rowlock.rest.log_streams.rows import split_stamp
from rowlock.rest.workloads import find_workload
from rowlock.workloads import pods as ranks
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.runai_json import Workload

_DRAIN_TIMEOUT = 2.0
"""Seconds for which pods that still run are followed after the job's end: a parameter server or a rank of a failed job may never end."""
_DRAIN_STEP = 0.05
"""Seconds between two checks whether the reader has received everything."""
_RESTARTED_RANK_GRACE = 30.0
"""Seconds after the end of a job for which restarted ranks are still followed."""
_QUEUE_SIZE = 1000
_YOUNG_S, _PAST_TIMEOUT = 2.0, 2.0
"""Seconds: logs of pods younger than this need no ordering, and the longest wait for the last line of an existing log."""


# ---------------------------------------------------------------- endpoints


async def pod_logs(call: RestCall) -> Any:
    """The log of one pod of an existing workload, also of a deleted pod."""
    log_options, workload, pod_word = parse_log_options(call), find_workload(call), str(call.path["pod"])
    pod, source = find_pod(workload, pod_word), _source(call, workload)
    if pod is None:
        raise no_pod_error(workload.job, pod_word, [objects.name(p) for p in workload.pods])
    if not objects.uid(pod):
        return await stream_pod(call, source.read_gone_pod(pod, log_options), log_options)
    if log_options.follow:
        return await stream_pod(call, source.follow_pod(pod, log_options), log_options)
    if not objects.dig(pod, "spec.nodeName", ""):
        raise BadRequest(
            f"{objects.name(pod)} has not started yet: {_waiting_reason(workload)}. Follow with -f to wait."
        )
    return await stream_pod(call, source.read_pod(pod, log_options), log_options)


def find_pod(workload: Workload, word: str) -> Object | None:
    """The pod for a word: its name, uid or rank, or `chief`. A pod that was deleted or never created has no uid."""
    pods = [*workload.pods, *ranks.gone_pods(workload.job, workload.pods)]
    if word == "chief":
        return ranks.chief_pod(pods)
    return next((p for p in pods if word in (objects.name(p), objects.uid(p), rank_word(workload, p))), None)


def no_pod_error(job: Object, word: str, names: list[str]) -> NotFound:
    """The error for a word that matches no pod; `names` are those of the existing pods."""
    hint = f" Its pods: {', '.join(names)}." if names else " It has no pods."
    return NotFound(f"Failed to find pod: '{word}' of job: '{objects.name(job)}'.{did_you_mean(word, names)}{hint}")


def rank_word(workload: Workload, pod: Object) -> str:
    """The rank of a pod as one word: its label in a merged log, with a hyphen."""
    return ranks.rank_label(workload.job, pod).replace(" ", "-")


def line_tag(job: Object, pod: Object) -> LineTag:
    """The prefix of a pod's lines in a merged log."""
    return LineTag(ranks.rank_label(job, pod), ranks.first_launched_rank(job, pod))


def _waiting_reason(workload: Workload) -> str:
    status = workload.status()
    return (status.message or f"it is {status.phase}").rstrip(".")


async def workload_logs(call: RestCall, earlier: AsyncIterator[bytes] | None = None) -> Any:
    """The logs of all pods of an existing workload (`past_logs.py` has the route). Followers also get the lines of `earlier`."""
    log_options, workload = parse_log_options(call), find_workload(call)
    has_states = parse_bool(call.validate_query(*PARAMETERS), "progress")
    source = replace(_source(call, workload), has_states=has_states)
    if log_options.follow:
        return await stream_response(_require_whole(source, source.follow_all(log_options, earlier)))
    return await stream_response(source.read_all(workload, log_options))


def _has_run(job: Object) -> bool:
    """Whether pods of the job may have run and been deleted. A job that has only been pending has none, so no logs are
    looked up."""
    return any(
        objects.condition(job, word)
        for word in ("Running", "Restarting", "Suspended", "Succeeded", "Complete", "Failed")
    )


def no_logs_error(workload: Workload) -> BadRequest:
    """The error for a workload without a started pod or a kept log."""
    name = objects.name(workload.job)
    if workload.status().phase in ("Stopping", "Stopped"):
        return BadRequest(f"{name} is suspended and has no pods: `rowlock resume {name}` starts it again.")
    return BadRequest(f"no pod of {name} has started yet: {_waiting_reason(workload)}. Follow with -f to wait.")


async def _require_whole(source: _LogSource, lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The lines, and LogIncomplete after the last one when the log of a rank could not be followed to its end."""
    try:
        async for line in lines:
            yield line
    finally:
        await close_stream(lines)
    if source.broken:
        ranks_of = ", ".join(dict.fromkeys(source.broken))
        yield f"rowlock: the log is not complete: that of {ranks_of} could not be read to its end, see above\n".encode()
        raise LogIncomplete


def _source(call: RestCall, workload: Workload) -> _LogSource:
    return _LogSource(call.context.api, call.context.cache, objects.uid(workload.job), call.context.clock)


async def stream_pod(call: RestCall, chunks: AsyncIterator[bytes], options: LogOptions) -> Response:
    """The log of one pod as a response, unchanged. With `progress` it is split into lines as in a merged log; with `localRank` only the lines
    of this rank of those that torchrun starts in the pod are sent. `tail` counts lines of the pod. Raises BadRequest."""
    local_rank, has_states = parse_count(dict(call.query), "localRank"), parse_bool(dict(call.query), "progress")
    if local_rank is None and "progress" not in call.query:
        return await stream_response(chunks)

    async def lines_of_pod() -> AsyncGenerator[bytes]:
        try:
            shows_bars = options.follow and not has_states
            lines = split_lines(chunks, states=has_states or shows_bars, stamped=options.timestamps)
            if local_rank is not None:
                lines = lines_of_local_rank(lines, local_rank, stamped=options.timestamps)
            lines = show_bars(lines) if shows_bars else lines
            async for line in lines:
                yield line
        finally:
            await close_stream(chunks)

    return await stream_response(lines_of_pod())


# ---------------------------------------------------------------- sources


def has_started(pod: Object) -> bool:
    """Whether the main container has (or had) a process."""
    states = objects.dig(pod, "status.containerStatuses", [])
    return any(
        (s.get("state") or {}).keys() & {"running", "terminated"} or (s.get("lastState") or {}).get("terminated")
        for s in states
    )


def attempt(pod: Object) -> tuple[str, int]:
    """Identifies one run of a rank's container: (pod's uid, or the name of a deleted pod; number of restarts)."""
    states = objects.dig(pod, "status.containerStatuses", [])
    return objects.uid(pod) or objects.name(pod), max((int(s.get("restartCount") or 0) for s in states), default=0)


_LineQueue = asyncio.Queue[bytes | None]
"""Lines of all ranks; None marks the end."""
_EARLIER = ("", -1)
"""The key for the lines of all ranks that were removed from the job, among the keys of the present ones."""


async def _copy_to_queue(lines: AsyncIterator[bytes], queue: _LineQueue) -> None:
    try:
        async for line in lines:
            await queue.put(line)
    except Exception as error:  # noqa: BLE001 (reported as a line; the present ranks go on)
        await queue.put(LineTag("the removed ranks").failure_line(error))
    finally:
        await close_stream(lines)


@dataclass(frozen=True, slots=True)
class _LogSource:
    """Reads and follows the logs of one workload's pods."""

    api: Api
    cache: InformerCache
    uid: str
    clock: Callable[[], float]
    has_states: bool = False
    """Whether followers receive states of unfinished lines."""
    broken: list[str] = field(default_factory=list)
    """The ranks whose logs could not be followed to their ends."""

    def read_pod(self, pod: Object, log_options: LogOptions) -> AsyncIterator[bytes]:
        return self.api.log(objects.namespace(pod), objects.name(pod), replace(log_options, owner=self.uid))

    def read_gone_pod(self, pod: Object, log_options: LogOptions) -> AsyncIterator[bytes]:
        """The log of this job's last pod with that name. Raises ApiError if none is kept."""
        return self.read_pod(pod, replace(log_options, previous=True, follow=False))

    async def follow_pod(self, pod: Object, log_options: LogOptions) -> AsyncIterator[bytes]:
        """Follow one pod; wait for its start first."""
        name = objects.name(pod)

        def is_readable() -> bool:
            workload = self.cache.workload(self.uid)
            same_name = [p for p in workload.pods if objects.name(p) == name] if workload else []
            return not same_name or has_started(same_name[0]) or self.is_over()

        await self.cache.wait_until(self.uid, is_readable, None)
        workload = self.cache.workload(self.uid)
        if not has_started(pod) and not any(objects.name(p) == name for p in (workload.pods if workload else ())):
            raise NotFound(f"{name} was deleted before it started.")
        async for chunk in self.read_pod(pod, log_options):
            yield chunk

    def is_over(self) -> bool:
        return self.cache.workload(self.uid) is None or self.cache.status(self.uid).phase in TERMINAL

    def _is_finished(self) -> bool:
        """Whether job and ranks have ended. The master's end completes a job, but followers also get the end of the
        other ranks' logs."""
        workload = self.cache.workload(self.uid)
        if workload is None:
            return True
        if not self.is_over():
            return False
        has_ranks = ranks.has_ranked_pods(workload.job) and self.cache.status(self.uid).phase == "Completed"
        running_pods = self._running_pods(workload)
        return (
            not has_ranks
            or not running_pods
            or (self._remaining_grace() == 0 and all(attempt(pod)[1] for pod in running_pods))
        )

    @staticmethod
    def _running_pods(workload: Workload) -> list[Object]:
        return [pod for pod in workload.pods if objects.phase(pod) not in objects.FINAL_PHASES]

    def _remaining_grace(self) -> float | None:
        """Seconds for which restarted ranks are still followed; None while the job runs."""
        workload = self.cache.workload(self.uid)
        completion_time = objects.seconds(objects.dig(workload.job, "status.completionTime", None)) if workload else 0.0
        return (
            max(completion_time + _RESTARTED_RANK_GRACE - self.clock(), 0.0)
            if completion_time and self.is_over()
            else None
        )

    # -------------------------------------------------------- all, at rest

    async def read_all(self, workload: Workload, log_options: LogOptions) -> AsyncIterator[bytes]:
        """The logs of all pods, merged by time. A rank whose pod is missing or has not started is represented by its
        last pod. A log that cannot be read is replaced by a line that says so; if none can be read, the error is raised."""
        started = [pod for pod in workload.pods if has_started(pod)]
        readable = len(started)
        gone = ranks.gone_pods(workload.job, started) if _has_run(workload.job) else []
        options = merge_options(log_options, len(started) + len(gone))
        sources = [(pod, self.read_pod(pod, options)) for pod in started]
        sources += [(pod, self.read_gone_pod(pod, options)) for pod in gone]
        streams, unread, budget = [], dict[LineTag, Exception](), TurnBudget()
        for number, (pod, chunks) in enumerate(sources):
            await budget.pause_if_due()
            lines = take_lines(split_lines(chunks, stamped=True), log_options.tail)
            try:
                head = await anext(lines, None)
            except (NotFound, BadRequest):
                if number < len(started):
                    raise
                continue  # no log of this rank is kept
            except Exception as error:  # noqa: BLE001 (reported as a line, or raised)
                head, unread[line_tag(workload.job, pod)] = None, error
            readable += number >= len(started)
            if head is not None:
                streams.append((head, line_tag(workload.job, pod), lines))
        if not readable:
            raise no_logs_error(workload)
        if unread and not streams:
            raise next(iter(unread.values()))
        for tag, failure in unread.items():
            yield tag.failure_line(failure)
        async for line in merge_by_time(streams, timestamps=log_options.timestamps):
            yield line

    # -------------------------------------------------------- all, followed

    async def follow_all(
        self, log_options: LogOptions, earlier: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[bytes]:
        """Follow the logs of all pods, through restarts, until the workload ends. `earlier`: lines of ranks that were removed from the job."""
        queue = _LineQueue(_QUEUE_SIZE)
        feeder = asyncio.create_task(self._feed_queue(queue, log_options, earlier))
        try:
            while (line := await queue.get()) is not None:
                yield line
            await feeder
        finally:
            feeder.cancel()
            await asyncio.wait({feeder})

    async def _feed_queue(
        self, queue: _LineQueue, log_options: LogOptions, earlier: AsyncIterator[bytes] | None
    ) -> None:
        """Fill the queue and mark its end, also after an error, because the reader only waits for the queue. The error reaches the reader
        when it awaits this task."""
        try:
            await self._follow_lives(queue, log_options, earlier)
        except Exception:
            await queue.put(None)
            raise
        await queue.put(None)

    async def _follow_lives(
        self, queue: _LineQueue, log_options: LogOptions, earlier: AsyncIterator[bytes] | None
    ) -> None:
        """Start a follower for every run of every rank; when the workload ends, drain them."""
        followers: dict[tuple[str, int], asyncio.Task[None]] = {}
        followed_names: set[str] = set()
        order = BacklogOrder(await self._ends_of_past(log_options))
        async with asyncio.TaskGroup() as tasks:
            if earlier is not None:
                followers[_EARLIER] = tasks.create_task(_copy_to_queue(earlier, queue))
            while True:
                workload = self.cache.workload(self.uid)
                for pod in self._readable_pods(workload, followed_names) if workload else ():
                    if attempt(pod) not in followers and workload:
                        tag = line_tag(workload.job, pod)
                        followed_names.add(objects.name(pod))
                        followers[attempt(pod)] = tasks.create_task(
                            self._follow_into_queue(pod, tag, queue, log_options, order)
                        )
                if self._is_finished():
                    break
                await self._wait_for_changes(followers)
            await self._drain(followers, queue)
            drained = {life for life, follower in followers.items() if follower.done()}
            for follower in followers.values():
                follower.cancel()
        if farewell := self._still_running_message(drained):
            await queue.put(farewell)

    def _readable_pods(self, workload: Workload, followed_names: set[str]) -> list[Object]:
        """The pods that have started. When the job is over, also deleted pods that were not followed (they have no uid), since no new pod
        will replace them."""
        gone = ranks.gone_pods(workload.job, workload.pods) if self.is_over() else []
        return [pod for pod in workload.pods if has_started(pod)] + [
            pod for pod in gone if objects.name(pod) not in followed_names
        ]

    async def _drain(self, followers: dict[tuple[str, int], asyncio.Task[None]], queue: _LineQueue) -> None:
        """After the end of the job, read the log of every ended pod to its last line, however slow the reader is.

        A pod that still runs (a parameter server, a rank of a failed job) may print for ever. It gets a limited time, which
        counts only while the reader waits, so that a slow reader still gets everything that was written before. The same goes for
        its earlier runs, because the log requested for an ended run can be that of the current one."""
        workload = self.cache.workload(self.uid)
        running = {objects.uid(pod) for pod in self._running_pods(workload)} if workload else set()
        ending = {follower for (uid, _), follower in followers.items() if uid not in running}
        if ending:
            await asyncio.wait(ending)
        others, remaining = set(followers.values()) - ending, _DRAIN_TIMEOUT
        while others and remaining > 0:
            _, others = await asyncio.wait(others, timeout=_DRAIN_STEP)
            remaining -= _DRAIN_STEP if queue.empty() else 0.0

    def _still_running_message(self, drained: set[tuple[str, int]]) -> bytes:
        """A message that names ranks which still run and are no longer followed. A rank whose log was read to its end
        does not count."""
        workload = self.cache.workload(self.uid)
        running_pods = self._running_pods(workload) if workload and ranks.has_ranked_pods(workload.job) else []
        running_pods = [pod for pod in running_pods if attempt(pod) not in drained]
        if not workload or not running_pods or self._remaining_grace() is None:
            return b""
        job, names = objects.name(workload.job), ", ".join(objects.name(pod) for pod in running_pods)
        run = "run" if len(running_pods) > 1 else "runs"
        hint = f"`rowlock logs -f {job} --pod {objects.name(running_pods[0])}`"
        return f"rowlock: {job} is over, but {names} still {run}: {hint} shows more; `rowlock delete {job}` stops them.\n".encode()

    async def _wait_for_changes(self, followers: dict[tuple[str, int], Any]) -> None:
        grace = self._remaining_grace()

        def has_news() -> bool:
            workload = self.cache.workload(self.uid)
            if workload is None or self._is_finished():
                return True
            if grace is None and self._remaining_grace() is not None:
                return True  # the job has ended: return so that the next wait has a time limit, since no other change may follow
            return any(has_started(p) and attempt(p) not in followers for p in workload.pods)

        await self.cache.wait_until(self.uid, has_news, grace or None)

    async def _ends_of_past(self, log_options: LogOptions) -> dict[tuple[str, int], bytes]:
        """The time stamp of the last line of each existing log whose pod started at least `_YOUNG_S` ago; {} if fewer than two need
        ordering."""
        workload, options = self.cache.workload(self.uid), replace(log_options, follow=False, tail=1, timestamps=True)
        pods = [pod for pod in workload.pods if started_before(pod, self.clock() - _YOUNG_S)] if workload else []
        if len(pods) < 2 or log_options.tail == 0:
            return {}

        async def last_stamp(pod: Object) -> bytes:
            with suppress(ApiError, OSError, TimeoutError):
                async with asyncio.timeout(_PAST_TIMEOUT):
                    lines = [line async for line in split_lines(self.read_pod(pod, options), stamped=True)]
                    return lines[-1].partition(b" ")[0] if lines else b""
            return b""

        stamps = await asyncio.gather(*map(last_stamp, pods))
        ends = {attempt(pod): stamp for pod, stamp in zip(pods, stamps, strict=True) if stamp}
        return ends if len(ends) > 1 else {}

    async def _follow_into_queue(
        self, pod: Object, tag: LineTag, queue: _LineQueue, log_options: LogOptions, order: BacklogOrder
    ) -> None:
        life, is_stamped = attempt(pod), log_options.timestamps or not order.is_over
        try:
            read = self.read_pod if objects.uid(pod) else self.read_gone_pod
            chunks = read(pod, replace(log_options, timestamps=is_stamped))
            lines = split_lines(chunks, states=True, stamped=is_stamped)
            async for line in lines if self.has_states else show_bars(lines):
                state = STATE if line.startswith(STATE) else b""
                stamp, text = split_stamp(line[len(state) :], is_stamped)
                if not order.is_over and not state:
                    await order.wait_for_turn(life, stamp.rstrip())
                shown = stamp + text if log_options.timestamps else text
                await queue.put(state + tag.put_before(shown, stamped=log_options.timestamps))
                order.note_told(life, stamp.rstrip())
        except (NotFound, BadRequest):
            return  # the pod was deleted before it was read; its successor has its own follower
        except Exception as error:  # noqa: BLE001 (reported as a line; the other ranks go on)
            await queue.put(tag.failure_line(error))
            self.broken.append(tag.label)
        finally:
            order.leave(life)
