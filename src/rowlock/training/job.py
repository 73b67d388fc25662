"""The life of a job, the same for every framework: `reconcile(framework, seen, now) -> Decision`.

A look at a job goes: is it ours? finished? suspended? resumed? over a limit? If none of these, make and count its
pods and services type by type, let the framework judge the counts, write the status. Everything is decided anew from
what is seen, so a restart, a missed change or a second look does no harm.
"""

from __future__ import annotations

from rowlock.api import NOTHING, Decision
from rowlock.objects import deleting
from rowlock.training.cleanup import clean_pods, lingering, time_to_live
from rowlock.training.conditions import CREATED, FAILED, RUNNING, SUCCEEDED, SUSPENDED
from rowlock.training.defaults import read, run_policy
from rowlock.training.framework import DEFAULT, Framework, Job, Parity, Replica, by_type
from rowlock.training.limits import exceeded, time_left
from rowlock.training.replicas import sync_pods
from rowlock.training.services import adopt, sync_services
from rowlock.training.trouble import mirror
from rowlock.training.turn import Seen, Turn


def reconcile(framework: Framework, seen: Seen, now: float, parity: Parity = DEFAULT) -> Decision:
    """What to do about one job now."""
    if framework.honours_manager and not run_policy(seen.job.get("spec") or {}).ours:
        return NOTHING
    wrong = framework.validate(seen.job.get("spec") or {})
    job = read(framework, seen.job)
    turn = Turn(job, seen, now, parity)
    if wrong:
        turn.tell("Warning", "FailedValidation", f"{framework.kind.name} failed validation because {wrong}")
        return turn.leave()
    if not job.replicas or deleting(seen.job) or _has_no_containers(job):
        return NOTHING
    if seen.as_created:
        turn.put(CREATED, "Created", f"{framework.kind.name} {job.name} is created.")
    framework.before(turn)
    if turn.holds(SUCCEEDED) or turn.holds(FAILED):
        return _finished(turn)
    if job.policy.suspend:
        return _suspended(turn)
    if turn.holds(SUSPENDED):
        _resume(turn)
    return _active(turn)


def _has_no_containers(job: Job) -> bool:
    """The operator's defaulting breaks on a replica without containers, so such a job stays as it is. Webhooks refuse
    one; scaling a job that has no Workers makes one."""
    templates = (replica.template for replica in job.replicas.values() if job.framework.port.number)
    return any(not (template.get("spec") or {}).get("containers") for template in templates)


def _finished(turn: Turn) -> Decision:
    left = time_to_live(turn)
    if left is not None and left <= 0:
        clean_pods(turn, turn.job.policy.clean)
        turn.delete_job()
        return turn.leave()
    wait = lingering(turn)
    if wait is None:
        clean_pods(turn, turn.job.policy.clean)
    if turn.holds(SUCCEEDED):
        for counts in turn.counts.values():
            counts["succeeded"] = counts.get("succeeded", 0) + counts.pop("active", 0)
    return turn.finish(left if wait is None else wait)


def _suspended(turn: Turn) -> Decision:
    clean_pods(turn, "All")
    for counts in turn.counts.values():
        counts["active"] = 0
    message = f"{turn.job.framework.kind.name} {turn.job.name} is suspended."
    if turn.holds(RUNNING):
        turn.put(RUNNING, "Suspended", message, "False")
    if not turn.holds(SUSPENDED):
        turn.put(SUSPENDED, "Suspended", message)
    turn.tell("Normal", "Suspended", message)
    return turn.finish()


def _resume(turn: Turn) -> None:
    message = f"{turn.job.framework.kind.name} {turn.job.name} is resumed."
    turn.put(SUSPENDED, "Resumed", message, "False")
    turn.started(again=True)
    turn.tell("Normal", "Resumed", message)


def _active(turn: Turn) -> Decision:
    mirror(turn)
    why = exceeded(turn)
    if why:
        return _over(turn, why)
    framework = turn.job.framework
    if framework.adopts_services:
        adopt(turn)
    if framework.sync:
        if not framework.sync(turn):
            return turn.leave(stuck=True)
    else:
        services = by_type(turn.seen.services)
        for replica in _in_turn(turn):
            sync_pods(turn, replica, turn.pods.get(replica.label, []))
            sync_services(turn, replica, services.get(replica.label, []))
    turn.judging = True
    framework.judge(turn)
    left = time_left(turn) if turn.parity.deadline_timer else None
    return turn.finish(None if turn.holds(SUCCEEDED) or turn.holds(FAILED) else left)


def _in_turn(turn: Turn) -> list[Replica]:
    """The replica types, another one first at each look: where the pods of one are refused the others get theirs in the
    end. (The operator's order is random.)"""
    types = list(turn.job.replicas.values())
    first = turn.seen.looks % len(types)
    return types[first:] + types[:first]


def _over(turn: Turn, why: str) -> Decision:
    turn.completed()
    turn.tell("Normal", "Failed", why)
    turn.put(FAILED, "Failed", why)
    clean_pods(turn, turn.job.policy.clean)
    left = time_to_live(turn)
    if left is not None and left <= 0:
        turn.delete_job()
        return turn.leave()
    return turn.finish(left)
