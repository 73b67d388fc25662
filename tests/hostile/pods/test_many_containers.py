"""A pod of hundreds of containers: they start and end in slices, between which others have their turn."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.kubelet.conftest import WAY, Node, on_node, pod, until

from rowlock.api import DeleteOptions
from rowlock.kubelet.worker.kubelet import ShimHints

CONTAINERS = 150
LONGEST_TURN = 0.05
"""Seconds of CPU time: how busy the machine is does not count."""


async def longest_turn(over: asyncio.Event) -> float:
    """Of the event loop, until the event is set."""
    longest, before = 0.0, time.thread_time()
    while not over.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest


def test_hundreds_of_containers_hold_nobody_up(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        over = asyncio.Event()
        made = pod("a", "sleep 300")
        more = [{"name": f"c{n}", "image": WAY.image, "command": ["sleep", "300"]} for n in range(CONTAINERS)]
        made["spec"]["containers"] += more
        watching = asyncio.create_task(longest_turn(over))
        await node.add(made)
        await until(
            lambda: all(
                "running" in c["state"]
                for c in node.pod("a").get("status", {}).get("containerStatuses", ({"state": ()},))
            ),
            "all of them to run",
        )
        await node.delete("a", DeleteOptions(grace=0))
        over.set()
        assert await watching < LONGEST_TURN

    on_node(tmp_path, body)


def test_who_writes_hints_without_end_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    """Programs of the server's user can write into the pipe."""
    heard: list[tuple[str, str]] = []
    hints = ShimHints(str(tmp_path / "wake"), lambda uid, container: heard.append((uid, container)))
    writer = os.open(tmp_path / "wake", os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"started u/c 0\n" * 4000)
        hints.read_lines()
        assert 0 < len(heard) < 1000
        while len(heard) < 4000:
            before = len(heard)
            hints.read_lines()
            assert before < len(heard) <= before + 1000
        assert set(heard) == {("u", "c")}
        for _ in range(20):
            os.write(writer, b"x" * 4096)  # a line without an end is not kept
            hints.read_lines()
        os.write(writer, b"\nexited u/d 0\n")
        hints.read_lines()
        assert heard[-1] == ("u", "d")
    finally:
        os.close(writer)
        hints.close()
