"""One pod's turn, done: reads its facts, carries out the chores that `sync` names, publishes its status.

`Tended` is what the kubelet remembers of a pod between turns; it can be made again from disk. Few writes: a healthy pod's
status is written when it runs and when it has ended. Events go aside through the recorder.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock import kinds
from rowlock.api import Api, DeleteOptions, Record
from rowlock.cluster.node import pod_status, pod_sync, processes
from rowlock.cluster.node.pod_directory import PodCard
from rowlock.cluster.node.pod_facts import NO_FACTS, ContainerFacts, PodFacts, Problem, Run, all_containers
from rowlock.cluster.node.pod_starting import Starting, remarks
from rowlock.cluster.node.pod_sync import Publish, Remove, Start, Stop
from rowlock.cluster.node.processes import PodHost
from rowlock.controllers.recorder import Recorder
from rowlock.errors import NotFound, Unavailable
from rowlock.objects import Object, namespace, revision, uid
from rowlock.objects import name as name_of

PULLING = ("ErrImagePull", "ImagePullBackOff")
EXPECTED = {"InvalidImageName": "InspectFailed", "ErrImageNeverPull": "ErrImageNeverPull"}
"""Problem → the reason of the event that tells its cause (else Failed)."""


@dataclass(slots=True)
class Tended:
    """A pod in the kubelet's care."""

    card: PodCard
    containers: dict[str, ContainerFacts] = field(default_factory=dict)
    master_ready: float | None = None
    finished: bool = False
    remarked: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def facts(self) -> PodFacts:
        card = self.card
        return PodFacts(card.ip, "127.0.0.1", card.begun, self.containers, self.master_ready)

    def alive(self) -> Iterator[Run]:
        """Runs that have not ended."""
        yield from (k.run for k in self.containers.values() if k.run is not None and k.run.exit is None)

    def has_started(self) -> bool:
        return any(k.run is not None and k.run.started is not None for k in self.containers.values())

    def has_problem(self) -> bool:
        return any(k.problem is not None for k in self.containers.values())

    def holds_devices(self) -> bool:
        return not self.finished

    def unsure(self, *, pidfds: bool) -> list[str]:
        """Containers worth a look though nothing was heard of them."""
        return [
            name
            for name, k in self.containers.items()
            if k.asked is not None or (k.run is not None and k.run.exit is None and (not pidfds or not k.run.started))
        ]

    def set(self, container: str, facts: ContainerFacts) -> None:
        """New facts; wakes whoever waits for this pod."""
        self.containers[container] = facts
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()


