"""Diagnoses jobs on this machine: which rank failed first, which keeps others waiting, and which is slow, in one sentence each.

The kubelet reports programs that ended. While jobs of several ranks run, `hang_detector.py` samples them from `/proc`;
when a sample is suspicious, or on request, stacks are read and judged (`diagnosis/hang.py`). Verdicts become
Events of the job (so `kubectl describe` shows them) and the answer of `rowlock why`.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.diagnosis.activity import Activity, activity_between
from rowlock.diagnosis.hang import judge_after, judge_ranks, keeps_standing
from rowlock.diagnosis.observation import RankObservation, Verdict
from rowlock.diagnosis.rendezvous import expected_ranks
from rowlock.diagnosis.root_cause import RankFailure, group_incidents, incident_sentence, is_requested_stop, root_cause
from rowlock.diagnosis.stacks import Stack
from rowlock.diagnostics import stack_dumps
from rowlock.diagnostics.job_remarks import JobRemarks, KubeletContext
from rowlock.diagnostics.rank_activity import command_below, read_activity
from rowlock.diagnostics.rank_errors import read_logged_errors, read_rank_errors, read_restarts
from rowlock.diagnostics.rank_failures import RankFailureStore, failure_of_run
from rowlock.diagnostics.rank_processes import (
    RankProcess,
    RunningPod,
    find_ranks,
    has_no_python,
    read_variables,
    sort_by_rank,
)
from rowlock.diagnostics.rank_rendezvous import Rendezvouses, agent_traffic
from rowlock.diagnostics.stack_dumps import StackDump
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.progress import kubelet_failure
from rowlock.kubelet.worker.kubelet import Kubelet
from rowlock.objects import Object, dig, name, seconds, uid
from rowlock.training.trainjob.owners import pods_of_workload, workload_of
from rowlock.workloads.frameworks import main_container_name
from rowlock.workloads.history import completed_sentence
from rowlock.workloads.phase import has_main_ended
from rowlock.workloads.pods import completed_at, has_ranked_pods, rank_label

SOURCE = "rowlock"
PODS_PER_SLICE = 200
"""Pods that are examined before yielding to the event loop."""
LOOK_INTERVAL = 0.5
"""Seconds between two stack dumps of the same ranks: a rank that is at the same line in both does not move."""
_PAUSES = (1.0, 2.2, 1.3, 3.1)
"""Pauses between dumps, in `LOOK_INTERVAL`s: irregular, so that a rank with a periodic loop is not seen at the same line each time."""
_GATHER_DELAY = 1.5
"""Seconds between a failure and its report: meanwhile the other ranks fail because of it, and the report names them all."""


def attach_diagnostics(kubelet: Kubelet, view: View, data: Path) -> "Diagnostics":
    """Create the diagnostics of a kubelet and register them for every program that ends. `data`: the data directory."""
    diagnostics = Diagnostics(
        KubeletContext(view, kubelet.pod_states, kubelet.directories.container_directory, kubelet.recorder), data
    )
    kubelet.exit_listeners.append(diagnostics.handle_exit)
    return diagnostics


class Diagnostics:
    """One per kubelet."""

    def __init__(self, context: KubeletContext, data: Path) -> None:
        self._context = context
        self.failures = RankFailureStore(data)
        self.remarks = JobRemarks(context, data, self.record_event)
        self._pending_jobs: set[str] = set()
        self._last_reported: dict[str, float] = {}
        self._rendezvouses = Rendezvouses(time.monotonic)
        self._hangs: dict[str, tuple[list[RankObservation], float]] = {}
        """Jobs, by uid, whose ranks stand still: the observations, and since when."""

    # ------------------------------------------------------------ deaths

    def handle_exit(self, pod_state: PodState, container: str, run: Run) -> None:
        """Record the failure of a program, or queue the log of a successful one. The kubelet calls this at least once per program."""
        pod = self._context.view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name)
        if pod is None or uid(pod) != pod_state.card.uid or run.exit is None:
            return
        job = workload_of(self._context.view, pod)
        if job is None or container not in {c["name"] for c in pod["spec"]["containers"]}:
            return
        if run.exit.code == 0:
            return self.remarks.handle_good_exit(job, pod, container, run)
        failure = failure_of_run(job, pod, run, self._context.directory(pod_state.card.uid, container))
        if failure is not None and failure.stopped:
            failure = _with_reason_of_node(failure, pod_state, container, pod)
        owner_uid = uid(job)
        if failure is not None and self.failures.add(owner_uid, failure) and owner_uid not in self._pending_jobs:
            self._pending_jobs.add(owner_uid)
            asyncio.get_running_loop().call_later(_GATHER_DELAY, self._report_latest_incident, job)

    def _report_latest_incident(self, job: Object) -> None:
        """Record the latest incident as an Event of the job, once."""
        self._pending_jobs.discard(uid(job))
        incident = group_incidents(self.failures.failures_of(uid(job)))[-1]
        if self._last_reported.get(uid(job)) == incident[0].finished or is_requested_stop(incident):
            return
        self._last_reported[uid(job)] = incident[0].finished
        self.record_event(job, "Warning", "RankFailed", self._sentence_of(incident, uid(job)))

    def status_message(self, job: str, phase: str) -> str:
        """The sentence of the diagnosis for a job in this phase; "" when there is none."""
        if phase in ("Running", "Degraded"):
            observations, found_at = self._hangs.get(job, ([], 0.0))
            hang = judge_after(observations, max(0.0, self._context.clock() - found_at)) if observations else None
            told = [hang.sentence] if hang else []
            return " ".join([*told, *(remark.event_message for remark in self.remarks.of(job))])
        if phase not in ("Completed", "Failed"):
            return ""
        failures = [i for i in group_incidents(self.failures.failures_of(job)) if not is_requested_stop(i)]
        last_failure = self._sentence_of(failures[-1], job) if failures else ""
        return (
            last_failure
            if phase == "Failed"
            else completed_sentence([remark.sentence for remark in self.remarks.of(job)], last_failure, good="")
        )

    def set_hang(self, job: str, observations: list[RankObservation]) -> None:
        """Remember how the ranks of a hanging job (its uid) were observed; no observations = they move again."""
        if observations:
            self._hangs[job] = observations, self._context.clock()
        else:
            self._hangs.pop(job, None)
            self._rendezvouses.forget(job)

    def record_event(self, job: Object, kind: str, reason: str, message: str) -> None:
        """Record an Event of the job; `kind`: Normal or Warning."""
        self._context.recorder.record(Record(job, kind, reason, message, SOURCE))  # type: ignore[arg-type] # Normal, Warning

    def _sentence_of(self, incident: list[RankFailure], job: str) -> str:
        return incident_sentence(incident, left=self._left_before(incident, job))

    def _left_before(self, incident: list[RankFailure], job: str) -> list[str]:
        """Names for the ranks of a job (its uid) that had exited with 0 before the first of these failures."""
        pods = [pod for pod in pods_of_workload(self._context.view, job) if dig(pod, "status.phase") == "Succeeded"]
        owners = [
            (pod, owner)
            for pod in pods
            if (owner := workload_of(self._context.view, pod)) is not None and has_ranked_pods(owner)
        ]
        first = min(failure.finished for failure in incident)
        return [
            f"{rank_label(owner, pod)} (pod {name(pod)}, node {dig(pod, 'spec.nodeName', '')})"
            for pod, owner in owners
            if (ended := completed_at(pod)) and seconds(ended) <= first
        ]

    # ------------------------------------------------------------ the living

    def running_pods(self, job: str = "") -> list[RunningPod]:
        """The pods that run on this machine: of one job, by uid, or of all."""
        found = (self._running_pod(pod_state, job) for pod_state in self._context.pods.values())
        return sort_by_rank([pod for pod in found if pod is not None])

    async def all_running_pods(self) -> tuple[list[RunningPod], float]:
        """The running pods of all jobs, looked up in slices that yield to the event loop; and the cost in CPU seconds."""
        found: list[RunningPod] = []
        cost, pod_states = 0.0, list(self._context.pods.values())
        for start in range(0, len(pod_states), PODS_PER_SLICE):
            began = time.thread_time()
            for pod_state in pod_states[start : start + PODS_PER_SLICE]:
                if (pod := self._running_pod(pod_state)) is not None:
                    found.append(pod)
            cost += time.thread_time() - began
            await asyncio.sleep(0)
        return sort_by_rank(found), cost

    def _running_pod(self, pod_state: PodState, job: str = "") -> RunningPod | None:
        """The pod if its program runs and it belongs to a job (`job`: a uid, "" = any job); else None."""
        if not any(c.run is not None and c.run.is_running for c in pod_state.containers.values()):
            return None
        pod = self._context.view.get(kinds.POD, pod_state.card.namespace, pod_state.card.name)
        if pod is None or uid(pod) != pod_state.card.uid or (owner := workload_of(self._context.view, pod)) is None:
            return None
        if job and uid(owner) != job:
            return None
        main_container = main_container_name(owner, pod)
        container = pod_state.containers.get(main_container)
        if container is None or container.run is None or not container.run.is_running:
            return None
        log = self._context.directory(pod_state.card.uid, main_container) / f"log.{container.run.number}"
        return RunningPod(owner, pod, container.run, log)

    async def observe_ranks(self, job: str) -> list[RankObservation]:
        """Observe every rank of a job (its uid): with two stack dumps, and up to three more before a hang is reported."""
        running_pods = self.running_pods(job)
        ranks_now = await asyncio.to_thread(find_ranks, running_pods)
        absent = await asyncio.to_thread(self._absent_ranks, job, running_pods, ranks_now)
        logged = await asyncio.to_thread(read_logged_errors, ranks_now, self._context.clock())
        before = await asyncio.to_thread(_read_activities, ranks_now)
        started, looks = time.monotonic(), [await self._dump(ranks_now)]
        observations: list[RankObservation] = []
        for pause in _PAUSES:
            await asyncio.sleep(max(0.0, pause * LOOK_INTERVAL - (0 if len(looks) > 1 else time.monotonic() - started)))
            looks.append(await self._dump(ranks_now))
            elapsed = time.monotonic() - started
            observed = await asyncio.to_thread(self._observe, ranks_now, looks, before, elapsed)
            observations = [*(replace(look, logged=logged.get(look.pid)) for look in observed), *absent]
            kind = judge_ranks(observations).kind if observations else "moving"
            if kind == "moving" and any(o.is_in_doubt for o in observations):
                kind = "" if all(o.is_in_doubt or o.is_at_rest for o in observations) else kind
            if kind in ("stopped", "moving", "blind") or (kind == "failed" and any(o.error for o in observations)):
                return self._rendezvouses.note(job, observations)
        return await self._rendezvouses.look(job, observations, ranks_now)

    async def _dump(self, ranks_now: list[RankProcess]) -> dict[int, StackDump]:
        return await stack_dumps.dump_stacks([rank.pid for rank in ranks_now])

    def _observe(
        self,
        ranks_now: list[RankProcess],
        looks: list[dict[int, StackDump]],
        before: Mapping[int, Activity],
        elapsed: float,
    ) -> list[RankObservation]:
        """Combine all dumps into observations of the ranks; [] when none lives any more. Runs in a thread."""
        errors, restarts, now = read_rank_errors(ranks_now), read_restarts(ranks_now), self._context.clock()
        chatter = agent_traffic(ranks_now)
        observations = []
        for rank in ranks_now:
            dump, running_pod = looks[-1][rank.pid], rank.running_pod
            first, last = before[rank.pid], read_activity(rank.pid)
            observations.append(
                RankObservation(
                    rank=rank.name,
                    pod=name(running_pod.pod),
                    node=str(running_pod.pod["spec"].get("nodeName", "")),
                    pid=rank.pid,
                    state=stack_dumps.process_state(rank.pid) or "X",
                    silent=now - (running_pod.last_output_time() or running_pod.run.started or now),
                    stack=dump.stack,
                    moved=any(_has_moved(look[rank.pid], dump) for look in looks[:-1]),
                    blind=dump.blind,
                    error=errors.get(rank.pid),
                    restarts=restarts.get(rank.pid, (0, None))[0],
                    earlier_error=restarts.get(rank.pid, (0, None))[1],
                    **activity_between(first, last, elapsed),
                    chatter=chatter.get(rank.pid, 0.0),
                    world_size=expected_ranks(read_variables(rank.pid)),
                    looks=len(looks),
                    watched=elapsed,
                )
            )
        seen = [replace(look, has_left=look.state in ("X", "Z")) for look in observations]
        return [] if all(look.has_left for look in seen) else seen

    def _absent_ranks(
        self, job: str, running_pods: list[RunningPod], ranks_now: list[RankProcess]
    ) -> list[RankObservation]:
        """Observations of ranks without a Python process: their pods run something else first, or have ended."""
        begun = {uid(rank.running_pod.pod) for rank in ranks_now}
        found = [
            RankObservation(
                rank_label(p.job, p.pod), name(p.pod), str(dig(p.pod, "spec.nodeName", "")), pid=p.run.pid, program=text
            )
            for p in running_pods
            if uid(p.pod) not in begun and has_ranked_pods(p.job) and has_no_python(p.run.pid)
            if (text := command_below(p.run.pid))
        ]
        owner = running_pods[0].job if running_pods else {}
        if not has_ranked_pods(owner):
            return found
        ended = [pod for pod in pods_of_workload(self._context.view, job) if has_main_ended(owner, pod)]
        return found + [
            RankObservation(rank_label(owner, pod), name(pod), str(dig(pod, "spec.nodeName", "")), has_ended=True)
            for pod in ended
        ]

    async def diagnose_job(self, job: Object) -> dict[str, Any]:
        """The diagnosis of a job as JSON: its incidents, the state and verdict of its running ranks, and remarks."""
        result: dict[str, Any] = {"incidents": [], "verdict": None, "ranks": [], "remarks": []}
        for incident in group_incidents(self.failures.failures_of(uid(job))):
            summary = {
                "sentence": self._sentence_of(incident, uid(job)),
                "at": root_cause(incident).failed_at,
                "asked": is_requested_stop(incident),
            }
            result["incidents"].append({**summary, "deaths": [d.to_dict() for d in _sort_cause_first(incident)]})
        observations = await self.observe_ranks(uid(job))
        if observations:
            result["verdict"] = self._judge_with_hang(uid(job), observations).to_dict()
            result["ranks"] = [look.to_dict() for look in observations if not look.has_left]
        else:
            self.remarks.close_meeting(job)
        await self.remarks.settle(uid(job))
        result["remarks"] = [{"kind": r.kind, "sentence": r.sentence} for r in self.remarks.of(uid(job))]
        return result

    def _judge_with_hang(self, job: str, observations: list[RankObservation]) -> Verdict:
        """The verdict on ranks that were observed just now; an earlier hang verdict holds until the ranks move."""
        verdict, (held, found_at) = judge_ranks(observations), self._hangs.get(job, ([], 0.0))
        seconds = max(0.0, self._context.clock() - found_at)
        if verdict.kind == "moving" and held and keeps_standing(held, seconds, observations):
            return judge_after(held, seconds)
        return verdict

    async def dump_rank_stacks(self, rank_processes: list[RankProcess]) -> dict[str, Stack]:
        """One stack dump of each rank, by name; ranks whose stack cannot be read are left out."""
        dumps = await stack_dumps.dump_stacks([rank.pid for rank in rank_processes])
        stacks_by_name = ((rank.name, dumps[rank.pid].stack) for rank in rank_processes)
        return {rank: stack for rank, stack in stacks_by_name if stack is not None}

    async def judge_job(self, job: str) -> tuple[Verdict, list[RankObservation]]:
        observations = await self.observe_ranks(job)
        return (judge_ranks(observations) if observations else Verdict("moving", "No rank runs.")), observations


def _with_reason_of_node(failure: RankFailure, pod_state: PodState, container: str, pod: Object) -> RankFailure:
    """The failure with the kubelet's reason, if the kubelet itself decided to end the container."""
    if probe := pod_state.failed_probes.get((container, failure.run)):
        return replace(failure, reason="Unhealthy", message=probe)
    found = kubelet_failure(pod_state.spec_of(pod), pod_state.facts(), failure.finished)
    return replace(failure, reason=found[0], message=found[1]) if found else failure


def _sort_cause_first(incident: list[RankFailure]) -> list[RankFailure]:
    cause = root_cause(incident)
    return [cause, *(d for d in sorted(incident, key=lambda d: d.failed_at) if d is not cause)]


def _read_activities(ranks_now: list[RankProcess]) -> dict[int, Activity]:
    return {rank.pid: read_activity(rank.pid) for rank in ranks_now}


def _has_moved(first: StackDump, second: StackDump) -> bool:
    """Whether the stack has changed; True when one of the stacks is missing, so that no standstill is claimed."""
    return first.stack is None or second.stack is None or first.stack.position != second.stack.position
