"""Of a container whose image the engine does not have: who asks for it, what is said meanwhile, when it is tried again.

What is there is used as it is, so a pull happens only for what is absent. It runs beside the pod's turns: a turn sees
that one is under way and does nothing more, and its end causes the next turn. A pull that failed is a back-off (ten
seconds, doubled up to thirty times), during which the engine is only asked whether the image has come by other means.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.cluster.node import images, registry
from rowlock.cluster.node.engine import Engine
from rowlock.cluster.node.images import normalise
from rowlock.cluster.node.pod_facts import NO_FACTS, ContainerFacts, Problem, Pull
from rowlock.cluster.node.pod_sync import delay
from rowlock.cluster.node.pulling import Outcome, Pulls
from rowlock.cluster.node.registry import Auths
from rowlock.cluster.node.runtime import Runtime
from rowlock.cluster.node.tended import Tended
from rowlock.objects import Object, dig, namespace

FAILED, BACK_OFF = "ErrImagePull", "ImagePullBackOff"
PULLING = (FAILED, BACK_OFF)


class PodPulling:
    """The pulls of all pods of this machine."""

    def __init__(self, runtime: Runtime, view: View, clock: Callable[[], float]) -> None:
        self._runtime, self._view, self._clock = runtime, view, clock
        self.pulls = Pulls()
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        self.group: asyncio.TaskGroup | None = None
        """Where tasks belong; None until the kubelet runs."""
        self.backoff = 10.0
        self.changed: Callable[[str], None] = lambda uid: None
        self.event: Callable[[Object, str, str, str, str], None] = lambda *_: None

    def takes(self, pod: Object, tended: Tended, container: Mapping[str, Any]) -> bool:
        """Begins a pull of the container's image, or says that it is to be waited with; False when there is none to be."""
        engine = self._runtime.engine
        if not tended.card.contained or not self._runtime.absent(container) or engine is None or self.group is None:
            return False
        known = tended.containers.get(container["name"], NO_FACTS)
        if self._clock() < known.pull.not_before:
            self._wait(pod, tended, container, known)
            return True
        tended.set(container["name"], replace(known, pull=replace(known.pull, under_way=True)))
        task = self.group.create_task(self._pull(pod, tended, container, engine))
        mine = self._tasks.setdefault(tended.card.uid, set())
        mine.add(task)
        task.add_done_callback(mine.discard)
        return True

    def forget(self, uid: str) -> None:
        """The pod has gone, or has ended: it wants no image any more."""
        for task in self._tasks.pop(uid, ()):
            task.cancel()

    def _wait(self, pod: Object, tended: Tended, container: Mapping[str, Any], known: ContainerFacts) -> None:
        """Said once for every back-off."""
        image, name = container["image"], container["name"]
        text = f'Back-off pulling image "{image}"'
        if known.problem is None or known.problem.reason != BACK_OFF:
            self.event(pod, "Normal", "BackOff", text, name)
            self.event(pod, "Warning", "Failed", f"Error: {BACK_OFF}", name)
        problem = Problem(BACK_OFF, f"{text}: {FAILED}: {known.pull.why}")
        tended.set(name, replace(known, problem=problem, problem_since=self._clock()))

    async def _pull(self, pod: Object, tended: Tended, container: Mapping[str, Any], engine: Engine) -> None:
        reference, part = str(container["image"]), str(container["name"])
        name, clock = normalise(reference), asyncio.get_running_loop().time
        assert self.group is not None
        auths, missing = self._secrets(pod)
        own = await asyncio.to_thread(_own, self._runtime.env)
        if missing:
            self.event(pod, "Warning", "FailedToRetrieveImagePullSecret", registry.missing_secrets(missing), "")
        self.event(pod, "Normal", "Pulling", f'Pulling image "{reference}"', part)
        began = clock()
        outcome = await self.pulls.fetch(self.group, engine, name, registry.credentials(name, [*auths, own]))
        size = await self._runtime.came(name)
        if not outcome.error and size is not None:
            text = registry.pulled(reference, outcome.seconds, clock() - began, size)
            self.event(pod, "Normal", "Pulled", text, part)
        known = tended.containers.get(part, NO_FACTS)
        if size is not None:
            tended.set(part, replace(known, pull=Pull(told=not outcome.error), problem=None))
        else:
            self._failed(pod, tended, container, outcome)
        self.changed(tended.card.uid)

    def _failed(self, pod: Object, tended: Tended, container: Mapping[str, Any], outcome: Outcome) -> None:
        reference, part, now = str(container["image"]), str(container["name"]), self._clock()
        sentence = outcome.error or f"{self._runtime.name} ended the pull without a word, and does not have the image"
        why = f"{sentence}; {images.instead(reference)}"
        self.event(pod, "Warning", "Failed", f'Failed to pull image "{reference}": {why}', part)
        self.event(pod, "Warning", "Failed", f"Error: {FAILED}", part)
        known = tended.containers.get(part, NO_FACTS)
        failures = known.pull.failures + 1
        pull = Pull(failures=failures, not_before=now + delay(failures, self.backoff), why=why)
        tended.set(part, replace(known, pull=pull, problem=Problem(FAILED, why), problem_since=now))

    def _secrets(self, pod: Object) -> tuple[list[Auths], list[str]]:
        """What the pod's secrets say, and the names of those that are of no use."""
        known, missing = list[Auths](), list[str]()
        for ref in dig(pod, "spec.imagePullSecrets", ()):
            secret = self._view.get(kinds.SECRET, namespace(pod), str(ref.get("name") or ""))
            auths = registry.of_secret(secret) if secret is not None else None
            if auths is None:
                missing.append(str(ref.get("name") or ""))
            else:
                known.append(auths)
        return known, missing


def _own(env: Mapping[str, str]) -> Auths:
    """What the user's `docker login` has left."""
    home = env.get("DOCKER_CONFIG") or os.path.join(env.get("HOME") or "/", ".docker")
    try:
        return registry.of_file((Path(home) / "config.json").read_text())
    except (OSError, ValueError):
        return {}
