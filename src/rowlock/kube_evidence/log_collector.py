"""Collects the logs of jobs' pods on a real cluster into the archive, before the pods are deleted.

The training operator deletes workers as soon as the master ends, and their logs with them. So the log of each life (one run of a container)
is followed from its start into a file (`following/<pod uid>.<container>.<number>/`), which is handed to the archive when the life is over.
Beyond `MAX_STREAMS` concurrent streams a log is read when its pod has ended or is being deleted. After a crash the next process finds the
files and continues them while the pods exist.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import re
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.database import UnusableArchive
from rowlock.archive.log_intake import AsideLog
from rowlock.archive.reading import read_archived_log
from rowlock.archive.records import LogRecord
from rowlock.controllers.supervisor import ERRORS, back_off
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized
from rowlock.kube.rate_limit import TokenBucket
from rowlock.kube_evidence.ended_jobs import ChangedJobs
from rowlock.kube_evidence.followed_log import FollowedLog, LogRefusals
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.workloads.pods import ended_runs

log = logging.getLogger(__name__)

MAX_STREAMS, MAX_LAST_STREAMS = 1000, 1000
"""Maximum of logs followed at once, each over a connection of its own; and of further ones for pods that are being deleted, which may be
ten thousand at once."""
_MAX_READERS = 32
"""Maximum of logs of ended lives that are read at once."""
_GATHER = 0.02
"""Seconds to gather changes of pods before they are handled."""
_FIRST_RETRY, _NODE_RETRY, _LONGEST_RETRY = 0.2, 2.0, 60.0
"""Retry delays in seconds: the first one; the first one if the node cannot be reached, which takes longer; and the maximum."""
STREAMS_PER_SECOND, STREAMS_AT_ONCE = 100, 4
"""Rate (per second) and burst of new streams. All begin when this server starts or the API server comes back, each with a TLS handshake of
some milliseconds."""
LAST_PER_SECOND, LAST_AT_ONCE = 250, 16
"""The same for pods that are being deleted: they must not wait behind the others."""
_MAX_TRIES_AFTER_END = 5
LINGER_S = 30.0
"""Once its container has ended or its pod is gone, a followed log without a line for so many seconds counts as complete: a lost node may
never end the stream."""
_SHORT = 3.0
"""A life of at most so many seconds may be over, and the next one begun, before a request for its log arrives."""
_FOLLOWING = "following"
_FACTS = "pod.json"
_AGAIN = ".again"
_KUBEFLOWS_INIT = "init-pytorch"
"""The init container with which training operator 1.9.4 lets a worker wait for its master's name."""
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_LOG_FILE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})\.([0-9]{1,9})\.log")


class LifeId(NamedTuple):
    """One run of a container of a pod."""

    pod_uid: str
    container: str
    number: int


@dataclass(frozen=True, slots=True)
class ContainerLife:
    """A life, its pod and job, and its state when it was read from the pod's status."""

    id: LifeId
    namespace: str
    pod: str
    job_uid: str
    is_over: bool
    is_leaving: bool
    """It is over, or its pod is being deleted: its log must be read now."""
    is_previous: bool = False
    """Its container was restarted, so its log is the "previous" one."""
    is_short: bool = False
    """It lasted at most `_SHORT` seconds, so a request for its log may have returned that of the next life."""


def _life_of(log: AsideLog | LogRecord) -> LifeId:
    return LifeId(log.pod_uid, log.container, log.number)


def lives_of(pod: Object, job_uid: str) -> Iterator[ContainerLife]:
    """The lives whose logs are still on the pod's node: the current or last one of each container, and the one before it. An init container
    that is no sidecar is read once it has ended, so that waiting for a name costs no stream; what Kubeflow adds, only if it failed."""
    uid, is_leaving = objects.uid(pod), objects.is_deleting(pod)
    if not _UID.fullmatch(uid):
        return
    place = objects.namespace(pod), objects.name(pod), job_uid
    names = {one["name"] for field in ("initContainers", "containers") for one in objects.dig(pod, f"spec.{field}", [])}
    for run in ended_runs(pod):
        if run.container not in names:
            continue
        if run.container == _KUBEFLOWS_INIT and run.is_init and not run.terminated.get("exitCode"):
            continue
        is_short, is_previous = not run.is_current and _is_short(run.terminated), not run.is_current
        life = LifeId(uid, run.container, run.number)
        yield ContainerLife(life, *place, True, True, is_previous=is_previous, is_short=is_short)
    sidecars = {
        one["name"] for one in objects.dig(pod, "spec.initContainers", []) if one.get("restartPolicy") == "Always"
    }
    inits = objects.dig(pod, "status.initContainerStatuses", [])
    followed = [status for status in inits if is_leaving or status.get("name") in sidecars]
    for status in (*followed, *objects.dig(pod, "status.containerStatuses", [])):
        if "running" in (status.get("state") or {}) and status.get("name") in names:
            life = LifeId(uid, str(status.get("name")), int(status.get("restartCount") or 0))
            yield ContainerLife(life, *place, False, is_leaving)


