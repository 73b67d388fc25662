"""Debug containers: ephemeral containers of an image that has Python and py-spy, for pods whose own images lack them.

It shares the process namespace of the pod's first container and only sleeps; the probe is run in it by exec. It is added with the caller's
rights. Ephemeral containers cannot be removed from a pod, so a running one is reused, and their number is limited.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from weakref import WeakValueDictionary

from rowlock import objects
from rowlock.errors import ApiError, Conflict, Forbidden, Invalid
from rowlock.kinds import POD
from rowlock.kube.client import Kube
from rowlock.objects import Object

MAX_CONTAINERS = 5
"""Maximum of debug containers over the lifetime of a pod."""
START_S = 15.0
"""Seconds to wait for a debug container to run, including the pull of its image."""
SLEEP_S = 600
"""Seconds after which a debug container exits."""
PYTHON = ("python3", "-I", "-S", "-c")
SUBRESOURCE = "ephemeralcontainers"
_PREFIX = "rowlock-debug-"
_POLL_S = 0.25
_TRIES = 3
_STARTING = ("", "ContainerCreating", "PodInitializing")
_NEVER_BEGAN = ("StartError", "ContainerCannotRun")
"""Termination reasons if the image lacks the program: another container of this image would fail in the same way."""


class NoDebugContainer(Exception):
    """Why a pod has no debug container, as a part of a sentence."""


class DebugContainers:
    """Debug containers of one image, for all pods. One instance per server."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Uid of a pod → its lock, so that concurrent calls for a pod share one container."""

    async def ensure_running(self, kube: Kube, pod: Object, deadline: float, target: str = "") -> str:
        """The name of a debug container that runs in the pod, added if there is none. Waits `START_S` at most, and not beyond `deadline`
        (in the event loop's time). `target`: the container whose processes it sees, "" = the first. Raises NoDebugContainer."""
        if any(pod["spec"].get(name) for name in ("hostPID", "shareProcessNamespace")):
            raise NoDebugContainer("it would see processes of other containers too (hostPID or shareProcessNamespace)")
        clock = asyncio.get_running_loop().time
        seconds = min(START_S, deadline - clock())
        last = ""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                lock = self._locks.setdefault(objects.uid(pod), asyncio.Lock())
                async with lock:
                    name = await self._ensure_added(kube, pod, target)
                while not (state := _state_of(await _read(kube, pod), name)).get("running"):
                    last = _explain_waiting(state, self._image)
                    await asyncio.sleep(_POLL_S)
                return name
        except TimeoutError:
            reason = f" ({last})" if last else ""
            raise NoDebugContainer(f"it does not run after {max(0.0, seconds):.0f} s{reason}: ask again") from None
        except Forbidden as error:
            raise NoDebugContainer(_explain_refusal(error.message)) from error
        except ApiError as error:
            raise NoDebugContainer(_shorten(error.message)) from error

    async def _ensure_added(self, kube: Kube, pod: Object, target: str) -> str:
        """The name of a usable debug container, added if needed. Concurrent servers write the same container. Raises ApiError."""
        tries = _TRIES
        while True:
            current = await _read(kube, pod)
            if name := self._find_usable(current):
                return name
            container = self._make_container(current, target)
            patch = {"metadata": {"uid": objects.uid(pod)}, "spec": {"ephemeralContainers": [container]}}
            place = objects.namespace(pod), objects.name(pod)
            try:
                await kube.patch(POD, *place, patch, type="strategic", subresource=SUBRESOURCE)
            except (Conflict, Invalid):
                tries -= 1
                if not tries:
                    raise
                continue  # a concurrent write, or the name is taken
            return str(container["name"])

    def _find_usable(self, pod: Object) -> str:
        """A debug container of this image that runs or starts, else "". Raises NoDebugContainer if a new one would fail too."""
        ends = {
            str(one["name"]): _state_of(pod, str(one["name"])).get("terminated")
            for one in _ours(pod)
            if one.get("image") == self._image
        }
        if alive := [name for name, end in ends.items() if end is None]:
            return alive[-1]
        newest = next(reversed(ends.values()), None)
        if newest and newest.get("reason") in _NEVER_BEGAN:
            raise NoDebugContainer(_explain_end(newest, self._image))
        return ""

    def _make_container(self, pod: Object, target: str) -> Object:
        """A container spec with root and SYS_PTRACE, which are needed to read another container's processes. Raises NoDebugContainer."""
        before = _ours(pod)
        if len(before) >= MAX_CONTAINERS:
            raise NoDebugContainer(f"the pod has had {MAX_CONTAINERS}, and none can be removed from it")
        number = 1 + max(map(_number_of, before), default=0)
        root = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False, "capabilities": {"add": ["SYS_PTRACE"]}}
        return {
            "name": f"{_PREFIX}{number}",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*PYTHON, f"import time; time.sleep({SLEEP_S})"],
            "targetContainerName": target or pod["spec"]["containers"][0]["name"],
            "securityContext": root,
        }


async def _read(kube: Kube, pod: Object) -> Object:
    """The pod's current object. Raises ApiError, and NoDebugContainer if the pod was replaced by another of the same name."""
    found = await kube.get(POD, objects.namespace(pod), objects.name(pod))
    if objects.uid(found) != objects.uid(pod):
        raise NoDebugContainer("the pod has gone")
    return found


def _ours(pod: Object) -> list[dict[str, Any]]:
    """The pod's debug containers of rowlock, oldest first. The API server lists the newest first."""
    all_of_pod: list[dict[str, Any]] = objects.dig(pod, "spec.ephemeralContainers", [])
    found = [one for one in all_of_pod if re.fullmatch(rf"{_PREFIX}[0-9]{{1,9}}", str(one.get("name")))]
    return sorted(found, key=_number_of)


def _number_of(container: dict[str, Any]) -> int:
    return int(str(container["name"]).removeprefix(_PREFIX))


def _state_of(pod: Object, container: str) -> dict[str, Any]:
    statuses: list[dict[str, Any]] = objects.dig(pod, "status.ephemeralContainerStatuses", [])
    return next((status.get("state") or {} for status in statuses if status.get("name") == container), {})


def _explain_waiting(state: dict[str, Any], image: str) -> str:
    """What a debug container that does not run yet waits for. Raises NoDebugContainer if it has ended or cannot start."""
    if end := state.get("terminated"):
        raise NoDebugContainer(_explain_end(end, image))
    waiting = state.get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _STARTING:
        return reason
    if "Image" in reason or reason == "RegistryUnavailable":
        raise NoDebugContainer(f"its image {image} cannot be pulled ({reason}: {_shorten(message)})")
    raise NoDebugContainer(f"it cannot start ({reason}: {_shorten(message)})")


def _explain_end(end: dict[str, Any], image: str) -> str:
    reason, code = str(end.get("reason") or ""), end.get("exitCode")
    message = str(end.get("message") or f"exit code {code}")
    if reason in _NEVER_BEGAN:
        return f"its image {image} cannot run {PYTHON[0]} ({_shorten(message)})"
    return f"it has ended ({reason}: {_shorten(message)})"


def _explain_refusal(message: str) -> str:
    if level := re.search(r'violates PodSecurity "([^":]+)', message):
        return f"the Pod Security of its namespace ({level[1]}) refuses SYS_PTRACE"
    if f'"pods/{SUBRESOURCE}"' in message:
        return f"you may not `patch` `pods/{SUBRESOURCE}`"
    return _shorten(message)


def _shorten(message: str) -> str:
    """The message as one line of at most 300 characters: the API server and container runtimes write several lines."""
    return " ".join(message.split())[:300]
