"""What happened to a workload: its events, its phases, and the scheduler's explanation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rowlock import objects
from rowlock.answers import workloads as answers
from rowlock.kinds import BATCH_JOB, JOB_SET, TRAIN_JOB
from rowlock.objects import Object
from rowlock.training.batch_job.template import pod_name_prefix
from rowlock.workloads.frameworks import ROLES, has_jobs, is_set, is_suspended
from rowlock.workloads.phase import (
    EARLY_STOP_ANNOTATION,
    STARTED_BY_ANNOTATION,
    STOPPED_WITH_SWEEP_ANNOTATION,
    is_queued,
    join_sentences,
    outlived_sentence,
    pending_message,
    retry_sentence,
    waiting_step,
)
from rowlock.workloads.pods import has_ranked_pods
from rowlock.workloads.run_options.retries import decided_sentence
from rowlock.workloads.run_options.start_order import order_sentence
from rowlock.workloads.run_options.time_limit import end_reason
from rowlock.workloads.runai_json import Workload

_PHASE_BY_CONDITION = {
    "Created": "Pending", "Running": "Running", "Restarting": "Degraded", "Suspended": "Stopped",
    "Succeeded": "Completed", "Failed": "Failed",
}  # fmt: skip
"""Condition type of a job → the phase that begins with it."""
_WAITING_REASONS = frozenset({"FailedScheduling", "Unschedulable"})
"""Event reasons that explain why a pod or gang is pending."""
_STOPPED = "Stopped"
"""Reason of the kubelet's event about a stopped container (`kubelet/pod/stop_reasons.py`)."""
_LONGEST_REASON = 300
"""Characters of what an annotation says."""
_GOOD_END = "It completed; no rank failed."
_SECONDS = len("2026-01-01T00:00:00")
"""Characters of a time in whole seconds, as most events have it."""
_RANDOM_END = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}\Z")
_ROLES = frozenset(role.lower() for role in ROLES)


def event_time(event: Object) -> str:
    """When an Event was last observed, else when it was created (RFC 3339)."""
    last_observed = objects.dig(event, "series.lastObservedTime")
    if last_observed:
        return str(last_observed)
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(field):
            return str(event[field])
    return str(objects.meta(event).get("creationTimestamp") or "")


def _began(event: Object) -> str:
    """When an Event was first observed, in whole seconds."""
    return str(event.get("firstTimestamp") or event.get("eventTime") or event_time(event))[:_SECONDS]


def event_order(event: Object) -> tuple[str, int]:
    """Sort key: the time in whole seconds, as most events have, then the order of writes."""
    return event_time(event)[:_SECONDS], objects.revision(event)


def tells_failed_create(event: Object) -> bool:
    """Whether the Event is about something that a job needs and that could not be created: a pod, or what stands between it and a pod."""
    reason = str(event.get("reason"))
    return reason.startswith("FailedCreate") or reason.endswith("CreationFailed")


def events_of(workload: Workload, events: Iterable[Object]) -> list[Object]:
    """The events about the job, its parts, its pods (those that are gone by name) or its pod group, oldest first. There may be ten thousand."""
    job, namespace = workload.job, objects.namespace(workload.job)
    uids = {uid for uid in (objects.uid(job), *workload.part_uids, *map(objects.uid, workload.pods)) if uid}
    pod_group = f"pg-{objects.name(job)}-{objects.uid(job)}"
    there = [e for e in events if (e.get("involvedObject") or {}).get("namespace") == namespace]
    names = _GoneNames(job, uids, there)
    found = []
    for event in there:
        regarding = event["involvedObject"]
        kind, about = regarding.get("kind"), str(regarding.get("name") or "")
        if (
            regarding.get("uid") in uids
            or (kind == "PodGroup" and about == pod_group)
            or (names.include(kind, about) and names.are_since(event))
        ):
            found.append(event)
    told = {sentence for e in found if (sentence := wait_sentence(e))}
    return sorted((e for e in found if not is_echo(e, told)), key=event_order)


