"""Runs the hooks and the startup, liveness and readiness probes of containers.

One task per run of a container that has any of these; `sync_probes` starts and cancels them according to the facts, so a server
restart begins them again (for the same run, the pod's status is trusted). The thresholds are Kubernetes'. One thing is faster:
while a probe has never passed, the first attempts come early (0.1 s, doubling up to the period), and an early failure is
neither counted nor reported, so a pod is ready as soon as its program is.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import NO_FACTS, ContainerFacts
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import ContainerSpec, Fields, PodSpec
from rowlock.kubelet.pod.sync import MINIMUM_GRACE
from rowlock.kubelet.prober.probe_handlers import Outcome
from rowlock.objects import FINAL_PHASES, Object

EARLY_DELAY, EARLY_WINDOW = 0.1, 2.0
"""Seconds until the first early attempt, and the least duration of all of them."""
PerformAction = Callable[[PodCard, ContainerSpec, Fields, float | None], Awaitable[Outcome]]
"""Pod, container, action (a probe or a hook), timeout in seconds → its outcome."""


def has_probes(container: ContainerSpec) -> bool:
    return container.has_start_checks or bool(container.liveness_probe or container.readiness_probe)


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One run of one container, and its pod as it was when the run began."""

    pod: PodSpec
    state: PodState
    container: ContainerSpec
    number: int
    started: float

    @property
    def name(self) -> str:
        return self.container.name


