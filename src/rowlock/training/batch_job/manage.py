"""Keeps the right number of pods: up to the parallelism, no more than are still wanted, none while suspended. Pure."""

from __future__ import annotations

from rowlock.training.batch_job import indexes
from rowlock.training.batch_job.delays import remaining_delay
from rowlock.training.batch_job.look import Look
from rowlock.training.batch_job.pods import finished_at, index_failures, index_of, is_terminating, surplus
from rowlock.training.batch_job.template import build_pod
from rowlock.training.dependents.pods import pods_per_look

MAX_PODS_PER_LOOK = 500
"""Maximum of pods that one reconcile creates or removes; the next one continues."""


def manage_pods(look: Look) -> None:
    """Remove surplus pods or create missing ones, never both in one reconcile."""
    job = look.job
    if job.is_suspended:
        look.remove_pods(look.active_pods)
        return
    wanted = _wanted_pods(look)
    removed = surplus(look.active_pods, job, max(0, look.active - wanted))[:MAX_PODS_PER_LOOK]
    if removed:
        look.remove_pods(removed)
        return
    terminating = look.terminating if job.replaces_only_failed else 0
    missing = min(wanted - terminating - look.active, MAX_PODS_PER_LOOK, pods_per_look(job.template))
    if missing > 0:
        _make_pods(look, missing)


def _wanted_pods(look: Look) -> int:
    """The wanted number of active pods. A work queue gets no new pods after the first success: the others end by themselves."""
    job = look.job
    if job.completions is None:
        return look.active if look.succeeded else job.parallelism
    return max(0, min(job.parallelism, job.completions - look.succeeded))


def _make_pods(look: Look, count: int) -> None:
    job = look.job
    if job.limit_per_index is None and (delay := look.memory.remaining_delay(look.now)) > 0:
        look.wait(delay)
        return
    if not job.is_indexed:
        for _ in range(count):
            look.create(build_pod(job))
        return
    missing = _missing_indexes(look, count)
    delays = {index: _index_delay(look, index) for index in missing}
    ready = [index for index in missing if delays[index] <= 0]
    if missing and not ready:
        look.wait(min(delays.values()))
        return
    waiting = [delay for delay in delays.values() if delay > 0]
    if waiting:
        look.look_again(min(waiting))
    for index in ready:
        look.create(build_pod(job, index, look.delayed_pods.get(index)))


def _missing_indexes(look: Look, count: int) -> list[int]:
    """The lowest `count` indexes that neither run nor have ended."""
    job = look.job
    held = [p for p in look.pods if is_terminating(p)] if job.replaces_only_failed else []
    numbers = (index for p in (*look.active_pods, *held) if (index := index_of(p, job)) is not None)
    taken = look.succeeded_indexes | indexes.of_numbers(numbers)
    if look.failed_indexes is not None:
        taken |= look.failed_indexes
    return taken.lowest_missing(count, job.completions or 0)


def _index_delay(look: Look, index: int) -> float:
    """Seconds until the failed pod of an index may be replaced; 0 if there is none, or failures are not limited per index."""
    failed = look.delayed_pods.get(index)
    if failed is None:
        return 0.0
    return remaining_delay(sum(index_failures(failed)) + 1, finished_at(failed), look.now)
