"""Logs of deleted workloads, of earlier attempts, and of pods whose files only the archive has.

A *life* is one run of a pod's container; the n-th life of a rank is its part of attempt n. The archive has ended lives; the
kubelet has the last lives of existing pods. Following an ended life returns its whole log and ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.archive import database
from rowlock.archive.archive import Archive
from rowlock.archive.reading import read_archived_log
from rowlock.archive.records import LogRecord
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.errors import ApiError, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.log_streams import logs
from rowlock.rest.log_streams.lines import merge_by_time, merge_options, split_lines, take_lines
from rowlock.rest.log_streams.log_response import stream_response
from rowlock.rest.log_streams.options import parse_count, parse_log_options
from rowlock.rest.run_history.past_workloads import PastRun, ask_archive, find_past
from rowlock.rest.workloads import find_workload
from rowlock.training.model import INDEX_LABEL, TYPE_LABEL
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import has_jobs, replica_specs

_SETTLE = 2.0
"""Seconds to wait for logs that are being archived."""


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a pod's container. `record`: its log in the archive, or None when the kubelet has it."""

    pod: str
    pod_uid: str
    container: str
    number: int
    began: float
    record: LogRecord | None = None
    is_current: bool = True
    """For a life at the kubelet: whether it is the current run of the container, not the previous one."""
    is_init: bool = False
    """For a life at the kubelet: whether it is one of an init container."""


async def find_lives(call: RestCall, uid: str) -> list[Life]:
    """Every life of the ranks of the job with this uid, oldest first. Raises Unavailable."""
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
    """The lives, oldest first. A pod's status has whole seconds, a log finer ones; so restarts of a pod are sorted by number,
    and existing pods come after deleted ones."""
    first: dict[str, float] = {}
    for life in lives:
        first[life.pod_uid] = min(life.began, first.get(life.pod_uid, life.began))
    return sorted(lives, key=lambda life: (life.pod_uid in present, first[life.pod_uid], life.pod_uid, life.number))


def _lives_of_pod(pod: Object) -> list[Life]:
    """The lives that the kubelet has: the current run of each container and init container, and the previous one."""
    place = objects.name(pod), objects.uid(pod)
    lives = [
        Life(*place, run.container, run.number, objects.seconds(began), is_current=run.is_current, is_init=run.is_init)
        for run in ranks.ended_runs(pod)
        if (began := run.terminated.get("startedAt"))
    ]
    for field, is_init in (("initContainerStatuses", True), ("containerStatuses", False)):
        for status in objects.dig(pod, f"status.{field}", []):
            if began := objects.dig(status, "state.running.startedAt"):
                count = int(status.get("restartCount") or 0)
                lives.append(Life(*place, str(status.get("name")), count, objects.seconds(began), is_init=is_init))
    return lives


def choose_container(lives: list[Life], requested: str, job: Object, whose: str = "") -> list[Life]:
    """The lives of one container per rank: the requested one, else the first of the replica's template, never an init container that was
    not requested. Raises BadRequest if there are lives but none of the requested container; `whose` names the pod or job in the message."""
    if requested:
        chosen = [life for life in lives if life.container == requested]
        if lives and not chosen:
            names = ", ".join(sorted({life.container for life in lives}))
            raise BadRequest(f"{whose} has no container {requested} with a log: it has {names}.")
        return chosen
    firsts = {
        str(containers[0].get("name"))
        for spec in replica_specs(job).values()
        if (containers := objects.dig(spec, "template.spec.containers", []))
    }
    return [life for life in lives if life.container in firsts] or [life for life in lives if not life.is_init]