class Prober:
    """The probes of all pods of this machine."""

    def __init__(
        self,
        task_group: asyncio.TaskGroup,
        perform: PerformAction,
        clock: Callable[[], float],
        *,
        on_changed: Callable[[str], None],
        record_event: Callable[[Object, str, str, str, str], None],
        stop_container: Callable[[PodState, str, float], None],
    ) -> None:
        """`perform` runs an action in a container (`HandlerRunner.perform`); `on_changed` is called with the uid of a pod whose facts
        have changed; `record_event` takes pod, type, reason, message and container's name; `stop_container` pod,
        container's name and grace in seconds."""
        self._task_group, self._perform, self._clock = task_group, perform, clock
        self._on_changed, self._record_event, self._stop_container = on_changed, record_event, stop_container
        self._tasks: dict[str, dict[tuple[str, int], asyncio.Task[None]]] = {}

    def sync_probes(self, pod: PodSpec, state: PodState) -> None:
        """Starts and cancels probe tasks according to the pod's facts."""
        uid, targets = state.card.uid, dict[tuple[str, int], ProbeTarget]()
        for container in pod.containers if pod.deletion_time is None and pod.phase not in FINAL_PHASES else ():
            run = state.containers.get(container.name, NO_FACTS).run
            if run is not None and run.is_running and has_probes(container):
                target = ProbeTarget(pod, state, container, run.number, run.started or 0.0)
                targets[container.name, run.number] = target
        pod_tasks = self._tasks.get(uid, {})
        for key in [k for k in pod_tasks if k not in targets]:
            pod_tasks.pop(key).cancel()
        for key, target in targets.items():
            if key not in pod_tasks:
                pod_tasks[key] = self._task_group.create_task(self._run_probes(target, _restored_facts(target)))
        if pod_tasks:
            self._tasks[uid] = pod_tasks
        else:
            self._tasks.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Cancels the probes of a deleted pod."""
        for task in self._tasks.pop(uid, {}).values():
            task.cancel()

    async def _run_probes(self, target: ProbeTarget, facts: ContainerFacts) -> None:
        if not facts.started:
            if not await self._wait_until_started(target):
                return
            self._set_ready(target, ready=False)
        async with asyncio.TaskGroup() as tasks:
            if probe := target.container.liveness_probe:
                tasks.create_task(self._run_liveness(target, probe))
            if probe := target.container.readiness_probe:
                tasks.create_task(self._run_readiness(target, probe, ready=facts.ready))

    async def _wait_until_started(self, target: ProbeTarget) -> bool:
        """Runs the postStart hook and the startup probe; False if one failed and the container is being stopped."""
        if hook := target.container.post_start:
            outcome = await self._perform(target.state.card, target.container, hook, None)
            if not outcome.ok:
                self._record_event(
                    target.pod.object,
                    "Warning",
                    "FailedPostStartHook",
                    f"PostStartHook failed: {outcome.text}",
                    target.name,
                )
                self._kill_container(target, f"Container {target.name} failed its postStart hook", None)
                return False
        if probe := target.container.startup_probe:
            async for passed in self._probe_results(target, "Startup", probe, None):
                if not passed:
                    self._kill_container(target, f"Container {target.name} failed startup probe", probe)
                return passed
        return True

    async def _run_liveness(self, target: ProbeTarget, probe: Fields) -> None:
        async for passed in self._probe_results(target, "Liveness", probe, True):
            if not passed:
                self._kill_container(target, f"Container {target.name} failed liveness probe", probe)
                return

    async def _run_readiness(self, target: ProbeTarget, probe: Fields, *, ready: bool) -> None:
        async for passed in self._probe_results(target, "Readiness", probe, ready):
            self._set_ready(target, ready=passed)

    def _kill_container(self, target: ProbeTarget, text: str, probe: Fields | None) -> None:
        grace = (probe or {}).get("terminationGracePeriodSeconds")
        if grace is None:
            grace = target.pod.grace_period
        restart_note = ", will be restarted" if target.pod.restart_policy != "Never" else ""
        target.state.failed_probes[target.name, target.number] = text
        self._record_event(target.pod.object, "Normal", "Killing", text + restart_note, target.name)
        if not self.begin_pre_stop(target.pod, target.state, target.container, float(grace)):
            self._stop_container(target.state, target.name, max(MINIMUM_GRACE, float(grace)))

    def _set_ready(self, target: ProbeTarget, *, ready: bool) -> None:
        """Notes that the container has started, and whether it is ready."""
        facts = target.state.containers.get(target.name, NO_FACTS)
        if facts.run is not None and facts.run.number == target.number:
            target.state.set_facts(target.name, replace(facts, started=True, ready=ready))
            self._on_changed(target.state.card.uid)

    async def _probe_results(
        self, target: ProbeTarget, kind: str, probe: Fields, result: bool | None
    ) -> AsyncIterator[bool]:
        """Yields every change of the probe's result. `result`: what counts before the first one; None = nothing."""
        period, timeout = float(probe.get("periodSeconds") or 10), float(probe.get("timeoutSeconds") or 1)
        thresholds = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
        delay = float(probe.get("initialDelaySeconds") or 0)
        first_probe_at = target.started + delay
        await asyncio.sleep(min(delay, max(0.0, first_probe_at - self._clock())))  # the clock may have been set back
        pause, is_early, streak, last = (period if result else min(EARLY_DELAY, period)), not result, 0, None
        while True:
            await asyncio.sleep(pause)
            outcome = await self._perform(target.state.card, target.container, probe, timeout)
            is_early = is_early and not outcome.ok and self._clock() - first_probe_at < max(period, EARLY_WINDOW)
            pause = min(pause * 2, period) if is_early else period
            if is_early:
                continue
            streak = streak + 1 if outcome.ok == last else 1
            last = outcome.ok
            if not outcome.ok:
                self._record_event(
                    target.pod.object, "Warning", "Unhealthy", f"{kind} probe failed: {outcome.text}", target.name
                )
            if streak >= thresholds[last] and last != result:
                result = last
                yield result

    def begin_pre_stop(self, pod: PodSpec, state: PodState, container: ContainerSpec, grace: float) -> bool:
        """Starts the container's preStop hook; `stop_container` follows it. False when there is no hook."""
        if container.pre_stop is None or grace <= 0:
            return False
        facts = state.containers[container.name]
        self._task_group.create_task(self._run_pre_stop(pod, state, container, grace))
        state.set_facts(container.name, replace(facts, stop_by=self._clock() + grace))
        return True

    async def _run_pre_stop(self, pod: PodSpec, state: PodState, container: ContainerSpec, grace: float) -> None:
        started = time.monotonic()
        outcome = await self._perform(state.card, container, container.pre_stop or {}, grace)
        if not outcome.ok:
            text = f"PreStopHook failed: {outcome.text}"
            self._record_event(pod.object, "Warning", "FailedPreStopHook", text, container.name)
        remaining = grace - (time.monotonic() - started)
        with contextlib.suppress(KeyError):  # the pod was deleted meanwhile
            self._stop_container(state, container.name, max(MINIMUM_GRACE, remaining))


def _restored_facts(target: ProbeTarget) -> ContainerFacts:
    """The container's facts, completed with the pod's status of the same run: after a server restart it is the only source."""
    facts = target.state.containers[target.name]
    reported = target.pod.reported.containers.get(target.name)
    is_same_run = reported is not None and reported.restart_count == target.number
    if reported is not None and is_same_run and reported.has_started and not facts.started:
        facts = replace(facts, started=True, ready=reported.is_ready)
        target.state.containers[target.name] = facts
    return facts