def _is_short(terminated: Mapping[str, Any]) -> bool:
    began, ended = (objects.seconds(terminated.get(name)) or 0.0 for name in ("startedAt", "finishedAt"))
    return ended - began <= _SHORT


class LogCollector:
    """One per server of a real cluster. `run` for as long as it works."""

    def __init__(
        self, api: Api, cache: InformerCache, archive: Archive, wait_for_answer: Callable[[], Awaitable[None]]
    ) -> None:
        """`wait_for_answer` returns when the cluster answers, so that during an outage one probe asks instead of every follower."""
        self._api, self._cache, self._archive, self._wait_for_answer = api, cache, archive, wait_for_answer
        self._directory = archive.directory / _FOLLOWING
        self._tasks: dict[LifeId, asyncio.Task[None]] = {}
        self._taken: dict[str, set[LifeId]] = {}
        """Uid of a pod → its lives that are being read or were handed to the archive."""
        self._read_again: dict[str, set[LifeId]] = {}
        """Uid of a pod → its short lives whose log was read a second time, as the "previous" one, which is unambiguous."""
        self._left: dict[str, list[AsideLog]] = {}
        """Uid of a job → files of an earlier process, until they are followed again or handed to the archive."""
        self._present: dict[str, set[str]] = {}
        """Uid of a job → uids of its pods when it was last examined."""
        self._changed = ChangedJobs(cache)
        self._postponed: dict[bool, dict[str, None]] = {False: {}, True: {}}
        """Jobs with logs that are not followed yet because of the limits, by whether their pods are being deleted (`is_leaving`)."""
        self._refusals = LogRefusals()
        self._readers = asyncio.Semaphore(_MAX_READERS)
        self._pace = TokenBucket(STREAMS_PER_SECOND, STREAMS_AT_ONCE)
        self._last_pace = TokenBucket(LAST_PER_SECOND, LAST_AT_ONCE)
        self._followed: set[LifeId] = set()
        """Lives of `_tasks` that were not over when their task began; these count against the limits."""
        self._waiting: dict[LifeId, asyncio.Event] = {}
        """Lives whose task is pausing; the event is set when their log must be read now."""
        self._streams: dict[LifeId, asyncio.Timeout] = {}
        """Lives that are being streamed → their timeout, which is set once the life is over."""

    async def run(self) -> None:
        """Collect logs until cancelled. Files of logs that are still followed stay for the next start."""
        await self._cache.wait_until("", self._cache.knows_runs, None)
        await self._take_leftovers()
        self._changed.note_all()
        budget = TurnBudget()
        try:
            while True:
                for uid in await self._changed.take(_GATHER):
                    await budget.pause_if_due()
                    self._look(uid)
                self._note_postponed()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # ------------------------------------------------------------ looks

    def _look(self, job_uid: str) -> None:
        """Start a task for each new life of the job's pods; forget pods that are gone."""
        pods = self._cache.pods_of(job_uid) if self._cache.job(job_uid) else []
        present = {objects.uid(pod) for pod in pods}
        for uid in self._present.get(job_uid, set()) - present:
            for id in self._taken.pop(uid, ()):
                self._expect_end(id)
            self._read_again.pop(uid, None)
        self._present[job_uid] = present
        if not present:
            del self._present[job_uid]
        postponed: set[LifeId] = set()
        for jobs in self._postponed.values():
            jobs.pop(job_uid, None)
        for pod in pods:
            for life in lives_of(pod, job_uid):
                taken = self._taken.setdefault(life.id.pod_uid, set())
                if life.id in taken and not self._must_read_again(life):
                    if life.is_leaving and life.id in self._waiting:
                        self._waiting[life.id].set()
                    if life.is_over:
                        self._expect_end(life.id)
                    continue
                if not life.is_over:
                    if not self._free_places(life.is_leaving):
                        postponed.add(life.id)
                        self._postponed[life.is_leaving][job_uid] = None
                        continue
                    self._followed.add(life.id)
                taken.add(life.id)
                self._tasks[life.id] = asyncio.create_task(self._keep(life), name=f"log of {life.pod}")
        for left in self._left.pop(job_uid, ()):
            self._settle_left(left, present, postponed)

    def _note_postponed(self) -> None:
        """Examine as many postponed jobs as streams are free. Examining all of them each time a log ends would keep a CPU busy with ten
        thousand pods."""
        for is_leaving, jobs in self._postponed.items():
            for uid in itertools.islice(jobs, self._free_places(is_leaving)):
                self._changed.note(uid)

    def _free_places(self, is_leaving: bool) -> int:
        """How many more logs may be followed: the limit is higher for pods that are being deleted."""
        return max(0, MAX_STREAMS + is_leaving * MAX_LAST_STREAMS - len(self._followed))

    def _expect_end(self, id: LifeId) -> None:
        limit = self._streams.get(id)
        if limit is not None and limit.when() is None:
            limit.reschedule(asyncio.get_running_loop().time() + LINGER_S)

    def _settle_left(self, left: AsideLog, present: set[str], postponed: set[LifeId]) -> None:
        """Hand a file of an earlier process to the archive, unless a task continues it now or may do so later."""
        life, begun = _life_of(left), self._read_again if left.is_correction else self._taken
        if life in begun.get(life.pod_uid, ()):
            return  # its task hands it over
        if life in postponed or (left.is_correction and life.pod_uid in present):
            self._left.setdefault(left.owner, []).append(left)
        else:
            self._archive.take_log(left)

    def _must_read_again(self, life: ContainerLife) -> bool:
        """Whether to read the log of a short life again as the "previous" log, because the first reading may have been of the next life."""
        again = self._read_again.setdefault(life.id.pod_uid, set())
        if not (life.is_previous and life.is_short) or life.id in again or life.id in self._tasks:
            return False
        again.add(life.id)
        return True

    async def _keep(self, life: ContainerLife) -> None:
        """The task of one life: read its log to its end and hand it to the archive."""
        is_again = life.id in self._read_again.get(life.id.pod_uid, ())
        path = self._path(life.id, again=is_again)
        try:
            if not life.is_over or is_again or not await self._is_archived(life):
                await self._follow(life, path)
                self._hand_over(life, path, is_again=is_again)
        except Exception as error:  # noqa: BLE001 (a failure with one log must not stop others)
            ERRORS.report("a log of a pod", error, "it is not kept in the archive")
        finally:
            self._tasks.pop(life.id, None)
            self._followed.discard(life.id)
            if not is_again:
                self._changed.note(life.job_uid)  # if it was short, its log must be read again
            self._note_postponed()

    async def _is_archived(self, life: ContainerLife) -> bool:
        try:
            records = await self._archive.read(database.read_logs, life.job_uid)
        except (FileNotFoundError, sqlite3.Error, UnusableArchive):
            return False  # it is being created, or reports its problem itself
        return any(_life_of(record) == life.id for record in records)

    # ------------------------------------------------------------ one log

    def _path(self, life: LifeId, *, again: bool) -> Path:
        """The file of a life's log. The second reading has a directory of its own, because the archive deletes the first one's."""
        name = f"{life.container}.{life.number}"
        return self._directory / f"{life.pod_uid}.{name}{_AGAIN if again else ''}" / f"{name}.log"

    async def _follow(self, life: ContainerLife, path: Path) -> None:
        """Stream the log into its file, with retries. Returns when it is complete or cannot be read any more."""
        file, failures, tries_after_end, is_noted = FollowedLog(path), 0, 0, False
        while True:
            await self._wait_for_answer()
            if not life.is_over and (life.is_leaving or await self._pause(life, self._pace.reserve())):
                await asyncio.sleep(self._last_pace.reserve())
            if not is_noted:  # after the pause, since a thousand tasks may start at once
                await asyncio.to_thread(_write_facts, path.parent, life)
                is_noted = True
            is_over, first_retry = self._is_over(life), _FIRST_RETRY
            try:
                async with self._readers if is_over else _Free():
                    is_cut = await self._stream(life, file, is_over=is_over)
                self._refusals.note_shown(life.namespace)
                if is_cut and self._status(life) is not None:
                    continue  # the rest is read without following
                if is_over or self._is_over(life):
                    return
            except (NotFound, BadRequest):
                self._refusals.note_shown(life.namespace)
                if is_over or self._is_over(life):
                    return  # the node no longer has the log
            except (Forbidden, Unauthorized) as error:
                self._say_refused(error)
                if self._status(life) is None:
                    return  # the pod is gone, and its log with it
                await self._refusals.wait(life.namespace)
                continue
            except ApiError as error:
                first_retry = _NODE_RETRY
                tries_after_end += is_over
                if tries_after_end >= _MAX_TRIES_AFTER_END:
                    log.warning("the end of the log of %s/%s is not kept: %s", life.namespace, life.pod, error.message)
                    return
            failures += 1
            delay = back_off(failures, first_retry, _LONGEST_RETRY)
            await self._pause(life, delay * random.uniform(0.75, 1.25))  # spread the pods of a node

    async def _pause(self, life: ContainerLife, seconds: float) -> bool:
        """Wait so many seconds, or until the log must be read now. True in the latter case."""
        last_moment = self._waiting[life.id] = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                return await last_moment.wait()
        except TimeoutError:
            return False
        finally:
            del self._waiting[life.id]

    def _say_refused(self, error: ApiError) -> None:
        if not self._refusals:
            log.warning(
                "logs are not kept in the archive while the cluster refuses them: %s; `rowlock manifests` has the rights",
                error.message,
            )

    async def _stream(self, life: ContainerLife, file: FollowedLog, *, is_over: bool) -> bool:
        """Read one stream into the file. True if it was cut after `LINGER_S`, because it did not end though the life is over."""
        since = await asyncio.to_thread(file.begin)
        options = LogOptions(
            life.id.container, follow=not is_over, previous=self._is_previous(life), since=since, timestamps=True
        )
        try:
            async with asyncio.timeout(None) as limit:
                if not is_over:
                    self._streams[life.id] = limit
                    if self._is_over(life):
                        self._expect_end(life.id)  # it ended while its file was opened
                async with aclosing(_as_generator(self._api.log(life.namespace, life.pod, options))) as chunks:
                    async for chunk in chunks:
                        self._refusals.note_shown(life.namespace)
                        await asyncio.to_thread(file.append, chunk)
                        if limit.when() is not None:
                            limit.reschedule(asyncio.get_running_loop().time() + LINGER_S)
        except TimeoutError:
            if not limit.expired():
                raise
            return True
        finally:
            self._streams.pop(life.id, None)
        return False

    def _status(self, life: ContainerLife) -> ContainerLife | None:
        """The life by the cache's current state; None if its pod is gone or its container was restarted twice since."""
        pods = self._cache.pods_of(life.job_uid)
        pod = next((pod for pod in pods if objects.uid(pod) == life.id.pod_uid), None)
        return next((one for one in lives_of(pod, life.job_uid) if one.id == life.id), None) if pod else None

    def _is_over(self, life: ContainerLife) -> bool:
        current = self._status(life)
        return current is None or current.is_over

    def _is_previous(self, life: ContainerLife) -> bool:
        current = self._status(life)
        return life.is_previous if current is None else current.is_previous

    def _hand_over(self, life: ContainerLife, path: Path, *, is_again: bool) -> None:
        if path.exists():
            owner = life.namespace, life.pod, life.id.pod_uid, life.id.container, life.id.number, life.job_uid
            self._archive.take_log(AsideLog(str(path), *owner, is_correction=is_again))

    # ------------------------------------------------------------ after a start

    async def _take_leftovers(self) -> None:
        """Hand the files of an earlier process whose pods are gone to the archive. The others wait until their job is examined."""
        found = await asyncio.to_thread(_find_leftovers, self._directory)
        present = {objects.uid(pod) for pod in self._cache.pods()}
        for left in found:
            if left.pod_uid not in present:
                self._archive.take_log(left)
            else:
                self._left.setdefault(left.owner, []).append(left)
                self._changed.note(left.owner)


