"""Where the running ranks of a job on a real cluster are in their code, for `rowlock why`: examined inside their containers, by exec.

Each pod is probed once, with the caller's rights. If the image has py-spy and the container may trace its own processes, the answer has
stacks; else the pod is probed from a debug container, if the server has an image for them (`debug_container.py`). Without one the answer
has the processes and their usage. If exec is forbidden or the image has no shell, only the time since the last line of the log is known.
The verdict's sentence says which it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from rowlock import objects
from rowlock.api import Api, LogOptions
from rowlock.controllers.read_your_writes import ReadYourWrites
from rowlock.diagnosis import stacks
from rowlock.diagnosis.activity import Activity, activity_between
from rowlock.diagnosis.error_reports import parse_report_text
from rowlock.diagnosis.hang import MIN_SILENCE, judge_ranks
from rowlock.diagnosis.log_errors import find_error
from rowlock.diagnosis.observation import RankObservation, Verdict
from rowlock.diagnosis.remarks import Remark
from rowlock.diagnosis.rendezvous import MEETINGS, Rendezvous, parse_rendezvous, torchrun_rendezvous
from rowlock.diagnosis.root_cause import format_duration
from rowlock.errors import ApiError, Forbidden
from rowlock.kube.client import Kube
from rowlock.kube.proxy.container_command import CommandResult, run_in_container
from rowlock.kube_evidence import debug_container, good_ends, rank_probe
from rowlock.kube_evidence.debug_container import DebugContainers, NoDebugContainer
from rowlock.kube_evidence.rendezvous_memory import RendezvousMemory, with_advice
from rowlock.kube_evidence.separate_ranks import NetworkCounts, PodSight, remark_on_separate
from rowlock.kube_evidence.silent_nodes import silence_verdict, silent_nodes
from rowlock.objects import Object
from rowlock.workloads import pods as ranks
from rowlock.workloads.frameworks import desired_pods, main_container_name
from rowlock.workloads.phase import has_main_ended

MAX_PODS = 64
"""Maximum of pods of a job that are probed; the first ones of a larger job."""
_AT_ONCE = 8
_TIMEOUT_S = 20.0
_LOOK_S = 40.0
"""Seconds after which no pod is probed from a debug container any more."""
_LOG_TIMEOUT_S = 5.0
LOG_LINES, _LOG_BYTES = 200, 64 << 10
"""The end of a pod's log that is read: for how long it is silent, and with which error it ended."""
_NO_PYTHON = 44
"""Exit code of `_FIND_PYTHON` if no process runs Python."""
_FIND_PYTHON = (
    'for d in /proc/[0-9]*; do e=$(readlink "$d/exe" 2>/dev/null) || continue; case "${e##*/}" in python*|pypy*)'
    ' exec "$e" -I -S -c "$1";; esac; done; m=0; for d in /proc/[0-9]*; do p=${d#/proc/};'
    ' if [ "$p" -gt "$m" ] && [ "$p" -lt $$ ] && [ -n "$(tr -d \'\\0\' <"$d/cmdline" 2>/dev/null)" ]; then m=$p; fi; done;'
    f" tr '\\0' ' ' <\"/proc/$m/cmdline\"; exit {_NO_PYTHON}"
)
"""Runs its argument with the Python executable of a process of the container, since `python` may not be on the PATH. Without such a process
it prints the command line of the newest process."""
_MAX_COMMAND = 80
Answer = dict[str, Any]
"""`verdict` and `ranks` of `rest.call.Diagnose`."""