class _GoneNames:
    """Names of what a job had made and is gone: its pods; of a set also its Jobs, of a TrainJob its JobSet. Events are kept longer than
    these objects, and name them."""

    def __init__(self, job: Object, uids: Collection[str], events: Collection[Object]) -> None:
        """`uids`: those of the job and of its parts. `events`: of its namespace; those of Jobs tell which pods they have made."""
        self._job, self._name = job, objects.name(job)
        self._created = str(objects.meta(job).get("creationTimestamp") or "")[:_SECONDS]
        self._earlier = {_regarding_uid(event) for event in events if _began(event) < self._created} - {""}
        """Objects that are older than the job."""
        self._pods: dict[str, bool] = {}
        """Pod → whether this job has made it."""
        replicated = objects.dig(job, "spec.replicatedJobs", None) or objects.dig(job, "status.jobsStatus", None) or ()
        self._roles = {str(one.get("name")) for one in replicated} if is_set(job) else set()
        """A set's replicated jobs. A TrainJob whose JobSet is gone has them in its status."""
        for event in events if has_jobs(job) else ():
            regarding = event["involvedObject"]
            if event.get("reason") == "SuccessfulCreate" and regarding.get("kind") == BATCH_JOB.name:
                is_own = regarding.get("uid") in uids or self._is_job_of_set(str(regarding.get("name") or ""))
                self._pods[str(event.get("message")).partition("Created pod: ")[2]] = is_own and self.are_since(event)

    def are_since(self, event: Object) -> bool:
        """Whether neither the event nor its object is older than the job: what an earlier job of its name had made may have had the same
        names, and its pods end up to their grace period after it was deleted."""
        return event_time(event)[:_SECONDS] >= self._created and _regarding_uid(event) not in self._earlier

    def include(self, kind: Any, about: str) -> bool:
        """Whether an object of this kind and name is one of them."""
        if kind == JOB_SET.name:
            return self._job.get("kind") == TRAIN_JOB.name and about == self._name
        if kind == BATCH_JOB.name:
            return self._is_job_of_set(about)
        if kind != "Pod" or not has_jobs(self._job):
            return kind == "Pod" and _is_replica_name(about, self._name)
        return self._pods[about] if about in self._pods else self._is_pod_name(about)

    def _is_job_of_set(self, about: str) -> bool:
        """Whether a Job of this name is the set's: `<set>-<replicated job>-<number>`."""
        head, end = f"{self._name}-", about[len(self._name) + 1 :]
        role, _, number = end.rpartition("-")
        return about.startswith(head) and role in self._roles and objects.is_digits(number)

    def _is_pod_name(self, about: str) -> bool:
        """Whether a pod of this name may be the job's: `<Job>-<index>-<random>`, or without the index."""
        if not _RANDOM_END.search(about):
            return False
        prefix = about[:-5]
        stem, _, number = prefix.removesuffix("-").rpartition("-")
        if is_set(self._job):
            return self._is_job_of_set(prefix.removesuffix("-")) or (
                objects.is_digits(number) and self._is_job_of_set(stem)
            )
        if not has_ranked_pods(self._job):
            return prefix == pod_name_prefix(self._name, None)
        return objects.is_digits(number) and prefix == pod_name_prefix(self._name, int(number))


def count_repeats(events: Iterable[Object]) -> list[Object]:
    """The events in order, with identical ones (same object name and message) merged into the newest, with the sum of their counts. Every
    new pod has its own Events, so a job that restarts again and again has thousands of identical ones."""
    counted: dict[tuple[str, ...], Object] = {}
    for event in events:
        regarding, source = event.get("involvedObject") or {}, event.get("source") or {}
        about = (str(regarding.get(field)) for field in ("kind", "namespace", "name", "fieldPath"))
        said = (str(event.get(field)) for field in ("type", "reason", "message", "reportingComponent"))
        key = (*about, *said, str(source.get("component")))
        earlier = counted.pop(key, None)
        if earlier is not None:
            first = earlier.get("firstTimestamp") or event.get("firstTimestamp")
            event = {**event, "count": _times(earlier) + _times(event), "firstTimestamp": first}
        counted[key] = event
    return list(counted.values())


def _times(event: Object) -> int:
    return int(event.get("count") or objects.dig(event, "series.count") or 1)


