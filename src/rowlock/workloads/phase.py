"""Derives one of Run:ai's phases from a job, its pods and its pod group, with a sentence that explains it.

The table of phases; the first row that matches counts:

    the job is being deleted                          Deleting
    condition Succeeded / Failed                      Completed / Failed
    suspended, waits for a queue to start it (Kueue)  Pending
    suspended, waits for other jobs or for a time     Pending
    suspended, with pods / without                    Stopping / Stopped
    resumed, the operator has not seen it yet         Resuming
    no pod group and no pods yet                      Creating
    every wanted pod runs (or has succeeded); in it
      containers may have ended with 0 beside others  Running
    a pod that runs beside one that failed, is
      missing or cannot run, or in which a container
      failed beside others that run                   Degraded
    the minimum of an elastic job runs, while others
      wait for a node                                 Degraded
    a pod is missing or not bound to a node           Pending
    all have succeeded, and a step of a set waits     Pending
    all bound, not all ready                          Initializing

The words for `STATUS` (V1's and kubectl's) come from the pods: a container's reason takes precedence over the pod's phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.answers.workloads import Phase
from rowlock.objects import Object
from rowlock.scheduling.model.from_objects import LAST_START_ANNOTATION
from rowlock.training.jobset.dependencies import waiting_sentence
from rowlock.training.jobset.model import REPLICATED_JOB_KEY
from rowlock.workloads.frameworks import (
    desired_pods,
    has_jobs,
    is_set,
    is_suspended,
    main_container_name,
    replica_specs,
    replicated_job,
    succeeded_condition,
)
from rowlock.workloads.run_options.retries import decided_of
from rowlock.workloads.run_options.start_order import order_sentence
from rowlock.workloads.run_options.time_limit import end_reason

STOPPED_BY_ANNOTATION = "rowlock.dev/stopped-by"
"""Annotation of a job that was suspended or deleted through the REST API: the command that did it, if it sent its name."""
EARLY_STOP_ANNOTATION = "rowlock.dev/sweep-stopped-early"
"""Annotation of a run that its sweep has suspended because others are better: the reason."""
STOPPED_WITH_SWEEP_ANNOTATION = "rowlock.dev/stopped-with-sweep"
"""Annotation of a run that was suspended with its sweep, and is resumed with it: the name of the sweep."""
FAILURE_ANNOTATION = "rowlock.dev/first-failure"
"""On a failed job of a real cluster: the sentence about the pod that failed first, written before its pods are stopped."""
STARTED_BY_ANNOTATION = "rowlock.dev/started-by"
"""Annotation of a job that was submitted suspended: the scheduler that will unsuspend it."""
TERMINAL = frozenset({"Completed", "Failed"})
V1_STATUSES: dict[Phase, str] = {
    "Creating": "Pending", "Pending": "Pending", "Resuming": "Pending", "Initializing": "ContainerCreating",
    "Running": "Running", "Degraded": "Error", "Stopping": "Terminating", "Stopped": "Suspended",
    "Completed": "Succeeded", "Failed": "Failed", "Deleting": "Terminating",
}  # fmt: skip
"""Phase → the word of `runai list jobs`, unless a pod's own status is shown."""
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_NEVER_RAN = ("StartError", "ContainerCannotRun")
_CREATION_REASONS = ("CreateContainerError", "CreateContainerConfigError", "RunContainerError")
_BROKEN = frozenset({"CrashLoopBackOff", "Error", "Failed", "OOMKilled", *_CREATION_REASONS, *_IMAGE_REASONS})


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """A workload's status. `since` is when the phase began, as far as the objects tell; `status` is V1's word."""

    phase: Phase
    message: str
    reason: str
    since: str
    status: str


def workload_status(job: Object, pods: Sequence[Object], group: Object | None) -> WorkloadStatus:
    """The workload's status, derived from the objects alone."""
    phase, condition = _phase_and_condition(job, pods, group)
    message, reason = _explanation(job, pods, group, phase, condition)
    since = str((condition or {}).get("lastTransitionTime") or _last_transition(job, pods))
    word = "Running" if phase == "Degraded" and _waits_to_grow(job, pods, group) else _v1_status(phase, pods)
    return WorkloadStatus(phase, message, reason, since, word)


def phase_of(job: Object, pods: Sequence[Object], group: Object | None) -> Phase:
    """The phase, without its message."""
    return _phase_and_condition(job, pods, group)[0]