class _Counters(msgspec.Struct):
    """The counters of `read_counters` in rank_probe.py."""

    cpu: float = 0.0
    own_cpu: float = 0.0
    system_cpu: float = 0.0
    main_cpu: float = 0.0
    queued: float = 0.0
    own_queued: float = 0.0
    moved: int = 0
    network: int = 0
    sockets: int = 0
    faults: int = 0
    wakeups: int = 0
    in_timer: bool = False

    def as_activity(self, own_network: bool) -> Activity:
        """`own_network`: the pod has its own network. The host network's counters include other programs; of these the rank's connections."""
        return Activity(
            self.cpu,
            self.own_cpu,
            self.moved + (self.network if own_network else self.sockets),
            self.wakeups,
            self.in_timer,
            system_cpu=self.system_cpu,
            queued=self.queued,
            own_queued=self.own_queued,
            main_cpu=self.main_cpu,
            faults=self.faults,
        )


class _ProbedRank(msgspec.Struct):
    """What `rank_probe.py` prints for a rank. Not trusted: the image may print anything instead."""

    pid: int
    number: str
    state: str
    blind: str
    first: list[Any]
    second: list[Any]
    before: _Counters = msgspec.field(default_factory=_Counters)
    after: _Counters = msgspec.field(default_factory=_Counters)
    looks: int = 0
    watched: float = 0.0
    error: str = ""
    restarts: int = 0
    earlier: str = ""
    earlier_rank: int = 0
    meeting: list[Any] = []
    world_size: str = ""
    words: list[str] = []
    nnodes: str = ""
    alone: bool = False

    @property
    def rendezvous(self) -> Rendezvous | None:
        """The rendezvous that the rank waits in; None if it waits in none."""
        return parse_rendezvous(self.meeting) or torchrun_rendezvous(self.words, {"PET_NNODES": self.nnodes})


class _ProbeAnswer(msgspec.Struct):
    ranks: list[_ProbedRank]
    network: dict[str, Any] = {}
    """The fields of `NetworkCounts`, or {}."""


class RunInContainer(Protocol):
    """The signature of `run_in_container`."""

    async def __call__(
        self, connection: Any, place: tuple[str, str, str], command: Sequence[str], timeout: float, stdin: bytes
    ) -> CommandResult: ...


class _Seen(NamedTuple):
    """The ranks of a container, or why they cannot be seen (`blind`). `program`: the command line of a container without Python."""

    ranks: tuple[_ProbedRank, ...] = ()
    blind: str = ""
    program: str = ""
    network: NetworkCounts | None = None


@dataclass(frozen=True, slots=True)
class _PodLook:
    """The probe's result for one pod. `silent`: seconds since the last line of its log."""

    pod: Object
    seen: _Seen
    silent: float = 0.0
    log: str = ""
    """The end of its log, with time stamps."""
    ran: float = 0.0
    """Seconds since its container started."""


def script_runner(script: bytes) -> str:
    """A one-line Python program that runs the script from its standard input. A command is part of the request's URL, and proxies refuse
    long URLs (nginx above 8 KiB)."""
    return f"import sys;exec(sys.stdin.buffer.read({len(script)}))"


