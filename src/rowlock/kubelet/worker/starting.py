"""From a pod and a container to the request that starts its program: image, command, environment, devices, network.

All lookups are in memory or in small files; what cannot be started comes back as a Problem, in Kubernetes' words and
one sentence. What the embedded node does not do is said, never ignored (`pod_warnings`).
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.kubelet.files.log_writer import DEFAULT_LOG_LIMIT
from rowlock.kubelet.images import images
from rowlock.kubelet.images.base_environment import base_environment, interpreter_directories, interpreter_path
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node import gpu_fractions
from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.pod.facts import (
    DATA_DIRECTORY_VARIABLE,
    POD_UID_VARIABLE,
    ContainerConfigError,
    Problem,
)
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec, shim_limits
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.container_runtime import ContainerRuntime
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.shim.shim_request import ConsoleSpec, ShimRequest
from rowlock.kubelet.volumes import checkpoints, volumes
from rowlock.kubelet.volumes.account_tokens import PodTokens
from rowlock.kubelet.volumes.checkpoints import Checkpoints
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.volumes.volumes import VolumeContext
from rowlock.kubelet.warm import eligibility
from rowlock.kubelet.warm.eligibility import WarmStart
from rowlock.kubelet.worker import environment, error_files
from rowlock.kubelet.worker import security_context as security
from rowlock.kubelet.worker.environment import SHELL_ENVIRONMENT_ANNOTATION, EnvironmentContext
from rowlock.kubelet.worker.run_options import ImageCopy, RunContainerOptions
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.objects import is_digits, namespace
from rowlock.objects import name as name_of
from rowlock.quantity import integer_value

DEVICES_ANNOTATION = "rowlock.dev/devices"
GPU_RESOURCE = "nvidia.com/gpu"
MESSAGE_PATH = "/dev/termination-log"
WATCHDOG_REASON = "the control groups of this machine cannot be written here"
_DISK_KINDS = {"memory": "empty"}
CHECKPOINT_DIR_VARIABLE = "ROWLOCK_CHECKPOINT_DIR"
ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
PROXY_URL = "http://10.77.0.1:3128"
MAX_NO_PROXY_PEERS = 128
"""Names in no_proxy: a job of more pods than that on one machine does not talk HTTP between them."""


def pod_warnings(pod: PodSpec, limits: str = "watchdog", *, engine: str = "") -> list[str]:
    """What the pod asks for and does not get, a sentence each; it runs all the same. `engine`: what runs its containers."""
    warnings = engine_spec.remarks(pod, engine) if engine else security.security_context_warnings(pod)
    for container in pod.main_containers:
        if limits == "watchdog" and not engine and container.limits.get("cpu"):
            text = f"the cpu limit of {container.name} counts for the scheduler but is not enforced"
            warnings.append(f"{text}: {WATCHDOG_REASON}")
        for mount in container.volume_mounts:
            if mount.get("mountPropagation") not in (None, "None"):
                warnings.append(f"mountPropagation of {mount['name']} in {container.name} is not applied")
    return warnings


def requested_gpus(pod: PodSpec) -> int:
    """Whole devices the pod asks for."""
    return sum(_container_gpus(c) for c in pod.main_containers)


def _container_gpus(container: ContainerSpec) -> int:
    return integer_value(container.limits.get(GPU_RESOURCE, 0))


def is_fractional(pod: PodSpec) -> bool:
    return any(pod.annotations.get(k) for k in ("gpu-fraction", "gpu-memory"))


def assign_devices(pod: PodSpec, node: NodePlan, held_devices: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The pod's devices, as UUIDs: the scheduler's choice, else free whole ones. `held_devices`: who holds what."""
    if chosen := pod.annotations.get(DEVICES_ANNOTATION):
        indices = [int(i) for i in chosen.split(",") if is_digits(i.strip())]
        return tuple(node.gpus[i].uuid for i in indices if i < len(node.gpus))
    taken_uuids = {uuid for devices in held_devices.values() for uuid in devices}
    free = [gpu.uuid for gpu in node.gpus if gpu.uuid not in taken_uuids]
    return tuple(free[: requested_gpus(pod)])


