"""What the kubelet remembers of a pod between turns; all of it can be rebuilt from disk."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerFacts, PodFacts, Problem, Run
from rowlock.kubelet.pod.recreations import NO_DELAY, StartDelay
from rowlock.kubelet.pod.spec import STATUS_LISTS, PodSpec, parse_pod_spec
from rowlock.kubelet.pod.volume import Volume
from rowlock.objects import FINAL_PHASES, Object, is_deleting, phase


@dataclass(slots=True)
class PodState:
    """A pod in the kubelet's care."""

    card: PodCard
    containers: dict[str, ContainerFacts] = field(default_factory=dict)
    master_ready: float | None = None
    finished: bool = False
    is_released: bool = False
    """Whether the pod host has released what it held for the pod, after it finished."""
    are_warnings_sent: bool = False
    has_lost_shim: bool = False
    """A shim was lost: its container, or processes of its program, may still run."""
    lost_hosts: int = 0
    """Pod hosts in a row that died while they started one of its containers."""
    evicted: str = ""
    """Why it is evicted; after a restart of the server only its status says so."""
    rejected: tuple[str, str] | None = None
    """Reason and message, where the node has no room for it (`node/admission.py`)."""
    failed_probes: dict[tuple[str, int], str] = field(default_factory=dict)
    """Container and number of its run → the event's message about the probe or hook that failed and for which it was stopped."""
    stop_reasons: dict[tuple[str, int], str] = field(default_factory=dict)
    """Container and number of its run → why it was asked to end."""
    was_surplus: bool = False
    """Whether its Job gave it up before it was deleted (`stop_reasons.is_surplus`)."""
    creation_problems: dict[str, Problem] = field(default_factory=dict)
    """Container → why an engine could not create it; not reported yet."""
    volumes: tuple[Volume, ...] | None = None
    """As they are on disk; None = not checked since the kubelet started."""
    reported_exits: set[tuple[str, int]] = field(default_factory=set)
    """Container and number of the runs whose exit events are recorded."""
    delay: StartDelay = NO_DELAY
    """How long it waits before it starts, because its predecessors failed."""
    spec: PodSpec | None = None
    """The parsed object that was seen last."""
    written_revision: int = 0
    """Revision of the status that its last turn published, if that change needs no turn: it runs or has ended; 0 = none."""
    removed: Object | None = None
    """Its deleted object with the grace of its programs (`as_deleted_gracefully`); None = it is stored, or nothing is known of it."""
    awaits_devices_of: str = ""
    """The removed pod whose programs still have its GPUs; "" = none has."""
    _watchers: set[asyncio.Event] = field(default_factory=set)
    """Events that are set at each change of the facts."""

    def facts(self) -> PodFacts:
        card = self.card
        return PodFacts(
            card.ip,
            "127.0.0.1",
            card.begun,
            self.containers,
            self.master_ready,
            self.evicted,
            self.delay.remaining,
            self.rejected,
        )

    def spec_of(self, pod: Object) -> PodSpec:
        """The parsed object; parsed again only if it is another one (objects are immutable). A pod that has ended is not kept: a
        machine has thousands of them, and they are looked at seldom."""
        if self.spec is not None and self.spec.object is pod:
            return self.spec
        spec = parse_pod_spec(pod, self.spec)
        if phase(pod) not in FINAL_PHASES or any(self.live_runs()):
            self.spec = spec
        return spec

    def has_ended(self, container: str) -> bool:
        """Whether the newest run of a container has ended."""
        facts = self.containers.get(container)
        return facts is not None and facts.run is not None and facts.run.exit is not None

    def live_runs(self) -> Iterator[Run]:
        """Runs that have not ended."""
        yield from (k.run for k in self.containers.values() if k.run is not None and k.run.exit is None)

    def running_numbers(self) -> dict[str, int]:
        """Containers whose programs run → the number of each one's run."""
        return {name: k.run.number for name, k in self.containers.items() if k.run is not None and k.run.is_running}

    def has_started(self) -> bool:
        return any(k.run is not None and k.run.started is not None for k in self.containers.values())

    def has_settled(self, pod: Object, told_until: float) -> bool:
        """Whether nothing is left to do for its stored object `pod` before it changes: it has ended, its programs ended before
        `told_until`, and its status tells the end of each. Parses nothing: a start asks this for thousands of pods."""
        if phase(pod) not in FINAL_PHASES or is_deleting(pod) or self.card.contained or not self.containers:
            return False
        status = pod.get("status") or {}
        reported = {
            str(one.get("name")): one.get("restartCount")
            for field in STATUS_LISTS
            for one in status.get(field) or ()
            if (one.get("state") or {}).get("terminated")
        }
        return all(
            facts.asked is None
            and facts.run is not None
            and facts.run.exit is not None
            and facts.run.exit.finished < told_until
            and reported.get(name) == facts.run.number
            for name, facts in self.containers.items()
        )

    def is_unstarted(self) -> bool:
        """Whether nothing of it was ever started, so that its runtime can still be chosen."""
        return all(k.run is None and k.asked is None for k in self.containers.values())

    def has_problem(self) -> bool:
        return any(k.problem is not None for k in self.containers.values())

    def has_file_volumes(self) -> bool:
        """Whether it sees objects such as ConfigMaps or Secrets as files."""
        return any(v.kind == "files" for v in self.volumes or ())

    def retry_problems(self) -> None:
        """Makes failed starts due now: their cause may be gone."""
        for name, facts in self.containers.items():
            if facts.problem is not None:
                self.containers[name] = replace(facts, problem_since=0.0)

    def holds_devices(self) -> bool:
        return not self.finished and self.rejected is None

    def containers_to_poll(self, *, pidfds: bool) -> list[str]:
        """Containers whose facts must be polled: those that are starting, and without `pidfds` all that run."""
        return [
            name
            for name, k in self.containers.items()
            if k.asked is not None or (k.run is not None and k.run.exit is None and (not pidfds or not k.run.started))
        ]

    def set_facts(self, container: str, facts: ContainerFacts) -> None:
        """Stores new facts and wakes the tasks that wait for this pod."""
        self.containers[container] = facts
        for event in self._watchers:
            event.set()

    @contextlib.contextmanager
    def watch_facts(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever there are new facts; the waiting task clears it before it waits again."""
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            yield event
        finally:
            self._watchers.discard(event)

    async def wait_for_change(self) -> None:
        """Waits until there are new facts."""
        with self.watch_facts() as changed:
            await changed.wait()


class PodStates(dict[str, PodState]):
    """All pods of this kubelet, by uid."""

    def __init__(self) -> None:
        super().__init__()
        self._active: dict[str, PodState] = {}

    def __setitem__(self, uid: str, state: PodState) -> None:
        super().__setitem__(uid, state)
        self._active[uid] = state

    def held_pods(self) -> list[tuple[str, PodState]]:
        """The pods for which the pod host may hold something, with their uids. The others, of which there may be thousands, are looked at
        only once."""
        for uid, state in list(self._active.items()):
            if state.is_released or self.get(uid) is not state:
                del self._active[uid]
        return list(self._active.items())

    def count_active(self, node: str) -> int:
        """Unfinished pods of a node, which share its CPUs. Called at each start."""
        return sum(state.card.node == node and not state.finished for _, state in self.held_pods())