def is_echo(event: Object, told: Collection[str]) -> bool:
    """Whether the event repeats for one pod why its gang waits; `told` has the messages of the jobs' own events."""
    return _tells_wait(event) and _is_about_pod(event) and str(event.get("message")) in told


def wait_sentence(event: Object) -> str:
    """The message of an event about why a job or PodGroup waits; "" for other events."""
    return "" if _is_about_pod(event) or not _tells_wait(event) else str(event.get("message"))


def _tells_wait(event: Object) -> bool:
    return event.get("reason") in _WAITING_REASONS


def _is_about_pod(event: Object) -> bool:
    return (event.get("involvedObject") or {}).get("kind") == "Pod"


def _regarding_uid(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("uid") or "")


def _is_replica_name(pod: str, job: str) -> bool:
    if not pod.startswith(f"{job}-"):
        return False
    role, _, number = pod[len(job) + 1 :].partition("-")
    return role in _ROLES and (objects.is_digits(number) or not number)


def event_json(event: Object, cluster: str) -> answers.Event:
    """Run:ai's Event JSON."""
    regarding = event.get("involvedObject") or {}
    return {
        "id": objects.uid(event),
        "createdAt": event_time(event),
        "type": event.get("type") or "Normal",
        "clusterId": cluster,
        "message": event.get("message") or "",
        "reason": event.get("reason") or "",
        "source": (event.get("source") or {}).get("component") or event.get("reportingComponent") or "",
        "count": _times(event),
        "involvedObject": {
            "uid": regarding.get("uid", ""),
            "kind": regarding.get("kind", ""),
            "name": regarding.get("name", ""),
            "namespace": regarding.get("namespace", ""),
        },
    }


def history(workload: Workload, events: Iterable[Object]) -> list[answers.HistoryRecord]:
    """Phase changes (from the job's conditions) and events, oldest first."""
    records = [_phase_update(workload.job, "Creating", "", "")]
    for condition in objects.dig(workload.job, "status.conditions", []):
        phase = _PHASE_BY_CONDITION.get(str(condition.get("type")))
        if phase:
            transition_time = str(condition.get("lastTransitionTime") or "")
            records.append(_phase_update(workload.job, phase, str(condition.get("message") or ""), transition_time))
    records += [_event_record(event, workload.cluster) for event in events]
    return sorted(records, key=lambda r: str(r["meta"]["creationTimestamp"]))


def recorded_history(
    phases: Iterable[tuple[float, str, str]], events: Iterable[Object], cluster: str
) -> list[answers.HistoryRecord]:
    """The same from recorded phases: (Unix seconds, phase, message)."""
    records = [_phase_record(phase, message, objects.micro_timestamp(at)) for at, phase, message in phases]
    records += [_event_record(event, cluster) for event in events]
    return sorted(records, key=lambda r: str(r["meta"]["creationTimestamp"]).rstrip("Z"))


def _event_record(event: Object, cluster: str) -> answers.HistoryRecord:
    return {
        "meta": {"creationTimestamp": event_time(event), "type": "Event"},
        "spec": {"event": event_json(event, cluster)},
    }


def _phase_update(job: Object, phase: str, message: str, transition_time: str) -> answers.HistoryRecord:
    return _phase_record(phase, message, transition_time or str(objects.meta(job).get("creationTimestamp") or ""))


def _phase_record(phase: str, message: str, moment: str) -> answers.HistoryRecord:
    update: answers.PhaseUpdate = {"phase": phase, "phaseMessage": message}
    return {"meta": {"creationTimestamp": moment, "type": "PhaseUpdate"}, "spec": {"phaseUpdate": update}}


def is_undecided(workload: Workload) -> bool:
    """Whether it is pending and the scheduler has given no reason yet."""
    is_pending = workload.status().phase in ("Pending", "Creating") and not is_suspended(workload.job)
    return is_pending and not pending_message(workload.group, workload.pods)[0]


