"""Logs of what is over: of a workload that is gone, of an earlier attempt, of pods whose files are kept nowhere else.

A *life* is one run of a pod's container; the n-th life of a rank is its part of attempt n. Lives that are over lie in the
archive, the last of a pod that is there with its kubelet. A follower of what is over gets all of it, and the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.reading import read_archived_log
from rowlock.archive.records import LogRecord
from rowlock.errors import ApiError, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.log_streams import logs
from rowlock.rest.log_streams.lines import merge_by_time, split_lines, take_lines
from rowlock.rest.run_history.past_workloads import PastRun, ask_archive, find_past
from rowlock.rest.workloads import find_workload
from rowlock.workloads import pods as ranks
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.frameworks import replica_specs

_SETTLE = 2.0
"""Seconds for which what was put aside a moment ago is waited for."""


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a pod's container. `record` is its log in the archive; None = its kubelet has it."""

    pod: str
    pod_uid: str
    container: str
    number: int
    began: float
    record: LogRecord | None = None
    is_current: bool = True
    """Of one that its kubelet has: the run that runs or ran last, not the one before it."""


async def find_lives(call: RestCall, uid: str) -> list[Life]:
    """Every life of the ranks of the job with this uid, the oldest first. Raises Unavailable."""
    archive = call.context.archive
    if archive is not None:
        await archive.settle(_SETTLE)
    records = await ask_archive(call, database.read_logs, uid) or []
    lives = [Life(r.pod, r.pod_uid, r.container, r.number, r.began, r) for r in records]
    known = {(life.pod_uid, life.container, life.number) for life in lives}
    present = call.context.cache.pods_of(uid)
    for pod in present:
        lives += [life for life in _lives_of_pod(pod) if (life.pod_uid, life.container, life.number) not in known]
    return _sort_by_age(lives, {objects.uid(pod) for pod in present})


def _sort_by_age(lives: list[Life], present: set[str]) -> list[Life]:
    """The oldest first. A status has whole seconds and a log parts of them: so restarts of a pod go by their number, and a
    pod that is there comes after those that are gone."""
    first: dict[str, float] = {}
    for life in lives:
        first[life.pod_uid] = min(life.began, first.get(life.pod_uid, life.began))
    return sorted(lives, key=lambda life: (life.pod_uid in present, first[life.pod_uid], life.pod_uid, life.number))


def _lives_of_pod(pod: Object) -> list[Life]:
    """Those that its kubelet has: the last run of each container, and the one before."""
    lives = []
    for status in objects.dig(pod, "status.containerStatuses", []):
        count, state = int(status.get("restartCount") or 0), status.get("state") or {}
        began = (state.get("running") or state.get("terminated") or {}).get("startedAt")
        name, uid, container = objects.name(pod), objects.uid(pod), str(status.get("name"))
        if began:
            lives.append(Life(name, uid, container, count, objects.seconds(began)))
        last = objects.dig(status, "lastState.terminated.startedAt")
        if count and last:
            lives.append(Life(name, uid, container, count - 1, objects.seconds(last), is_current=False))
    return lives


def choose_container(lives: list[Life], requested: str, job: Object) -> list[Life]:
    """Of each rank the lives of the container that is meant: the one named, else the first of its replica's."""
    if requested:
        return [life for life in lives if life.container == requested]
    firsts = {
        str(containers[0].get("name"))
        for spec in replica_specs(job).values()
        if (containers := objects.dig(spec, "template.spec.containers", []))
    }
    return [life for life in lives if life.container in firsts] or lives


def choose_attempt(lives: list[Life], name: str, attempt: int | None, *, previous: bool) -> dict[str, Life]:
    """Pod's name → its life in this attempt; without one, its last life (`previous`: the one before). Raises BadRequest where
    no rank has such a life."""
    by_pod: dict[str, list[Life]] = {}
    for life in lives:
        by_pod.setdefault(life.pod, []).append(life)
    index = -2 if previous else -1
    if attempt is not None:
        index = attempt - 1
    chosen = {pod: own[index] for pod, own in by_pod.items() if (-len(own) <= index < len(own))}
    if not chosen and by_pod:
        count = max(len(own) for own in by_pod.values())
        if previous and attempt is None:
            raise BadRequest(f"no rank of {name} was ever started again: there is no previous log.")
        raise BadRequest(f"{name} has had {count} attempt{'s' * (count != 1)}, but no attempt {attempt}.")
    return chosen


@dataclass(frozen=True, slots=True)
class _LifeReader:
    api: Api
    archive: Archive | None
    namespace: str

    def read(self, life: Life, options: LogOptions) -> AsyncIterator[bytes]:
        options = replace(options, follow=False, previous=not life.is_current, container=life.container)
        if life.record is not None and self.archive is not None:
            return read_archived_log(self.archive, life.record, options)
        return self.api.log(self.namespace, life.pod, options)