def choose_attempt(lives: list[Life], name: str, attempt: int | None, *, previous: bool) -> dict[str, Life]:
    """Pod's name → its life in this attempt; without `attempt` its last life, with `previous` the one before. Raises
    BadRequest when no rank has such a life."""
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
    """Merge the lives into one stream; each line is prefixed with its rank. Raises ApiError if no log of them is kept."""
    stamped, streams, budget = merge_options(options, len(chosen)), [], TurnBudget()
    absent: list[ApiError] = []
    for pod in stubs_by_rank(job, chosen):
        await budget.pause_if_due()
        tag = logs.line_tag(job, pod)
        lines = take_lines(split_lines(reader.read(chosen[objects.name(pod)], stamped), stamped=True), options.tail)
        try:
            head = await anext(lines, None)
        except (NotFound, BadRequest) as error:
            absent.append(error)  # the log was deleted meanwhile, or is not in a restored directory
            continue
        except Exception as error:  # noqa: BLE001 (reported as a line; the other ranks are read)
            yield tag.failure_line(error)
            continue
        if head is not None:
            streams.append((head, tag, lines))
    if absent and len(absent) == len(chosen):
        raise absent[0]
    async for line in merge_by_time(streams, timestamps=options.timestamps):
        yield line


def stubs_by_rank(job: Object, names: Iterable[str]) -> list[Object]:
    """Minimal Pods with the names, and so the ranks, of deleted pods, sorted by rank."""
    stubs = {objects.name(stub): stub for stub in ranks.gone_pods(job, [])}
    return ranks.sort_by_rank(stubs.get(name) or _stub_of_removed(job, name) for name in names)


def _stub_of_removed(job: Object, name: str) -> Object:
    """A minimal Pod for one that the job had before it was scaled down, or whose name has a random suffix; its rank is read from its name."""
    if has_jobs(job):
        found = {"labels": ranks.labels_by_name(job, name)}
        return {"metadata": {"name": name, "namespace": objects.namespace(job), **found}}
    role, _, index = name.removeprefix(f"{objects.name(job)}-").rpartition("-")
    is_ranked = role in {each.lower() for each in replica_specs(job)} and objects.is_digits(index)
    labels = {"labels": {TYPE_LABEL: role, INDEX_LABEL: index}} if is_ranked else {}
    return {"metadata": {"name": name, "namespace": objects.namespace(job), **labels}}


# ---------------------------------------------------------------- endpoints


def _parse_attempt(call: RestCall) -> int | None:
    attempt = parse_count(dict(call.query), "attempt")
    if attempt == 0:
        raise BadRequest("attempt counts from 1.")
    return attempt


async def workload_logs(call: RestCall) -> Any:
    """GET /workloads/{id}/logs: the logs of all pods, merged, each line marked with its rank. With `progress` a
    follower also gets states of unfinished lines (`lines.STATE`), such as progress bars. `attempt` selects an earlier life of
    the ranks. Logs of a deleted workload come from the archive. Raises NotFound, BadRequest."""
    options, attempt = parse_log_options(call), _parse_attempt(call)
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


async def _removed_lives(call: RestCall, job: Object) -> list[Life]:
    """The lives of deleted pods that the job in its current size does not have; not looked up for a job whose spec never changed."""
    if int(objects.meta(job).get("generation") or 1) <= 1:
        return []
    uid = objects.uid(job)
    lives = await find_lives(call, uid)
    own = {objects.name(pod) for pod in (*ranks.gone_pods(job, []), *call.context.cache.pods_of(uid))}
    return [life for life in lives if life.pod not in own]


def _lines_of_removed(
    call: RestCall, job: Object, removed: list[Life], options: LogOptions
) -> AsyncIterator[bytes] | None:
    """The merged logs of removed ranks; None if none has the requested container."""
    asked = [life for life in removed if options.container in ("", life.container)]
    if not asked:
        return None
    lives = choose_container(asked, options.container, job)
    return _merge_kept(call, job, choose_attempt(lives, objects.name(job), None, previous=False), options)


async def _merge_kept(
    call: RestCall, job: Object, chosen: dict[str, Life], options: LogOptions
) -> AsyncIterator[bytes]:
    """`_merge` beside other lines: what is not kept is left out."""
    with suppress(NotFound, BadRequest):
        async for line in _merge(_reader(call, job), job, chosen, options):
            yield line