class _Free:
    """A context manager that does nothing, in place of a semaphore."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


async def _as_generator(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    async for chunk in chunks:
        yield chunk


def _write_facts(directory: Path, life: ContainerLife) -> None:
    """Write the owner (pod and job) of the log in this directory, for the next start."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = {"namespace": life.namespace, "pod": life.pod, "uid": life.id.pod_uid, "job": life.job_uid}
    new = directory / f"{_FACTS}.new"
    new.write_text(json.dumps(facts))
    new.replace(directory / _FACTS)


def _find_leftovers(directory: Path) -> list[AsideLog]:
    found: list[AsideLog] = []
    for place in sorted(directory.iterdir()) if directory.is_dir() else ():
        try:
            facts = json.loads((place / _FACTS).read_text())
            owner = str(facts["namespace"]), str(facts["pod"]), str(facts["uid"])
            for path in sorted(place.iterdir()):
                if named := _LOG_FILE.fullmatch(path.name):
                    number, job, is_again = int(named[2]), str(facts["job"]), place.name.endswith(_AGAIN)
                    found.append(AsideLog(str(path), *owner, named[1], number, job, is_correction=is_again))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            log.warning("%s holds no log that can be kept: remove it", place)
    return found


# ---------------------------------------------------------------- reading


def read_kept_log(archive: Archive, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
    """The archived log of the newest pod of this name of the job `options.owner` (uid). Raises NotFound when it is iterated."""

    async def read() -> AsyncIterator[bytes]:
        try:
            records = await archive.read(database.read_logs, options.owner)
        except (FileNotFoundError, sqlite3.Error, UnusableArchive):
            records = []
        mine = [r for r in records if (r.namespace, r.pod) == (namespace, pod)]
        wanted = [r for r in mine if r.container == options.container] if options.container else mine
        if not wanted:
            raise NotFound(f'pods "{pod}" not found, and no log of it is kept')
        async for chunk in read_archived_log(archive, wanted[-1], options):
            yield chunk

    return read()
