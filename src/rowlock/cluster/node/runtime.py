"""Which pods run in containers, and the engine that runs them: found, asked about images, kept tidy.

`--runtime auto`: an image that rowlock's own table knows (`rowlock image`) is a process, any other one is a container:
the engine has it, or pulls it (`pod_pulling.py`). Nothing here is needed on a machine without an engine, and nothing is asked of it but a few `stat` calls. All
that is made in the engine carries the cluster's label, and whatever nobody looks after is removed: after a restart,
after a shim was killed, every now and then.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from rowlock.cluster.node import containers, engine
from rowlock.cluster.node.containers import LABEL
from rowlock.cluster.node.engine import Engine, EngineError
from rowlock.cluster.node.images import DELIVERY, Image, Images, command_line, normalise
from rowlock.cluster.node.network import PodNetwork
from rowlock.cluster.node.pod_facts import Problem, all_containers, emulated, main_containers
from rowlock.cluster.node.tended import Tended
from rowlock.errors import Invalid
from rowlock.objects import Object, uid

log = logging.getLogger("rowlock.kubelet")
_PREFIXES = tuple(f"10.{number}" for number in range(77, 100))
"""Where the pods' addresses begin: the first that no other network of the engine has."""


@dataclass(slots=True)
class Runtime:
    """The kubelet's side of the container engine."""

    wanted: str
    data: Path
    images: Images
    network: PodNetwork
    pods: Mapping[str, Tended]
    """The kubelet's."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    engine: Engine | None = None
    why: str = ""
    """Why the one that should be there does not answer."""
    _sizes: dict[str, int] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.network.contained = self.contained

    @property
    def cluster(self) -> str:
        return containers.digest(str(self.data))

    @property
    def name(self) -> str:
        """docker, podman, or "" where there is none."""
        return self.engine.name if self.engine else ""

    @property
    def net(self) -> str:
        """The name of the pods' network in the engine."""
        return f"rowlock-{self.cluster}"

    async def begin(self) -> None:
        """At the start of the kubelet. Most machines have no engine, and that costs nothing."""
        if self.wanted == "container" or engine.present(self.env):
            await self.find()

    async def find(self) -> None:
        """Looks for an engine. Raises Invalid when one was demanded and none answers."""
        if self.wanted == "process":
            return
        self.engine, self.why = await asyncio.to_thread(engine.find, self.env)
        if self.engine is None and self.wanted == "container":
            raise Invalid(f"--runtime container needs Docker or Podman: {self.why}; start one, or leave the flag out")

    # ------------------------------------------------------------ which pods

    async def look(self, pod: Object) -> None:
        """Brings up to date what is known of the pod's images. A machine whose engine comes later is noticed here."""
        names = {str(c.get("image") or "") for c in all_containers(pod) if not emulated(c)}
        wanted = [normalise(name) for name in names if not self.images.own(name)]
        if self.wanted == "process" or not wanted:
            return  # so that pods as processes wait for no engine
        if self.engine is None and engine.present(self.env):
            with contextlib.suppress(Invalid):
                await self.find()
        if self.engine is not None:
            await asyncio.gather(*(asyncio.to_thread(self._look, self.engine, name) for name in wanted))

    def _look(self, where: Engine, name: str) -> None:
        known = self.images.foreign
        try:
            said = where.ask("GET", f"/images/{name}/json")
            known[name], self._sizes[name] = image(name, where, said), int(said.get("Size") or 0)
        except EngineError as error:
            if error.status:
                known.pop(name, None)
            elif name in known or self.wanted == "container":
                known[name] = Problem("CreateContainerError", f"{error}: start the engine again")

    def holds(self, pod: Object) -> bool:
        """Does the pod run in containers? By what is known of its images."""
        wanted = [c for c in all_containers(pod) if not emulated(c)]
        return any(self.images.contained(str(c.get("image") or "")) or self.absent(c) for c in wanted)

    def absent(self, container: Mapping[str, Any]) -> bool:
        """Is its image one that the engine must fetch first, and may?"""
        if self.engine is None or self.wanted == "process" or container.get("imagePullPolicy") == "Never":
            return False
        return self.images.absent(str(container.get("image") or ""))

    async def lacks(self, pod: Object) -> list[str]:
        """Why containers of such a pod could not be begun, as far as that lies in their images: a sentence each."""
        await self.look(pod)
        found = []
        for container in all_containers(pod):
            if emulated(container) or self.absent(container):  # the engine fetches it
                continue
            image = self.images.find(str(container.get("image") or ""))
            words = command_line(image, container) if isinstance(image, Image) and not image.engine else image
            if isinstance(words, Problem):
                found.append(f"{words.reason}: {words.message}")
        return list(dict.fromkeys(found))

    async def came(self, name: str) -> int | None:
        """Looks for an image after a pull: its size in bytes, None when it is not there."""
        if self.engine is None:
            return None
        await asyncio.to_thread(self._look, self.engine, name)
        return self._sizes.get(name) if isinstance(self.images.foreign.get(name), Image) else None

    def contained(self, pod: Object) -> bool:
        """What was decided before its first program; until then, what would be."""
        tended = self.pods.get(uid(pod))
        return tended.card.contained if tended is not None and not tended.fresh() else self.holds(pod)

    def unfit(self, pod: Object, image: Image, contained: bool) -> Problem | None:
        """Why a container of that image cannot be part of the pod."""
        if contained and not image.engine and image.name.rpartition(":")[0] == DELIVERY:
            text = (
                "the launcher of an MPIJob cannot run in a container yet: run its command with this machine's programs"
            )
            add = f"`rowlock image add {main_containers(pod)[0].get('image')} --host`"
            return Problem("CreateContainerConfigError", f"{text}: {add}")
        if not image.engine and self.wanted == "container":
            text = f'image "{image.name}" stands for a process of this machine, and the cluster runs containers only'
            return Problem("CreateContainerConfigError", f"{text}: start it with --runtime auto, or build the image")
        if bool(image.engine) != contained:
            text = f'image "{image.name}" runs as a process, other images of the pod in containers'
            return Problem("CreateContainerConfigError", f"{text}: give all containers of a pod the same kind of image")
        return None

    # ------------------------------------------------------------ what they need

    async def prepare(self, pod: Object) -> Problem | None:
        """Makes what the engine must have before the pod's containers: the network, the sandbox's image."""
        if self.engine is None:
            return self.gone()
        try:
            async with self._making:
                await asyncio.to_thread(self._make_network, self.engine)
            if containers.sandboxed(pod):
                await asyncio.to_thread(self._make_sandbox_image, self.engine)
        except (EngineError, ValueError) as error:
            self._ready.clear()
            return Problem("CreateContainerError", str(error))
        return None

    def gone(self) -> Problem:
        """What a pod in containers is told when there is no engine any more."""
        return Problem("CreateContainerError", self.why or "no container engine answers here any more: start it again")

    def _make_network(self, where: Engine) -> None:
        if "network" in self._ready:
            return
        found = self._known_network(where)
        for prefix in () if found else _PREFIXES:
            pool = {"Subnet": f"{prefix}.0.0/16", "Gateway": f"{prefix}.0.1"}
            wanted = {"Name": self.net, "Driver": "bridge", "CheckDuplicate": True, "IPAM": {"Config": [pool]}}
            wanted["Labels"] = {f"{LABEL}cluster": self.cluster, f"{LABEL}data": str(self.data)}
            try:
                where.ask("POST", "/networks/create", wanted)
                found = pool["Subnet"]
                break
            except EngineError as error:
                if not any(word in str(error).lower() for word in ("overlap", "already used", "conflict")):
                    raise
        if not found:
            raise ValueError("every network from 10.77.0.0/16 to 10.99.0.0/16 is taken in the container engine")
        self.network.contain(".".join(found.split(".")[:2]))
        self._ready.add("network")

    def _known_network(self, where: Engine) -> str:
        """Its subnet, when it is there."""
        try:
            return str(where.ask("GET", f"/networks/{self.net}")["IPAM"]["Config"][0]["Subnet"])
        except EngineError as error:
            if error.status == 404:
                return ""
            raise

    def _make_sandbox_image(self, where: Engine) -> None:
        if "sandbox" in self._ready:
            return
        try:
            where.ask("GET", f"/images/{containers.SANDBOX}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            from rowlock.cluster.node import pause  # seldom needed: tar archives are not imported at every start

            repository, _, tag = containers.SANDBOX.rpartition(":")
            path = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
            arch = str((where.ask("GET", "/version") or {}).get("Arch", ""))
            where.ask("POST", path, pause.archive(arch))
        self._ready.add("sandbox")

    # ------------------------------------------------------------ tidiness

    async def forget(self, pod: str) -> None:
        """Removes everything of a pod that has gone."""
        if self.engine is not None:
            await asyncio.to_thread(self._forget, self.engine, pod)

    def _forget(self, where: Engine, pod: str) -> None:
        with contextlib.suppress(EngineError):
            for row in _listed(where, "/containers/json?all=1", f"{LABEL}pod={pod}"):
                self._remove(where, f"/containers/{row['Id']}?force=1&v=1")
            for row in (_listed(where, "/volumes?", f"{LABEL}pod={pod}") or {}).get("Volumes") or ():
                self._remove(where, f"/volumes/{row['Name']}?force=1")

    def _remove(self, where: Engine, path: str) -> None:
        with contextlib.suppress(EngineError):  # somebody was quicker
            where.ask("DELETE", path)

    async def sweep(self) -> None:
        """Removes containers of this cluster that nobody looks after."""
        if self.engine is None:
            return
        with contextlib.suppress(EngineError):
            label = f"{LABEL}cluster={self.cluster}"
            found = await asyncio.to_thread(_listed, self.engine, "/containers/json?all=1", label)
            for each in containers.orphans(found, *self._alive()):
                log.info("container %s, which nobody looks after, is removed", each[:12])
                await asyncio.to_thread(self._remove, self.engine, f"/containers/{each}?force=1&v=1")

    def _alive(self) -> tuple[set[tuple[str, str, str]], set[str]]:
        """(pod, container, run) of all that lives, and the pods that are at work."""
        found = set()
        for pod, tended in self.pods.items():
            for container, known in tended.containers.items():
                numbers = (known.asked, known.run.number if known.run is not None else None) if known.alive else ()
                found |= {(pod, container, str(number)) for number in numbers if number is not None}
        return found, {pod for pod, tended in self.pods.items() if not tended.finished}

    def close(self) -> None:
        """The network goes when nothing is in it any more; an engine that is slow to answer does not hold the server up."""
        if self.engine is not None:
            with contextlib.suppress(EngineError):
                self.engine.ask("DELETE", f"/networks/{self.net}", patience=engine.PROBE)


def _listed(where: Engine, path: str, label: str) -> Any:
    return where.ask("GET", f"{path}&filters={quote(json.dumps({'label': [label]}))}")


def image(name: str, where: Engine, said: Mapping[str, Any]) -> Image:
    """An image of the engine, as every other image."""
    config = said.get("Config") or {}
    return Image(
        name,
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        workdir=str(config.get("WorkingDir") or ""),
        engine=f"{where.name}://{said['Id']}",
        user=str(config.get("User") or ""),
        stop_signal=str(config.get("StopSignal") or ""),
    )


def shared_memory() -> int:
    """The most that /dev/shm of a pod may hold: half of the machine's memory, as Linux has it for itself. It costs
    nothing until it is used, and then it counts against the container's limit."""
    return int(psutil.virtual_memory().total // 2)
