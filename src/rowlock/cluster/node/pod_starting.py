"""From a pod and a container to the request that starts its program: image, command, environment, devices, network.

All lookups are in memory or in small files; what cannot be started comes back as a Problem, in Kubernetes' words and
one sentence. What the embedded node does not do is said, never ignored (`remarks`).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from itertools import islice
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.cluster.node import containers, environment, gpu_shares, images, pod_rights, volumes, warm
from rowlock.cluster.node.checkpoints import Checkpoints
from rowlock.cluster.node.environment import Missing, Place
from rowlock.cluster.node.images import Image, Images
from rowlock.cluster.node.log_writer import LIMIT
from rowlock.cluster.node.machine import NodePlan
from rowlock.cluster.node.network import PodNetwork, hostname
from rowlock.cluster.node.pod_directory import PodCard, PodDirectories
from rowlock.cluster.node.pod_facts import Problem, all_containers, limits_of, main_containers
from rowlock.cluster.node.pod_rights import Rights
from rowlock.cluster.node.pod_sync import DEFAULT_GRACE, Start
from rowlock.cluster.node.processes import MARK
from rowlock.cluster.node.runtime import Runtime
from rowlock.cluster.node.volume_directories import VolumeDirectories
from rowlock.cluster.node.volumes import Sight, Volume
from rowlock.objects import Object, annotations, controller_of, dig, namespace
from rowlock.objects import name as name_of
from rowlock.quantity import whole

DEVICES = "rowlock.dev/devices"
GPU = "nvidia.com/gpu"
MESSAGE_PATH = "/dev/termination-log"
WATCHDOG = "the control groups of this machine cannot be written here"
_DISK = {"memory": "empty"}
CHECKPOINTS = "ROWLOCK_CHECKPOINT_DIR"
PROXY = "http://10.77.0.1:3128"
MOST_PEERS = 128
"""Names in no_proxy: a job of more pods than that on one machine does not talk HTTP between them."""


def remarks(pod: Object, limits: str = "watchdog", *, engine: str = "") -> list[str]:
    """What the pod asks for and does not get, a sentence each; it runs all the same. `engine`: what runs its containers."""
    found = containers.remarks(pod, engine) if engine else pod_rights.remarks(pod)
    if dig(pod, "spec.automountServiceAccountToken"):
        found.append("automountServiceAccountToken: the embedded node makes no tokens, so nothing is mounted")
    for container in main_containers(pod):
        if limits == "watchdog" and not engine and dig(container, "resources.limits.cpu"):
            text = f"the cpu limit of {container['name']} is counted by the scheduler but not enforced"
            found.append(f"{text}: {WATCHDOG}")
        for mount in container.get("volumeMounts") or ():
            if mount.get("mountPropagation") not in (None, "None"):
                found.append(f"mountPropagation of {mount['name']} in {container['name']} is not applied")
    return found


def gpus_wanted(pod: Object) -> int:
    """Whole devices the pod asks for."""
    return sum(_gpus(c) for c in main_containers(pod))


def _gpus(container: Mapping[str, Any]) -> int:
    return whole(dig(container, "resources.limits", {}).get(GPU, 0))


def fractional(pod: Object) -> bool:
    return any(annotations(pod).get(k) for k in ("gpu-fraction", "gpu-memory"))


_CONSOLE = {"tty": "tty", "stdin": "stdin", "once": "stdinOnce"}


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

    def original(self, path: str) -> str:
        """Where a file of the copy can be read before there is a copy."""
        return self.image + path[len(self.copy) :] if self.image and path.startswith(self.copy + "/") else path

    def _inside(self, path: str) -> bool:
        return path == self.image or path.startswith(self.image + "/")


@dataclass(slots=True)
class Surroundings:
    """What is around a container's program, whoever starts it; `word` and `path` say what a text of the pod means here."""

    env: dict[str, str]
    cwd: str
    moved: Moved
    rights: Rights
    targets: tuple[str, ...]
    mounts: list[dict[str, Any]]
    memory: list[dict[str, Any]] = dataclass_field(default_factory=list)

    def word(self, text: str) -> str:
        """A word of a command line."""
        return self.path(environment.expand(text, self.env))

    def path(self, text: str) -> str:
        """A path, if it is one: of a volume, of the image's files, else of this machine."""
        if any(text == t or text.startswith(t + "/") for t in self.targets):
            return text
        return self.moved(images.mapped(text, self.moved.image))


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
    places: VolumeDirectories
    checkpoints: Checkpoints
    runtime: Runtime
    unmountable: str = ""
    """Why containers cannot have mounts of their own here; "" when they can."""
    warm_start: bool = True
    log_limit: int = LIMIT
    """Bytes of a run's log that are kept."""
    limits: str = "watchdog"
    """How limits are kept: `v2` or `v1` (control groups), or `watchdog`."""
    memory: bool = True
    """Can the pod host make memory volumes?"""

    def devices(self, pod: Object, others: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The pod's devices, as UUIDs: the scheduler's choice, else free whole ones. `others`: who holds what."""
        node = self.nodes[dig(pod, "spec.nodeName")]
        if chosen := annotations(pod).get(DEVICES):
            indices = [int(i) for i in chosen.split(",") if i.strip().isdigit()]
            return tuple(node.gpus[i].uuid for i in indices if i < len(node.gpus))
        held = {uuid for devices in others.values() for uuid in devices}
        free = [gpu.uuid for gpu in node.gpus if gpu.uuid not in held]
        return tuple(free[: gpus_wanted(pod)])

    def image(self, pod: Object, card: PodCard, container: Mapping[str, Any]) -> Image | Problem:
        """The image of one of the pod's containers, as far as it can be part of the pod."""
        found = self.images.find(str(container.get("image") or ""))
        if isinstance(found, Problem):
            return _policy(container, found)
        return self.runtime.unfit(pod, found, card.contained) or found

    def request(self, pod: Object, card: PodCard, start: Start, image: Image) -> tuple[dict[str, Any], Image] | Problem:
        """What to send to the pod host for a process of this machine."""
        container = next(c for c in all_containers(pod) if c["name"] == start.container)
        try:
            inside = self.surroundings(pod, card, container, image)
        except Missing as missing:
            return missing.problem
        words = images.command_line(image, container)
        if isinstance(words, Problem):
            return words
        if controller_of(pod):  # torch's own account of a failure, of programs under `@record` and of torchrun
            where = self.directories.container(card.uid, start.container) / f"error.{start.number}.json"
            inside.env.setdefault("TORCHELASTIC_ERROR_FILE", str(where))
        request = {
            "dir": str(self.directories.container(card.uid, start.container)),
            "n": start.number,
            "argv": [inside.word(word) for word in words],
            "env": inside.env,
            "cwd": inside.cwd,
            "copy": [inside.moved.image, inside.moved.copy] if inside.moved.image else None,
            "hint": f"{card.uid}/{start.container}",
            "wake": self.wake,
            "network": self.network.request(pod, card.ip),
            "backoff": start.backoff,
            "grace": float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE)),
            "mounts": inside.mounts,
            "memory": inside.memory,
            "user": inside.rights.spec(),
            "console": {ours: True for ours, theirs in _CONSOLE.items() if container.get(theirs)},
            "log_limit": self.log_limit,
            "limits": wanted | {"how": self.limits} if (wanted := limits_of(container)) else {},
        }
        if self.warm_start and annotations(pod).get(warm.ANNOTATION) != "false" and not request["console"]:
            argv = [inside.word(word) for word in words]
            found = warm.warm(argv, inside.env, inside.cwd, inside.moved.original)
            request |= {"warm": found.spec()} if found else {}
        return request | self._last_words(container, request), image

    def surroundings(self, pod: Object, card: PodCard, container: Mapping[str, Any], image: Image) -> Surroundings:
        """Everything around the container's program. Raises Missing."""
        place = self.place(pod, card, container)
        rights = pod_rights.rights(pod, container)
        env = self._environment(pod, container, image, (place, rights))
        known = self.volumes(pod, card)
        seen = list(volumes.mounts(container, lambda text: environment.expand(text, env), known))
        if seen and self.unmountable:
            raise Missing(
                f"container {container['name']} mounts {seen[0].volume} at {seen[0].target}: {self.unmountable}"
            )
        moved = Moved(image.root, str(self.directories.container(card.uid, container["name"]) / "rootfs"))
        mounts = self.mounts(card, known, seen)
        if image.root:  # the image's own `/` is elsewhere: what it names by relative paths is there
            mounts += [{**m, "target": moved.copy + m["target"]} for m in mounts]
        found = Surroundings(env, "", moved, rights, tuple(mount.target for mount in seen), mounts)
        found.memory = [
            {"path": str(self.places.where(card.uid, v)), "size": v.limit or 0} for v in known if v.kind == "memory"
        ]
        found.cwd = found.path(images.working_directory(image, container, self._work(card, rights)))
        found.env = {name: moved(value) for name, value in env.items()}
        return found

    def _last_words(self, container: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        """Where the program leaves its last words (`terminationMessagePath`).

        The machine has no such file, so it costs a mount: the default path is given to who names it."""
        path = container.get("terminationMessagePath") or MESSAGE_PATH
        named = path != MESSAGE_PATH or any(path in text for text in (*request["argv"], *request["env"].values()))
        return {
            "message_path": path if named and not self.unmountable else "",
            "message_from_log": container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        }

    def mounts(self, card: PodCard, known: Sequence[Volume], seen: Sequence[volumes.Mount]) -> list[dict[str, Any]]:
        by_name = {v.name: v for v in known}
        return [
            {
                "source": self.places.source(card.uid, by_name[mount.volume], mount),
                "target": mount.target,
                "volume": mount.volume,
                "read_only": mount.read_only,
            }
            for mount in seen
        ]

    def _work(self, card: PodCard, rights: Rights) -> str:
        """The pod's own empty directory."""
        work = self.directories.of(card.uid) / "work"
        if not work.exists():
            work.mkdir()
            if rights.account is not None:
                os.chown(work, rights.account.uid, rights.account.gid)
        return str(work)

    def volumes(self, pod: Object, card: PodCard) -> tuple[Volume, ...]:
        """The pod's volumes as they should be now. Raises Missing (FailedMount)."""
        if not dig(pod, "spec.volumes", ()):
            return ()
        containers = {c["name"]: c for c in all_containers(pod)}

        def resource(ref: Mapping[str, Any]) -> str:
            container = containers.get(ref.get("containerName") or "", main_containers(pod)[0])
            return environment.pod_resource(pod, container, self.place(pod, card, container), ref)

        def field(path: str) -> str:
            return environment.pod_field(pod, self.place(pod, card, main_containers(pod)[0]), path)

        found = volumes.volumes(Sight(pod, self.view.get, field, resource))
        if not self.network.real_for(pod):
            found = tuple(volumes.with_hosts(v, self.network.hostfile(pod)) for v in found)
        return (
            found if self.memory or card.contained else tuple(replace(v, kind=_DISK.get(v.kind, v.kind)) for v in found)
        )

    def _environment(
        self, pod: Object, container: Mapping[str, Any], image: Image, where: tuple[Place, Rights]
    ) -> dict[str, str]:
        place, rights = where
        first = ":".join((*image.path, images.interpreter_path()))
        env = environment.base(self.server, host=image.host, first=first)
        env |= environment.inherited(pod, self.server) | rights.environment()
        env |= {"TERM": "xterm"} if container.get("tty") else {}
        env |= {"HOSTNAME": hostname(pod), CHECKPOINTS: str(self.checkpoints.of(pod)), **image.env}
        given = environment.declared(pod, container, place, self.view.get)
        env = self.network.rewritten(pod, {**env, **given})
        return {**env, **environment.platform(container, place, env), MARK: str(pod["metadata"]["uid"])}

    def place(self, pod: Object, card: PodCard, container: Mapping[str, Any]) -> Place:
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
            proxy=self._proxy(card),
            peers=self._peers(pod) if self.network.real_for(pod) else (),
            extras=self._extras(pod, card),
            share=gpu_shares.of_pod(pod, node, card.devices) if self._share(pod, card, container) else None,
        )

    def _proxy(self, card: PodCard) -> str:
        """The way out: of the pods' network; in containers the engine has one, unless the machine itself needs a proxy."""
        if not card.contained:
            return PROXY if self.network.real else ""
        given = next((self.server[k] for k in ("https_proxy", "HTTPS_PROXY", "http_proxy") if self.server.get(k)), "")
        return "" if "//127." in given or "//localhost" in given else given

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
        if gpus_wanted(pod):
            found["RUNAI_NUM_OF_GPUS"] = str(gpus_wanted(pod))
        if card.devices and not self.nodes[card.node].simulated:
            found["NCCL_HOSTID"] = card.uid if fractional(pod) else card.node
            if self.network.real_for(pod):
                found |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
        return found

    def _peers(self, pod: Object) -> tuple[str, ...]:
        owner = controller_of(pod)
        if owner is None:
            return (name_of(pod),)
        names = (name_of(p) for p in self.view.owned(kinds.POD, owner["uid"]) if namespace(p) == namespace(pod))
        return tuple(islice(names, MOST_PEERS))


def _policy(container: Mapping[str, Any], problem: Problem) -> Problem:
    if problem.reason == "ErrImagePull" and container.get("imagePullPolicy") == "Never":
        sentence = f'Container image "{container["image"]}" is not present with pull policy of Never'
        return Problem("ErrImageNeverPull", sentence)
    return problem
