"""From a pod and a container to the request that starts its program: image, command, environment, devices, network.

All lookups are in memory or in small files; what cannot be started comes back as a Problem, in Kubernetes' words and
one sentence. What the embedded node does not do yet is refused or said, never ignored (`refused`, `remarks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.cluster.node import environment, images
from rowlock.cluster.node.environment import Missing, Place
from rowlock.cluster.node.images import Image, Images
from rowlock.cluster.node.machine import NodePlan
from rowlock.cluster.node.network import PodNetwork, hostname
from rowlock.cluster.node.pod_directory import PodCard, PodDirectories
from rowlock.cluster.node.pod_facts import Problem, main_containers
from rowlock.cluster.node.pod_sync import DEFAULT_GRACE, Start
from rowlock.cluster.node.processes import MARK
from rowlock.objects import Object, annotations, controller_of, dig, namespace
from rowlock.objects import name as name_of
from rowlock.quantity import whole

DEVICES = "rowlock.dev/devices"
GPU = "nvidia.com/gpu"
CHECKPOINTS = "ROWLOCK_CHECKPOINT_DIR"
PROXY = "http://10.77.0.1:3128"
MOST_PEERS = 128
"""Names in no_proxy: a job of more pods than that on one machine does not talk HTTP between them."""
_VOLUMES = "volumes are not there yet on the embedded node; give paths of this machine in args or env instead"


def refused(pod: Object, container: Mapping[str, Any]) -> str:
    """Why this container cannot run here at all; "" when it can."""
    mounts = [m["name"] for m in container.get("volumeMounts") or () if not m["name"].startswith("kube-api-access")]
    if mounts:
        return f"container {container['name']} mounts {', '.join(mounts)}: {_VOLUMES}"
    if container.get("restartPolicy") == "Always" and container not in main_containers(pod):
        return f"{container['name']} is a sidecar (an init container that keeps running), not there yet here"
    return ""


def remarks(pod: Object) -> list[str]:
    """What the pod asks for and does not get, a sentence each; it runs all the same."""
    found = _privileges(dig(pod, "spec.securityContext", {}), "the pod")
    for container in main_containers(pod):
        found += _privileges(container.get("securityContext") or {}, container["name"])
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            if container.get(probe):
                found.append(f"{probe} of {container['name']} is not evaluated: it counts as passed while it runs")
        if container.get("lifecycle"):
            found.append(f"lifecycle hooks of {container['name']} are not run")
        if dig(container, "resources.limits.memory"):
            found.append(f"the memory limit of {container['name']} is counted by the scheduler but not enforced")
    return found


def _privileges(wanted: Mapping[str, Any], whose: str) -> list[str]:
    """Rights that a process of this machine neither gets nor loses; empty wishes and `false` ask for nothing."""
    asked = ", ".join(
        sorted(key for key, value in wanted.items() if value not in (None, {}, []) and value is not False)
    )
    text = f"securityContext of {whose} is not applied ({asked}): programs run as the user who started the cluster"
    return [text] if asked else []


def gpus_wanted(pod: Object) -> int:
    """Whole devices the pod asks for."""
    return sum(_gpus(c) for c in main_containers(pod))


def _gpus(container: Mapping[str, Any]) -> int:
    return whole(dig(container, "resources.limits", {}).get(GPU, 0))


def fractional(pod: Object) -> bool:
    return any(annotations(pod).get(k) for k in ("gpu-fraction", "gpu-memory"))


@dataclass(frozen=True, slots=True)
class Moved:
    """Every start gets its own copy of the image's files: what a program writes there must not change the image, and
    a restart begins afresh, as a container's does. Rewrites paths inside `image` to the same inside `copy`."""

    image: str
    copy: str

    def __call__(self, text: str) -> str:
        if not self.image or self.image not in text:
            return text
        parts = text.split(":")  # PATH and its like
        return ":".join(self.copy + p[len(self.image) :] if self._inside(p) else p for p in parts)

    def _inside(self, path: str) -> bool:
        return path == self.image or path.startswith(self.image + "/")


