"""Jobs that meet in this machine's /tmp are told so: what is seen, by equality; and real pods."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.node.tmp_watch import TmpWatch, find_meetings, rendezvous_files, socket_directories

UNIX_TABLE = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 5 /tmp/ray/session_1/sockets/raylet
0000000000000000: 00000003 00000000 00000000 0001 03 6
0000000000000000: 00000002 00000000 00010000 0001 01 7 /tmp/one.sock
0000000000000000: 00000002 00000000 00010000 0001 01 8 @/tmp/abstract/x
0000000000000000: 00000002 00000000 00010000 0001 01 9 /run/other/sock
"""


def test_what_is_looked_for() -> None:
    assert socket_directories(UNIX_TABLE) == {"/tmp/ray"}
    text = "init('file:///tmp/x', f'file:///tmp/{name}', f'file:///tmp/run-{n}') a=file:///home/me/x file:///tmp/d/y.z"
    assert rendezvous_files(text) == {"file:///tmp/x", "file:///tmp/d/y.z"}


def test_pods_of_one_job_may_meet() -> None:
    places = {"a": ["p", "q"], "b": ["p"], "c": ["q"], "d": []}
    owners = {"a": "job1", "b": "job1", "c": "job2", "d": "job3"}
    assert find_meetings(places, owners) == {("a", "q"): "c", ("c", "q"): "a"}


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="rowlock-test-"))
    yield made
    shutil.rmtree(made)


BINDS = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); time.sleep(600)"


def test_real_pods_are_told_of_each_other(tmp_path: Path, place: Path) -> None:
    async def body(node: Node) -> None:
        script = place / "train.py"
        script.write_text(f"import time\nINIT = 'file://{place}/store'\ntime.sleep(600)\n")
        for name in ("a", "b"):
            await node.add(pod(name, "", container={"command": ["python", str(script)]}))
        (place / "ray").mkdir()
        for name in ("c", "d"):
            await node.add(pod(name, "", container={"command": ["python", "-c", BINDS, str(place / "ray" / name)]}))
        kubelet = node.kubelet
        watch = TmpWatch(node.store.view, kubelet.pod_states, kubelet.recorder.record, kubelet.network.has_namespaces)

        async def look(name: str, text: str) -> None:
            def said() -> bool:
                return any(reason == "SharedTmp" and text in message for _, reason, message in node.events(name))

            async with asyncio.timeout(200):
                while not said():
                    await watch.look()
                    await asyncio.sleep(0.05)

        await until(lambda: all(node.pod(n).get("status", {}).get("phase") == "Running" for n in "abcd"))
        await look("a", f"file://{place}/store is named by b of another job, too")
        await look("b", f"file://{place}/store is named by a of another job, too")
        if kubelet.network.has_namespaces:
            await look("c", f"d of another job has sockets in /tmp/{place.name}, too")

    on_node(tmp_path, body, network="auto")
