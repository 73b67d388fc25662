"""Which pods run in containers, and the engine that runs them: found, asked about images, kept tidy.

`--runtime auto`: an image that rowlock's own table knows (`rowlock image`) is a process, any other one is a container:
the engine has it, or pulls it (`image_pulls.py`). Nothing here is needed on a machine without an engine, and nothing is asked of it but a few `stat` calls. All
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

from rowlock.errors import Invalid
from rowlock.kubelet.images.images import KUBECTL_DELIVERY, Image, Images, command_line, normalise
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.pod.facts import Problem, all_containers, is_emulated_init, main_containers
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.engine_spec import LABEL_PREFIX
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine, EngineError
from rowlock.objects import Object, uid

log = logging.getLogger("rowlock.kubelet")
_PREFIXES = tuple(f"10.{number}" for number in range(77, 100))
"""Where the pods' addresses begin: the first that no other network of the engine has."""


@dataclass(slots=True)
class ContainerRuntime:
    """The kubelet's side of the container engine."""

    mode: str
    data: Path
    images: Images
    network: PodNetwork
    pods: Mapping[str, PodState]
    """The kubelet's."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    engine: Engine | None = None
    engine_problem: str = ""
    """Why the one that should be there does not answer."""
    _image_sizes: dict[str, int] = field(default_factory=dict)
    _prepared: set[str] = field(default_factory=set)
    _network_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.network.runs_in_containers = self.runs_in_containers

    @property
    def cluster(self) -> str:
        return engine_spec.cluster_id(str(self.data))

    @property
    def name(self) -> str:
        """docker, podman, or "" where there is none."""
        return self.engine.name if self.engine else ""

    @property
    def network_name(self) -> str:
        """The name of the pods' network in the engine."""
        return f"rowlock-{self.cluster}"

    async def detect_engine(self) -> None:
        """At the start of the kubelet. Most machines have no engine, and that costs nothing."""
        if self.mode == "container" or engine_client.has_socket(self.env):
            await self.find_engine()

    async def find_engine(self) -> None:
        """Looks for an engine. Raises Invalid when one was demanded and none answers."""
        if self.mode == "process":
            return
        self.engine, self.engine_problem = await asyncio.to_thread(engine_client.find_engine, self.env)
        if self.engine is None and self.mode == "container":
            raise Invalid(
                f"--runtime container needs Docker or Podman: {self.engine_problem}; start one, or leave the flag out"
            )

    # ------------------------------------------------------------ which pods

    async def inspect_images(self, pod: Object) -> None:
        """Brings up to date what is known of the pod's images. A machine whose engine comes later is noticed here."""
        names = {str(c.get("image") or "") for c in all_containers(pod) if not is_emulated_init(c)}
        engine_images = [normalise(name) for name in names if not self.images.is_local(name)]
        if self.mode == "process" or not engine_images:
            return  # so that pods as processes wait for no engine
        if self.engine is None and engine_client.has_socket(self.env):
            with contextlib.suppress(Invalid):
                await self.find_engine()
        if self.engine is not None:
            await asyncio.gather(*(asyncio.to_thread(self._inspect_image, self.engine, name) for name in engine_images))

    def _inspect_image(self, client: Engine, name: str) -> None:
        engine_images = self.images.engine_images
        try:
            inspection = client.request("GET", f"/images/{name}/json")
            engine_images[name], self._image_sizes[name] = (
                image_of_engine(name, client, inspection),
                int(inspection.get("Size") or 0),
            )
        except EngineError as error:
            if error.status:
                engine_images.pop(name, None)
            elif name in engine_images or self.mode == "container":
                engine_images[name] = Problem("CreateContainerError", f"{error}: start the engine again")

    def needs_engine(self, pod: Object) -> bool:
        """Does the pod run in containers? By what is known of its images."""
        real_containers = [c for c in all_containers(pod) if not is_emulated_init(c)]
        return any(
            self.images.is_engine_image(str(c.get("image") or "")) or self.needs_pull(c) for c in real_containers
        )

    def needs_pull(self, container: Mapping[str, Any]) -> bool:
        """Is its image one that the engine must fetch first, and may?"""
        if self.engine is None or self.mode == "process" or container.get("imagePullPolicy") == "Never":
            return False
        return self.images.needs_pull(str(container.get("image") or ""))

    async def image_problems(self, pod: Object) -> list[str]:
        """Why containers of such a pod could not be begun, as far as that lies in their images: a sentence each."""
        await self.inspect_images(pod)
        sentences = []
        for container in all_containers(pod):
            if is_emulated_init(container) or self.needs_pull(container):  # the engine fetches it
                continue
            image = self.images.find(str(container.get("image") or ""))
            command = command_line(image, container) if isinstance(image, Image) and not image.engine else image
            if isinstance(command, Problem):
                sentences.append(f"{command.reason}: {command.message}")
        return list(dict.fromkeys(sentences))

    async def inspect_pulled_image(self, name: str) -> int | None:
        """Looks for an image after a pull: its size in bytes, None when it is not there."""
        if self.engine is None:
            return None
        await asyncio.to_thread(self._inspect_image, self.engine, name)
        return self._image_sizes.get(name) if isinstance(self.images.engine_images.get(name), Image) else None

    def runs_in_containers(self, pod: Object) -> bool:
        """What was decided before its first program; until then, what would be."""
        state = self.pods.get(uid(pod))
        return state.card.contained if state is not None and not state.is_unstarted() else self.needs_engine(pod)

    def image_conflict(self, pod: Object, image: Image, contained: bool) -> Problem | None:
        """Why a container of that image cannot be part of the pod."""
        if contained and not image.engine and image.name.rpartition(":")[0] == KUBECTL_DELIVERY:
            text = (
                "the launcher of an MPIJob cannot run in a container yet: run its command with this machine's programs"
            )
            remedy = f"`rowlock image add {main_containers(pod)[0].get('image')} --host`"
            return Problem("CreateContainerConfigError", f"{text}: {remedy}")
        if not image.engine and self.mode == "container":
            text = f'image "{image.name}" stands for a process of this machine, and the cluster runs containers only'
            return Problem("CreateContainerConfigError", f"{text}: start it with --runtime auto, or build the image")
        if bool(image.engine) != contained:
            text = f'image "{image.name}" runs as a process, other images of the pod in containers'
            return Problem("CreateContainerConfigError", f"{text}: give all containers of a pod the same kind of image")
        return None

    # ------------------------------------------------------------ what they need

    async def prepare_engine(self, pod: Object) -> Problem | None:
        """Makes what the engine must have before the pod's containers: the network, the sandbox's image."""
        if self.engine is None:
            return self.engine_gone_problem()
        try:
            async with self._network_lock:
                await asyncio.to_thread(self._make_network, self.engine)
            if engine_spec.needs_sandbox(pod):
                await asyncio.to_thread(self._make_sandbox_image, self.engine)
        except (EngineError, ValueError) as error:
            self._prepared.clear()
            return Problem("CreateContainerError", str(error))
        return None

    def engine_gone_problem(self) -> Problem:
        """What a pod in containers is told when there is no engine any more."""
        return Problem(
            "CreateContainerError", self.engine_problem or "no container engine answers here any more: start it again"
        )

    def _make_network(self, client: Engine) -> None:
        if "network" in self._prepared:
            return
        subnet = self._existing_subnet(client)
        for prefix in () if subnet else _PREFIXES:
            pool = {"Subnet": f"{prefix}.0.0/16", "Gateway": f"{prefix}.0.1"}
            body = {"Name": self.network_name, "Driver": "bridge", "CheckDuplicate": True, "IPAM": {"Config": [pool]}}
            body["Labels"] = {f"{LABEL_PREFIX}cluster": self.cluster, f"{LABEL_PREFIX}data": str(self.data)}
            try:
                client.request("POST", "/networks/create", body)
                subnet = pool["Subnet"]
                break
            except EngineError as error:
                if not any(word in str(error).lower() for word in ("overlap", "already used", "conflict")):
                    raise
        if not subnet:
            raise ValueError("every network from 10.77.0.0/16 to 10.99.0.0/16 is taken in the container engine")
        self.network.set_engine_prefix(".".join(subnet.split(".")[:2]))
        self._prepared.add("network")

    def _existing_subnet(self, client: Engine) -> str:
        """Its subnet, when it is there."""
        try:
            return str(client.request("GET", f"/networks/{self.network_name}")["IPAM"]["Config"][0]["Subnet"])
        except EngineError as error:
            if error.status == 404:
                return ""
            raise

    def _make_sandbox_image(self, client: Engine) -> None:
        if "sandbox" in self._prepared:
            return
        try:
            client.request("GET", f"/images/{engine_spec.SANDBOX_IMAGE}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            from rowlock.kubelet.runtime import pause  # seldom needed: tar archives are not imported at every start

            repository, _, tag = engine_spec.SANDBOX_IMAGE.rpartition(":")
            path = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
            arch = str((client.request("GET", "/version") or {}).get("Arch", ""))
            client.request("POST", path, pause.archive(arch))
        self._prepared.add("sandbox")

    # ------------------------------------------------------------ tidiness

    async def remove_pod(self, pod: str) -> None:
        """Removes everything of a pod that has gone."""
        if self.engine is not None:
            await asyncio.to_thread(self._remove_pod, self.engine, pod)

    def _remove_pod(self, client: Engine, pod: str) -> None:
        with contextlib.suppress(EngineError):
            for row in _list_labelled(client, "/containers/json?all=1", f"{LABEL_PREFIX}pod={pod}"):
                self._delete_path(client, f"/containers/{row['Id']}?force=1&v=1")
            for row in (_list_labelled(client, "/volumes?", f"{LABEL_PREFIX}pod={pod}") or {}).get("Volumes") or ():
                self._delete_path(client, f"/volumes/{row['Name']}?force=1")

    def _delete_path(self, client: Engine, path: str) -> None:
        with contextlib.suppress(EngineError):  # somebody was quicker
            client.request("DELETE", path)

    async def remove_orphans(self) -> None:
        """Removes containers of this cluster that nobody looks after."""
        if self.engine is None:
            return
        with contextlib.suppress(EngineError):
            label = f"{LABEL_PREFIX}cluster={self.cluster}"
            rows = await asyncio.to_thread(_list_labelled, self.engine, "/containers/json?all=1", label)
            for identifier in engine_spec.orphan_ids(rows, *self._live_runs()):
                log.info("container %s, which nobody looks after, is removed", identifier[:12])
                await asyncio.to_thread(self._delete_path, self.engine, f"/containers/{identifier}?force=1&v=1")

    def _live_runs(self) -> tuple[set[tuple[str, str, str]], set[str]]:
        """(pod, container, run) of all that lives, and the pods that are at work."""
        runs = set()
        for pod, state in self.pods.items():
            for container, facts in state.containers.items():
                numbers = (facts.asked, facts.run.number if facts.run is not None else None) if facts.is_alive else ()
                runs |= {(pod, container, str(number)) for number in numbers if number is not None}
        return runs, {pod for pod, state in self.pods.items() if not state.finished}

    def close(self) -> None:
        """The network goes when nothing is in it any more; an engine that is slow to answer does not hold the server up."""
        if self.engine is not None:
            with contextlib.suppress(EngineError):
                self.engine.request("DELETE", f"/networks/{self.network_name}", timeout=engine_client.PROBE)


def _list_labelled(client: Engine, path: str, label: str) -> Any:
    return client.request("GET", f"{path}&filters={quote(json.dumps({'label': [label]}))}")


def image_of_engine(name: str, client: Engine, inspection: Mapping[str, Any]) -> Image:
    """An image of the engine, as every other image."""
    config = inspection.get("Config") or {}
    return Image(
        name,
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        workdir=str(config.get("WorkingDir") or ""),
        engine=f"{client.name}://{inspection['Id']}",
        user=str(config.get("User") or ""),
        stop_signal=str(config.get("StopSignal") or ""),
    )


def shared_memory_limit() -> int:
    """The most that /dev/shm of a pod may hold: half of the machine's memory, as Linux has it for itself. It costs
    nothing until it is used, and then it counts against the container's limit."""
    return int(psutil.virtual_memory().total // 2)
