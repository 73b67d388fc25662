"""One pod's turn: reads its facts, carries out the actions that `sync` decides, publishes its status.

Few writes: a healthy pod's status is written when it runs and when it has ended. Events go through the recorder.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rowlock import kinds
from rowlock.api import Api, DeleteOptions, View
from rowlock.controllers.turn_budget import SharedTurn, TurnBudget
from rowlock.errors import NotFound, Unavailable
from rowlock.kubelet.node import eviction, gpus, pids_watch
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod import unsupported
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import NO_FACTS, NO_PULL, Problem, Run
from rowlock.kubelet.pod.owners import Owners
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.progress import assess_progress, kubelet_failure
from rowlock.kubelet.pod.recreations import Recreations
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.kubelet.pod.status import generate_pod_status
from rowlock.kubelet.pod.stop_reasons import POD_DELETED, POD_REMOVED, is_ended_by_job, stop_reason, stop_sentence
from rowlock.kubelet.pod.sync import Publish, Remove, Start, Stop, compute_pod_actions
from rowlock.kubelet.prober.prober import Prober
from rowlock.kubelet.runtime.container_runs import CONTAINERS_PER_SLICE, ContainerRuns
from rowlock.kubelet.runtime.container_runtime import ContainerRuntime
from rowlock.kubelet.runtime.pod_host_client import HOST_GONE, PodHostClient
from rowlock.kubelet.worker import security_context
from rowlock.kubelet.worker.image_pulls import IMAGE_PULL_REASONS, ImagePuller
from rowlock.kubelet.worker.pod_context import PodContext, PodContexts
from rowlock.kubelet.worker.pod_volumes import PodVolumes
from rowlock.kubelet.worker.starting import ContainerStart, ContainerStarter
from rowlock.objects import FINAL_PHASES, Object, meta, phase, revision, uid

IMAGE_PROBLEM_EVENTS = {"InvalidImageName": "InspectFailed", "ErrImageNeverPull": "ErrImageNeverPull"}
HOSTS_TO_TRY = 3
"""Pod hosts in a row that may die while they start one pod. After that it backs off as after any failure, so that others start."""
RELEASE_RETRY = 1.0
"""Seconds until the pod host, which was gone or refused, is asked again to release what it holds for a finished pod."""
FAILED_MOUNT = "FailedMount"
"""Reason of a problem and of its event, which is about the pod. `IMAGE_PROBLEM_EVENTS` maps other reasons; the rest give Failed."""
EXIT_EVENTS = {
    "OOMKilled": ("OOMKilled", "container {name} was killed: {why}; raise resources.limits.memory, or use less"),
    "StartError": ("Failed", "Error: {why}"),
}
"""Exit reason → reason and message of its event."""
SIGNAL_NOT_PASSED_ON = (
    "container {name}: its first process does not pass SIGTERM on, so rowlock asked what it had left running to end. On a cluster"
    " nothing below it would be asked before it is killed: start the program with `exec`"
)


_CAUSE_DELAY = 1.0
"""Seconds after a pod's end until it is told why it was deleted, if its job has given no cause before."""