@dataclass(slots=True)
class Starting:
    """Knows where everything is that a start needs."""

    view: View
    images: Images
    network: PodNetwork
    directories: PodDirectories
    nodes: Mapping[str, NodePlan]
    server: Mapping[str, str]
    """The environment the server was started in."""
    wake: str
    neighbours: Mapping[str, int]
    """Active pods on each node."""

    def devices(self, pod: Object, others: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The pod's devices, as UUIDs: the scheduler's choice, else free whole ones. `others`: who holds what."""
        node = self.nodes[dig(pod, "spec.nodeName")]
        if chosen := annotations(pod).get(DEVICES):
            indices = [int(i) for i in chosen.split(",") if i.strip().isdigit()]
            return tuple(node.gpus[i].uuid for i in indices if i < len(node.gpus))
        held = {uuid for devices in others.values() for uuid in devices}
        free = [gpu.uuid for gpu in node.gpus if gpu.uuid not in held]
        return tuple(free[: gpus_wanted(pod)])

    def request(self, pod: Object, card: PodCard, start: Start) -> tuple[dict[str, Any], Image] | Problem:
        """What to send to the pod host."""
        container = next(c for c in _all(pod) if c["name"] == start.container)
        if sentence := refused(pod, container):
            return Problem("CreateContainerConfigError", sentence)
        image = self.images.find(str(container.get("image") or ""))
        if isinstance(image, Problem):
            return _policy(container, image)
        words = images.command_line(image, container)
        if isinstance(words, Problem):
            return words
        place = self._place(pod, card, container)
        try:
            env = self._environment(pod, container, image, place)
        except Missing as missing:
            return missing.problem
        work = self.directories.of(card.uid) / "work"
        work.mkdir(exist_ok=True)
        argv = [images.mapped(environment.expand(word, env), image.root) for word in words]
        where = self.directories.container(card.uid, start.container)
        mine = Moved(image.root, str(where / "rootfs"))
        return {
            "dir": str(where),
            "n": start.number,
            "argv": [mine(word) for word in argv],
            "env": {name: mine(value) for name, value in env.items()},
            "cwd": mine(images.working_directory(image, container, str(work))),
            "copy": [mine.image, mine.copy] if mine.image else None,
            "hint": f"{card.uid}/{start.container}",
            "wake": self.wake,
            "network": self.network.request(pod, card.ip),
            "backoff": start.backoff,
            "grace": float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE)),
        }, image

    def _environment(self, pod: Object, container: Mapping[str, Any], image: Image, place: Place) -> dict[str, str]:
        first = ":".join((*image.path, images.interpreter_path()))
        env = environment.base(self.server, host=image.host, first=first)
        env |= environment.inherited(pod, self.server)
        env |= {"HOSTNAME": hostname(pod), CHECKPOINTS: self._checkpoints(pod), **image.env}
        given = environment.declared(pod, container, place, self.view.get)
        env = self.network.rewritten(pod, {**env, **given})
        return {**env, **environment.platform(container, place, env), MARK: str(pod["metadata"]["uid"])}

    def _checkpoints(self, pod: Object) -> str:
        """One directory per job, the same for all its ranks and restarts; nobody but the user removes it."""
        whose = (controller_of(pod) or {}).get("uid") or pod["metadata"]["uid"]
        where = self.directories.pods.parent / "checkpoints" / str(whose)
        where.mkdir(parents=True, exist_ok=True)
        return str(where)

    def _place(self, pod: Object, card: PodCard, container: Mapping[str, Any]) -> Place:
        node = self.nodes[card.node]
        devices = self._share(pod, card, container) if node.gpus and not node.simulated else None
        simulated = ",".join(u.rpartition("-")[2] for u in self._share(pod, card, container))
        return Place(
            node=card.node,
            pod_ip=card.ip,
            cpus=node.cpus,
            memory=node.memory,
            neighbours=max(1, self.neighbours.get(card.node, 1)),
            devices=devices,
            simulated=simulated if node.simulated else None,
            proxy=PROXY if self.network.real else "",
            peers=self._peers(pod) if self.network.real else (),
            extras=self._extras(pod, card),
        )

    def _share(self, pod: Object, card: PodCard, container: Mapping[str, Any]) -> tuple[str, ...]:
        """The container's part of the pod's devices: as many as it asks for, in order of the containers."""
        every = main_containers(pod)
        if fractional(pod):
            chosen = annotations(pod).get("gpu-fraction-container-name") or every[0]["name"]
            return card.devices if container["name"] == chosen else ()
        before = 0
        for other in every:
            if other["name"] == container["name"]:
                return card.devices[before : before + _gpus(other)]
            before += _gpus(other)
        return ()

    def _extras(self, pod: Object, card: PodCard) -> dict[str, str]:
        """NCCL: whole GPUs of one node are one host (its fast path); who shares a card must be a host of its own.

        Between network namespaces NCCL's newer memory handles cannot be passed, so the older way is asked for."""
        found: dict[str, str] = {}
        if portion := annotations(pod).get("gpu-fraction"):
            found |= {"GPU_PORTION": portion, "RUNAI_NUM_OF_GPUS": portion, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        elif gpus_wanted(pod):
            found["RUNAI_NUM_OF_GPUS"] = str(gpus_wanted(pod))
        if card.devices and not self.nodes[card.node].simulated:
            found["NCCL_HOSTID"] = card.uid if fractional(pod) else card.node
            if self.network.real:
                found |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
        return found

    def _peers(self, pod: Object) -> tuple[str, ...]:
        owner = controller_of(pod)
        if owner is None:
            return (name_of(pod),)
        names = (name_of(p) for p in self.view.owned(kinds.POD, owner["uid"]) if namespace(p) == namespace(pod))
        return tuple(islice(names, MOST_PEERS))


def _all(pod: Object) -> list[dict[str, Any]]:
    return [*dig(pod, "spec.initContainers", ()), *main_containers(pod)]


def _policy(container: Mapping[str, Any], problem: Problem) -> Problem:
    if problem.reason == "ErrImagePull" and container.get("imagePullPolicy") == "Never":
        sentence = f'Container image "{container["image"]}" is not present with pull policy of Never'
        return Problem("ErrImageNeverPull", sentence)
    return problem