class Tending:
    """The doing half of the kubelet, for one pod at a time."""

    def __init__(
        self,
        api: Api,
        host: PodHost,
        starting: Starting,
        recorder: Recorder,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._host = api, host
        self.starting = starting
        self._recorder, self._clock = recorder, clock
        self._watched: dict[int, int] = {}
        self.backoff = 10.0
        self.open_files: tuple[int, int] | None = None

    # ------------------------------------------------------------ facts

    def look(self, tended: Tended, container: str) -> list[Run]:
        """Reads a container's facts from disk. Returns its run if that is alive and should be watched."""
        directory = self.starting.directories.container(tended.card.uid, container)
        number = processes.newest(directory)
        known = tended.containers.get(container, NO_FACTS)
        run = None if number is None else processes.read_run(directory, number)
        if run is None or number is None:
            return []
        if run.exit is None and not processes.shim_lives(run):
            run = processes.lost(directory, run, self._clock())
            processes.kill_strays([tended.card.uid]) if run.exit and run.exit.reason else None
        last = known.last
        if number and (known.run is None or known.run.number != number):
            before = processes.read_run(directory, number - 1)
            last = before.exit if before is not None else known.last
        settled = run.started is not None or run.exit is not None
        asked = None if settled and (known.asked is None or known.asked <= number) else known.asked
        if not settled and asked is None:
            asked = number
        fresh = known.run is None or known.run.number != number or known.run.started != run.started
        tended.set(container, replace(known, run=run, last=last, asked=asked, problem=None if fresh else known.problem))
        return [run] if run.exit is None else []

    def watch(self, run: Run, ended: Callable[[], None]) -> None:
        """Calls `ended` once when the shim has gone, whether or not it could say so."""
        if run.shim in self._watched or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(run.shim)
        except OSError:
            asyncio.get_running_loop().call_soon(ended)
            return
        if not processes.shim_lives(run):
            os.close(fd)
            asyncio.get_running_loop().call_soon(ended)
            return
        self._watched[run.shim] = fd

        def gone() -> None:
            self._unwatch(run.shim)
            ended()

        asyncio.get_running_loop().add_reader(fd, gone)

    def _unwatch(self, shim: int) -> None:
        fd = self._watched.pop(shim, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def close(self) -> None:
        for shim in list(self._watched):
            self._unwatch(shim)

    # ------------------------------------------------------------ a turn

    async def turn(self, pod: Object, tended: Tended) -> float | None:
        """Does what is due for the pod; returns when to look again."""
        if not tended.remarked:
            tended.remarked = True
            if not tended.has_started():
                for sentence in remarks(pod):
                    self._event(pod, "Warning", "Unsupported", sentence)
        now = self._clock()
        turn = pod_sync.sync(pod, tended.facts(), now, self.backoff)
        starts = [c for c in turn.chores if isinstance(c, Start)]
        await asyncio.gather(*(self._start(pod, tended, start) for start in starts))
        for chore in turn.chores:
            if isinstance(chore, Stop):
                self._stop(pod, tended, chore)
            elif isinstance(chore, Publish):
                await self._publish(pod, tended)
            elif isinstance(chore, Remove):
                await self._remove(pod, tended)
        failed = any(tended.containers.get(s.container, NO_FACTS).problem for s in starts)
        return 0.0 if failed else turn.again

    async def _start(self, pod: Object, tended: Tended, start: Start) -> None:
        known = tended.containers.get(start.container, NO_FACTS)
        request = self.starting.request(pod, tended.card, start)
        if isinstance(request, Problem):
            self._cannot(pod, tended, start.container, request)
            return
        spec, image = request
        directory = self.starting.directories.container(tended.card.uid, start.container)
        directory.mkdir(exist_ok=True, mode=0o700)
        self.starting.directories.drop_old_runs(tended.card.uid, start.container, start.number)
        if self.open_files:
            spec["rlimits"] = {"RLIMIT_NOFILE": self.open_files}
        tended.set(start.container, replace(known, asked=start.number, problem=None, stop_by=None, image_id=image.id))
        answer = await self._host.ask("start", **spec)
        known = tended.containers[start.container]
        if answer == processes.GONE:
            tended.set(start.container, replace(known, asked=None))
            raise Unavailable("the pod host has gone; a new one is being started")
        if answer.get("error"):
            problem = Problem("CreateContainerError", f"the program could not be started: {answer['error']}")
            tended.set(start.container, replace(known, asked=None, problem=problem, problem_since=self._clock()))
            return
        text = f'Container image "{_image(pod, start.container)}" already present on machine'
        self._event(pod, "Normal", "Pulled", text)
        self._event(pod, "Normal", "Created", f"Created container: {start.container}")
        self._event(pod, "Normal", "Started", f"Started container {start.container}")

    def _cannot(self, pod: Object, tended: Tended, container: str, problem: Problem) -> None:
        """Remembers why, says so in events; a pull that fails again is a back-off, as on a real node."""
        known = tended.containers.get(container, NO_FACTS)
        image, again = _image(pod, container), known.problem is not None
        cause = problem.message
        if problem.reason == "ErrImagePull" and again:
            problem = Problem("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {cause}')
            self._event(pod, "Normal", "BackOff", f'Back-off pulling image "{image}"')
        else:
            text = f'Failed to pull image "{image}": {cause}' if problem.reason == "ErrImagePull" else cause
            self._event(pod, "Warning", EXPECTED.get(problem.reason, "Failed"), text)
        if problem.reason in (*PULLING, *EXPECTED):
            self._event(pod, "Warning", "Failed", f"Error: {problem.reason}")
        tended.set(container, replace(known, problem=problem, problem_since=self._clock()))

    def _stop(self, pod: Object, tended: Tended, stop: Stop) -> None:
        known = tended.containers.get(stop.container, NO_FACTS)
        if known.run is None or known.run.exit is not None:
            return
        if known.stop_by is None:
            self._event(pod, "Normal", "Killing", f"Stopping container {stop.container}")
        directory = self.starting.directories.container(tended.card.uid, stop.container)
        processes.stop(directory, known.run, stop.grace)
        tended.set(stop.container, replace(known, stop_by=self._clock() + stop.grace))

    async def _publish(self, pod: Object, tended: Tended) -> None:
        """One patch, if anything is new; refused (and tried again) when somebody else wrote in between."""
        wanted = pod_status.status(pod, tended.facts(), self._clock(), self.backoff)
        tended.finished = wanted["phase"] in ("Succeeded", "Failed")
        have = pod.get("status") or {}
        if any(have.get(k) != v for k, v in wanted.items()):
            self._tell_back_off(pod, wanted)
            patch = {"metadata": {"uid": uid(pod), "resourceVersion": str(revision(pod))}, "status": wanted}
            with contextlib.suppress(NotFound):
                await self._api.patch(kinds.POD, namespace(pod), name_of(pod), patch, subresource="status")
        if tended.finished:
            await self._host.ask("forget", uid=tended.card.uid)

    def _tell_back_off(self, pod: Object, status: dict[str, Any]) -> None:
        for container in status["containerStatuses"]:
            if (container["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff":
                where = f"{name_of(pod)}_{namespace(pod)}({uid(pod)})"
                text = f"Back-off restarting failed container {container['name']} in pod {where}"
                self._event(pod, "Warning", "BackOff", text)

    async def _remove(self, pod: Object, tended: Tended) -> None:
        options = DeleteOptions(grace=0, uid=uid(pod))
        with contextlib.suppress(NotFound):
            await self._api.delete(kinds.POD, namespace(pod), name_of(pod), options=options)

    async def put_down(self, tended: Tended) -> bool:
        """Kills what runs of a pod that is no more; True when nothing does."""
        done = True
        for container, known in list(tended.containers.items()):
            if known.alive:
                self.look(tended, container)
                known = tended.containers[container]
            if known.run is not None and known.run.exit is None:
                directory = self.starting.directories.container(tended.card.uid, container)
                if known.stop_by is None or known.stop_by > self._clock():
                    processes.stop(directory, known.run, 0.0)
                    tended.set(container, replace(known, stop_by=self._clock()))
                done = False
        if done:
            tended.finished = True
            await self._host.ask("forget", uid=tended.card.uid)
        return done

    def _event(self, pod: Object, kind: str, reason: str, message: str) -> None:
        self._recorder.record(Record(pod, kind, reason, message, "kubelet"))  # type: ignore[arg-type] # Normal, Warning


def _image(pod: Object, container: str) -> str:
    return next((str(c.get("image") or "") for c in all_containers(pod) if c["name"] == container), "")