def explanation(workload: Workload, events: Iterable[Object]) -> answers.ExplanationFields:
    """Why the workload is in its phase: the scheduler's message and record, its eviction, and warnings."""
    status = workload.status()
    message, reason = pending_message(workload.group, workload.pods)
    group = workload.group or {}
    is_waiting = status.phase in ("Pending", "Creating")
    sentence = (message or _step_sentence(workload) if is_waiting else status.message) or ""
    if status.phase in ("Stopping", "Stopped"):
        sentence = suspended_sentence(workload.job)
    if is_queued(workload.job):
        sentence = queued_sentence(workload.job)
    if is_waiting and is_suspended(workload.job):
        sentence = order_sentence(workload.job) or sentence
    core_message = sentence.partition(": ")[2] or sentence
    all_events = list(events)
    warnings = [
        e
        for e in all_events
        if e.get("type") == "Warning" and not (core_message and core_message in str(e.get("message")))
    ]
    if not is_waiting:
        warnings = [e for e in warnings if e.get("reason") not in _WAITING_REASONS]  # it no longer waits
    evictions = [e for e in all_events if e.get("reason") == "Evict" and _regarding_uid(e) == objects.uid(workload.job)]
    return {
        "name": objects.name(workload.job),
        "projectName": workload.project.name,
        "phase": status.phase,
        "since": status.since,
        "reason": (reason if is_waiting else status.reason) or "",
        "message": sentence,
        "podGroup": objects.name(group),
        "minMember": objects.dig(group, "spec.minMember"),
        "queue": objects.dig(group, "spec.queue", workload.project.queue),
        "record": objects.dig(group, "status.explanation", {}) if is_waiting else {},
        "evicted": event_json(evictions[-1], workload.cluster) if is_waiting and evictions else None,
        "warnings": [event_json(e, workload.cluster) for e in warnings[-5:]],
    }


def create_failure_message(messages: Mapping[str, str], uid: str, parts: Sequence[str]) -> str:
    """Why a pod of the workload of this uid, or a part of it, could not be created; "" if all could. `messages`: those of
    `create_failure_messages`; `parts`: the uids of its parts, each after its owner: what the last one says is why the others wait."""
    return next((messages[one] for one in (*reversed(parts), uid) if one in messages), "") if messages else ""


def create_failure_messages(events: Iterable[Object]) -> dict[str, str]:
    """Uid of a job or of a part → why something that it makes could not be created; for all in one pass over the events."""
    newest: dict[str, Object] = {}
    for event in events:
        if tells_failed_create(event):
            uid = _regarding_uid(event)
            if uid not in newest or event_order(event) > event_order(newest[uid]):
                newest[uid] = event
    return {uid: str(event.get("message") or "") for uid, event in newest.items()}


def explain_workload(workload: Workload, diagnosis: dict[str, Any], events: Iterable[Object] = ()) -> dict[str, Any]:
    """What happened to the workload, in one sentence, with the diagnosis (`incidents`, `verdict`, `ranks`) and stops."""
    status = workload.status()
    name, all_events = objects.name(workload.job), list(events)
    verdict = diagnosis["verdict"]
    failures = [i["sentence"] for i in diagnosis["incidents"] if not i.get("asked")]
    last_failure = failures[-1] if failures else ""
    message, remarks = status.message or "", [str(r["sentence"]) for r in diagnosis.get("remarks", ())]
    if status.phase in ("Pending", "Creating"):
        sentence = _waiting_sentence(workload, all_events, last_failure)
    elif status.phase in ("Stopping", "Stopped"):
        sentence = suspended_sentence(workload.job) + (f" Before that: {last_failure}" if last_failure else "")
    elif status.phase == "Failed":
        sentence = (
            end_reason(workload.job)
            or last_failure
            or message
            or "It failed, and no rank left an exit code or a log here."
        )
    elif verdict is not None and verdict["kind"] not in ("moving", "blind"):
        sentence = verdict["sentence"]
    elif status.phase == "Completed":
        sentence = completed_sentence(remarks, last_failure)
    elif verdict is not None and verdict["kind"] == "blind":
        sentence = last_failure or verdict["sentence"]  # prefer what is known
    elif verdict is not None:
        sentence = f"{verdict['sentence']} Before that: {last_failure}" if last_failure else verdict["sentence"]
    else:
        sentence = last_failure or message or "No problem was found."
    if status.phase in ("Running", "Degraded", "Initializing") and (step := waiting_step(workload.job, workload.pods)):
        sentence = sentence if step in sentence else join_sentences(sentence, step)
    if status.phase in ("Running", "Degraded") and (outlived := outlived_sentence(workload.job, workload.pods)):
        sentence = sentence if outlived in sentence else join_sentences(sentence, outlived)
    if status.phase in ("Running", "Degraded"):
        sentence = join_sentences(sentence, *map(objects.as_sentence, remarks))
    if last_failure and (decided := decided_sentence(workload.job)):
        sentence = join_sentences(sentence, decided)
    return {"name": name, "phase": status.phase, "sentence": sentence, **diagnosis, "ends": stops_of(all_events)}


