"""From a pod and a container to the request that starts it in a container engine; `starting.py` does it for processes.

What is not the pod's or the image's own comes in as a mount: the names of the pod network (`/etc/hosts`), the file for
last words, the job's checkpoints, torch's account of a failure.
"""

from __future__ import annotations

from typing import Any

from rowlock.kubelet.images import images
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.network.pod_network import hostname
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import (
    DATA_DIRECTORY_VARIABLE,
    POD_UID_VARIABLE,
    ContainerConfigError,
    Problem,
    all_containers,
    shim_limits,
)
from rowlock.kubelet.pod.spec import DEFAULT_GRACE
from rowlock.kubelet.pod.sync import Start
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.container_runtime import shared_memory_limit
from rowlock.kubelet.runtime.engine_spec import TORCH_ERROR_FILE, ContainerConfig, PodSandboxConfig
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes import volumes
from rowlock.kubelet.worker import environment
from rowlock.kubelet.worker.starting import ContainerStarter, console_spec
from rowlock.objects import Object, controller_of, dig, namespace

_HOSTS_FILE = "/etc/hosts"


def start_request(
    starting: ContainerStarter, pod: Object, card: PodCard, start: Start
) -> tuple[ShimRequest, Image] | Problem:
    """What to send to the pod host, for a container or for a process: that is decided by the image."""
    container = next(c for c in all_containers(pod) if c["name"] == start.container)
    image = starting.find_image(pod, card, container)
    if isinstance(image, Problem):
        return image
    if not image.engine:
        return starting.process_request(pod, card, start, image)
    return _engine_request(starting, pod, card, start, image)


def _engine_request(
    starting: ContainerStarter, pod: Object, card: PodCard, start: Start, image: Image
) -> tuple[ShimRequest, Image] | Problem:
    container = next(c for c in all_containers(pod) if c["name"] == start.container)
    engine, directory = (
        starting.engine_images.engine,
        starting.directories.container_directory(card.uid, start.container),
    )
    command = images.command_line(image, container)
    if isinstance(command, Problem):
        return command
    if engine is None:
        return starting.engine_images.engine_gone_problem()
    try:
        scene = _engine_scene(starting, pod, card)
        program = _engine_program(starting, scene, start, container, image)
    except ContainerConfigError as missing:
        return missing.problem
    path = engine_spec.message_path(container)
    request = ShimRequest(
        directory=str(directory),
        number=start.number,
        argv=list(program.argv),
        env={},
        cwd="/",
        hint=f"{card.uid}/{start.container}",
        wake_path=starting.node.wake_path,
        backoff=start.backoff,
        grace=float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE)),
        console=console_spec(container),
        rlimits=starting.node.rlimits,
        log_limit=starting.log_limit,
        message_path=path,
        message_from_log=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        engine={
            "socket": engine.spec,
            "name": scene.container_name(start.container, start.number),
            "create": engine_spec.container_create_body(scene, program, start.number),
            "sandbox": engine_spec.sandbox_create_spec(scene),
            "stop_signal": image.stop_signal or "SIGTERM",
            "touch": [bind["source"] for bind in program.binds if bind["target"] == TORCH_ERROR_FILE],
        },
    )
    return request, image


def _engine_scene(starting: ContainerStarter, pod: Object, card: PodCard) -> PodSandboxConfig:
    runtime, pod_volumes = starting.runtime, starting.pod_volumes(pod, card)
    return PodSandboxConfig(
        cluster=runtime.cluster,
        network=runtime.network_name,
        pod=pod,
        card=card,
        hostname=hostname(pod),
        hosts=str(starting.network.hosts_file(namespace(pod))),
        memory=tuple(volume for volume in pod_volumes if volume.kind == "memory"),
        engine=starting.engine_images.name,
        shared_memory=shared_memory_limit(),
    )


def _engine_program(
    starting: ContainerStarter, scene: PodSandboxConfig, start: Start, container: dict[str, Any], image: Image
) -> ContainerConfig:
    pod, card = scene.pod, scene.card
    engine_spec.verify_run_as_non_root(pod, container, image)
    place = starting.container_place(pod, card, container)
    command = images.command_line(image, container)
    assert not isinstance(command, Problem)
    checkpoints = str(starting.checkpoints.directory_for(pod))
    own_variables = {"HOSTNAME": scene.hostname, "ROWLOCK_CHECKPOINT_DIR": checkpoints}
    env = {**environment.inherited_environment(pod, starting.node.server_env), **own_variables, **image.env}
    env |= environment.declared_environment(pod, container, place, starting.view.get)
    env |= environment.platform_environment(container, place, env) | {POD_UID_VARIABLE: card.uid}
    env[DATA_DIRECTORY_VARIABLE] = starting.directories.identity
    volume_mounts = list(
        volumes.resolve_mounts(container, lambda text: environment.expand(text, env), starting.pod_volumes(pod, card))
    )
    directory = starting.directories.container_directory(card.uid, start.container)
    binds = _bind_mounts(starting, scene, volume_mounts)
    own_mounts = {
        _HOSTS_FILE: "" if dig(pod, "spec.hostNetwork") else scene.hosts,
        engine_spec.message_path(container): f"{directory}/message.{start.number}",
        checkpoints: checkpoints,
    }
    if controller_of(pod):
        env.setdefault("TORCHELASTIC_ERROR_FILE", TORCH_ERROR_FILE)
        own_mounts[TORCH_ERROR_FILE] = f"{directory}/error.{start.number}.json"
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
        cwd=environment.expand(str(container.get("workingDir") or image.workdir or "/"), env),
        binds=binds,
        limits=shim_limits(container),
        devices=tuple(place.devices or ()),
    )


def _bind_mounts(
    starting: ContainerStarter, scene: PodSandboxConfig, volume_mounts: list[volumes.Mount]
) -> list[dict[str, Any]]:
    """The pod's own volumes. Raises ContainerConfigError for what an engine cannot mount."""
    memory_volumes = {volume.name for volume in scene.memory}
    if unsupported := next((m for m in volume_mounts if m.volume in memory_volumes and m.sub_path), None):
        raise ContainerConfigError(
            f'container engines mount memory volumes as a whole: "{unsupported.volume}" has a subPath', "FailedMount"
        )
    on_disk = starting.shim_mounts(
        scene.card,
        starting.pod_volumes(scene.pod, scene.card),
        [m for m in volume_mounts if m.volume not in memory_volumes],
    )
    return on_disk + [
        {"memory": m.volume, "target": m.target, "read_only": m.read_only}
        for m in volume_mounts
        if m.volume in memory_volumes
    ]
