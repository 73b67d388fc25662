"""A log that is followed on a real node goes on after its API server was restarted, and each line is told once, in every face."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.chaos.api_server import ApiServer
from tests.kube.test_served_cluster import kubectl
from tests.kube_evidence.test_real_node import real_node

from rowlock.sdk.client import Client

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
COUNTS = "n=0; while [ ! -e /tmp/go ]; do n=$((n+1)); echo rank $RANK counts $n; sleep 0.02; done; echo rank $RANK ends at $n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with real_node(tmp_path_factory.mktemp("real"), "--operator") as kubeconfig:
        yield kubeconfig


@pytest.fixture
def served(tmp_path: Path, node: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(node), "--scheduler", "own", "--install-crds")
        made.run("rowlock", "project", "create", "team-a", code=None)
        yield made


class Followed:
    """A program that follows a log, and the lines that it has printed."""

    def __init__(self, served: Cluster, *argv: str) -> None:
        self._process = subprocess.Popen(
            argv, env=served.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n").removeprefix("[rank 0] ").removeprefix("[rank 1] "))

    def end(self) -> tuple[int, str]:
        code = self._process.wait(120)
        self._reader.join(60)
        assert self._process.stderr is not None and self._process.stdout is not None
        with self._process.stdout, self._process.stderr:
            return code, self._process.stderr.read()


def counted(lines: list[str], rank: int) -> list[str]:
    return [line for line in lines if line.startswith(f"rank {rank} ")]


def expected(lines: list[str], rank: int) -> list[str]:
    """What that rank has written, by its last line."""
    last = int(counted(lines, rank)[-1].removeprefix(f"rank {rank} ends at "))
    return [*(f"rank {rank} counts {n}" for n in range(1, last + 1)), f"rank {rank} ends at {last}"]


def test_a_followed_log_goes_on_after_the_api_server_was_restarted(served: Cluster, node: Path) -> None:
    image = ("-i", "localhost/host:1", "--workers=1", "-p", "team-a")
    served.run("runai", "submit-dist", "pytorch", "counts", *image, "--", "sh", "-c", COUNTS)
    served.run("rowlock", "wait", "counts", "-p", "team-a", "--for", "running", "--timeout", "200s")
    merged = Followed(served, "rowlock", "logs", "-f", "counts", "-p", "team-a")
    one = Followed(served, "runai", "logs", "counts", "-f", "-p", "team-a", "--pod", "counts-worker-0")
    followers = [merged, one]
    served.until(lambda: all(len(each.lines) > 20 for each in followers), "both tell of it", 60)
    with Client(data_dir=served.data) as client, ThreadPoolExecutor(1) as reader, ApiServer(node.parent) as api_server:
        workload = client.job("counts", project="team-a")
        followed = reader.submit(lambda: [line.text for line in workload.logs(follow=True)])
        for _ in range(2):
            before = [len(each.lines) for each in followers]
            api_server.restart()
            served.until(
                lambda: all(len(each.lines) > n + 100 for each, n in zip(followers, before, strict=True)),  # noqa: B023
                "both go on",
                120,
            )
        for rank in ("worker-0", "master-0"):
            kubectl(node, "exec", "-n", "runai-team-a", f"counts-{rank}", "--", "touch", "/tmp/go")
        lines = followed.result(120)
        for each in followers:
            assert each.end() == (0, "")
    assert counted(merged.lines, 0) == expected(merged.lines, 0) and counted(merged.lines, 1) == expected(
        merged.lines, 1
    )
    assert one.lines == expected(one.lines, 1)
    assert counted(lines, 0) == expected(lines, 0) and counted(lines, 1) == expected(lines, 1)
