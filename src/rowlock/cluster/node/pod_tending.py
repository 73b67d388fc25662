"""One pod's turn, done: reads its facts, carries out the chores that `sync` names, publishes its status.

Few writes: a healthy pod's status is written when it runs and when it has ended. Events go aside through the recorder.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rowlock import kinds
from rowlock.api import Api, DeleteOptions, Record
from rowlock.cluster.node import (
    claims,
    eviction,
    gpu_shares,
    pod_containing,
    pod_rights,
    pod_status,
    pod_sync,
    processes,
)
from rowlock.cluster.node.environment import Missing
from rowlock.cluster.node.facts import ticks
from rowlock.cluster.node.pod_facts import (
    NO_FACTS,
    NO_PULL,
    ContainerFacts,
    Problem,
    Run,
    all_containers,
    init_containers,
)
from rowlock.cluster.node.pod_pulling import PULLING, PodPulling
from rowlock.cluster.node.pod_starting import Starting, remarks
from rowlock.cluster.node.pod_sync import Publish, Remove, Start, Stop
from rowlock.cluster.node.probing import Probing
from rowlock.cluster.node.processes import PodHost
from rowlock.cluster.node.tended import Tended
from rowlock.controllers.recorder import Recorder
from rowlock.errors import NotFound, Unavailable
from rowlock.objects import Object, deleting, dig, namespace, revision, uid
from rowlock.objects import name as name_of

EXPECTED = {"InvalidImageName": "InspectFailed", "ErrImageNeverPull": "ErrImageNeverPull"}
UNMOUNTED = "FailedMount"
"""Problem → the reason of the event that tells its cause (else Failed)."""
TOLD = {
    "OOMKilled": ("OOMKilled", "container {name} was killed: {why}; raise resources.limits.memory, or use less"),
    "StartError": ("Failed", "Error: {why}"),
}
"""How a program ended → reason and message of the event that says so."""


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
        self.probing = Probing(clock)
        self.probing.event, self.probing.stop = self._event, self._end
        self.pulling = PodPulling(starting.runtime, starting.view, clock)
        self.pulling.event = self._event
        self.open_files: tuple[int, int] | None = None

    # ------------------------------------------------------------ facts

    def look(self, tended: Tended, container: str) -> list[Run]:
        """Reads a container's facts from disk. Returns its run if that is alive and should be watched."""
        directory = self.starting.directories.container(tended.card.uid, container)
        number = processes.newest(directory)
        known = tended.containers.get(container, NO_FACTS)
        if _stillborn(known, number):
            tended.set(container, replace(known, asked=None, shim=0))
            return []
        run = None if number is None else processes.read_run(directory, number)
        if run is None or number is None:
            return []
        if run.exit is None and not processes.shim_lives(run):
            run = processes.lost(directory, run, self._clock())
            tended.untidy = tended.card.contained
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
        if fresh:
            known = replace(known, problem=None, started=False, ready=False)
        tended.set(container, replace(known, run=run, last=last, asked=asked))
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
        problem = await self._choose(pod, tended) if tended.fresh() and not deleting(pod) else None
        if tended.untidy:
            tended.untidy = False
            await self.starting.runtime.sweep()
        if not tended.remarked:
            tended.remarked = True
            if not tended.has_started():
                engine = self.starting.runtime.name if tended.card.contained else ""
                for sentence in remarks(pod, self.starting.limits, engine=engine):
                    self._event(pod, "Warning", "Unsupported", sentence)
                for sentence in gpu_shares.remarks(pod, self.starting.nodes.get(tended.card.node)):
                    self._event(pod, "Normal", "SharedGPU", sentence)
        self._tell_ends(pod, tended)
        self.probing.look(pod, tended)
        now = self._clock()
        turn = pod_sync.sync(pod, tended.facts(), now, self.backoff)
        starts = [c for c in turn.chores if isinstance(c, Start)]
        if starts and tended.card.contained and problem is None:
            problem = await self._contain(pod, tended)
        problem = problem or await self._volumes(pod, tended, starting=bool(starts))
        if problem and starts:
            for start in starts:
                self._cannot(pod, tended, start.container, problem)
            return 0.0
        await asyncio.gather(*(self._start(pod, tended, start) for start in starts))
        for chore in turn.chores:
            if isinstance(chore, Stop):
                self._stop(pod, tended, chore)
            elif isinstance(chore, Publish):
                await self._publish(pod, tended)
            elif isinstance(chore, Remove):
                await self._remove(pod, tended)
        known = [tended.containers.get(s.container, NO_FACTS) for s in starts]
        return 0.0 if any(k.problem or k.pull.under_way for k in known) else turn.again

    async def _choose(self, pod: Object, tended: Tended) -> Problem | None:
        """Before a pod's first program: is it to run as processes or in containers?"""
        starting = self.starting
        await starting.runtime.look(pod)
        contained = starting.runtime.holds(pod)
        if contained == tended.card.contained:
            return None
        if problem := await starting.runtime.prepare(pod):
            return problem
        network = starting.network
        address = network.container_address(pod) if contained else network.address(tended.card.uid)
        tended.card = replace(tended.card, contained=contained, ip=address)
        starting.directories.write(tended.card)
        network.write_hosts()
        return None

    async def _contain(self, pod: Object, tended: Tended) -> Problem | None:
        """What the engine must have, and we must know of it, before a container starts."""
        await self.starting.runtime.look(pod)
        return await self.starting.runtime.prepare(pod)

    async def _volumes(self, pod: Object, tended: Tended, *, starting: bool) -> Problem | None:
        """Makes the pod's volumes before a start, and keeps the files of a running pod up to date."""
        if not starting and (not tended.shows_files() or tended.finished):
            return None
        try:
            wanted = self.starting.volumes(pod, tended.card)
            if wanted != tended.volumes:
                make = self.starting.places.make
                await asyncio.to_thread(make, tended.card.uid, wanted, pod_rights.fs_group(pod))
                await claims.bind(self._api, self.starting.view, pod, self.starting.places, wanted)
                tended.volumes = wanted
        except Missing as missing:
            return missing.problem if starting else None  # what runs keeps the files it has
        return None

    async def _start(self, pod: Object, tended: Tended, start: Start) -> None:
        known = tended.containers.get(start.container, NO_FACTS)
        request = pod_containing.request(self.starting, pod, tended.card, start)
        if isinstance(request, Problem):
            container = next(c for c in all_containers(pod) if c["name"] == start.container)
            if request.reason not in PULLING or not self.pulling.takes(pod, tended, container):
                self._cannot(pod, tended, start.container, request)
            return
        spec, image = request
        directory = self.starting.directories.container(tended.card.uid, start.container)
        directory.mkdir(exist_ok=True, mode=0o700)
        self.starting.directories.drop_old_runs(tended.card.uid, start.container, start.number)
        if self.open_files:
            spec["rlimits"] = {"RLIMIT_NOFILE": self.open_files}
        told = known.pull.told
        known = replace(known, asked=start.number, shim=0, problem=None, stop_by=None, image_id=image.id, pull=NO_PULL)
        tended.set(start.container, known)
        answer = await self._host.ask("start", **spec)
        known = tended.containers[start.container]
        if answer == processes.GONE:
            tended.set(start.container, replace(known, asked=None))
            raise Unavailable("the pod host has gone; a new one is being started")
        if answer.get("error"):
            problem = Problem("CreateContainerError", f"the program could not be started: {answer['error']}")
            tended.set(start.container, replace(known, asked=None, problem=problem, problem_since=self._clock()))
            return
        if known.asked == start.number:
            tended.set(start.container, replace(known, shim=int(answer.get("shim") or 0)))
        text = f'Container image "{_image(pod, start.container)}" already present on machine'
        where = start.container
        if not told:
            self._event(pod, "Normal", "Pulled", text, where)
        self._event(pod, "Normal", "Created", f"Created container: {where}", where)
        self._event(pod, "Normal", "Started", f"Started container {where}{_warmth(answer)}", where)
        for sentence in pod_rights.unwritable(spec["mounts"], spec["user"]) if start.number == 0 else ():
            self._event(pod, "Warning", "VolumeNotWritable", sentence, where)

    def _cannot(self, pod: Object, tended: Tended, container: str, problem: Problem) -> None:
        """Remembers why, says so in events; a pull that fails again is a back-off, as on a real node."""
        known = tended.containers.get(container, NO_FACTS)
        image, again = _image(pod, container), known.problem is not None
        cause = problem.message
        if problem.reason == "ErrImagePull" and again:
            problem = Problem("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {cause}')
            self._event(pod, "Normal", "BackOff", f'Back-off pulling image "{image}"', container)
        else:
            text = f'Failed to pull image "{image}": {cause}' if problem.reason == "ErrImagePull" else cause
            reason = {**EXPECTED, UNMOUNTED: UNMOUNTED}.get(problem.reason, "Failed")
            self._event(pod, "Warning", reason, text, "" if reason == UNMOUNTED else container)
        if problem.reason in (*PULLING, *EXPECTED):
            self._event(pod, "Warning", "Failed", f"Error: {problem.reason}", container)
        tended.set(container, replace(known, problem=problem, problem_since=self._clock()))

    def _stop(self, pod: Object, tended: Tended, stop: Stop) -> None:
        known = tended.containers.get(stop.container, NO_FACTS)
        if known.run is None or known.run.exit is not None:
            return
        container = next(c for c in all_containers(pod) if c["name"] == stop.container)
        if known.stop_by is None:
            self._event(pod, "Normal", "Killing", f"Stopping container {stop.container}", stop.container)
            if self.probing.farewell(pod, tended, container, stop.grace):
                return
        self._end(pod, tended, stop.container, stop.grace)

    def _end(self, pod: Object, tended: Tended, container: str, grace: float) -> None:
        """SIGTERM now, SIGKILL after `grace` seconds."""
        known = tended.containers[container]
        if known.run is not None and known.run.exit is None:
            processes.stop(self.starting.directories.container(tended.card.uid, container), known.run, grace)
            tended.set(container, replace(known, stop_by=self._clock() + grace))

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
            await self._forget(tended)

    async def _forget(self, tended: Tended) -> None:
        """Nothing of it runs any more: its network, its memory and its containers go."""
        self.pulling.forget(tended.card.uid)
        await self._host.ask("forget", uid=tended.card.uid)
        if tended.card.contained:
            await self.starting.runtime.forget(tended.card.uid)

    def _tell_ends(self, pod: Object, tended: Tended) -> None:
        """An event for every program that could not begin or ended for want of memory, once: before its status says so."""
        said = {c["name"]: c for c in dig(pod, "status.containerStatuses", ())}
        for name, known in tended.containers.items():
            run, before = known.run, said.get(name, {})
            if run is None or run.exit is None or run.exit.reason not in TOLD or (name, run.number) in tended.told:
                continue
            tended.told.add((name, run.number))
            if before.get("restartCount") != run.number or not dig(before, "state.terminated"):
                reason, text = TOLD[run.exit.reason]
                self._event(pod, "Warning", reason, text.format(name=name, why=run.exit.message), name)

    def _tell_back_off(self, pod: Object, status: dict[str, Any]) -> None:
        for container in status["containerStatuses"]:
            if (container["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff":
                where = f"{name_of(pod)}_{namespace(pod)}({uid(pod)})"
                text = f"Back-off restarting failed container {container['name']} in pod {where}"
                self._event(pod, "Warning", "BackOff", text, container["name"])

    async def _remove(self, pod: Object, tended: Tended) -> None:
        options = DeleteOptions(grace=0, uid=uid(pod))
        with contextlib.suppress(NotFound):
            await self._api.delete(kinds.POD, namespace(pod), name_of(pod), options=options)

    async def measure(self, tended: Tended) -> bool:
        """Looks at what the pod has on disk; True when that is more than it may."""
        card = tended.card
        pod = self.starting.view.get(kinds.POD, card.namespace, card.name)
        if pod is None or uid(pod) != card.uid or tended.finished or tended.evicted or not eviction.limited(pod):
            return False
        size = eviction.sizes(self.starting.directories, card.uid)
        tended.evicted = await asyncio.to_thread(eviction.over, pod, size)
        if tended.evicted:
            self._event(pod, "Warning", "Evicted", tended.evicted)
        return bool(tended.evicted)

    async def put_down(self, tended: Tended) -> bool:
        """Kills what runs of a pod that is no more; True when nothing does."""
        self.probing.forget(tended.card.uid)
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
            await self._forget(tended)
        return done

    def _event(self, pod: Object, kind: str, reason: str, message: str, container: str = "") -> None:
        record = Record(pod, kind, reason, message, "kubelet", _part(pod, container))  # type: ignore[arg-type] # Normal, Warning
        self._recorder.record(record)


def _stillborn(known: ContainerFacts, newest: int | None) -> bool:
    """Did the shim die before it could claim the start it was made for?"""
    waits = known.asked is not None and (newest is None or newest < known.asked)
    return waits and known.shim > 0 and os.path.isdir("/proc/self") and not ticks(known.shim)


def _part(pod: Object, container: str) -> str:
    """Where the pod speaks of the container, as Kubernetes writes it in events."""
    if not container:
        return ""
    field = "initContainers" if container in [c["name"] for c in init_containers(pod)] else "containers"
    return f"spec.{field}{{{container}}}"


def _warmth(answer: dict[str, Any]) -> str:
    if answer.get("warm"):
        return " (warm: torch was imported already)"
    return f" (cold, though it imports torch: {answer['cold']})" if answer.get("cold") else ""


def _image(pod: Object, container: str) -> str:
    return next((str(c.get("image") or "") for c in all_containers(pod) if c["name"] == container), "")
