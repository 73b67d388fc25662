"""Makes the request that starts a container's program: image, user, environment, GPUs, mounts.

What differs between a process of this machine and a container of an engine is in two back ends, `process_backend.py` and
`engine_backend.py`. All lookups are in memory or in small files. What cannot be started is a Problem: Kubernetes' reason and
one sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from rowlock.api import View
from rowlock.kinds import NAMESPACE
from rowlock.kubelet.files.log_writer import DEFAULT_LOG_LIMIT
from rowlock.kubelet.images import images
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.node import gpus
from rowlock.kubelet.node.gpus import ContainerGpus
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.exec_space import ExecSpace
from rowlock.kubelet.pod.facts import ContainerConfigError, Problem
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes import volumes
from rowlock.kubelet.volumes.checkpoints import Checkpoints, wait_for_writers
from rowlock.kubelet.volumes.volumes import Mount
from rowlock.kubelet.worker import environment
from rowlock.kubelet.worker.pod_context import PodContext
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.objects import uid

_SHARED_MEMORY = 64 << 20


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One container of a pod, about to start."""

    context: PodContext
    container: ContainerSpec
    directory: Path
    """The directory of its facts and its log."""
    volumes: tuple[Volume, ...]
    """The pod's volumes, as they are on disk."""
    number: int
    """Number of the run that begins."""
    backoff: int
    running: Mapping[str, int] = field(default_factory=dict)
    """The pod's other running containers → the number of each one's run."""

    @property
    def pod(self) -> PodSpec:
        return self.context.pod

    @property
    def card(self) -> PodCard:
        return self.context.card


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a container, as determined by the pod, its image and the platform."""

    image: Image
    command: Sequence[str]
    """As written: variables and paths are not resolved."""
    user: EffectiveSecurityContext
    env: Mapping[str, str]
    gpus: ContainerGpus
    mounts: Sequence[Mount]
    checkpoints: str
    """The directory of the job's checkpoints on this machine."""
    space: ExecSpace
    """What the variables leave of exec's size limits for the arguments."""


def shared_memory_limit(pod_annotations: Mapping[str, str]) -> int:
    """The most bytes of the pod's /dev/shm where no volume is mounted there: 64 MiB, as container runtimes have it.

    A job that `rowlock run` made from a shell gets what that shell has: half of the machine's memory. It costs nothing until it
    is used, and then it counts against the memory limit of the container."""
    if environment.SHELL_ENVIRONMENT_ANNOTATION in pod_annotations:
        return max(_SHARED_MEMORY, psutil.virtual_memory().total // 2)
    return _SHARED_MEMORY


class Backend(Protocol):
    """Runs a container's program. Both methods raise ContainerConfigError if it cannot run this way."""

    def prepare_program(
        self, start: ContainerStart, image: Image, checkpoints: str
    ) -> tuple[EffectiveSecurityContext, dict[str, str]]:
        """The program's user, if this back end decides it, and the environment below the variables of image and pod."""
        ...

    def complete_request(self, request: ShimRequest, start: ContainerStart, program: Program) -> ShimRequest:
        """The request, completed with what this back end needs to run the program."""
        ...


@dataclass(frozen=True, slots=True)
class ContainerStarter:
    """Makes start requests."""

    node: NodeContext
    view: View
    engine_images: EngineImages
    checkpoints: Checkpoints
    processes: Backend
    engine: Backend
    log_limit: int = DEFAULT_LOG_LIMIT
    """Bytes of a run's log that are kept."""

    def start_request(self, start: ContainerStart) -> tuple[ShimRequest, Image] | Problem:
        """The request for the pod host and the image, or the problem that prevents the start."""
        pod, container, context = start.pod, start.container, start.context
        request, space = self._common_request(start), ExecSpace(container.name)
        try:
            image = self.engine_images.find_image(pod, container, contained=context.card.contained)
            command = images.command_line(image, container)
            if isinstance(command, Problem):
                return command
            backend = self.engine if image.engine else self.processes
            namespace = self.view.get(NAMESPACE, "", pod.namespace) or {}
            checkpoints = str(self.checkpoints.directory_for(pod, uid(namespace), context.card.owner))
            wait_for_writers(pod, self.view)
            user, base = backend.prepare_program(start, image, checkpoints)
            env = environment.container_environment(
                pod, container, context.environment, base=base, image=image.env, lookup=self.view.get, space=space
            )
            devices = gpus.container_gpus(
                pod, container, context.card, context.node, has_own_address=context.has_own_address
            )
            env |= gpus.gpu_environment(devices, env)
            env.setdefault(environment.RESTART_COUNT_VARIABLE, str(start.number))
            mounts = volumes.resolve_mounts(container, partial(space.expand, env=env), start.volumes)
            program = Program(image, command, user, env, devices, mounts, checkpoints, space)
            return backend.complete_request(request, start, program), image
        except ContainerConfigError as missing:
            return missing.problem

    def _common_request(self, start: ContainerStart) -> ShimRequest:
        """The fields that do not depend on the back end."""
        container = start.container
        return ShimRequest(
            directory=str(start.directory),
            number=start.number,
            argv=(),
            env={},
            cwd="/",
            hint=f"{start.card.uid}/{container.name}",
            wake_path=self.node.wake_path,
            backoff=start.backoff,
            grace=start.pod.grace_period,
            console=container.console,
            rlimits=self.node.rlimits,
            log_limit=self.log_limit,
            message_from_log=container.is_message_from_log,
        )