class RankObserver:
    """One per server of a real cluster."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        run: RunInContainer = run_in_container,
        debug_image: str = "",
    ) -> None:
        """`debug_image`: the image of debug containers; "" = add none."""
        self._clock, self._run, self._meetings = clock, run, RendezvousMemory(clock)
        self._debug = DebugContainers(debug_image) if debug_image else None
        self.pods_of: Callable[[str], list[Object]] = lambda job_uid: []
        """Returns the pods of a job by its uid, in order of ranks. Set to the informer cache's method once there is one."""
        self.nodes: Callable[[], Iterable[Object]] = lambda: ()
        """Returns the nodes of the cluster; set in the same way."""
        self._script = Path(rank_probe.__file__).read_bytes()
        self._runner = script_runner(self._script)

    async def observe(self, api: Api, job: Object) -> Answer:
        """Probe every running rank of a job, with two to five stack dumps each. `verdict` is None if no pod runs; `remarks` is there if the
        ranks work apart. A refused exec raises no error: the answer has it as the reason."""
        kube = api.inner if isinstance(api, ReadYourWrites) else api
        silent = silent_nodes(self.nodes())
        everywhere = [pod for pod in self.pods_of(objects.uid(job)) if _runs(job, pod)]
        running = [pod for pod in everywhere if objects.dig(pod, "spec.nodeName") not in silent]
        lost = [pod for pod in everywhere if objects.dig(pod, "spec.nodeName") in silent]
        unseen = silence_verdict(job, lost, silent, self._clock()).to_dict() if lost else None
        if not running or not isinstance(kube, Kube):
            return {"verdict": unseen, "ranks": []}
        slots, deadline = asyncio.Semaphore(_AT_ONCE), asyncio.get_running_loop().time() + _LOOK_S

        async def look(pod: Object) -> _PodLook:
            async with slots:
                return await self._look(kube, job, pod, deadline)

        looks = await asyncio.gather(*(look(pod) for pod in running[:MAX_PODS]))
        # in a thread: answers may be large, and parsing them would block the event loop
        parts = await asyncio.to_thread(lambda: [self._observations(job, each) for each in looks])
        observations = [observation for part in parts for observation in part] + self._ended_ranks(job)
        observations = self._meetings.note(objects.uid(job), observations)
        verdict = with_advice(judge_ranks(observations), observations)
        if verdict.kind == "blind":
            verdict = _verdict_by_silence(verdict, observations, any(each.seen.ranks for each in looks))
        if len(running) > MAX_PODS:
            left = f" Of {len(running)} pods the first {MAX_PODS} were looked at."
            verdict = replace(verdict, sentence=verdict.sentence + left)
        told = [observation.to_dict() for observation in observations]
        answer: Answer = {"verdict": unseen or verdict.to_dict(), "ranks": told}
        is_whole = ranks.has_ranked_pods(job) and len(looks) == len(everywhere) >= desired_pods(job)
        if is_whole and (remark := await asyncio.to_thread(self._remark_on_separate, job, looks, parts)) is not None:
            answer["remarks"] = good_ends.to_json([remark])
        return answer

    def _remark_on_separate(
        self, job: Object, looks: Sequence[_PodLook], parts: Sequence[Sequence[RankObservation]]
    ) -> Remark | None:
        if any(each.awaited_collective in MEETINGS or each.program for part in parts for each in part):
            return None  # they are still about to meet
        sights = [
            PodSight(
                look.pod,
                tuple(each.rank for each in part),
                look.log,
                look.ran,
                None if objects.dig(look.pod, "spec.hostNetwork", False) else look.seen.network,
                frozenset(name for each in part if each.stack is not None for name in each.stack.packages),
            )
            for look, part in zip(looks, parts, strict=True)
        ]
        return remark_on_separate(job, sights)

    async def _look(self, kube: Kube, job: Object, pod: Object, deadline: float) -> _PodLook:
        main, began = main_container_name(job, pod), _started_at(job, pod)
        (silent, log), seen = await asyncio.gather(
            self._read_log(kube, pod, main, began), self._probe(kube, pod, main, deadline)
        )
        return _PodLook(pod, seen, silent, log, max(0.0, self._clock() - began) if began else 0.0)

    async def _probe(self, kube: Kube, pod: Object, container: str, deadline: float) -> _Seen:
        """The ranks of the pod's container of this name."""
        command = ("sh", "-c", _FIND_PYTHON, "rowlock", self._runner)
        try:
            seen = await self._ask(kube, pod, container, command, _TIMEOUT_S)
        except Forbidden as error:
            return _Seen(blind=f"exec in the pod was refused: {error.message}")
        except ApiError as error:
            return _Seen(blind=error.message)
        if any(not rank.blind for rank in seen.ranks):
            return seen
        if self._debug is None:
            reason = "the server has no --debug-image to look from a debug container"
        else:
            from_debug, reason = await self._probe_from_debug_container(self._debug, kube, pod, container, deadline)
            if not reason:
                return from_debug
            seen = seen if seen.ranks else seen._replace(ranks=from_debug.ranks, network=from_debug.network)
        explained = tuple(msgspec.structs.replace(rank, blind=f"{rank.blind}; {reason}") for rank in seen.ranks)
        why = f"{seen.blind or 'it has no Python process'}; {reason}"
        return seen._replace(ranks=explained, blind=why)

    async def _probe_from_debug_container(
        self, debug: DebugContainers, kube: Kube, pod: Object, container: str, deadline: float
    ) -> tuple[_Seen, str]:
        """(ranks, why they have no stacks); the reason is "" if they have."""
        try:
            name = await debug.ensure_running(kube, pod, deadline, container)
            seconds = min(_TIMEOUT_S, deadline - asyncio.get_running_loop().time())
            command = (*debug_container.PYTHON, self._runner, rank_probe.FROM_OUTSIDE)
            seen = await self._ask(kube, pod, name, command, max(1.0, seconds))
        except NoDebugContainer as error:
            return _Seen(), f"no debug container: {error}"
        except ApiError as error:
            return _Seen(), f"the debug container cannot be asked: {error.message}"
        if any(not rank.blind for rank in seen.ranks):
            return seen, ""
        reason = seen.ranks[0].blind if seen.ranks else seen.blind or "it sees no Python process"
        return seen, f"the debug container sees no more: {reason}"

    async def _ask(self, kube: Kube, pod: Object, container: str, command: Sequence[str], seconds: float) -> _Seen:
        """Run the probe in a container and return its answer, or why there is none. Raises ApiError."""
        place = objects.namespace(pod), objects.name(pod), container
        result = await self._run(kube.connection, place, command, seconds, self._script)
        if f"exit code {_NO_PYTHON}" in result.problem:
            words = result.output[:_MAX_COMMAND].decode(errors="replace").strip()
            program = "".join(c if c.isprintable() and c != "`" else " " for c in words)
            return _Seen(blind="they are not Python programs", program=program)
        if result.problem:
            last = result.error_output.splitlines()[-1:] or [result.problem]
            return _Seen(blind=f"the container cannot be looked into: {last[0][:300]}")
        try:
            answer = msgspec.json.decode(result.output, type=_ProbeAnswer)
            network = msgspec.convert(answer.network, NetworkCounts) if answer.network else None
            return _Seen(tuple(answer.ranks[: rank_probe.MOST_RANKS]), network=network)
        except ValueError:
            return _Seen(blind="what the container answered cannot be read")

    async def _read_log(self, kube: Kube, pod: Object, container: str, began: float) -> tuple[float, str]:
        """Seconds since the last line of a container's log, or since it started (`began`) if there is none; and the end of the log."""
        text = b""
        try:
            async with asyncio.timeout(_LOG_TIMEOUT_S):
                options = LogOptions(container, tail=LOG_LINES, timestamps=True)
                async for chunk in kube.log(objects.namespace(pod), objects.name(pod), options):
                    text = (text + chunk)[-_LOG_BYTES:]
        except (ApiError, TimeoutError):
            text = b""
        lines = text.decode(errors="replace").splitlines()
        written = next((at for line in reversed(lines) if (at := _seconds(line.partition(" ")[0]))), 0.0)
        return max(0.0, self._clock() - (written or began or self._clock())), "\n".join(lines)

    def _ended_ranks(self, job: Object) -> list[RankObservation]:
        """The ranks whose main containers have ended with 0: the running ones may be waiting for them."""
        pods = [pod for pod in self.pods_of(objects.uid(job)) if has_main_ended(job, pod)]
        return [
            RankObservation(
                ranks.rank_label(job, pod),
                objects.name(pod),
                str(objects.dig(pod, "spec.nodeName", "")),
                has_ended=True,
            )
            for pod in (pods if ranks.has_ranked_pods(job) else [])
        ]

    def _observations(self, job: Object, look: _PodLook) -> list[RankObservation]:
        pod = look.pod
        label, where = ranks.rank_label(job, pod), (objects.name(pod), str(objects.dig(pod, "spec.nodeName", "")))
        if not look.seen.ranks:
            why = look.seen.blind or "it has no Python process"
            program = look.seen.program if ranks.has_ranked_pods(job) else ""
            return [RankObservation(label, *where, silent=look.silent, blind=why, program=program)]
        found, logged = [], find_error(look.log) if look.silent > MIN_SILENCE else None
        for probed in look.seen.ranks:
            first, second = (stacks.parse_stack(threads) for threads in (probed.first, probed.second))
            if second is not None and not second.frames:
                second, probed = None, msgspec.structs.replace(probed, blind=probed.blind or stacks.NO_CALL)
            name = f"rank {probed.number[:20]}" if probed.number else label
            if [one.number for one in look.seen.ranks].count(probed.number) > 1:
                name = f"{name} (pid {probed.pid})"
            moved = first is None or second is None or first.position != second.position
            seen: dict[str, Any] = {
                "pid": probed.pid,
                "state": probed.state[:1],
                **_activity(probed, pod),
                "silent": look.silent,
                "looks": max(0, probed.looks),
                "watched": max(0.0, probed.watched),
                "reach": f"kubectl exec -n {objects.namespace(pod)} {objects.name(pod)} -- ",
            }
            earlier = parse_report_text(probed.earlier)
            seen |= {"error": parse_report_text(probed.error), "blind": probed.blind[:500], "restarts": probed.restarts}
            seen |= {
                "rendezvous": probed.rendezvous,
                "is_connected": len(look.seen.ranks) > 1 or not probed.alone,
                "world_size": int(size) if objects.is_digits(size := probed.world_size[:9]) else 0,
            }
            seen["logged"] = logged if logged is not None and logged.rank in (None, _number_of(name)) else None
            seen["earlier_error"] = earlier and replace(earlier, rank=probed.earlier_rank)
            found.append(RankObservation(name, *where, **seen, stack=second, moved=moved))
        return [one for one in found if one.state not in ("X", "Z")]