async def _live_or_archived(call: RestCall, job: Object, options: LogOptions) -> Any:
    """The logs of an existing workload: from its pods, or from the archive if the pods' files are gone or the job was scaled down, since
    its replicas then no longer tell which pods it had."""
    removed = await _removed_lives(call, job)
    if removed and not options.follow:
        return await _answer_merged(call, job, options, None)
    try:
        return await logs.workload_logs(call, _lines_of_removed(call, job, removed, options))
    except (NotFound, BadRequest):
        if options.follow or not choose_container(await find_lives(call, objects.uid(job)), options.container, job):
            raise
    return await _answer_merged(call, job, options, None)


async def _answer_merged(call: RestCall, job: Object, options: LogOptions, attempt: int | None) -> Any:
    name = objects.name(job)
    lives = choose_container(await find_lives(call, objects.uid(job)), options.container, job, name)
    if not lives:
        raise NotFound(f"{name} wrote no log that is kept: none of its programs began, or the archive has cut it.")
    chosen = choose_attempt(lives, name, attempt, previous=options.previous)
    return await stream_response(_merge(_reader(call, job), job, chosen, options))


def _reader(call: RestCall, job: Object) -> _LifeReader:
    return _LifeReader(call.context.api, call.context.archive, objects.namespace(job))


def read_life(call: RestCall, job: Object, life: Life, options: LogOptions) -> AsyncIterator[bytes]:
    """The log of one life, unchanged. Raises ApiError."""
    return _reader(call, job).read(life, options)


async def pod_logs(call: RestCall) -> Any:
    """GET /workloads/{id}/pods/{pod}/logs: the log of one container as text. A deleted pod can be given by
    name or rank (`rank-1`); `chief` is the default pod. `attempt` selects an earlier life of the rank, `localRank` one of
    the ranks that torchrun starts in the pod, whose lines it marks with PET_TEE=3. Raises NotFound, BadRequest."""
    options, attempt = parse_log_options(call), _parse_attempt(call)
    run = await _past_run(call)
    if run is not None:
        return await _answer_pod(call, run.record.body["job"], options, attempt)
    workload = find_workload(call)
    job = workload.job
    if attempt is None:
        try:
            return await logs.pod_logs(call)
        except (NotFound, BadRequest):
            pod = logs.find_pod(workload, str(call.path["pod"])) if options.follow else None
            if (pod is not None and objects.uid(pod)) or not choose_container(
                await find_lives(call, objects.uid(job)), options.container, job, str(call.path["pod"])
            ):
                raise
    return await _answer_pod(call, job, options, attempt)


async def _answer_pod(call: RestCall, job: Object, options: LogOptions, attempt: int | None) -> Any:
    lives, word = await find_lives(call, objects.uid(job)), str(call.path["pod"])
    names = sorted({life.pod for life in lives})
    pod_name, pod_uid = _pod_meant(job, names, word), ""
    if not pod_name and (own := next((life for life in lives if life.pod_uid == word), None)):
        pod_name, pod_uid = own.pod, own.pod_uid
    mine = [life for life in lives if life.pod == pod_name and pod_uid in ("", life.pod_uid)]
    mine = choose_container(mine, options.container, job, pod_name)
    if not mine:
        raise logs.no_pod_error(job, word, names)
    life = choose_attempt(mine, pod_name, attempt, previous=options.previous)[pod_name]
    return await logs.stream_pod(call, _reader(call, job).read(life, options), options)


def _pod_meant(job: Object, names: list[str], word: str) -> str:
    """The name of the pod for a word (a name, a rank, or `chief`); "" if there is none."""
    if word in names:
        return word
    stubs = stubs_by_rank(job, names)
    if word == "chief":
        return objects.name(ranks.chief_pod(stubs) or {}) if stubs else ""
    labels = {ranks.rank_label(job, stub).replace(" ", "-"): objects.name(stub) for stub in stubs}
    return labels.get(word, "")
