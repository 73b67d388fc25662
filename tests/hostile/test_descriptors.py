"""A server that may open few files, and a crowd that opens connections and says nothing."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.end_to_end.cluster import Cluster, lent

FILES, CROWD = 256, 400


def _address(cluster: Cluster) -> tuple[str, int]:
    host, _, port = (
        json.loads((cluster.data / "server.json").read_text())["url"].removeprefix("https://").partition(":")
    )
    return host, int(port)


def _count_closed(crowd: Sequence[socket.socket]) -> int:
    """How many of them the server has closed."""
    closed = 0
    for connection in crowd:
        connection.setblocking(False)
        try:
            closed += connection.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            closed += 1
    return closed


def test_a_crowd_of_silent_connections_ends_neither_the_server_nor_its_work(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with lent(tmp_path) as cluster, ExitStack() as stack:
        cluster.run("bash", "-c", f"ulimit -n {FILES} && rowlock up -d --network rewrite")
        assert f"Max open files            {FILES} " in Path(f"/proc/{cluster.pid}/limits").read_text()
        if limits[0] < CROWD + 100:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 4096), limits[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        before, crowd = cluster.pid, []
        for _ in range(CROWD):
            with suppress(OSError):  # refused by the kernel, whose queue is full
                crowd.append(stack.enter_context(socket.create_connection(_address(cluster), timeout=60)))
        cluster.until(lambda: _count_closed(crowd) > CROWD // 4, "those too many to be closed")
        for connection in crowd:
            connection.close()
        said = cluster.run("rowlock", "run", "--name", "after", "--", "echo", "it-runs")
        assert "it-runs" in said, said
        assert cluster.pid == before and Path(f"/proc/{before}").exists(), cluster.last_words()
        assert (cluster.data / "server.log").stat().st_size < 1 << 20
        cluster.run("rowlock", "down", "--keep-jobs")
        cluster.up("--network", "rewrite")
        assert "after" in cluster.run("rowlock", "list"), "what it wrote is in the database"


def test_a_crowd_beside_many_pods_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Each pod that runs holds a descriptor: with a quarter of them gone to pods, accepting must not fail."""
    with lent(tmp_path) as cluster, ExitStack() as stack:
        cluster.run("bash", "-c", f"ulimit -n {FILES} && rowlock up -d --network rewrite --cpus-per-node 200")
        cluster.run("rowlock", "run", "-d", "-n", str(FILES // 4), "--name", "many", "--", "sleep", "600")
        cluster.run("rowlock", "wait", "many", "--for", "running", "--timeout", "200s")
        for _ in range(FILES):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(_address(cluster), timeout=60))
        cluster.run("rowlock", "list")
        assert "out of system resource" not in (cluster.data / "server.log").read_text(), "asyncio stopped accepting"
        assert len(list(Path(f"/proc/{cluster.pid}/fd").iterdir())) < FILES
        cluster.run("rowlock", "delete", "--yes", "many")
