"""From a pod and a container to the request that starts it in a container engine; `starting.py` does it for processes.

What is not the pod's or the image's own comes in as a mount: the names of the pod network (`/etc/hosts`), the file for
last words, the job's checkpoints, torch's account of a failure.
"""

from __future__ import annotations

from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.pod.facts import (
    ContainerConfigError,
    Problem,
)
from rowlock.kubelet.pod.spec import shim_limits
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.container_runtime import shared_memory_limit
from rowlock.kubelet.runtime.engine_spec import ContainerConfig, PodSandboxConfig
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes import volumes
from rowlock.kubelet.worker import environment, error_files
from rowlock.kubelet.worker.starting import (
    CHECKPOINT_DIR_VARIABLE,
    ERROR_FILE_VARIABLE,
    ContainerStart,
    ContainerStarter,
    console_spec,
)

_HOSTS_FILE = "/etc/hosts"


def start_request(starting: ContainerStarter, start: ContainerStart) -> tuple[ShimRequest, Image] | Problem:
    """What to send to the pod host, for a container or for a process: that is decided by the image."""
    image = starting.find_image(start)
    if isinstance(image, Problem):
        return image
    if not image.engine:
        return starting.process_request(start, image)
    return _engine_request(starting, start, image)


def _engine_request(
    starting: ContainerStarter, start: ContainerStart, image: Image
) -> tuple[ShimRequest, Image] | Problem:
    container, card, engine = start.container, start.card, starting.engine_images.engine
    directory = starting.directories.container_directory(card.uid, container.name)
    command = images.command_line(image, container)
    if isinstance(command, Problem):
        return command
    if engine is None:
        return starting.engine_images.engine_gone_problem()
    try:
        scene = _engine_scene(starting, start)
        program = _engine_program(starting, scene, start, image, command)
    except ContainerConfigError as missing:
        return missing.problem
    path = engine_spec.message_path(container)
    request = ShimRequest(
        directory=str(directory),
        number=start.number,
        argv=list(program.argv),
        env={},
        cwd="/",
        hint=f"{card.uid}/{container.name}",
        wake_path=starting.node.wake_path,
        backoff=start.backoff,
        grace=start.pod.grace_period,
        console=console_spec(container),
        rlimits=starting.node.rlimits,
        log_limit=starting.log_limit,
        message_path=path,
        message_from_log=container.is_message_from_log,
        engine={
            "socket": engine.spec,
            "name": scene.container_name(container.name, start.number),
            "create": engine_spec.container_create_body(scene, program, start.number),
            "sandbox": engine_spec.sandbox_create_spec(scene),
            "stop_signal": image.stop_signal or "SIGTERM",
        },
    )
    return request, image


def _engine_scene(starting: ContainerStarter, start: ContainerStart) -> PodSandboxConfig:
    runtime, pod = starting.runtime, start.pod
    return PodSandboxConfig(
        cluster=runtime.cluster,
        network=runtime.network_name,
        pod=pod,
        card=start.card,
        hosts=str(starting.network.hosts_file(pod)),
        memory=tuple(volume for volume in start.volumes if volume.kind == "memory"),
        engine=starting.engine_images.name,
        shared_memory=shared_memory_limit(),
        running=start.running,
    )


def _engine_program(
    starting: ContainerStarter, scene: PodSandboxConfig, start: ContainerStart, image: Image, command: list[str]
) -> ContainerConfig:
    pod, card, container = start.pod, start.card, start.container
    engine_spec.verify_run_as_non_root(pod, container, image)
    place = starting.container_place(start)
    checkpoints = str(starting.checkpoints.directory_for(pod))
    env = starting.container_environment(start, image, place, {CHECKPOINT_DIR_VARIABLE: checkpoints})
    volume_mounts = list(volumes.resolve_mounts(container, lambda text: environment.expand(text, env), start.volumes))
    directory = starting.directories.container_directory(card.uid, container.name)
    binds = _bind_mounts(starting, scene, start, volume_mounts)
    own_mounts = {
        _HOSTS_FILE: "" if pod.host_network else scene.hosts,
        engine_spec.message_path(container): f"{directory}/message.{start.number}",
        checkpoints: checkpoints,
    }
    if pod.owner_uid and not container.is_ephemeral:
        env.setdefault(ERROR_FILE_VARIABLE, f"{error_files.MOUNT_PATH}/{error_files.FILE_NAME}")
        own_mounts[error_files.MOUNT_PATH] = error_files.make_directory(directory, start.number, None)
    mounted_targets = {bind["target"] for bind in binds}
    binds += [
        {"source": s, "target": t, "read_only": t == _HOSTS_FILE}  # which the pods of a namespace share
        for t, s in own_mounts.items()
        if s and t not in mounted_targets
    ]
    return ContainerConfig(
        container=container,
        image=image,
        argv=[environment.expand(word, env) for word in command],
        env=env,
        cwd=environment.expand(container.working_dir or image.workdir or "/", env),
        binds=binds,
        limits=shim_limits(container),
        devices=tuple(place.devices or ()),
    )


def _bind_mounts(
    starting: ContainerStarter, scene: PodSandboxConfig, start: ContainerStart, volume_mounts: list[volumes.Mount]
) -> list[dict[str, Any]]:
    """The pod's own volumes. Raises ContainerConfigError for what an engine cannot mount."""
    memory_volumes = {volume.name for volume in scene.memory}
    if unsupported := next((m for m in volume_mounts if m.volume in memory_volumes and m.sub_path), None):
        raise ContainerConfigError(
            f'container engines mount memory volumes as a whole: "{unsupported.volume}" has a subPath', "FailedMount"
        )
    on_disk = starting.shim_mounts(start, [m for m in volume_mounts if m.volume not in memory_volumes])
    return on_disk + [
        {"memory": m.volume, "target": m.target, "read_only": m.read_only}
        for m in volume_mounts
        if m.volume in memory_volumes
    ]
