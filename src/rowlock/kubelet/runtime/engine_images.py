"""Which images the container engine has, or may pull; and so which pods run in containers.

`--runtime auto`: an image in rowlock's own table (`rowlock image`) runs as a process, any other one as a container:
the engine has it, or pulls it (`pulls.py`). On a machine without an engine this costs only a few `stat` calls. An engine
that is started later is noticed when a pod names an image that is not in the table.

Calls to the engine have threads of their own, and are refused while it does not answer: an engine that hangs blocks each call for half
a minute. In the threads that the server uses for all else, it would delay pods that run as processes, too.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from rowlock.errors import Invalid
from rowlock.kubelet.images.images import Image, Images, command_line, is_kubectl_delivery, normalise
from rowlock.kubelet.pod.facts import ContainerConfigError, Problem
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec, parse_pod_spec
from rowlock.kubelet.remote_shell.container_delivery import install_command
from rowlock.kubelet.runtime.program_files import read_program
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine, EngineError
from rowlock.objects import Object, uid

_THREADS = 8
_SLOW = 3.0
"""Seconds without an answer after which the engine is pinged."""
_PATIENCE = 10.0
"""Seconds in which it must answer a ping: more than a busy machine needs."""
T = TypeVar("T")


class EngineCalls:
    """Runs the engine calls of all pods."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="engine")
        self._probe_thread = ThreadPoolExecutor(1, thread_name_prefix="engine-probe")
        self._probe: asyncio.Future[Engine] | None = None
        self._problem: EngineError | None = None
        self._known_until = float("-inf")

    async def run(self, engine: Engine, function: Callable[..., T], *args: object) -> T:
        """Runs `function`, which calls the engine. Raises what it raises, and EngineError while the engine does not answer."""
        self._raise_problem()
        call = asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args))
        while True:
            done, _ = await asyncio.wait({call}, timeout=_SLOW)
            if done:
                return call.result()
            await self._probe_engine(engine)
            try:
                self._raise_problem()
            except EngineError:
                call.add_done_callback(_retrieve)
                call.cancel()
                raise

    def _raise_problem(self) -> None:
        if self._problem is not None and time.monotonic() < self._known_until:
            raise EngineError(self._problem.status, str(self._problem))

    async def _probe_engine(self, engine: Engine) -> None:
        """Pings the engine, once for all concurrent callers. A failed ping is believed for as long as it took, so that calls wait for
        the engine at most half of the time."""
        if self._probe is None or self._probe.done():
            ping = partial(engine_client.ping_engine, engine.path, _PATIENCE)
            self._probe = asyncio.get_running_loop().run_in_executor(self._probe_thread, ping)
            self._probe.add_done_callback(_retrieve)
        began = time.monotonic()
        try:
            await asyncio.shield(self._probe)
            self._problem = None
        except EngineError as error:
            now = time.monotonic()
            self._problem, self._known_until = error, max(self._known_until, now + now - began)

    def close(self) -> None:
        """Closes the thread pools without waiting for pending calls."""
        for threads in (self._threads, self._probe_thread):
            threads.shutdown(wait=False, cancel_futures=True)