def console_spec(container: ContainerSpec) -> ConsoleSpec:
    """What is true of the container's terminal and stdin; empty when it has neither."""
    console: ConsoleSpec = {}
    if container.tty:
        console["tty"] = True
    if container.stdin:
        console["stdin"] = True
    if container.stdin_once:
        console["once"] = True
    return console


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One container of a pod, about to start."""

    pod: PodSpec
    container: ContainerSpec
    card: PodCard
    volumes: tuple[Volume, ...]
    """The pod's, as they are on disk."""
    number: int
    """Of the run that begins."""
    backoff: int
    running: Mapping[str, int] = field(default_factory=dict)
    """The pod's other containers that run: the number of each one's run."""


@dataclass(slots=True)
class ContainerStarter:
    """Knows where everything is that a start needs."""

    node: NodeContext
    view: View
    network: PodNetwork
    directories: PodDirectories
    volume_directories: VolumeDirectories
    checkpoints: Checkpoints
    engine_images: EngineImages
    runtime: ContainerRuntime
    count_active_pods: Callable[[str], int]
    """A node's name → how many pods at work share its CPUs."""
    tokens: PodTokens
    warm_start: bool = True
    log_limit: int = DEFAULT_LOG_LIMIT
    """Bytes of a run's log that are kept."""

    def find_image(self, start: ContainerStart) -> Image | Problem:
        """The image of one of the pod's containers, as far as it can be part of the pod."""
        image = self.engine_images.images.find(start.container.image)
        if isinstance(image, Problem):
            return _apply_pull_policy(start.container, image)
        return self.engine_images.image_conflict(start.pod, image, start.card.contained) or image

    def process_request(self, start: ContainerStart, image: Image) -> tuple[ShimRequest, Image] | Problem:
        """What to send to the pod host for a process of this machine."""
        pod, container, card = start.pod, start.container, start.card
        try:
            options = self.generate_run_options(start, image)
        except ContainerConfigError as missing:
            return missing.problem
        command = images.command_line(image, container)
        if isinstance(command, Problem):
            return command
        directory = self.directories.container_directory(card.uid, container.name)
        self._offer_error_file(start, options)
        argv = [options.expand_word(word) for word in command]
        console = console_spec(container)
        warm_start: WarmStart | None = None
        is_own = options.security_context.account is None
        # Else a warm parent would import as us what another user's interpreter says.
        if is_own and self._may_start_warm(start, image) and not console:
            warm_start = eligibility.plan_warm_start(argv, options.env, options.cwd, options.readable_path)
        request = ShimRequest(
            directory=str(directory),
            number=start.number,
            argv=argv,
            env=options.env,
            cwd=options.cwd,
            hint=f"{card.uid}/{container.name}",
            wake_path=self.node.wake_path,
            backoff=start.backoff,
            stop_signal=images.signal_number(image.stop_signal) or signal.SIGTERM,
            grace=pod.grace_period,
            network=self.network.namespace_request(pod, card.ip),
            mounts=options.mounts,
            memory_volumes=options.memory_volumes,
            rootfs=options.root,
            image_copy=(options.image_copy.image, options.image_copy.copy) if options.image_copy.image else (),
            user=options.security_context.user_spec(),
            console=console,
            limits={**shim_limits(container), "how": self.node.limits_mode},
            rlimits=self.node.rlimits,
            log_limit=self.log_limit,
            message_path=self._message_path(container, argv, options.env),
            message_from_log=container.is_message_from_log,
            warm=warm_start.spec() if warm_start else None,
        )
        return request, image

    def _offer_error_file(self, start: ContainerStart, options: RunContainerOptions) -> None:
        """For torch's own account of a failure, of programs under `@record` and of torchrun."""
        if not start.pod.owner_uid or start.container.is_ephemeral or ERROR_FILE_VARIABLE in options.env:
            return
        directory = self.directories.container_directory(start.card.uid, start.container.name)
        account = options.security_context.account
        if account is None:
            options.env[ERROR_FILE_VARIABLE] = str(directory / f"error.{start.number}.json")
        elif not self.node.mount_problem:
            source = error_files.make_directory(directory, start.number, account)
            mount = {"source": source, "target": error_files.MOUNT_PATH, "volume": "errors", "read_only": False}
            options.mounts.append(mount)
            options.env[ERROR_FILE_VARIABLE] = f"{error_files.MOUNT_PATH}/{error_files.FILE_NAME}"

    def _may_start_warm(self, start: ContainerStart, image: Image) -> bool:
        wanted = start.pod.annotations.get(eligibility.WARM_START_ANNOTATION) != "false"
        return self.warm_start and wanted and not image.replaces_packages

    def generate_run_options(self, start: ContainerStart, image: Image) -> RunContainerOptions:
        """Everything around the container's program. Raises ContainerConfigError."""
        container, card = start.container, start.card
        security_context = security.effective_security_context(
            start.pod, container, of_image=security.Account(*image.account) if image.account else None
        )
        env = self._environment(start, image, security_context)
        volume_mounts = list(
            volumes.resolve_mounts(container, lambda text: environment.expand(text, env), start.volumes)
        )
        if volume_mounts and self.node.mount_problem:
            raise ContainerConfigError(
                f"container {container.name} mounts {volume_mounts[0].volume} at {volume_mounts[0].target}: {self.node.mount_problem}"
            )
        image_copy = ImageCopy(
            image.root, str(self.directories.container_directory(card.uid, container.name) / "rootfs")
        )
        shim_mounts = self.shim_mounts(start, volume_mounts)
        if image.root:  # the image's own `/` is elsewhere: what it names by relative paths is there
            shim_mounts += [{**m, "target": image_copy.copy + m["target"]} for m in shim_mounts]
        if self._mounts_checkpoints(security_context):
            shim_mounts.append(self.checkpoints.mount_for(start.pod))
        options = RunContainerOptions(
            env, "", image_copy, security_context, tuple(mount.target for mount in volume_mounts), shim_mounts
        )
        options.memory_volumes = [
            {"path": str(self.volume_directories.volume_path(card.uid, v)), "size": v.limit or 0}
            for v in start.volumes
            if v.kind == "memory"
        ]
        if image.layers:
            options.root = self._root_spec(start, image)
        options.cwd = options.map_path(
            images.working_directory(image, container, self._work_directory(card, security_context))
        )
        options.env = {name: image_copy(value) for name, value in env.items()}
        return options

    def _root_spec(self, start: ContainerStart, image: Image) -> RootfsSpec:
        """The container's own root file system. Raises ContainerConfigError where there can be none."""
        if self.node.rootfs_problem:
            raise ContainerConfigError(
                f"container {start.container.name}: image {image.name} has a root file system of its own, and here there"
                f" can be none ({self.node.rootfs_problem}): build it again with `rowlock build`"
            )
        scratch = self.directories.container_directory(start.card.uid, start.container.name) / "rootfs"
        data = str(self.node.data_dir)
        if any(images.is_kubectl_delivery(images.normalise(c.image)) for c in start.pod.init_containers):
            # mpirun's way into the workers leads through the pod host's socket (`images/kubectl_delivery.py`)
            shared = [(data, "rw")]
        else:
            shared = [(str(self.directories.pod_directory(start.card.uid)), "rw")]
            shared += [(str(self.checkpoints.directory_for(start.pod)), "rw")]
        return RootfsSpec(
            layers=image.layers,
            upper=str(scratch / "upper"),
            scratch=str(scratch),
            hidden=[data],
            overlaid=[image.python],
            shared=shared + interpreter_directories(data),
        )

    def _mounts_checkpoints(self, security_context: EffectiveSecurityContext) -> bool:
        """Another user cannot enter the data directory: what the program is to see of it is mounted."""
        return security_context.account is not None and not self.node.mount_problem

    def _message_path(self, container: ContainerSpec, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """Where the program leaves its last words (`terminationMessagePath`); "" = nowhere.

        The machine has no such file, so it costs a mount: the default path is given to who names it."""
        path = container.termination_message_path or MESSAGE_PATH
        is_named = path != MESSAGE_PATH or any(path in text for text in (*argv, *env.values()))
        return path if is_named and not self.node.mount_problem else ""

    def shim_mounts(self, start: ContainerStart, volume_mounts: Sequence[volumes.Mount]) -> list[dict[str, Any]]:
        by_name = {v.name: v for v in start.volumes}
        return [self.volume_directories.mount_spec(start.card.uid, by_name[m.volume], m) for m in volume_mounts]

    def _work_directory(self, card: PodCard, security_context: EffectiveSecurityContext) -> str:
        """The pod's own empty directory."""
        work = self.directories.work_directory(card.uid)
        if not work.exists():
            work.mkdir()
            if security_context.account is not None:
                os.chown(work, security_context.account.uid, security_context.account.gid)
        return str(work)

    def pod_volumes(self, pod: PodSpec, card: PodCard) -> tuple[Volume, ...]:
        """The pod's volumes as they should be now. Raises ContainerConfigError (FailedMount)."""
        if not pod.volumes:
            return ()
        place = self._pod_place(card)

        def resource(ref: Mapping[str, Any]) -> str:
            return environment.pod_resource(pod, pod.main_containers[0], place, ref)

        def field(path: str) -> str:
            return environment.pod_field(pod, place, path)

        all_volumes = volumes.resolve_volumes(
            VolumeContext(pod, self.view.get, field, resource, self._tokens_for(card))
        )
        if not self.network.has_own_address(card):
            all_volumes = tuple(volumes.rewrite_hostfile(v, self.network.hostfile_rewriter(pod)) for v in all_volumes)
        return (
            all_volumes
            if self.node.can_mount_memory or card.contained
            else tuple(replace(v, kind=_DISK_KINDS.get(v.kind, v.kind)) for v in all_volumes)
        )

    def _tokens_for(self, card: PodCard) -> PodTokens:
        """Containers of an engine do not reach the API server, and where nothing can be mounted no token is."""
        reaches = not (card.contained or self.node.mount_problem)
        return self.tokens if reaches else replace(self.tokens, address=None)

    def _api_server_variables(self, pod: PodSpec, card: PodCard) -> dict[str, str]:
        """Where in-cluster clients look for the API server, for pods that have a token."""
        tokens = self._tokens_for(card)
        if tokens.address is None or not tokens.are_wanted(pod):
            return {}
        host, port = tokens.address
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        }

    def _environment(
        self, start: ContainerStart, image: Image, security_context: EffectiveSecurityContext
    ) -> dict[str, str]:
        """Of a process of this machine."""
        is_mounted = self._mounts_checkpoints(security_context)
        directory = checkpoints.MOUNT_PATH if is_mounted else str(self.checkpoints.directory_for(start.pod))
        path_prefix = ":".join((*image.path, interpreter_path()))
        # what belongs to the shell that started the server is no part of another shell's environment
        has_own_shell = SHELL_ENVIRONMENT_ANNOTATION in start.pod.annotations
        env = base_environment(self.node.server_env, host=image.host and not has_own_shell, first=path_prefix)
        env |= security_context.environment()
        env |= {"TERM": "xterm"} if start.container.tty else {}
        env |= {CHECKPOINT_DIR_VARIABLE: directory}
        return self.container_environment(start, image, self.container_place(start), env)

    def container_environment(
        self, start: ContainerStart, image: Image, place: EnvironmentContext, base: Mapping[str, str]
    ) -> dict[str, str]:
        """`base`, and over it what the image, the pod and the platform say."""
        pod, container = start.pod, start.container
        env = {**base, "HOSTNAME": pod.hostname, **self._api_server_variables(pod, start.card), **image.env}
        env |= environment.declared_environment(pod, container, place, self.view.get)
        if not self.network.has_own_address(start.card):
            env = self.network.rewrite_environment(pod, env)
        return {
            **env,
            **environment.platform_environment(container, place, env),
            POD_UID_VARIABLE: pod.uid,
            DATA_DIRECTORY_VARIABLE: self.directories.identity,
        }

    def _pod_place(self, card: PodCard) -> EnvironmentContext:
        """What all containers of a pod have in common."""
        node = self.node.nodes[card.node]
        return EnvironmentContext(node=card.node, pod_ip=card.ip, cpus=node.cpus, memory=node.memory)

    def container_place(self, start: ContainerStart) -> EnvironmentContext:
        pod, card = start.pod, start.card
        node, devices = self.node.nodes[card.node], _container_devices(pod, card, start.container)
        return replace(
            self._pod_place(card),
            pods_on_node=max(1, self.count_active_pods(card.node)),
            devices=devices if node.gpus and not node.simulated else None,
            simulated=",".join(u.rpartition("-")[2] for u in devices) if node.simulated else None,
            proxy=self._proxy_url(card),
            peers=self._no_proxy_peers(pod) if self.network.has_own_address(card) else (),
            extra_env=self._gpu_variables(pod, card),
            gpu_fraction=gpu_fractions.pod_fraction(pod, node, card.devices) if devices else None,
        )

    def _proxy_url(self, card: PodCard) -> str:
        """The way out: of the pods' network; in containers the engine has one, unless the machine itself needs a proxy."""
        if not card.contained:
            return PROXY_URL if self.network.has_namespaces else ""
        proxy = next(
            (
                self.node.server_env[k]
                for k in ("https_proxy", "HTTPS_PROXY", "http_proxy")
                if self.node.server_env.get(k)
            ),
            "",
        )
        return "" if "//127." in proxy or "//localhost" in proxy else proxy

    def _gpu_variables(self, pod: PodSpec, card: PodCard) -> dict[str, str]:
        """NCCL: whole GPUs of one node are one host (its fast path); who shares a card must be a host of its own.

        Between network namespaces NCCL's newer memory handles cannot be passed, so the older way is asked for."""
        variables: dict[str, str] = {}
        if gpus := requested_gpus(pod):
            variables["RUNAI_NUM_OF_GPUS"] = str(gpus)
        if card.devices and not self.node.nodes[card.node].simulated:
            variables["NCCL_HOSTID"] = card.uid if is_fractional(pod) else card.node
            if self.network.has_own_address(card):
                variables |= {"NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
        return variables

    def _no_proxy_peers(self, pod: PodSpec) -> tuple[str, ...]:
        if not pod.owner_uid:
            return (pod.name,)
        names = (name_of(p) for p in self.view.by_owner(kinds.POD, pod.owner_uid) if namespace(p) == pod.namespace)
        return tuple(islice(names, MAX_NO_PROXY_PEERS))


def _container_devices(pod: PodSpec, card: PodCard, container: ContainerSpec) -> tuple[str, ...]:
    """The container's part of the pod's devices: as many as it asks for, in order of the containers."""
    mains = pod.main_containers
    if is_fractional(pod):
        chosen = pod.annotations.get("gpu-fraction-container-name") or mains[0].name
        return card.devices if container.name == chosen else ()
    first = 0
    for other in mains:
        if other.name == container.name:
            return card.devices[first : first + _container_gpus(other)]
        first += _container_gpus(other)
    return ()


def _apply_pull_policy(container: ContainerSpec, problem: Problem) -> Problem:
    if problem.reason == "ErrImagePull" and container.image_pull_policy == "Never":
        sentence = f'Container image "{container.image}" is not present with pull policy of Never'
        return Problem("ErrImageNeverPull", sentence)
    return problem