def _number_of(name: str) -> int | None:
    number = name.removeprefix("rank ")
    return int(number) if objects.is_digits(number) and len(number) < 10 else None


def _activity(probed: _ProbedRank, pod: Object) -> dict[str, Any]:
    own_network = not objects.dig(pod, "spec.hostNetwork", False)
    before, after = (counters.as_activity(own_network) for counters in (probed.before, probed.after))
    return activity_between(before, after, max(0.001, probed.watched))


def _verdict_by_silence(verdict: Verdict, observations: Sequence[RankObservation], has_processes: bool) -> Verdict:
    """A "blind" verdict that adds the silence of the logs, and the CPU usage if processes were seen."""
    silent = format_duration(min((look.silent for look in observations), default=0.0))
    used = f", and {sum(look.cpu for look in observations):.1f} CPUs are in use" if has_processes else ""
    return Verdict("blind", f"No rank has written a line for {silent}{used}. {verdict.sentence}")


def _main_status(job: Object, pod: Object) -> dict[str, Any]:
    name = main_container_name(job, pod)
    statuses: list[dict[str, Any]] = objects.dig(pod, "status.containerStatuses", [])
    return next((status for status in statuses if status.get("name") == name), {})


def _started_at(job: Object, pod: Object) -> float:
    """When its main container started; 0 if it does not run."""
    state: dict[str, Any] = _main_status(job, pod).get("state") or {}
    return _seconds(str((state.get("running") or {}).get("startedAt") or ""))


def _runs(job: Object, pod: Object) -> bool:
    return not objects.is_deleting(pod) and "running" in (_main_status(job, pod).get("state") or {})


def _seconds(stamp: str) -> float:
    """Parse a time stamp with nanoseconds, as logs have it; 0 if it is malformed."""
    try:
        return objects.seconds(f"{stamp.partition('.')[0].rstrip('Z')}Z") or 0.0
    except ValueError:
        return 0.0