def _retrieve(call: "asyncio.Future[Any]") -> None:
    """Retrieves the exception of an abandoned call, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        call.exception()


@dataclass(slots=True)
class EngineImages:
    """What is known about the container engine and its images."""

    mode: str
    """`auto`, `process` or `container`: `--runtime`."""
    images: Images
    pod_states: Mapping[str, PodState]
    """The kubelet's pods, by uid."""
    env: Mapping[str, str]
    """The environment, which may name the engine's socket."""
    engine: Engine | None = None
    engine_problem: str = ""
    """Why the expected engine does not answer."""
    calls: EngineCalls = field(default_factory=EngineCalls)
    _image_sizes: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """docker, podman, or "" = there is no engine."""
        return self.engine.name if self.engine else ""

    async def detect_engine(self) -> None:
        """Looks for an engine at the start of the kubelet; costs nothing on machines without one, as most are."""
        if self.mode == "container" or engine_client.has_socket(self.env):
            await self.find_engine()

    async def find_engine(self) -> None:
        """Looks for an engine. Raises Invalid when one was required and none answers."""
        if self.mode == "process":
            return
        self.engine, self.engine_problem = await asyncio.to_thread(engine_client.find_engine, self.env)
        if self.engine is None and self.mode == "container":
            raise Invalid(
                f"--runtime container needs Docker or Podman: {self.engine_problem}; start one, or leave the flag out"
            )

    def engine_gone_problem(self) -> Problem:
        """The problem of a pod in containers when the engine is gone."""
        return Problem(
            "CreateContainerError", self.engine_problem or "no container engine answers here any more: start it again"
        )

    # ------------------------------------------------------------ which pods

    async def inspect_images(self, pod: PodSpec) -> None:
        """Updates what is known about the pod's images. Also notices an engine that was started later."""
        names = {c.image for c in (*pod.real_containers, *pod.ephemeral_containers)}
        engine_images = [normalise(name) for name in names if not self.images.is_local(name)]
        if self.mode == "process" or not engine_images:
            return  # pods that run as processes wait for no engine
        if self.engine is None and engine_client.has_socket(self.env):
            with contextlib.suppress(Invalid):
                await self.find_engine()
        if self.engine is not None:
            await asyncio.gather(*(self._inspect_image(self.engine, name) for name in engine_images))

    async def _inspect_image(self, client: Engine, name: str) -> None:
        engine_images = self.images.engine_images
        try:
            inspection = await self.calls.run(client, client.request, "GET", f"/images/{name}/json")
            engine_images[name], self._image_sizes[name] = (
                image_of_engine(name, client, inspection),
                int(inspection.get("Size") or 0),
            )
        except EngineError as error:
            if error.status:
                engine_images.pop(name, None)
            elif name in engine_images or self.mode == "container":
                engine_images[name] = Problem("CreateContainerError", f"{error}: start the engine again")

    def needs_engine(self, pod: PodSpec) -> bool:
        """Whether the pod would run in containers, by what is known about its images."""
        return any(self.images.is_engine_image(c.image) or self.needs_pull(c) for c in pod.real_containers)

    def needs_pull(self, container: ContainerSpec) -> bool:
        """Whether the engine must pull its image first, and may."""
        if self.engine is None or self.mode == "process" or container.image_pull_policy == "Never":
            return False
        return self.images.needs_pull(container.image)

    async def image_problems(self, template: Object) -> list[str]:
        """Why containers of such a pod could not start because of their images, one sentence each."""
        pod = parse_pod_spec(template)
        await self.inspect_images(pod)
        sentences = []
        for container in pod.real_containers:
            if self.needs_pull(container):  # the engine fetches it
                continue
            image = self.images.find(container.image)
            command = command_line(image, container) if isinstance(image, Image) and not image.engine else image
            if isinstance(command, Problem):
                sentences.append(f"{command.reason}: {command.message}")
        return list(dict.fromkeys(sentences))

    def read_program(self, template: Object) -> str:
        """The text of the program of such a pod; "" when it cannot be read here."""
        return read_program(template, self.images.find)

    async def inspect_pulled_image(self, name: str) -> int | None:
        """Looks for an image after a pull. Returns its size in bytes, None = it is not there."""
        if self.engine is None:
            return None
        await self._inspect_image(self.engine, name)
        return self._image_sizes.get(name) if isinstance(self.images.engine_images.get(name), Image) else None

    def runs_in_containers(self, pod: Object) -> bool:
        """Whether the pod runs in containers, as decided before its first program; until then, as would be decided now."""
        state = self.pod_states.get(uid(pod))
        if state is not None and not state.is_unstarted():
            return state.card.contained
        return self.needs_engine(parse_pod_spec(pod) if state is None else state.spec_of(pod))

    def find_image(self, pod: PodSpec, container: ContainerSpec, *, contained: bool) -> Image:
        """The image of one of the pod's containers; `contained`: whether the pod runs in containers. The container that gives an MPIJob's
        launcher its kubectl has the launcher's own. Raises ContainerConfigError if it is missing or does not fit that."""
        image = self.images.find(container.image)
        if isinstance(image, Problem):
            if image.reason == "ErrImagePull" and container.image_pull_policy == "Never":
                text = f'Container image "{container.image}" is not present with pull policy of Never'
                raise ContainerConfigError(text, "ErrImageNeverPull")
            raise ContainerConfigError(image.message, image.reason)
        if contained and not image.engine and is_kubectl_delivery(image.name):
            main = self.find_image(pod, pod.main_containers[0], contained=True)
            return replace(main, entrypoint=install_command(), command=())
        if not image.engine and self.mode == "container":
            text = f'image "{image.name}" stands for a process of this machine, and the cluster runs containers only'
            raise ContainerConfigError(f"{text}: start it with --runtime auto, or build the image")
        if bool(image.engine) != contained:
            text = f'image "{image.name}" runs as a process, other images of the pod in containers'
            raise ContainerConfigError(f"{text}: give all containers of a pod the same kind of image")
        return image


def image_of_engine(name: str, client: Engine, inspection: Mapping[str, Any]) -> Image:
    """The engine's inspection of an image as an `Image`."""
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
