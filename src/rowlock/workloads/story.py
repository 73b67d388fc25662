"""What happened to a workload: its events, its history of phases, and the scheduler's last word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.phase import pending
from rowlock.workloads.present import Workload

_PHASES = {
    "Created": "Pending", "Running": "Running", "Restarting": "Degraded", "Suspended": "Stopped",
    "Succeeded": "Completed", "Failed": "Failed",
}  # fmt: skip
"""A job's condition as the phase that began with it."""


_WAITS = frozenset({"FailedScheduling", "Unschedulable"})
"""Reasons of events that say why something waits."""


def event_time(event: Object) -> str:
    again = objects.dig(event, "series.lastObservedTime")
    if again:
        return str(again)
    for field in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(field):
            return str(event[field])
    return str(objects.meta(event).get("creationTimestamp") or "")


def event_order(event: Object) -> tuple[str, int]:
    """Most times have whole seconds; within one, the order of writes."""
    return event_time(event)[:19], objects.revision(event)


def concerns(event: Object, workload: Workload) -> bool:
    """True when the event is about the job, one of its pods (gone ones too, by name) or its pod group."""
    regarding = event.get("involvedObject") or {}
    if regarding.get("namespace") != objects.namespace(workload.job):
        return False
    job, name = workload.job, str(regarding.get("name") or "")
    if regarding.get("kind") == "Pod":
        known = {objects.uid(p) for p in workload.pods}
        mine = name.startswith(f"{objects.name(job)}-") and event_time(event) >= str(
            objects.meta(job).get("creationTimestamp") or ""
        )
        return regarding.get("uid") in known or (mine and _role_of(name, objects.name(job)))
    if regarding.get("kind") == "PodGroup":
        return name == f"pg-{objects.name(job)}-{objects.uid(job)}"
    return bool(regarding.get("uid")) and regarding.get("uid") == objects.uid(job)


def _about(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("uid") or "")


def _role_of(pod: str, job: str) -> bool:
    role, _, number = pod[len(job) + 1 :].partition("-")
    return role in ("master", "worker", "chief", "ps", "launcher", "evaluator") and (number.isdigit() or not number)


def present_event(event: Object, cluster: str) -> dict[str, Any]:
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
        "count": event.get("count") or objects.dig(event, "series.count") or 1,
        "involvedObject": {field: regarding.get(field, "") for field in ("uid", "kind", "name", "namespace")},
    }


def history(workload: Workload, events: Iterable[Object]) -> list[dict[str, Any]]:
    """Phase changes (from the job's conditions) and events, oldest first."""
    records = [_update(workload.job, "Creating", "", "")]
    for condition in objects.dig(workload.job, "status.conditions", []):
        phase = _PHASES.get(str(condition.get("type")))
        if phase:
            when = str(condition.get("lastTransitionTime") or "")
            records.append(_update(workload.job, phase, str(condition.get("message") or ""), when))
    for event in events:
        meta = {"creationTimestamp": event_time(event), "type": "Event"}
        records.append({"meta": meta, "spec": {"event": present_event(event, workload.cluster)}})
    return sorted(records, key=lambda r: str(r["meta"]["creationTimestamp"]))


def _update(job: Object, phase: str, message: str, when: str) -> dict[str, Any]:
    moment = when or str(objects.meta(job).get("creationTimestamp") or "")
    update = {"phase": phase, "phaseMessage": message}
    return {"meta": {"creationTimestamp": moment, "type": "PhaseUpdate"}, "spec": {"phaseUpdate": update}}


def undecided(workload: Workload) -> bool:
    """It waits, and nobody has said why yet."""
    return workload.standing().phase in ("Pending", "Creating") and not pending(workload.group, workload.pods)[0]


def explanation(workload: Workload, events: Iterable[Object]) -> dict[str, Any]:
    """Why the workload stands where it stands: the scheduler's sentence and its record as it is, and who took its place."""
    now = workload.standing()
    message, reason = pending(workload.group, workload.pods)
    group = workload.group or {}
    waiting = now.phase in ("Pending", "Creating")
    sentence = (message if waiting else now.message) or ""
    if now.phase in ("Stopping", "Stopped"):
        sentence = suspended(objects.name(workload.job))
    said = sentence.partition(": ")[2] or sentence
    known = list(events)
    warnings = [e for e in known if e.get("type") == "Warning" and not (said and said in str(e.get("message")))]
    if not waiting:
        warnings = [e for e in warnings if e.get("reason") not in _WAITS]  # it waited once; that is over
    evicted = [e for e in known if e.get("reason") == "Evict" and _about(e) == objects.uid(workload.job)]
    return {
        "name": objects.name(workload.job),
        "projectName": workload.project.name,
        "phase": now.phase,
        "since": now.since,
        "reason": (reason if waiting else now.reason) or "",
        "message": sentence,
        "podGroup": objects.name(group),
        "minMember": objects.dig(group, "spec.minMember"),
        "queue": objects.dig(group, "spec.queue", workload.project.queue),
        "record": objects.dig(group, "status.explanation", {}) if waiting else {},
        "evicted": present_event(evicted[-1], workload.cluster) if waiting and evicted else None,
        "warnings": [present_event(e, workload.cluster) for e in warnings[-5:]],
    }


def unmade(job: Object, events: Iterable[Object]) -> str:
    """Why a pod of the job could not be made, by the operator's last word on it; "" when it did not say."""
    said = [e for e in events if _about(e) == objects.uid(job) and str(e.get("reason")).startswith("FailedCreate")]
    return str(max(said, key=event_order).get("message") or "") if said else ""


def why(workload: Workload, inquest: dict[str, Any], events: Iterable[Object] = ()) -> dict[str, Any]:
    """What happened, in one sentence, over the record of an inquest (`incidents`, `verdict`, `ranks`)."""
    now = workload.standing()
    name, known = objects.name(workload.job), list(events)
    verdict = inquest["verdict"]
    failures = [i["sentence"] for i in inquest["incidents"] if not i.get("asked")]
    last = failures[-1] if failures else ""
    said = now.message or ""
    if now.phase in ("Pending", "Creating"):
        sentence = _waits(workload, known)
    elif now.phase in ("Stopping", "Stopped"):
        sentence = suspended(name) + (f" Before that: {last}" if last else "")
    elif now.phase == "Failed":
        sentence = last or said or "It failed, and none of its ranks left a trace here."
    elif verdict is not None and verdict["kind"] != "moving":
        sentence = verdict["sentence"]
    elif now.phase == "Completed":
        sentence = f"It completed; along the way: {last}" if last else "It completed; no rank failed."
    elif verdict is not None:
        sentence = f"{verdict['sentence']} Before that: {last}" if last else verdict["sentence"]
    else:
        sentence = last or said or "Nothing is wrong that could be seen."
    return {"name": name, "phase": now.phase, "sentence": sentence, **inquest}


def suspended(job: str) -> str:
    return f"It is suspended: `rowlock resume {job}` starts it again."


def _waits(workload: Workload, events: Sequence[Object]) -> str:
    """Why it does not run yet; and for whom it made room, when it ran before."""
    message, _ = pending(workload.group, workload.pods)
    message = message or unmade(workload.job, events) or "It has not been scheduled yet."
    gone = [e for e in events if e.get("reason") == "Evict" and _about(e) == objects.uid(workload.job)]
    if not gone:
        return message
    return f"{message} It ran before, and goes on when there is room: {str(gone[-1].get('message')).splitlines()[0]}"
