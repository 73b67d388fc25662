"""How far a pod travels through the kubelet: who follows a rule from call to call reads no more than this."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod

import rowlock.kubelet
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.worker.pod_context import PodContext
from rowlock.kubelet.worker.pod_worker import PodWorker

STOPS = 50
"""Functions to which the turn that starts a pod hands the pod. There were 137 when each dug in the manifest itself."""
KUBELET = str(Path(rowlock.kubelet.__file__).parent)
Stop = tuple[str, str]
"""File and function."""


class Watched:
    """A coroutine, of whose own calls (and of nobody else's while it waits) `note_call` hears."""

    def __init__(self, work: Awaitable[Any], note_call: Callable[[FrameType, str, Any], None]) -> None:
        self._steps, self._note_call = work.__await__(), note_call

    def __await__(self) -> Generator[Any, Any, Any]:
        while True:
            sys.setprofile(self._note_call)
            try:
                future = next(self._steps)
            except StopIteration as end:
                return end.value
            finally:
                sys.setprofile(None)
            yield future


def is_pod(value: Any) -> bool:
    return isinstance(value, PodSpec | ContainerSpec | PodContext) or (
        isinstance(value, dict) and value.get("kind") == "Pod"
    )


def test_the_turn_that_starts_a_pod_hands_it_to_few_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[set[Stop]] = []

    def note_call(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(KUBELET) and not code.co_name.startswith("<"):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(is_pod(frame.f_locals.get(name)) for name in names):
                turns[-1].add((code.co_filename, code.co_name))

    sync_pod, start_container = PodWorker.sync_pod, PodWorker._start_container

    async def watched_turn(worker: PodWorker, *args: Any) -> Any:
        turns.append(set())
        return await Watched(sync_pod(worker, *args), note_call)

    async def watched_start(worker: PodWorker, *args: Any) -> Any:  # a task of its own
        return await Watched(start_container(worker, *args), note_call)

    monkeypatch.setattr(PodWorker, "sync_pod", watched_turn)
    monkeypatch.setattr(PodWorker, "_start_container", watched_start)

    async def body(node: Node) -> None:
        await node.add(pod("a", "exit 0"))
        await node.ended("a")

    on_node(tmp_path, body)
    (stops,) = [turn for turn in turns if "_start_container" in {name for _, name in turn}]
    assert len(stops) <= STOPS, "\n".join(f"{file.removeprefix(KUBELET)}: {name}" for file, name in sorted(stops))