async def _merge(
    reader: _LifeReader, job: Object, chosen: dict[str, Life], options: LogOptions
) -> AsyncIterator[bytes]:
    """The lives in one stream, each line under its rank."""
    stamped, streams = replace(options, timestamps=True), []
    for pod in ranks.sort_by_rank(stub_of(job, name) for name in chosen):
        lines = take_lines(split_lines(reader.read(chosen[objects.name(pod)], stamped), stamped=True), options.tail)
        try:
            head = await anext(lines, None)
        except ApiError:
            continue  # it went while it was looked for
        if head is not None:
            streams.append((head, logs.line_tag(job, pod), lines))
    async for line in merge_by_time(streams, timestamps=options.timestamps):
        yield line


def stub_of(job: Object, pod: str) -> Object:
    """What is known of a pod by its name: its rank."""
    stubs = {objects.name(stub): stub for stub in ranks.gone_pods(job, [])}
    return stubs.get(pod) or {"metadata": {"name": pod, "namespace": objects.namespace(job)}}


# ---------------------------------------------------------------- endpoints


def _parse_attempt(call: RestCall) -> int | None:
    attempt = logs.parse_count(dict(call.query), "attempt")
    if attempt == 0:
        raise BadRequest("attempt counts from 1.")
    return attempt


async def workload_logs(call: RestCall) -> Any:
    """GET /workloads/{id}/logs: the logs of all pods, merged, each line marked with its rank. With `progress` who follows
    also gets what lines look like that are not over (`lines.STATE`): progress bars. `attempt` names an earlier life of the
    ranks; of a workload that is gone the archive answers. Raises NotFound, BadRequest."""
    options, attempt = logs.parse_log_options(call), _parse_attempt(call)
    run = await _past_run(call)
    if run is None:
        job = find_workload(call).job
        if attempt is None and not options.previous:
            return await _live_or_archived(call, job, options)
    else:
        job = run.record.body["job"]
    return await _answer_merged(call, job, options, attempt)


async def _past_run(call: RestCall) -> PastRun | None:
    identifier = str(call.path["id"])
    return None if call.context.cache.job_uid(identifier) else await find_past(call, identifier)


async def _live_or_archived(call: RestCall, job: Object, options: LogOptions) -> Any:
    """The workload is there; where nothing is kept of its pods any more, the archive has it."""
    try:
        return await logs.workload_logs(call)
    except (NotFound, BadRequest):
        if options.follow or not await find_lives(call, objects.uid(job)):
            raise
    return await _answer_merged(call, job, options, None)


async def _answer_merged(call: RestCall, job: Object, options: LogOptions, attempt: int | None) -> Any:
    lives = choose_container(await find_lives(call, objects.uid(job)), options.container, job)
    name = objects.name(job)
    if not lives:
        raise NotFound(f"{name} wrote no log that is kept: none of its programs began, or the archive has cut it.")
    chosen = choose_attempt(lives, name, attempt, previous=options.previous)
    return await logs.stream_response(_merge(_reader(call, job), job, chosen, options))


def _reader(call: RestCall, job: Object) -> _LifeReader:
    return _LifeReader(call.context.api, call.context.archive, objects.namespace(job))


async def pod_logs(call: RestCall) -> Any:
    """GET /workloads/{id}/pods/{pod}/logs: the log of one container as text. A pod that is gone is named, too, or by its
    rank: `rank-1`; `chief` is the one that is meant where nobody says which. `attempt` names an earlier life of the rank.
    Raises NotFound, BadRequest."""
    options, attempt = logs.parse_log_options(call), _parse_attempt(call)
    run = await _past_run(call)
    if run is not None:
        return await _answer_pod(call, run.record.body["job"], options, attempt)
    job = find_workload(call).job
    if attempt is None:
        try:
            return await logs.pod_logs(call)
        except (NotFound, BadRequest):
            if options.follow or not await find_lives(call, objects.uid(job)):
                raise
    return await _answer_pod(call, job, options, attempt)


async def _answer_pod(call: RestCall, job: Object, options: LogOptions, attempt: int | None) -> Any:
    lives, word = await find_lives(call, objects.uid(job)), str(call.path["pod"])
    names = sorted({life.pod for life in lives})
    pod_name, pod_uid = _pod_meant(job, names, word), ""
    if not pod_name and (own := next((life for life in lives if life.pod_uid == word), None)):
        pod_name, pod_uid = own.pod, own.pod_uid
    mine = [life for life in lives if life.pod == pod_name and pod_uid in ("", life.pod_uid)]
    mine = choose_container(mine, options.container, job)
    if not mine:
        raise NotFound(f"Failed to find pod: '{word}' of job: '{objects.name(job)}'.{did_you_mean(word, names)}")
    life = choose_attempt(mine, pod_name, attempt, previous=options.previous)[pod_name]
    return await logs.stream_response(_reader(call, job).read(life, options))


def _pod_meant(job: Object, names: list[str], word: str) -> str:
    """The pod that a word means: its name, its rank, or `chief`; "" = none."""
    if word in names:
        return word
    stubs = ranks.sort_by_rank(stub_of(job, name) for name in names)
    if word == "chief":
        return objects.name(ranks.chief_pod(stubs) or {}) if stubs else ""
    labels = {ranks.rank_label(job, stub).replace(" ", "-"): objects.name(stub) for stub in stubs}
    return labels.get(word, "")
