"""Warm starts from the first job on: the environments of the last torch programs are imported while the server has little to do.

`warm.json` in the data directory lists them, last used first. After a start of the server the pod host makes the parents
(`warm/warm_parents.py`) of the first few, one after the other, as far as the machine's free memory allows, with the lowest priority.
An annotation of the Node says so.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from rowlock import kinds
from rowlock.api import Api, View
from rowlock.errors import ApiError
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.kubelet.warm import eligibility
from rowlock.objects import annotations

WARM_AHEAD_ANNOTATION = "rowlock.dev/warm-ahead"
"""Of a Node: the environments that were imported ahead since the last start, in a sentence."""
MAX_AHEAD = 2
"""Most environments that are imported ahead."""
PARENT_BYTES = 512 << 20
"""Memory that a parent may take: a torch for CPUs takes 370 MiB, one for CUDA more."""
SHARE_OF_MEMORY = 0.125
"""Part of the memory that is free now which parents made ahead may take together."""
AT_LOWEST_PRIORITY = True
"""Whether imports take only the CPU that nobody else wants. A program of the environment that comes meanwhile ends that."""
LONGEST_AGO = 30 * 86400.0
"""Seconds after its last use for which an environment is imported ahead."""
_KEPT, _MAX_BYTES = 4, 1 << 18
_FRESH = 600.0
"""Seconds for which the last use of the first environment is not noted again."""
_DELAY, _POLL, _LONGEST_IMPORT = 0.3, 0.25, 900.0
"""Seconds: from the server's start to the first import, between two looks whether it is done, and until it is given up."""

Ask = Callable[..., Awaitable[dict[str, Any]]]


def parents_that_fit(free: int) -> int:
    """How many parents may be made ahead with so many bytes of free memory."""
    return min(MAX_AHEAD, int(free * SHARE_OF_MEMORY) // PARENT_BYTES)


def note_use(environments: list[dict[str, Any]], spec: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """The environments, last used first, after a start by `spec`, a warm start's. The same list if there is nothing to note."""
    if environments and environments[0]["key"] == spec["key"] and 0 <= now - environments[0]["used"] < _FRESH:
        return environments
    new = {field: spec[field] for field in ("key", "interpreter", "flags", "env", "torch")} | {"used": now}
    return [new, *(each for each in environments if each["key"] != spec["key"])][:_KEPT]


def read_environments(path: Path) -> list[dict[str, Any]]:
    """The noted environments; those that are damaged are left out. Programs of this user can write the file."""
    found = (untrusted.read_object(str(path), _MAX_BYTES) or {}).get("environments")
    return [each for each in found if _is_sound(each)] if isinstance(found, list) else []


def _is_sound(each: Any) -> bool:
    if not (isinstance(each, dict) and isinstance(each.get("used"), int | float)):
        return False
    flags, env = each.get("flags"), each.get("env")
    if not (
        isinstance(flags, list) and isinstance(env, dict) and all(isinstance(v, str) for v in (*flags, *env.values()))
    ):
        return False
    if not (isinstance(each.get("interpreter"), str) and isinstance(each.get("torch"), str)):
        return False
    return eligibility.key_of(each["interpreter"], flags, env, each["torch"]) == each.get("key")


def is_current(environment: Mapping[str, Any], now: float) -> bool:
    """Whether an environment was used lately, and its interpreter and torch are still those of then."""
    interpreter = environment["interpreter"]
    is_there = os.path.isabs(interpreter) and os.access(interpreter, os.X_OK)
    return (
        is_there
        and now - environment["used"] < LONGEST_AGO
        and eligibility.torch_of(interpreter) == environment["torch"]
    )


class WarmAhead:
    """One per kubelet."""

    def __init__(self, data: Path, api: Api, view: View, node: str, ask: Ask) -> None:
        """`node`: the name of this machine's Node. `ask` sends a request to the pod host."""
        self._path, self._api, self._view, self._node, self._ask = data / "warm.json", api, view, node, ask
        self._environments: list[dict[str, Any]] = []
        self._is_noted = asyncio.Event()

    def note(self, spec: Mapping[str, Any] | None) -> None:
        """A program is started that may start warm, by this `ShimRequest.warm`. Cheap: the file is written later."""
        if spec is None:
            return
        after = note_use(self._environments, spec, time.time())
        if after is not self._environments:
            self._environments = after
            self._is_noted.set()

    async def run(self) -> None:
        """Imports ahead, then writes down what is used, until cancelled."""
        before = await asyncio.to_thread(read_environments, self._path)
        known = {each["key"] for each in self._environments}
        self._environments += [each for each in before if each["key"] not in known][: _KEPT - len(known)]
        await asyncio.sleep(_DELAY)
        await self._import_ahead(before)
        while True:
            await self._is_noted.wait()
            self._is_noted.clear()
            await asyncio.to_thread(write_fact, str(self._path), {"environments": self._environments})

    async def _import_ahead(self, environments: list[dict[str, Any]]) -> None:
        room = parents_that_fit(psutil.virtual_memory().available)
        wanted = [each for each in environments if await asyncio.to_thread(is_current, each, time.time())]
        said: list[str] = []
        for each in wanted[:room]:
            interpreter = each["interpreter"]
            await self._say([*said, f"importing torch of {interpreter}"])
            said.append(f"torch of {interpreter}: {await self._import(each)}")
        if wanted and not room:
            said = [
                f"nothing is imported ahead: a parent may take {PARENT_BYTES >> 20} MiB, {SHARE_OF_MEMORY:.1%} of the free memory is less"
            ]
        await self._say(said)

    async def _import(self, environment: dict[str, Any]) -> str:
        """Has a parent made. Returns how that went, in a few words."""
        deadline = time.monotonic() + _LONGEST_IMPORT
        while time.monotonic() < deadline:
            answer = await self._ask("warm", spec={**environment, "is_ahead": AT_LOWEST_PRIORITY})
            state = str(answer.get("state") or answer.get("error") or "")
            if state != "importing":
                return state
            await asyncio.sleep(_POLL)
        return f"not imported within {_LONGEST_IMPORT:.0f} s"

    async def _say(self, parts: list[str]) -> None:
        """Sets the Node's annotation; none for no parts."""
        node = self._view.get(kinds.NODE, "", self._node)
        text = "; ".join(parts) or None
        if node is None or annotations(node).get(WARM_AHEAD_ANNOTATION) == text:
            return
        try:
            patch = {"metadata": {"annotations": {WARM_AHEAD_ANNOTATION: text}}}
            await self._api.patch(kinds.NODE, "", self._node, patch)
        except ApiError:  # the store takes no writes now, which `rowlock status` says: the import goes on
            return
