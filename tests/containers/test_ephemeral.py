"""Ephemeral containers in an engine: they join the pod's network, and the processes of their target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import WAY, Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions, LogOptions

PROCESSES = (
    "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; echo; done; hostname; hostname -i; echo end; sleep 300"
)


async def add_look(node: Node, name: str, look: str, script: str, **more: Any) -> None:
    """As `kubectl debug` does it."""
    container = {"name": look, "image": WAY.image, "command": ["sh", "-c", script], **more}
    there = node.pod(name)["spec"].get("ephemeralContainers", [])
    patch = {"spec": {"ephemeralContainers": [*there, container]}}
    await node.store.patch(kinds.POD, "default", name, patch, subresource="ephemeralcontainers")


def state(node: Node, name: str, look: str) -> dict[str, Any]:
    listed = node.pod(name).get("status", {}).get("ephemeralContainerStatuses", ())
    return dict(next((c["state"] for c in listed if c["name"] == look), {}))


async def log_of(node: Node, name: str, container: str) -> str:
    options = LogOptions(container=container)
    return b"".join([piece async for piece in node.kubelet.logs.read_log("default", name, options)]).decode()


@pytest.mark.parametrize("mains", [1, 2], ids=["alone", "in a sandbox"])
def test_it_sees_the_pods_network_and_its_targets_processes(tmp_path: Path, mains: int) -> None:
    async def body(node: Node) -> None:
        made = pod("a", "sleep 4321")
        if mains == 2:
            made["spec"]["containers"].append({"name": "other", "image": WAY.image, "command": ["sleep", "1234"]})
        await node.add(made)
        await node.phase("a", "Running")
        await add_look(node, "a", "look", PROCESSES, targetContainerName="main")
        await until(lambda: "running" in state(node, "a", "look"), "look to run")
        await add_look(node, "a", "blind", PROCESSES)
        await until(lambda: "running" in state(node, "a", "blind"), "blind to run")
        for look in ("look", "blind"):
            while "end\n" not in await log_of(node, "a", look):
                assert "running" in state(node, "a", look)
        seen, blind = await log_of(node, "a", "look"), await log_of(node, "a", "blind")
        assert "sleep 4321" in seen and "sleep 4321" not in blind and "sleep 1234" not in seen
        address = node.pod("a")["status"]["podIP"]
        assert seen.endswith(f"a\n{address}\nend\n") and blind.endswith(f"a\n{address}\nend\n"), (seen, blind)
        assert node.pod("a")["status"]["phase"] == "Running"
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)