def phase_and_message(job: Object, pods: Sequence[Object], group: Object | None) -> tuple[Phase, str]:
    """The phase and its message, without the rest of the status."""
    phase, condition = _phase_and_condition(job, pods, group)
    return phase, _explanation(job, pods, group, phase, condition)[0]


def end_of(job: Object) -> tuple[Phase | None, dict[str, Any] | None]:
    """The phase of a job that is being deleted or has ended, whatever its pods are, and the condition that says so; None for others."""
    if objects.is_deleting(job):
        return "Deleting", None
    ends: tuple[tuple[str, Phase], ...] = ((succeeded_condition(job), "Completed"), ("Failed", "Failed"))
    for kind, phase in ends:
        if objects.is_condition_true(job, kind):
            return phase, objects.condition(job, kind)
    return None, None


def _phase_and_condition(
    job: Object, pods: Sequence[Object], group: Object | None
) -> tuple[Phase, dict[str, Any] | None]:
    end, condition = end_of(job)
    if end is not None:
        return end, condition
    if is_queued(job) or (is_suspended(job) and order_sentence(job)):
        return "Pending", objects.condition(job, "Suspended")
    if is_suspended(job):
        if has_jobs(job):  # pods that have ended are kept
            pods = [pod for pod in pods if objects.phase(pod) not in objects.FINAL_PHASES]
        return ("Stopping" if pods else "Stopped"), objects.condition(job, "Suspended")
    if objects.is_condition_true(job, "Suspended"):
        return "Resuming", None
    if group is None and not pods:
        return "Creating", None
    return _active_phase(job, pods, group)


def is_stopped_early(job: Object) -> bool:
    """Whether it is a run that its sweep has stopped because others are better."""
    return EARLY_STOP_ANNOTATION in objects.annotations(job) and is_suspended(job)


def is_queued(job: Object) -> bool:
    """Whether the job is suspended by a scheduler that starts jobs by unsuspending them (Kueue)."""
    return is_suspended(job) and bool(objects.annotations(job).get(STARTED_BY_ANNOTATION))


def _active_phase(job: Object, pods: Sequence[Object], group: Object | None) -> tuple[Phase, dict[str, Any] | None]:
    """The phase of a job that is neither finished nor suspended nor new."""
    desired = _pods_due(job, pods)
    if has_jobs(job):  # failed pods are kept beside their replacements
        pods = [pod for pod in pods if objects.phase(pod) != "Failed"]
    counts = count_pods(pods)
    done_count = counts.running + counts.succeeded
    if counts.running and done_count >= desired and not any(map(_has_failed_in_part, pods)):
        return "Running", objects.condition(job, "Running")
    if counts.running and (counts.failed or len(pods) < desired or _is_broken(pods)):
        return "Degraded", objects.condition(job, "Restarting")
    if _waits_to_grow(job, pods, group):
        return "Degraded", objects.condition(job, "Running")
    if len(pods) < desired or not all((p.get("spec") or {}).get("nodeName") for p in pods):
        return "Pending", None
    if counts.succeeded == len(pods) and waiting_step(job, pods):
        return "Pending", None
    return ("Degraded" if _has_restarted(pods) and _is_broken(pods) else "Initializing"), None


def _pods_due(job: Object, pods: Sequence[Object]) -> int:
    """How many pods the job should have now. Replicated jobs of a set that wait for others have none yet."""
    if not is_set(job):
        return desired_pods(job)
    begun = {objects.labels(pod).get(REPLICATED_JOB_KEY) for pod in pods}
    return sum(int(spec["replicas"]) for name, spec in replica_specs(job).items() if name in begun) or desired_pods(job)


def _waits_to_grow(job: Object, pods: Sequence[Object], group: Object | None) -> bool:
    """Whether an elastic job runs with its minimum or more, and its only problem is that other pods wait for a node."""
    if is_set(job):  # a set has a gang per step, and none of them is elastic
        return False
    desired, minimum = desired_pods(job), int(objects.dig(group or {}, "spec.minMember", 0) or 0)
    if not 0 < minimum < desired <= len(pods):  # most jobs are not elastic: their pods are not counted
        return False
    counts = count_pods(pods)
    if not counts.running or counts.failed or _is_broken(pods):
        return False
    return counts.running + counts.succeeded >= minimum and any(not objects.dig(p, "spec.nodeName") for p in pods)


