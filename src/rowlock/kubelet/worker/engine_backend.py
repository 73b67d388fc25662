"""Containers of an engine (Docker, Podman): what the engine is asked to create, and what is mounted into them.

Mounts bring in what is neither the pod's nor the image's own: the names of the pod network (`/etc/hosts`), the termination
message file, the job's checkpoints, torch's error file.
"""

from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import shim_limits
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.container_runtime import ContainerRuntime
from rowlock.kubelet.runtime.engine_spec import ContainerConfig, PodSandboxConfig
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.worker import error_files
from rowlock.kubelet.worker.environment import CHECKPOINT_DIR_VARIABLE
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.kubelet.worker.starting import ContainerStart, Program, shared_memory_limit

_HOSTS_FILE = "/etc/hosts"
_AS_THE_IMAGE = EffectiveSecurityContext()


@dataclass(frozen=True, slots=True)
class EngineBackend:
    """Runs programs in containers of the engine."""

    runtime: ContainerRuntime
    network: PodNetwork
    volume_directories: VolumeDirectories
    pids_limit: int = 0
    """The most processes and threads of each container; 0 = the engine's own limit."""

    def prepare_program(
        self, start: ContainerStart, image: Image, checkpoints: str
    ) -> tuple[EffectiveSecurityContext, dict[str, str]]:
        """Only refuses a user that `runAsNonRoot` forbids: the engine itself applies the user. The program gets none of this
        machine's variables."""
        engine_spec.verify_run_as_non_root(start.pod, start.container, image)
        return _AS_THE_IMAGE, {CHECKPOINT_DIR_VARIABLE: checkpoints}

    def complete_request(self, request: ShimRequest, start: ContainerStart, program: Program) -> ShimRequest:
        """Adds the engine's create calls for the container and the pod's sandbox. Raises ContainerConfigError."""
        engine, image, container = self.runtime.engine, program.image, start.container
        if engine is None:
            gone = self.runtime.engine_images.engine_gone_problem()
            raise ContainerConfigError(gone.message, gone.reason)
        pod_config = PodSandboxConfig(
            cluster=self.runtime.cluster,
            network=self.runtime.network_name,
            pod=start.pod,
            card=start.card,
            hosts=str(self.network.hosts_file(start.pod)),
            memory=tuple(volume for volume in start.volumes if volume.kind == "memory"),
            engine=engine.name,
            shared_memory=shared_memory_limit(start.pod.annotations),
            running=start.running,
        )
        binds, env = self._bind_mounts(pod_config, start, program), dict(program.env)
        own_mounts = {
            _HOSTS_FILE: "" if start.pod.host_network else pod_config.hosts,
            engine_spec.message_path(container): f"{start.directory}/message.{start.number}",
            program.checkpoints: program.checkpoints,
        }
        if start.pod.owner_uid and not container.is_ephemeral:
            source, path = error_files.offer_error_file(start.directory, start.number, None, is_mounted=True)
            env.setdefault(error_files.VARIABLE, path)
            own_mounts[error_files.MOUNT_PATH] = source
        mounted_targets = {bind["target"] for bind in binds}
        binds += [
            {"source": s, "target": t, "read_only": t == _HOSTS_FILE}  # the pods of a namespace share it
            for t, s in own_mounts.items()
            if s and t not in mounted_targets
        ]
        config = ContainerConfig(
            container=container,
            image=image,
            argv=[program.space.argument(word, env) for word in program.command],
            env=env,
            cwd=program.space.expand(container.working_dir or image.workdir or "/", env),
            binds=binds,
            limits=shim_limits(container, self.pids_limit),
            devices=program.gpus.devices or (),
        )
        return request._replace(
            argv=config.argv,
            message_path=engine_spec.message_path(container),
            engine={
                "socket": engine.spec,
                "name": pod_config.container_name(container.name, start.number),
                "create": engine_spec.container_create_body(pod_config, config, start.number),
                "sandbox": engine_spec.sandbox_create_spec(pod_config),
                "stop_signal": images.stop_signal(image, container.stop_signal),
            },
        )

    def _bind_mounts(
        self, pod_config: PodSandboxConfig, start: ContainerStart, program: Program
    ) -> list[dict[str, Any]]:
        """Mounts of the pod's own volumes. Raises ContainerConfigError for a memory volume with a subPath."""
        in_memory = {volume.name for volume in pod_config.memory}
        if unsupported := next((m for m in program.mounts if m.volume in in_memory and m.sub_path), None):
            raise ContainerConfigError(
                f'container engines mount memory volumes as a whole: "{unsupported.volume}" has a subPath',
                "FailedMount",
            )
        on_disk = [m for m in program.mounts if m.volume not in in_memory]
        return self.volume_directories.mount_specs(start.card.uid, start.volumes, on_disk) + [
            {"memory": m.volume, "target": m.target, "read_only": m.read_only}
            for m in program.mounts
            if m.volume in in_memory
        ]