class PodWorker:
    """Carries out the turns of pods, with their side effects."""

    def __init__(
        self,
        api: Api,
        view: View,
        host: PodHostClient,
        node: NodeContext,
        *,
        directories: PodDirectories,
        runtime: ContainerRuntime,
        contexts: PodContexts,
        volumes: PodVolumes,
        starter: ContainerStarter,
        prober: Prober,
        image_puller: ImagePuller,
        runs: ContainerRuns,
        recreations: Recreations,
        owners: Owners,
        record_event: Callable[[Object, str, str, str, str], None],
        note_warm_start: Callable[[Mapping[str, Any] | None], None],
        backoff: float,
    ) -> None:
        """`record_event` takes pod, type, reason, message and container's name ("" = it is about the pod); `note_warm_start` takes how a
        program that is being started may start warm; `backoff` in seconds, before a second restart."""
        self._api, self._view, self._host, self._node = api, view, host, node
        self._directories, self._runtime, self._contexts = directories, runtime, contexts
        self._measuring = TurnBudget()
        self._volumes, self._starter = volumes, starter
        self._prober, self._image_puller = prober, image_puller
        self._runs, self._record_event, self._backoff = runs, record_event, backoff
        self._start_turn, self._note_warm_start = SharedTurn(), note_warm_start
        self._recreations, self._owners = recreations, owners

    async def sync_pod(self, pod: Object, state: PodState) -> float | None:
        """Does what is due for the pod; returns the seconds until it needs another turn, None = only after a change."""
        spec = state.spec_of(pod)
        await self._end_lost_runs(state)
        self._prober.sync_probes(spec, state)
        while state.creation_problems:
            self._record_problem(spec, state, *state.creation_problems.popitem())
        progress = assess_progress(spec, state.facts(), self._node.clock(), self._backoff)
        actions = compute_pod_actions(progress, self._backoff)
        starts = [c for c in actions.actions if isinstance(c, Start)]
        problem = await self._runtime.prepare_runtime(spec, state, is_starting=bool(starts))
        self._report_exits(spec, state)
        self._report_unsupported(spec, state)
        if starts or (state.has_file_volumes() and not state.finished):
            context = self._contexts.find_context(spec, state.card)
            problem = problem or await self._volumes.sync_volumes(context, state)
            if problem and starts:
                for start in starts:
                    self._record_problem(spec, state, start.container, problem)
                return 0.0
            for first in range(0, len(starts), CONTAINERS_PER_SLICE):
                some = [self._start_container(context, state, s) for s in starts[first : first + CONTAINERS_PER_SLICE]]
                await (asyncio.gather(*some) if len(some) > 1 else some[0])  # a single one needs no task
        for number, action in enumerate(actions.actions, 1):
            if number % CONTAINERS_PER_SLICE == 0:
                await asyncio.sleep(0)
            if isinstance(action, Stop):
                self._stop_container(spec, state, action)
            elif isinstance(action, Remove):
                await self._delete_pod(spec)
            elif isinstance(action, Publish):
                await self._publish_status(spec, state)
        if state.finished and not state.is_released:
            return RELEASE_RETRY
        started_facts = [state.containers.get(s.container, NO_FACTS) for s in starts]
        return 0.0 if any(k.problem or k.pull.under_way for k in started_facts) else actions.requeue_after

    async def _end_lost_runs(self, state: PodState) -> None:
        """Kills what killed shims have left running, before a container is restarted."""
        if not state.has_lost_shim:
            return
        state.has_lost_shim = False
        try:
            await self._runs.kill_strays(state.card.uid)
            if state.card.contained:
                await self._runtime.remove_orphans()
        except BaseException:  # no descriptor is free, or the server stops: the next turn does it
            state.has_lost_shim = True
            raise

    def _report_unsupported(self, pod: PodSpec, state: PodState) -> None:
        """Records events about what the pod requests and does not get: once, before its first program starts."""
        if state.are_warnings_sent:
            return
        state.are_warnings_sent = True
        if state.has_started():
            return
        for sentence in self._runtime.unmet_wishes(pod, self._node.limits_mode, is_contained=state.card.contained):
            self._record_event(pod.object, "Warning", "Unsupported", sentence, "")
        has_limits = any(container.limits for container in pod.containers)
        for sentence in () if state.card.contained else self._node.unmet_isolation(has_limits=has_limits):
            self._record_event(pod.object, "Normal", "NotIsolated", sentence, "")
        for sentence in gpus.remarks(pod, self._node.nodes.get(state.card.node)):
            self._record_event(pod.object, "Normal", "SharedGPU", sentence, "")

    async def _start_container(self, context: PodContext, state: PodState, start: Start) -> None:
        pod, facts = context.pod, state.containers.get(start.container, NO_FACTS)
        container = pod.container(start.container)
        directory = self._directories.container_directory(state.card.uid, start.container)
        async with self._start_turn:
            request = self._starter.start_request(
                ContainerStart(
                    context,
                    container,
                    directory,
                    state.volumes or (),
                    start.number,
                    start.backoff,
                    state.running_numbers(),
                )
            )
        if isinstance(request, Problem):
            if request.reason not in IMAGE_PULL_REASONS or not self._image_puller.ensure_image_pull(
                pod, state, container
            ):
                self._record_problem(pod, state, start.container, request)
            return
        shim_request, image = request
        directory.mkdir(exist_ok=True, mode=0o700)
        if start.number:  # a log may have to be copied to another file system
            await asyncio.to_thread(self._directories.drop_old_runs, state.card, start.container, start.number)
            facts = state.containers.get(start.container, NO_FACTS)
        is_pull_reported = facts.pull.told
        facts = replace(facts, asked=start.number, shim=0, problem=None, stop_by=None, image_id=image.id, pull=NO_PULL)
        state.set_facts(start.container, facts)
        self._note_warm_start(shim_request.warm)
        answer = await self._host.ask("start", request=shim_request.to_json())
        facts = state.containers[start.container]
        state.lost_hosts = state.lost_hosts + 1 if answer == HOST_GONE else 0
        if 0 < state.lost_hosts <= HOSTS_TO_TRY:
            state.set_facts(start.container, replace(facts, asked=None))
            raise Unavailable("the pod host has exited; a new one is being started")
        if answer.get("error"):
            state.set_facts(start.container, replace(facts, asked=None))
            problem = Problem("CreateContainerError", f"the program could not be started: {answer['error']}")
            self._record_problem(pod, state, start.container, problem)
            return
        if facts.asked == start.number:
            state.set_facts(start.container, replace(facts, shim=int(answer.get("shim") or 0)))
        text = f'Container image "{container.image}" already present on machine'
        container_name = start.container
        if not is_pull_reported:
            self._record_event(pod.object, "Normal", "Pulled", text, container_name)
        self._record_event(pod.object, "Normal", "Created", f"Created container: {container_name}", container_name)
        self._record_event(
            pod.object,
            "Normal",
            "Started",
            f"Started container {container_name}{_warm_start_note(answer)}",
            container_name,
        )
        if container.is_ephemeral and not state.card.contained:  # those of other containers were reported with the pod
            for sentence in unsupported.unapplied_warnings(container.security_context, container_name):
                self._record_event(pod.object, "Warning", "Unsupported", sentence, container_name)
        for sentence in (
            security_context.unwritable_mounts(shim_request.mounts, shim_request.user) if start.number == 0 else ()
        ):
            self._record_event(pod.object, "Warning", "VolumeNotWritable", sentence, container_name)

    def _record_problem(self, pod: PodSpec, state: PodState, container: str, problem: Problem) -> None:
        """Stores the problem and records its events; a pull that fails again is reported as a back-off, as on a real node."""
        facts = state.containers.get(container, NO_FACTS)
        image, is_repeated = pod.container(container).image, facts.problem is not None
        cause = problem.message
        if problem.reason == "ErrImagePull" and is_repeated:
            problem = Problem("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {cause}')
            self._record_event(pod.object, "Normal", "BackOff", f'Back-off pulling image "{image}"', container)
        else:
            text = f'Failed to pull image "{image}": {cause}' if problem.reason == "ErrImagePull" else cause
            reason = {**IMAGE_PROBLEM_EVENTS, FAILED_MOUNT: FAILED_MOUNT}.get(problem.reason, "Failed")
            self._record_event(pod.object, "Warning", reason, text, "" if reason == FAILED_MOUNT else container)
        if problem.reason in (*IMAGE_PULL_REASONS, *IMAGE_PROBLEM_EVENTS):
            self._record_event(pod.object, "Warning", "Failed", f"Error: {problem.reason}", container)
        state.set_facts(container, replace(facts, problem=problem, problem_since=self._node.clock()))

    def _stop_container(self, pod: PodSpec, state: PodState, stop: Stop) -> None:
        facts = state.containers.get(stop.container, NO_FACTS)
        if facts.run is None or facts.run.exit is not None:
            return
        container = pod.container(stop.container)
        state.stop_reasons.setdefault((stop.container, facts.run.number), self._stop_reason(pod, state))
        if facts.stop_by is None:
            self._record_event(pod.object, "Normal", "Killing", f"Stopping container {stop.container}", stop.container)
            if self._prober.begin_pre_stop(pod, state, container, stop.grace):
                return
        self._runs.stop_container(state, stop.container, stop.grace)

    def _stop_reason(self, pod: PodSpec, state: PodState) -> str:
        """Why the pod is being stopped, as the objects say now: the job may be deleted by the time the program has ended."""
        failure = kubelet_failure(pod, state.facts(), self._node.clock())
        is_over = failure is not None and failure[0] == "DeadlineExceeded"
        owners = self._owners.owners_of(pod, state.card.owner)
        space = self._view.get(kinds.NAMESPACE, "", pod.namespace)
        why = stop_reason(
            pod, state.evicted, owners, deadline_over=is_over, was_surplus=state.was_surplus, namespace=space
        )
        return POD_REMOVED if why == POD_DELETED and state.removed is not None else why

    async def _publish_status(self, pod: PodSpec, state: PodState) -> None:
        """Patches the status if anything in it is new. Raises Conflict if another writer came between; the turn is then repeated."""
        progress = assess_progress(pod, state.facts(), self._node.clock(), self._backoff)
        current = pod.object.get("status") or {}
        status = current if progress.is_without_records else generate_pod_status(progress)
        state.finished = status["phase"] in FINAL_PHASES
        if status["phase"] == "Failed" and pod.deletion_time is None and not state.evicted:
            self._recreations.note_failure(state.card, self._node.clock())  # before its owner can create the next pod
        if any(current.get(k) != v for k, v in status.items()):
            for container in status["containerStatuses"]:
                if (container["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff":
                    text = f"Back-off restarting failed container {container['name']} in pod {pod.location}"
                    self._record_event(pod.object, "Warning", "BackOff", text, container["name"])
            patch = {"metadata": {"uid": pod.uid, "resourceVersion": str(revision(pod.object))}, "status": status}
            with contextlib.suppress(NotFound):
                written = await self._api.patch(kinds.POD, pod.namespace, pod.name, patch, subresource="status")
                state.written_revision = revision(written) if status["phase"] != "Pending" else 0
        if state.finished:
            await self._release_resources(state)

    async def _release_resources(self, state: PodState) -> None:
        """Releases the network, the memory volumes and the containers of a pod that no longer runs."""
        self._image_puller.forget(state.card.uid)
        if not state.is_released:  # a finished pod has more turns: each would cost the pod host as much as the first
            state.is_released = "error" not in await self._host.ask("forget", uid=state.card.uid)
        if state.card.contained:
            await self._runtime.remove_pod(state.card.uid)

    def _report_exits(self, pod: PodSpec, state: PodState, *, is_last: bool = False) -> None:
        """Records events, once and before the status, about each program that could not start, ran out of memory or processes, was
        stopped, or did not pass SIGTERM on. `is_last`: the pod's object has been deleted for a while."""
        for name, facts in state.containers.items():
            run, reported = facts.run, pod.reported.containers.get(name)
            if run is None or run.exit is None or (name, run.number) in state.reported_exits:
                continue
            told = list(self._exit_events(pod, state, name, run, is_last=is_last))
            if not told:
                continue
            state.reported_exits.add((name, run.number))
            if reported is None or reported.restart_count != run.number or not reported.is_terminated:
                for kind, reason, text in told:
                    self._record_event(pod.object, kind, reason, text, name)

    def _exit_events(
        self, pod: PodSpec, state: PodState, name: str, run: Run, *, is_last: bool
    ) -> Iterator[tuple[str, str, str]]:
        """Type, reason and message of each event about the end of a run."""
        end = run.exit
        assert end is not None
        why = "" if end.stop_grace is None else self._why_stopped(pod, state, name, run.number)
        if why == POD_DELETED and pod.owner_uid and not is_last:
            return  # the job may give the cause in a moment
        if end.reason in EXIT_EVENTS:
            reason, text = EXIT_EVENTS[end.reason]
            yield "Warning", reason, text.format(name=name, why=end.message)
        elif end.passed_on:
            yield "Warning", "SignalNotPassedOn", SIGNAL_NOT_PASSED_ON.format(name=name)
        if end.reached_pids_limit:
            yield "Warning", pids_watch.EVENT_REASON, pids_watch.limit_sentence(name, self._node.pids_limit)
        if why:
            yield "Normal", "Stopped", stop_sentence(name, why, end)

    def _why_stopped(self, pod: PodSpec, state: PodState, name: str, number: int) -> str:
        """Why this run was asked to end: the reason noted at that time, else what the objects say now."""
        if probe := state.failed_probes.get((name, number)):
            return f"{'startup' if 'startup probe' in probe else 'liveness'}: {probe}"
        why = state.stop_reasons.get((name, number)) or self._stop_reason(pod, state)
        if why == POD_DELETED and pod.owner_uid:
            owners = self._owners.owners_of(pod, state.card.owner)
            pods = self._view.by_owner(kinds.POD, pod.owner_uid)
            if is_ended_by_job(next(iter(owners), None), (other for other in pods if uid(other) != pod.uid)):
                return stop_reason(pod, state.evicted, owners, deadline_over=False)
        return why

    async def _delete_pod(self, pod: PodSpec) -> None:
        """Deletes the pod's object. One that a finalizer keeps is first marked Failed: its Job may wait for that to replace it."""
        options = DeleteOptions(grace=0, uid=pod.uid)
        with contextlib.suppress(NotFound):
            if meta(pod.object).get("finalizers") and phase(pod.object) not in FINAL_PHASES:
                failed = {"metadata": {"uid": pod.uid}, "status": {"phase": "Failed"}}
                await self._api.patch(kinds.POD, pod.namespace, pod.name, failed, subresource="status")
            await self._api.delete(kinds.POD, pod.namespace, pod.name, options=options)

    async def measure_disk(self, state: PodState) -> bool:
        """Measures the pod's disk usage; True if it exceeds a limit, which evicts the pod."""
        await self._measuring.pause_if_due()  # thousands of volumes of dozens of pods are one sweep
        card = state.card
        if state.finished or state.evicted:
            return False
        pod_object = self._view.get(kinds.POD, card.namespace, card.name)
        if pod_object is None or uid(pod_object) != card.uid:
            return False
        pod = state.spec_of(pod_object)
        if not eviction.has_storage_limit(pod):
            return False
        size = eviction.size_reader(self._directories, card.uid)
        state.evicted = await asyncio.to_thread(eviction.eviction_message, pod, size)
        if state.evicted:
            self._record_event(pod.object, "Warning", "Evicted", state.evicted, "")
        return bool(state.evicted)

    async def kill_orphaned_pod(self, state: PodState) -> bool:
        """Ends all programs of a pod that is no longer stored, with their grace; True when none runs any more."""
        if state.removed is not None and not await self._is_over(state.removed, state):
            return False
        self._prober.forget(state.card.uid)
        for name, number in ((name, k.run.number) for name, k in state.containers.items() if k.run is not None):
            state.stop_reasons.setdefault((name, number), POD_REMOVED)
        is_over = await self._runs.kill_pod(state)
        if state.spec is not None:
            self._report_exits(state.spec, state)
            if is_over:  # an operator deletes the pods of a failed job first, and writes on the job why afterwards
                report = partial(self._report_exits, state.spec, state, is_last=True)
                asyncio.get_running_loop().call_later(_CAUSE_DELAY, report)
        await self._end_lost_runs(state)
        if not is_over:
            return False
        state.finished = True
        await self._release_resources(state)
        return True

    async def _is_over(self, removed: Object, state: PodState) -> bool:
        """Stops the programs of a pod that was removed at once; True when none runs any more."""
        spec = state.spec_of(removed)
        self._prober.sync_probes(spec, state)
        progress = assess_progress(spec, state.facts(), self._node.clock(), self._backoff)
        for number, action in enumerate(compute_pod_actions(progress, self._backoff).actions, 1):
            if number % CONTAINERS_PER_SLICE == 0:
                await asyncio.sleep(0)
            if isinstance(action, Stop):
                self._stop_container(spec, state, action)
        return not progress.is_alive


def _warm_start_note(answer: dict[str, Any]) -> str:
    if answer.get("warm"):
        return " (warm: torch was imported already)"
    return f" (cold, though it imports torch: {answer['cold']})" if answer.get("cold") else ""