def _is_broken(pods: Sequence[Object]) -> bool:
    return any(pod_status(p) in _BROKEN for p in pods)


def _has_restarted(pods: Sequence[Object]) -> bool:
    return any((s.get("restartCount") or 0) > 0 for p in pods for s in _container_statuses(p))


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Counts of pods. `running` means that every container runs, or has ended for good beside one that runs."""

    running: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0


def count_pods(pods: Sequence[Object]) -> PodCounts:
    running = succeeded = failed = 0
    for pod in pods:
        phase = objects.phase(pod)
        if phase == "Succeeded":
            succeeded += 1
        elif phase == "Failed":
            failed += 1
        elif is_running(pod) or _runs_in_part(pod):
            running += 1
    return PodCounts(running, len(pods) - running - succeeded - failed, succeeded, failed)


def is_running(pod: Object) -> bool:
    """Whether the pod and all its containers run, and it is not being deleted."""
    return (
        objects.phase(pod) == "Running"
        and not objects.is_deleting(pod)
        and all((s.get("state") or {}).get("running") is not None for s in _container_statuses(pod))
    )


def _runs_in_part(pod: Object) -> bool:
    """Whether some of the pod's containers have ended for good, and all others run."""
    ended, running = _ended_and_running(pod)
    return bool(ended and running) and len(ended) + len(running) == len(_container_statuses(pod))


def _has_failed_in_part(pod: Object) -> bool:
    ended, running = _ended_and_running(pod)
    return bool(running) and any(objects.dig(each, "state.terminated.exitCode", 0) for each in ended)


def _ended_and_running(pod: Object) -> tuple[list[Object], list[Object]]:
    """The statuses of the containers of a running pod that have ended and are not started again, and of those that run."""
    statuses = _container_statuses(pod)
    if objects.phase(pod) != "Running" or objects.is_deleting(pod) or len(statuses) < 2:
        return [], []
    policy = objects.dig(pod, "spec.restartPolicy", "Always")
    terminated = [(each, objects.dig(each, "state.terminated")) for each in statuses]
    ended = [
        status
        for status, end in terminated
        if end is not None and (policy == "Never" or (policy == "OnFailure" and not end.get("exitCode")))
    ]
    return ended, [each for each in statuses if (each.get("state") or {}).get("running") is not None]


def has_main_ended(job: Object, pod: Object) -> bool:
    """Whether the pod's main container has ended with exit code 0, for good: with the pod, or while others of its containers run."""
    if objects.phase(pod) == "Succeeded":
        return True
    main = main_container_name(job, pod)
    return any(
        each.get("name") == main and not objects.dig(each, "state.terminated.exitCode", 0)
        for each in _ended_and_running(pod)[0]
    )


def outlived_sentence(job: Object, pods: Sequence[Object]) -> str:
    """Which main container has ended while others of its pod run, so that the pod, and the job, go on; "" if none has."""
    found = []
    for pod in pods:
        ended, running = _ended_and_running(pod)
        if not ended or not running:
            continue
        main = main_container_name(job, pod)
        end = next((each["state"]["terminated"] for each in ended if each.get("name") == main), None)
        if end is not None:
            found.append((pod, main, end, [str(each.get("name")) for each in running]))
    if not found:
        return ""
    pod, main, end, others = found[0]
    at = f" at {end['finishedAt']}" if end.get("finishedAt") else ""
    verb, they = ("runs", "that one ends") if len(others) == 1 else ("run", "those end")
    more = f" (as in {len(found) - 1} more of its pods)" if len(found) > 1 else ""
    return (
        f"Container {main} of pod {objects.name(pod)} ended with exit code {end.get('exitCode', 0)}{at}, but {' and '.join(others)}"
        f" still {verb} in that pod{more}: the pod stays Running until {they}. A helper that should end with the main container"
        " belongs in initContainers, with restartPolicy Always (a native sidecar)."
    )


def _container_statuses(pod: Object) -> list[dict[str, Any]]:
    return list(objects.dig(pod, "status.containerStatuses", []))


