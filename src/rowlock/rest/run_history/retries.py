"""Ends jobs whose failure is not to be retried (`--retry-on`, `--never-retry-on`), and notes which rule decided.

The operator and the kubelets start failed ranks again, up to the job's backoffLimit. Here each new failure is judged by its root cause.
Level, not edge: what was judged is on the job, so that a new server judges nothing twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Api, LogOptions, WriteOptions
from rowlock.controllers.job_timers import JobTimers
from rowlock.controllers.supervisor import ERRORS
from rowlock.diagnosis.root_cause import RankFailure, failure_from_dict, is_requested_stop, root_cause
from rowlock.errors import ApiError, Conflict, NotFound
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.run_options.retries import FailureFacts, RetryRules, decide, decided_of, decision_patch, rules_of

log = logging.getLogger(__name__)

_FIRST_LOOK, _NEXT_LOOK, _RETRY = 0.1, 0.4, 5.0
_LOOKS = 4
"""Looks for a rank that failed by itself, while only ranks that lost a peer are known to have failed."""
_LINES, _LOG_BYTES, _LINE = 400, 1 << 20, 4096
"""The end of a log that patterns are searched in: lines, bytes, and characters of a line."""
_OPTIONS = WriteOptions(manager="rowlock")
_NODE_REASONS = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "Terminated",
        "DeletionByTaintManager",
        "DeletionByPodGC",
        "EvictionByEvictionAPI",
    }
)
"""Reasons of pods that their node, or what watches over nodes, ended."""


class Retries:
    """The jobs whose ranks have failed and are started again."""

    def __init__(
        self, api: Api, cache: InformerCache, diagnose: Callable[[Object], Awaitable[dict[str, Any]]] | None
    ) -> None:
        self._api, self._cache, self._diagnose = api, cache, diagnose
        self._seen: dict[str, frozenset[tuple[str, str, int]]] = {}
        """Uid of a job → its newest failed runs, as they were when it was looked at last."""
        self._timers = JobTimers("the retries of a job")

    def consider(self, notes: RunNotes) -> None:
        """Look at a run whose notes have changed."""
        uid, job = notes.record.uid, notes.job
        if job is None or self._diagnose is None or notes.record.phase in TERMINAL or notes.record.deleted is not None:
            self._seen.pop(uid, None)
            return
        runs = frozenset(
            (pod, container, max(map(int, failed)))
            for pod, containers in notes.failed_runs.items()
            for container, failed in containers.items()
        )
        if runs and runs != self._seen.get(uid) and _is_judged(job):
            self._seen[uid] = runs
            self._look_soon(uid, _FIRST_LOOK)

    def stop(self) -> None:
        """Forget everything: this server records no longer, and another one does."""
        self._timers.stop()
        self._seen.clear()

    def _look_soon(self, uid: str, delay: float, looks: int = 1) -> None:
        self._timers.look_in(delay, uid, partial(self._look, uid, looks))

    async def _look(self, uid: str, looks: int) -> None:
        job = self._cache.job(uid)
        if job is None or not _is_judged(job) or objects.is_deleting(job):
            return
        try:
            await self._judge(job, looks)
        except (NotFound, Conflict):
            return  # it is gone; or another job has its name
        except ApiError as error:
            log.warning("whether %s is retried is asked again: %s", objects.name(job), error.message)
            self._look_soon(uid, _RETRY)
        except Exception as error:  # noqa: BLE001 (a malformed object must not affect other jobs)
            ERRORS.report("the retries of a job", error, "its restarts go on")

    async def _judge(self, job: Object, looks: int) -> None:
        """Judge all failures that were not judged yet, attempt by attempt; each attempt ends later than the one before. A cluster counts whole
        seconds: of attempts that begin and end within the second in which a judged one ended, none is judged. Raises ApiError."""
        assert self._diagnose is not None
        rules, decided = rules_of(job), decided_of(job)
        if rules is None:
            return
        found = await self._diagnose(job)
        failures = [failure_from_dict(one) for incident in found["incidents"] for one in incident["deaths"]]
        before = decided
        while not decided.stops:
            failures = [one for one in failures if one.started >= decided.at and one.finished > decided.at]
            attempt = _first_attempt(failures)
            if not attempt or is_requested_stop(attempt):
                break
            cause = root_cause(attempt)
            if cause.is_secondary and looks < _LOOKS:
                self._look_soon(objects.uid(job), _NEXT_LOOK, looks + 1)
                break
            facts = await self._facts(job, cause, rules)
            decided = await asyncio.to_thread(decide, rules, facts, decided)  # many patterns take a tenth of a second
        if decided.sentence != before.sentence or decided.stops:
            await self._api.patch(
                kinds.by_object(job), *objects.key(job), decision_patch(job, decided), type="merge", options=_OPTIONS
            )

    async def _facts(self, job: Object, cause: RankFailure, rules: RetryRules) -> FailureFacts:
        log_end = await self._read_log(job, cause) if rules.needs_log else ""
        return FailureFacts(causes_of(cause), cause.code, cause.finished, log_end)

    async def _read_log(self, job: Object, cause: RankFailure) -> str:
        """The end of the log of a run that failed; "" if it is not there any more."""
        pod = next((one for one in self._cache.own_pods(objects.uid(job)) if objects.name(one) == cause.pod), None)
        statuses = objects.dig(pod, "status.containerStatuses", []) if pod else []
        count = int(statuses[0].get("restartCount") or 0) if statuses else cause.run
        options = LogOptions(previous=count > cause.run, tail=_LINES, owner=objects.uid(job))
        size, pieces = 0, list[bytes]()
        try:
            async for piece in self._api.log(objects.namespace(job), cause.pod, options):
                pieces.append(piece)
                size += len(piece)
                if size > _LOG_BYTES:
                    break
        except ApiError as error:
            log.info("the log of %s is not read for the rules of its retries: %s", cause.pod, error.message)
        text = b"".join(pieces)[-_LOG_BYTES:].decode(errors="replace")
        return "\n".join(line[:_LINE] for line in text.splitlines()[-_LINES:])


def _is_judged(job: Object) -> bool:
    """Whether failures of the job are judged: it has rules, is started again at all, and was not stopped by one."""
    limit = objects.dig(job, "spec.runPolicy.backoffLimit", None)
    return rules_of(job) is not None and limit != 0 and not decided_of(job).stops


def _first_attempt(failures: list[RankFailure]) -> list[RankFailure]:
    """Those failures that belong together: of runs that began before the first of these failures ended."""
    if not failures:
        return []
    ended = min(one.finished for one in failures)
    return [one for one in failures if one.started <= ended]


def causes_of(failure: RankFailure) -> frozenset[str]:
    """The causes of a rank's failure: of `oom`, `nccl`, `preempted`, `node`, `import-error`; none for others."""
    error = failure.trouble
    kind = error.kind.rpartition(".")[2] if error else ""
    said = (f"{error.kind} {error.text}" if error else failure.said).lower()
    found = {
        "oom": failure.reason == "OOMKilled" or kind in ("OutOfMemoryError", "MemoryError") or "out of memory" in said,
        "nccl": "nccl" in said or kind == "DistBackendError" or (error is not None and error.secondary),
        "preempted": failure.reason.startswith("Preempt"),
        "node": failure.reason in _NODE_REASONS,
        "import-error": kind in ("ImportError", "ModuleNotFoundError"),
    }
    return frozenset(cause for cause, holds in found.items() if holds)
