"""Odd pods, odd directories: whatever one pod's turn raises ends that turn, is told to that pod, and heals."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.errors import TooLarge

NUL_PATH = {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/tmp/a\u0000b", "type": "DirectoryOrCreate"}}]},
            "container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}}  # fmt: skip
ODD: dict[str, dict[str, Any]] = {
    "nul": NUL_PATH,
    "digits": {"annotations": {"rowlock.dev/devices": "\u00b2", "gpu-fraction": "\u00b2"}},
    "env-nul": {"container": {"env": [{"name": "A", "value": "a\u0000b"}]}},
    "argument-nul": {"container": {"args": ["a\u0000b"]}},
    "env-name": {"container": {"env": [{"name": "A=B", "value": "c"}, {"name": "", "value": "c"}]}},
    "wrong-type": {"spec": {"volumes": [{"name": "v", "hostPath": 7}]}, "container": {"volumeMounts": [{"name": "v", "mountPath": 7}]}},
    "no-image": {"container": {"image": None}},
}  # fmt: skip
"""Pods that no API server should admit; the kubelet reads them from the store all the same."""


async def _works(node: Node, name: str) -> None:
    await node.add(pod(name, "true"))
    await node.phase(name, "Succeeded")


@pytest.mark.parametrize("name", ODD)
def test_an_odd_pod_holds_up_nobody_else(tmp_path: Path, name: str) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("odd", "true", **_copied(ODD[name])))
        await _works(node, "plain")
        await node.stop()
        await node.start()  # at the next start it is there again
        await _works(node, "after")
        await node.delete("odd")

    on_node(tmp_path, body)


def _copied(more: dict[str, Any]) -> dict[str, Any]:
    return {key: dict(value) for key, value in more.items()}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug"),
        (
            TooLarge("the status finds no room"),
            "TooLarge: the status finds no room",
        ),  # not over by itself, as a conflict is
    ],
    ids=["bug", "refusal"],
)
def test_what_a_turn_raises_is_told_to_the_pod_and_the_pod_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    async def body(node: Node) -> None:
        workers, broken = node.kubelet.pod_workers, True
        refresh = workers._await_master

        def raise_for_one(pod_object: Any, state: Any) -> None:
            if broken and pod_object["metadata"]["name"] == "odd":
                raise error
            refresh(pod_object, state)

        monkeypatch.setattr(workers, "_await_master", raise_for_one)
        await node.add(pod("odd", "true"))
        await _works(node, "plain")
        await until(lambda: node.events("odd"), "the pod to be told")
        assert ("Warning", "FailedSync", f"Error syncing pod, it is tried again after 0.5 s: {said}") in node.events(
            "odd"
        )
        broken = False
        await node.phase("odd", "Succeeded")

    on_node(tmp_path, body)


@pytest.mark.parametrize("gone", ["pods", "logs"])
def test_directories_that_somebody_removes_are_made_anew(tmp_path: Path, gone: str) -> None:
    async def body(node: Node) -> None:
        await _works(node, "before")
        shutil.rmtree(tmp_path / gone)
        await _works(node, "between")
        await node.delete("before")
        await node.kubelet._collect_garbage()
        await node.delete("between")
        await _works(node, "after")

    on_node(tmp_path, body)


def test_a_full_disk_is_told_and_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(node: Node) -> None:
        await _works(node, "before")
        full = True
        real_open = os.open

        def no_space(path: Any, flags: int, *more: Any, **options: Any) -> int:
            if full and flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
                raise OSError(28, "No space left on device", str(path))
            return real_open(path, flags, *more, **options)

        monkeypatch.setattr(os, "open", no_space)
        await node.add(pod("waiting", "true"))
        await until(
            lambda: any("No space left on device" in message for *_, message in node.events("waiting")), "an Event"
        )
        full = False
        await node.phase("waiting", "Succeeded")

    on_node(tmp_path, body)