def pod_status(pod: Object) -> str:
    """kubectl's STATUS column, simplified: a container's reason, else the pod's phase."""
    if objects.is_deleting(pod):
        return "Terminating"
    for status in objects.dig(pod, "status.initContainerStatuses", []):
        state = status.get("state") or {}
        if "terminated" not in state and objects.phase(pod) == "Pending" and state:
            total = len(objects.dig(pod, "spec.initContainers", []))
            reason = (state.get("waiting") or {}).get("reason", "")
            return f"Init:{reason}" if reason in (*_IMAGE_REASONS, *_CREATION_REASONS) else f"Init:0/{total}"
    for status in _container_statuses(pod):
        state = status.get("state") or {}
        if reason := (state.get("waiting") or {}).get("reason"):
            return str(reason)
        if terminated := state.get("terminated"):
            return _termination_text(terminated)
    bound_but_waiting = objects.phase(pod) == "Pending" and objects.dig(pod, "spec.nodeName", "")
    return "ContainerCreating" if bound_but_waiting else str(objects.dig(pod, "status.reason") or objects.phase(pod))


def _termination_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _v1_status(phase: Phase, pods: Sequence[Object]) -> str:
    """V1's word for the job: that of a broken or initializing pod, if the phase allows it, else that of the phase."""
    if phase not in ("Initializing", "Degraded", "Pending"):
        return V1_STATUSES.get(phase, phase)
    for pod in pods:
        word = pod_status(pod)
        if word in _BROKEN or (phase == "Initializing" and word.startswith("Init:")):
            return word
    return V1_STATUSES[phase]


def _last_transition(job: Object, pods: Sequence[Object]) -> str:
    """The latest transition time of the conditions of job and pods, or the creation time."""
    times = [str(c.get("lastTransitionTime") or "") for c in objects.dig(job, "status.conditions", [])]
    times += [str(c.get("lastTransitionTime") or "") for p in pods for c in objects.dig(p, "status.conditions", [])]
    times.append(str(objects.meta(job).get("creationTimestamp") or ""))
    return max(times)


# ---------------------------------------------------------------- messages


def _explanation(
    job: Object, pods: Sequence[Object], group: Object | None, phase: str, condition: dict[str, Any] | None
) -> tuple[str, str]:
    """(message, reason) for the phase; both "" if there is nothing to explain."""
    if phase in ("Completed", "Failed"):
        if phase == "Failed" and (reason := end_reason(job)):
            return reason, str((condition or {}).get("reason") or "")
        told = str(objects.annotations(job).get(FAILURE_ANNOTATION) or "")
        failure = (first_failure(pods) or told) if phase == "Failed" else _failure_sentence(_failures(pods, "state"))
        decided = decided_of(job)  # the operator's message would be about the deadline that ends the job
        operator = (
            decided.sentence if decided.stops and phase == "Failed" else str((condition or {}).get("message") or "")
        )
        message = " ".join(filter(None, (failure, operator)))
        return message, str((condition or {}).get("reason") or "")
    if phase in ("Pending", "Creating"):
        if is_suspended(job) and (order := order_sentence(job)):
            return order, "WaitsForItsTurn"
        message, reason = pending_message(group, pods)
        if not message and has_jobs(job):
            return join_sentences(retry_sentence(job, pods), waiting_step(job, pods) if phase == "Pending" else ""), ""
        return f"{_eviction_note(group)}{message}", reason
    if phase == "Degraded" and _waits_to_grow(job, pods, group):
        message, reason = pending_message(group, pods)
        running = f"Meanwhile {count_pods(pods).running} of {desired_pods(job)} pods run."
        return f"{message} {running}".strip(), reason
    if phase in ("Initializing", "Degraded"):
        message, reason = _container_sentence(pods)
        return join_sentences(message, waiting_step(job, pods), outlived_sentence(job, pods)), reason
    return join_sentences(waiting_step(job, pods), outlived_sentence(job, pods)) if phase == "Running" else "", ""


def join_sentences(*sentences: str) -> str:
    """Those that are not empty, as one text. A message of a kubelet has no full stop; one that another sentence follows gets it."""
    *before, last = list(filter(None, sentences)) or [""]
    return " ".join([*(text if text[-1] in ".!?" else f"{text}." for text in before), last])


def waiting_step(job: Object, pods: Sequence[Object]) -> str:
    """Which replicated job of a set has not begun because it waits for others, and for what; "" if none, and for other jobs."""
    return waiting_sentence(job, {objects.labels(pod).get(REPLICATED_JOB_KEY) for pod in pods}) if is_set(job) else ""