def stops_of(events: Iterable[Object]) -> list[answers.ContainerStop]:
    """How stopped containers ended: the action and the grace period. From the kubelet's events, oldest first."""
    return [
        {
            "pod": (event.get("involvedObject") or {}).get("name") or "",
            "at": event_time(event),
            "sentence": str(event.get("message") or ""),
            "count": _times(event),
        }
        for event in events
        if event.get("reason") == _STOPPED and _is_about_pod(event)
    ]


def completed_sentence(remarks: Sequence[str], last_failure: str = "", good: str = _GOOD_END) -> str:
    """The sentence for a completed workload. `remarks` are clauses that follow "It completed, but"; `last_failure` is about an earlier
    attempt; `good` is returned if there is neither."""
    doubts = [*remarks, *([f"before that: {last_failure}"] if last_failure else [])]
    return f"It completed, but {'; '.join(doubts).removesuffix('.')}." if doubts else good


def explain_good_end(name: str, diagnosis: dict[str, Any]) -> dict[str, Any]:
    """The answer of `explain_workload` for a workload that completed without incidents."""
    return {"name": name, "phase": "Completed", "sentence": _GOOD_END, **diagnosis, "ends": []}


def queued_sentence(job: Object) -> str:
    """The sentence for a pending job that another scheduler starts; the reason is in that scheduler's objects."""
    return (
        f"It waits for {objects.annotations(job)[STARTED_BY_ANNOTATION]}, which starts it when its queue has room:"
        f" `kubectl describe workloads -n {objects.namespace(job)}` says why it waits."
    )


def suspended_sentence(job: Object) -> str:
    """Why it is suspended, and how it starts again."""
    name, annotations = objects.name(job), objects.annotations(job)
    if reason := annotations.get(EARLY_STOP_ANNOTATION):
        return f"Its sweep stopped it early: {reason[:_LONGEST_REASON]}. `rowlock resume {name}` starts it again."
    if sweep := annotations.get(STOPPED_WITH_SWEEP_ANNOTATION):
        return f"It was stopped with its sweep: `rowlock sweep resume {sweep[:_LONGEST_REASON]}` starts it again."
    return f"It is suspended: `rowlock resume {name}` starts it again."


def _step_sentence(workload: Workload, last_failure: str = "") -> str:
    """Why a workload does not run that the scheduler does not hold up: the delay after a failure, what its next step waits for; "" for
    other reasons."""
    job, pods = workload.job, workload.pods
    retry = retry_sentence(job, pods, last_failure) if has_jobs(job) else ""
    return join_sentences(retry, waiting_step(job, pods))


def _waiting_sentence(workload: Workload, events: Sequence[Object], last_failure: str = "") -> str:
    """Why it does not run yet; and why it was evicted, if it was. `last_failure`: the sentence about its last failure."""
    message, _ = pending_message(workload.group, workload.pods)
    if is_queued(workload.job):
        return queued_sentence(workload.job)
    if is_suspended(workload.job) and (order := order_sentence(workload.job)):
        return order
    failure = create_failure_message(create_failure_messages(events), objects.uid(workload.job), workload.part_uids)
    message = message or failure or _step_sentence(workload, last_failure)
    message = message or "It has not been scheduled yet."
    evictions = [e for e in events if e.get("reason") == "Evict" and _regarding_uid(e) == objects.uid(workload.job)]
    if not evictions:
        return message
    return f"{message} It was evicted, and starts again when resources are free: {str(evictions[-1].get('message')).splitlines()[0]}"
