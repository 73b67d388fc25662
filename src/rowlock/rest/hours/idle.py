"""Names jobs that hold GPUs and do nothing: after half an hour with an Event on the job, which is notified as others are."""

from __future__ import annotations

import asyncio
import uuid
from decimal import Decimal

from rowlock import kinds, objects
from rowlock.api import Api, Record
from rowlock.controllers.recorder import make_event
from rowlock.controllers.turn_budget import TurnBudget
from rowlock.diagnosis.root_cause import format_duration
from rowlock.rest.informers import InformerCache
from rowlock.workloads import compute
from rowlock.workloads.figures.resources import json_number
from rowlock.workloads.inventory.nodes import has_simulated_gpus
from rowlock.workloads.runai_json import Workload

IDLE_SECONDS = 1800.0
"""How long all pods of a job must have done nothing before it is told."""
REASON = "GpusIdle"
_LOOK = 60.0


class IdleJobs:
    """Looks once a minute. Where nothing is measured (as on a real cluster) no job is called idle."""

    def __init__(self, api: Api, cache: InformerCache) -> None:
        self._api, self._cache = api, cache
        self._told: dict[str, float] = {}
        """Uid of an idle job that was told → since when it is idle."""

    async def run(self) -> None:
        """Look until cancelled."""
        while self._cache.pod_usage is not None:
            await asyncio.sleep(_LOOK)
            await self.look()
        await asyncio.Event().wait()

    async def look(self) -> None:
        """Tell each job that has become idle. Raises ApiError; what was not told is told at the next look."""
        budget, idle = TurnBudget(), dict[str, float]()
        for row in self._cache.rows():
            await budget.pause_if_due()
            workload = self._cache.workload(row.uid) if self._cache.phase(row.uid) == "Running" else None
            since = self._idle_since(workload) if workload is not None else None
            if workload is None or since is None or self._cache.clock() - since < IDLE_SECONDS:
                continue
            sentence = self._sentence(workload, since)
            if sentence and self._told.get(row.uid) != since:
                await self._tell(workload, sentence)
                self._told[row.uid] = since
            idle[row.uid] = since
        self._told = {uid: since for uid, since in self._told.items() if idle.get(uid) == since}

    def _idle_since(self, workload: Workload) -> float | None:
        """Since when all its pods do nothing; None if one does, or is not measured."""
        source = self._cache.pod_usage
        assert source is not None
        found = [source.latest(objects.uid(pod)) for pod in workload.pods if objects.phase(pod) == "Running"]
        since = [usage.idle_since if usage is not None else None for usage in found]
        known = [one for one in since if one is not None]
        return max(known) if known and len(known) == len(since) else None

    def _sentence(self, workload: Workload, since: float) -> str:
        """What is told of an idle job; "" if it holds no GPUs."""
        nodes = {str(objects.dig(pod, "spec.nodeName", "")) for pod in workload.pods}
        gpus = sum(
            (
                compute.pod_gpus(pod, workload.card_memory(str(objects.dig(pod, "spec.nodeName", ""))))
                for pod in workload.pods
            ),
            Decimal(0),
        )
        if not gpus:
            return ""
        is_simulated = any(objects.name(node) in nodes and has_simulated_gpus(node) for node in self._cache.nodes())
        words = f"{json_number(gpus):g} {'simulated ' if is_simulated else ''}GPU{'' if gpus == 1 else 's'}"
        return f"all pods have done nothing for {format_duration(self._cache.clock() - since)}, and hold {words}."

    async def _tell(self, workload: Workload, sentence: str) -> None:
        record = Record(workload.job, "Warning", REASON, sentence, "rowlock")
        name = f"{objects.name(workload.job)}.{uuid.uuid4().hex[:16]}"
        await self._api.create(kinds.EVENT, make_event(record, name, self._cache.clock()))