def retry_sentence(job: Object, pods: Sequence[Object], failure: str = "") -> str:
    """Why a batch/v1 Job, or one of a set, has no pod now: the back-off delay after a failure; "" if it has one. `failure`: a sentence
    about that failure, if more is known of it than the pod's status says."""
    failed = sorted(
        (p for p in pods if objects.phase(p) == "Failed"), key=lambda p: str(objects.meta(p)["creationTimestamp"])
    )
    if not failed or any(objects.phase(p) in ("Pending", "Running") for p in pods):
        return ""
    role = objects.labels(failed[-1]).get(REPLICATED_JOB_KEY, "")
    spec = objects.dig(replicated_job(job, role), "template.spec", {}) if is_set(job) else job.get("spec") or {}
    limit = spec.get("backoffLimitPerIndex", spec.get("backoffLimit", 6))
    count = f"{len(failed)} {'pod has' if len(failed) == 1 else 'pods have'} failed, {limit} may"
    delay = f"The next pod is made after a delay of 10 s that doubles with each failure ({count})."
    return join_sentences(failure or _failure_sentence(_failures(failed[-1:], "state")), delay)


def first_failure(pods: Sequence[Object]) -> str:
    """A sentence about the pod of a failed job that failed first; "" if none did. Where all containers run again or wait to, their last
    ends count."""
    return _failure_sentence(_failures(pods, "state") or _failures(pods, "lastState"))


def _failure_sentence(failures: Sequence[tuple[str, str, dict[str, Any]]]) -> str:
    if not failures:
        return ""
    _, name, terminated = min(failures, key=lambda end: end[:2])
    if terminated.get("reason") in _NEVER_RAN and terminated.get("message"):
        return f"{name} could not start: {terminated['message']}."
    code = int(terminated["exitCode"])
    description = f"was killed by signal {code - 128}" if 128 < code < 160 else f"ended with exit code {code}"
    return f"{name} {description}{' (OOMKilled)' if terminated.get('reason') == 'OOMKilled' else ''}."


def _failures(pods: Sequence[Object], field: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(time of the end, pod, how it ended) for each container whose `field` of its status is a failure."""
    failures = []
    for pod in pods:
        for status in _container_statuses(pod):
            terminated = (status.get(field) or {}).get("terminated") or {}
            if terminated.get("exitCode"):
                failures.append((str(terminated.get("finishedAt") or ""), objects.name(pod), terminated))
    return failures


def pending_message(group: Object | None, pods: Sequence[Object]) -> tuple[str, str]:
    """The scheduler's (message, reason): from the pod group, else from an unschedulable pod.

    KAI never removes conditions, so those from before the gang's last start are ignored."""
    started = objects.seconds(objects.annotations(group or {}).get(LAST_START_ANNOTATION))
    for condition in reversed(objects.dig(group or {}, "status.schedulingConditions", [])):
        if started and objects.seconds(condition.get("lastTransitionTime")) <= started:
            continue
        reasons = condition.get("reasons") or [{}]
        message = reasons[0].get("message") or condition.get("message")
        if message:
            return str(message), str(reasons[0].get("reason") or condition.get("reason") or "")
    for pod in pods:
        scheduled = objects.condition(pod, "PodScheduled") or {}
        if scheduled.get("status") == "False" and scheduled.get("message"):
            return str(scheduled["message"]), str(scheduled.get("reason") or "")
    return "", ""


def _eviction_note(group: Object | None) -> str:
    """Prefix of the message of a job that our scheduler evicted; "" for others."""
    action = str(objects.dig(group or {}, "status.evicted.action", "") or "")
    if not action:
        return ""
    return "preempted; it starts again when there is room. " if action in ("preempt", "reclaim") else "evicted. "


def _container_sentence(pods: Sequence[Object]) -> tuple[str, str]:
    for pod in pods:
        for status in [*objects.dig(pod, "status.initContainerStatuses", []), *_container_statuses(pod)]:
            waiting = (status.get("state") or {}).get("waiting") or {}
            if waiting.get("message"):
                return f"{objects.name(pod)}: {waiting['message']}", str(waiting.get("reason") or "")
        if objects.phase(pod) == "Failed":
            message = objects.dig(pod, "status.message") or f"the pod failed ({pod_status(pod)})."
            return f"{objects.name(pod)}: {message}", pod_status(pod)
    return "", ""
