"""Pulls images that the engine does not have: starts pulls, reports them, and retries with back-off.

An image that is present is used as it is, so a pull happens only for what is absent. It runs beside the pod's turns: a turn
sees that one is under way and does nothing more; its end causes the next turn. A failed pull starts a back-off (ten seconds,
doubled up to thirty times), during which the engine is only asked whether the image has arrived by other means.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rowlock import kinds
from rowlock.api import View
from rowlock.kubelet.images import images
from rowlock.kubelet.images.images import normalise
from rowlock.kubelet.pod.facts import NO_FACTS, ContainerFacts, Problem, Pull
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.progress import backoff_delay
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.pod.sync import remaining_wait
from rowlock.kubelet.runtime import registry
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.runtime.pulls import PullResult, Pulls
from rowlock.kubelet.runtime.registry import Auths
from rowlock.kubelet.shim.engine_client import Engine
from rowlock.objects import Object

ERR_IMAGE_PULL, IMAGE_PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
IMAGE_PULL_REASONS = (ERR_IMAGE_PULL, IMAGE_PULL_BACK_OFF)


class ImagePuller:
    """The pulls of all pods of this machine."""

    def __init__(
        self,
        task_group: asyncio.TaskGroup,
        engine_images: EngineImages,
        view: View,
        clock: Callable[[], float],
        *,
        backoff: float,
        on_changed: Callable[[str], None],
        record_event: Callable[[Object, str, str, str, str], None],
    ) -> None:
        """`backoff` in seconds, before the second attempt; `on_changed` is called with the uid of a pod whose pull has ended;
        `record_event` takes pod, type, reason, message and container's name."""
        self._task_group, self._engine_images, self._view, self._clock = task_group, engine_images, view, clock
        self._backoff, self._on_changed, self._record_event = backoff, on_changed, record_event
        self._pulls = Pulls()
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def ensure_image_pull(self, pod: PodSpec, state: PodState, container: ContainerSpec) -> bool:
        """Starts a pull of the container's image. True if one was started or is in back-off; False if the container needs none."""
        engine = self._engine_images.engine
        if not state.card.contained or not self._engine_images.needs_pull(container) or engine is None:
            return False
        facts = state.containers.get(container.name, NO_FACTS)
        delay = backoff_delay(facts.pull.failures, self._backoff)
        if remaining_wait(facts.pull.not_before - delay, delay, self._clock()) > 0:
            self._report_back_off(pod, state, container, facts)
            return True
        state.set_facts(container.name, replace(facts, pull=replace(facts.pull, under_way=True)))
        task = self._task_group.create_task(self._pull_image(pod, state, container, engine))
        pod_tasks = self._tasks.setdefault(state.card.uid, set())
        pod_tasks.add(task)
        task.add_done_callback(pod_tasks.discard)
        return True

    def forget(self, uid: str) -> None:
        """Cancels the pulls of a pod that is deleted or has ended."""
        for task in self._tasks.pop(uid, ()):
            task.cancel()

    def _report_back_off(self, pod: PodSpec, state: PodState, container: ContainerSpec, facts: ContainerFacts) -> None:
        """Sets the container's problem; records the events once per back-off."""
        image, name = container.image, container.name
        text = f'Back-off pulling image "{image}"'
        if facts.problem is None or facts.problem.reason != IMAGE_PULL_BACK_OFF:
            self._record_event(pod.object, "Normal", "BackOff", text, name)
            self._record_event(pod.object, "Warning", "Failed", f"Error: {IMAGE_PULL_BACK_OFF}", name)
        problem = Problem(IMAGE_PULL_BACK_OFF, f"{text}: {ERR_IMAGE_PULL}: {facts.pull.why}")
        state.set_facts(name, replace(facts, problem=problem, problem_since=self._clock()))

    async def _pull_image(self, pod: PodSpec, state: PodState, container: ContainerSpec, engine: Engine) -> None:
        reference, container_name = container.image, container.name
        name, clock = normalise(reference), asyncio.get_running_loop().time
        auths, missing_secrets = self._pull_secrets(pod)
        user_auths = await asyncio.to_thread(_user_auths, self._engine_images.env)
        if missing_secrets:
            self._record_event(
                pod.object,
                "Warning",
                "FailedToRetrieveImagePullSecret",
                registry.missing_secrets_message(missing_secrets),
                "",
            )
        self._record_event(pod.object, "Normal", "Pulling", f'Pulling image "{reference}"', container_name)
        began = clock()
        result = await self._pulls.pull_image(
            self._task_group, engine, name, registry.lookup_credentials(name, [*auths, user_auths])
        )
        size = await self._engine_images.inspect_pulled_image(name)
        if not result.error and size is not None:
            text = registry.pulled_message(reference, result.seconds, clock() - began, size)
            self._record_event(pod.object, "Normal", "Pulled", text, container_name)
        facts = state.containers.get(container_name, NO_FACTS)
        if size is not None:
            state.set_facts(container_name, replace(facts, pull=Pull(told=not result.error), problem=None))
        else:
            self._record_failure(pod, state, container, result)
        self._on_changed(state.card.uid)

    def _record_failure(self, pod: PodSpec, state: PodState, container: ContainerSpec, result: PullResult) -> None:
        reference, container_name, now = container.image, container.name, self._clock()
        sentence = (
            result.error or f"{self._engine_images.name} ended the pull without an error, but does not have the image"
        )
        why = f"{sentence}; {images.build_hint(reference)}"
        self._record_event(
            pod.object, "Warning", "Failed", f'Failed to pull image "{reference}": {why}', container_name
        )
        self._record_event(pod.object, "Warning", "Failed", f"Error: {ERR_IMAGE_PULL}", container_name)
        facts = state.containers.get(container_name, NO_FACTS)
        failures = facts.pull.failures + 1
        pull = Pull(failures=failures, not_before=now + backoff_delay(failures, self._backoff), why=why)
        state.set_facts(
            container_name, replace(facts, pull=pull, problem=Problem(ERR_IMAGE_PULL, why), problem_since=now)
        )

    def _pull_secrets(self, pod: PodSpec) -> tuple[list[Auths], list[str]]:
        """Credentials from the pod's pull secrets, and the names of the secrets that are missing or unusable."""
        readable, missing = list[Auths](), list[str]()
        for ref in pod.image_pull_secrets:
            secret = self._view.get(kinds.SECRET, pod.namespace, str(ref.get("name") or ""))
            auths = registry.auths_of_secret(secret) if secret is not None else None
            if auths is None:
                missing.append(str(ref.get("name") or ""))
            else:
                readable.append(auths)
        return readable, missing


def _user_auths(env: Mapping[str, str]) -> Auths:
    """Credentials that the user's `docker login` has stored; {} without a readable file."""
    home = env.get("DOCKER_CONFIG") or os.path.join(env.get("HOME") or "/", ".docker")
    try:
        return registry.auths_of_config_file((Path(home) / "config.json").read_text())
    except (OSError, ValueError):
        return {}
