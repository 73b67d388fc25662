"""From a pod and a container to the request that starts it in a container engine; `pod_starting.py` does it for processes.

What is not the pod's or the image's own comes in as a mount: the names of the pod network (`/etc/hosts`), the file for
last words, the job's checkpoints, torch's account of a failure.
"""

from __future__ import annotations

from typing import Any

from rowlock.cluster.node import containers, environment, images, volumes
from rowlock.cluster.node.containers import ERRORS, Program, Scene
from rowlock.cluster.node.environment import Missing
from rowlock.cluster.node.images import Image
from rowlock.cluster.node.network import hostname
from rowlock.cluster.node.pod_directory import PodCard
from rowlock.cluster.node.pod_facts import Problem, all_containers, limits_of
from rowlock.cluster.node.pod_starting import Starting
from rowlock.cluster.node.pod_sync import DEFAULT_GRACE, Start
from rowlock.cluster.node.processes import MARK
from rowlock.cluster.node.runtime import shared_memory
from rowlock.objects import Object, controller_of, dig, namespace


def request(starting: Starting, pod: Object, card: PodCard, start: Start) -> tuple[dict[str, Any], Image] | Problem:
    """What to send to the pod host, for a container or for a process: that is decided by the image."""
    container = next(c for c in all_containers(pod) if c["name"] == start.container)
    image = starting.image(pod, card, container)
    if isinstance(image, Problem):
        return image
    if not image.engine:
        return starting.request(pod, card, start, image)
    return _contained(starting, pod, card, start, image)


def _contained(
    starting: Starting, pod: Object, card: PodCard, start: Start, image: Image
) -> tuple[dict[str, Any], Image] | Problem:
    container = next(c for c in all_containers(pod) if c["name"] == start.container)
    engine, directory = starting.runtime.engine, starting.directories.container(card.uid, start.container)
    words = images.command_line(image, container)
    if isinstance(words, Problem):
        return words
    if engine is None:
        return starting.runtime.gone()
    try:
        scene = _scene(starting, pod, card)
        program = _program(starting, scene, start, container, image)
    except Missing as missing:
        return missing.problem
    path = containers.message_path(container)
    found = {
        "dir": str(directory),
        "n": start.number,
        "argv": list(program.argv),
        "env": {},
        "cwd": "/",
        "mounts": [],
        "user": {},
        "hint": f"{card.uid}/{start.container}",
        "wake": starting.wake,
        "backoff": start.backoff,
        "grace": float(dig(pod, "spec.terminationGracePeriodSeconds", DEFAULT_GRACE)),
        "console": {ours: True for ours in ("tty", "stdin") if container.get(ours)}
        | ({"once": True} if container.get("stdinOnce") else {}),
        "log_limit": starting.log_limit,
        "message_path": path,
        "message_from_log": container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
    }
    wanted = {
        "socket": engine.spec,
        "name": scene.name(start.container, start.number),
        "create": containers.body(scene, program, start.number),
        "sandbox": containers.sandbox(scene),
        "stop_signal": image.stop_signal or "SIGTERM",
        "touch": [bind["source"] for bind in program.binds if bind["target"] == ERRORS],
    }
    return {**found, "engine": wanted}, image


def _scene(starting: Starting, pod: Object, card: PodCard) -> Scene:
    runtime, known = starting.runtime, starting.volumes(pod, card)
    return Scene(
        cluster=runtime.cluster,
        network=runtime.net,
        pod=pod,
        card=card,
        hostname=hostname(pod),
        hosts=str(starting.network.hosts_file(namespace(pod))),
        memory=tuple(volume for volume in known if volume.kind == "memory"),
        engine=runtime.name,
        shared_memory=shared_memory(),
    )


def _program(starting: Starting, scene: Scene, start: Start, container: dict[str, Any], image: Image) -> Program:
    pod, card = scene.pod, scene.card
    containers.not_root(pod, container, image)
    place = starting.place(pod, card, container)
    words = images.command_line(image, container)
    assert not isinstance(words, Problem)
    checkpoints = str(starting.checkpoints.of(pod))
    own = {"HOSTNAME": scene.hostname, "ROWLOCK_CHECKPOINT_DIR": checkpoints}
    env = {**environment.inherited(pod, starting.server), **own, **image.env}
    env |= environment.declared(pod, container, place, starting.view.get)
    env |= environment.platform(container, place, env) | {MARK: card.uid}
    seen = list(volumes.mounts(container, lambda text: environment.expand(text, env), starting.volumes(pod, card)))
    directory = starting.directories.container(card.uid, start.container)
    binds = _binds(starting, scene, seen)
    ours = {
        "/etc/hosts": "" if dig(pod, "spec.hostNetwork") else scene.hosts,
        containers.message_path(container): f"{directory}/message.{start.number}",
        checkpoints: checkpoints,
    }
    if controller_of(pod):
        env.setdefault("TORCHELASTIC_ERROR_FILE", ERRORS)
        ours[ERRORS] = f"{directory}/error.{start.number}.json"
    taken = {bind["target"] for bind in binds}
    binds += [{"source": s, "target": t} for t, s in ours.items() if s and t not in taken]
    return Program(
        container=container,
        image=image,
        argv=[environment.expand(word, env) for word in words],
        env=env,
        cwd=environment.expand(str(container.get("workingDir") or image.workdir or "/"), env),
        binds=binds,
        limits=limits_of(container),
        devices=tuple(place.devices or ()),
    )


def _binds(starting: Starting, scene: Scene, seen: list[volumes.Mount]) -> list[dict[str, Any]]:
    """The pod's own volumes. Raises Missing for what an engine cannot mount."""
    memory = {volume.name for volume in scene.memory}
    if wrong := next((m for m in seen if m.volume in memory and m.sub), None):
        raise Missing(
            f'container engines mount memory volumes as a whole: "{wrong.volume}" has a subPath', "FailedMount"
        )
    on_disk = starting.mounts(
        scene.card, starting.volumes(scene.pod, scene.card), [m for m in seen if m.volume not in memory]
    )
    return on_disk + [
        {"memory": m.volume, "target": m.target, "read_only": m.read_only} for m in seen if m.volume in memory
    ]
