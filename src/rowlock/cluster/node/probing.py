"""What a running container is asked, again and again: its hooks, its startup, liveness and readiness probes.

One task per run of a container that has any of these; `look` starts and ends them as the facts want it, so a restart of
the server begins them again (what the pod's status says of that very run is believed). The thresholds are Kubernetes';
one thing is quicker: while a probe has never passed, the first tries come early (0.1 s, doubling up to the period) and
an early failure is neither counted nor told, so a pod is ready when its program is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock.cluster.node.checks import Checks
from rowlock.cluster.node.pod_facts import NO_FACTS, ContainerFacts, all_containers, policy
from rowlock.cluster.node.tended import Tended
from rowlock.objects import Object, deleting, dig, phase

EARLY, WINDOW = 0.1, 2.0
"""Seconds until the first of the early tries, and the least time for them all."""
LEAST_GRACE = 2.0
"""Seconds that a program has after its preStop hook, however long that took."""
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def has_care(container: Mapping[str, Any]) -> bool:
    return any(container.get(p) for p in PROBES) or bool((container.get("lifecycle") or {}).get("postStart"))


@dataclass(frozen=True, slots=True)
class Care:
    """One run of one container, and its pod as it was when the run began."""

    pod: Object
    tended: Tended
    container: Mapping[str, Any]
    number: int
    begun: float

    @property
    def name(self) -> str:
        return str(self.container["name"])


class Probing:
    """The probes of all pods of this machine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[str, dict[tuple[str, int], asyncio.Task[None]]] = {}
        self.group: asyncio.TaskGroup | None = None
        """Where tasks belong; None until the kubelet runs."""
        self.checks: Checks
        self.changed: Callable[[str], None] = lambda uid: None
        self.event: Callable[[Object, str, str, str, str], None] = lambda *_: None
        self.stop: Callable[[Object, Tended, str, float], None] = lambda *_: None

    def look(self, pod: Object, tended: Tended) -> None:
        """Begins and ends what the pod's facts want."""
        uid, wanted = tended.card.uid, dict[tuple[str, int], Care]()
        if self.group is None:
            return
        for container in all_containers(pod) if not deleting(pod) and phase(pod) not in ("Succeeded", "Failed") else ():
            run = tended.containers.get(container["name"], NO_FACTS).run
            if run is not None and run.running and has_care(container):
                care = Care(pod, tended, container, run.number, run.started or 0.0)
                wanted[container["name"], run.number] = care
        mine = self._tasks.get(uid, {})
        for key in [k for k in mine if k not in wanted]:
            mine.pop(key).cancel()
        for key, care in wanted.items():
            if key not in mine:
                mine[key] = self.group.create_task(self._care(care, _believed(care)))
        if mine:
            self._tasks[uid] = mine
        else:
            self._tasks.pop(uid, None)

    def forget(self, uid: str) -> None:
        """The pod has gone."""
        for task in self._tasks.pop(uid, {}).values():
            task.cancel()

    async def _care(self, care: Care, believed: ContainerFacts) -> None:
        if not believed.started:
            if not await self._begun(care):
                return
            self._note(care, ready=False)
        async with asyncio.TaskGroup() as tasks:
            if care.container.get("livenessProbe"):
                tasks.create_task(self._liveness(care))
            if care.container.get("readinessProbe"):
                tasks.create_task(self._readiness(care, ready=believed.ready))

    async def _begun(self, care: Care) -> bool:
        """Its postStart hook and its startup probe; False when the container was stopped over one of them."""
        if hook := dig(care.container, "lifecycle.postStart"):
            outcome = await self.checks.perform(care.tended.card, care.container, hook)
            if not outcome.ok:
                self.event(
                    care.pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.text}", care.name
                )
                self._kill(care, f"Container {care.name} failed its postStart hook", None)
                return False
        if care.container.get("startupProbe"):
            async for passed in self._verdicts(care, "startupProbe", None):
                if not passed:
                    self._kill(care, f"Container {care.name} failed startup probe", care.container["startupProbe"])
                return passed
        return True

    async def _liveness(self, care: Care) -> None:
        async for passed in self._verdicts(care, "livenessProbe", True):
            if not passed:
                self._kill(care, f"Container {care.name} failed liveness probe", care.container["livenessProbe"])
                return

    async def _readiness(self, care: Care, *, ready: bool) -> None:
        async for passed in self._verdicts(care, "readinessProbe", ready):
            self._note(care, ready=passed)

    def _kill(self, care: Care, text: str, probe: Mapping[str, Any] | None) -> None:
        grace = (probe or {}).get("terminationGracePeriodSeconds")
        if grace is None:
            grace = dig(care.pod, "spec.terminationGracePeriodSeconds", 30)
        again = ", will be restarted" if policy(care.pod) != "Never" else ""
        self.event(care.pod, "Normal", "Killing", text + again, care.name)
        if not self.farewell(care.pod, care.tended, care.container, float(grace)):
            self.stop(care.pod, care.tended, care.name, float(grace))

    def _note(self, care: Care, *, ready: bool) -> None:
        """It has started; is it ready?"""
        known = care.tended.containers.get(care.name, NO_FACTS)
        if known.run is not None and known.run.number == care.number:
            care.tended.set(care.name, replace(known, started=True, ready=ready))
            self.changed(care.tended.card.uid)

    async def _verdicts(self, care: Care, which: str, result: bool | None) -> AsyncIterator[bool]:
        """Every change of the probe's result. `result`: what holds before it has been asked; None = nothing."""
        probe = care.container[which]
        period, patience = float(probe.get("periodSeconds") or 10), float(probe.get("timeoutSeconds") or 1)
        needed = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
        begin = care.begun + float(probe.get("initialDelaySeconds") or 0)
        await asyncio.sleep(max(0.0, begin - self._clock()))
        pause, early, same, last = (period if result else min(EARLY, period)), not result, 0, None
        while True:
            await asyncio.sleep(pause)
            outcome = await self.checks.perform(care.tended.card, care.container, probe, patience)
            early = early and not outcome.ok and self._clock() - begin < max(period, WINDOW)
            pause = min(pause * 2, period) if early else period
            if early:
                continue
            same = same + 1 if outcome.ok == last else 1
            last = outcome.ok
            if not outcome.ok:
                word = which.removesuffix("Probe").capitalize()
                self.event(care.pod, "Warning", "Unhealthy", f"{word} probe failed: {outcome.text}", care.name)
            if same >= needed[last] and last != result:
                result = last
                yield result

    def farewell(self, pod: Object, tended: Tended, container: Mapping[str, Any], grace: float) -> bool:
        """Begins the container's preStop hook; `stop` follows when it is over. False when it has none."""
        hook = dig(container, "lifecycle.preStop")
        if not hook or self.group is None or grace <= 0:
            return False
        known = tended.containers[container["name"]]
        tended.set(container["name"], replace(known, stop_by=self._clock() + grace))
        self.group.create_task(self._farewell(pod, tended, container, grace))
        return True

    async def _farewell(self, pod: Object, tended: Tended, container: Mapping[str, Any], grace: float) -> None:
        begun = self._clock()
        outcome = await self.checks.perform(tended.card, container, container["lifecycle"]["preStop"], grace)
        if not outcome.ok:
            text = f"PreStopHook failed: {outcome.text}"
            self.event(pod, "Warning", "FailedPreStopHook", text, container["name"])
        left = grace - (self._clock() - begun)
        with contextlib.suppress(KeyError):  # the pod has gone meanwhile
            self.stop(pod, tended, container["name"], max(LEAST_GRACE, left))


def _believed(care: Care) -> ContainerFacts:
    """The container's facts, with what the pod's status says of this very run: a new server knows no more."""
    known = care.tended.containers[care.name]
    statuses = [*dig(care.pod, "status.initContainerStatuses", ()), *dig(care.pod, "status.containerStatuses", ())]
    said: Mapping[str, Any] = next((c for c in statuses if c["name"] == care.name), {})
    if said.get("restartCount") == care.number and said.get("started") and not known.started:
        known = replace(known, started=True, ready=bool(said.get("ready")))
        care.tended.containers[care.name] = known
    return known
