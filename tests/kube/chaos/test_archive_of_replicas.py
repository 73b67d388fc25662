"""Two servers with one archive: whichever is killed, history and logs are whole, and nothing is there twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.archive.s3_server import BUCKET, s3_server
from tests.conformance.subjects import embedded_server
from tests.end_to_end.cluster import Cluster, lent

LEASE = "/apis/coordination.k8s.io/v1/namespaces/rowlock-system/leases/rowlock-archive"
PODS = "/api/v1/namespaces/runai-team-a/pods"
SPEAK = "for n in 1 2 3; do echo $RANK says $n; done; [ $RANK = 0 ] || sleep 600; until [ -e MARK ]; do sleep 0.1; done"
"""A rank speaks and waits. When the master ends, for which there is a mark, its workers are deleted: before they have spoken, if
nobody waited for them."""
LINES = {f"{rank} says {n}" for rank in range(3) for n in (1, 2, 3)}


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An embedded cluster stands for one somewhere else, whose pods really run."""
    with embedded_server(tmp_path_factory.mktemp("other"), "rowlock.serve", "--warm-start", "off") as kubeconfig:
        yield kubeconfig


@pytest.fixture(params=["directory", "s3"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path, other_cluster: Path) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        url, variables = f"file://{tmp_path}/archive", dict[str, str]()
        (tmp_path / "archive").mkdir()
        if request.param == "s3":
            # a prefix for each test: all servers of one process show the same buckets
            url, variables = f"s3://{BUCKET}/{tmp_path.name}", stack.enter_context(s3_server())
        made = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            made.append(stack.enter_context(lent(tmp_path / name)))
            made[-1].env.update(variables)
        for replica in made:
            start(replica, other_cluster, url)
        made[0].run("rowlock", "project", "create", "team-a", code=None)
        made[1].until(lambda: "team-a" in made[1].run("rowlock", "project", "list"), "the project is known to both")
        yield made


def start(replica: Cluster, kubeconfig: Path, url: str) -> None:
    replica.env["ARCHIVE"] = url  # for the next start
    replica.up("--kubeconfig", str(kubeconfig), "--archive", url)


def by_role(replicas: list[Cluster]) -> tuple[Cluster, Cluster]:
    """Who writes the archive, and who waits."""
    first = replicas[0]
    pids = [f"_{replica.pid}_" for replica in replicas]

    def holder() -> str:
        listed = first.api("GET", LEASE.rpartition("/")[0])["items"]
        return next(
            (str(i["spec"].get("holderIdentity")) for i in listed if i["metadata"]["name"] == "rowlock-archive"), ""
        )

    first.until(lambda: any(pid in holder() for pid in pids), "one of them leads")
    leader = next(r for r, pid in zip(replicas, pids, strict=True) if pid in holder())
    return leader, next(r for r in replicas if r is not leader)


def submit(replica: Cluster, name: str, mark: Path) -> None:
    image = ("-i", "rowlock.dev/host", "--workers=2", "-p", "team-a")
    script = SPEAK.replace("MARK", str(mark))
    replica.run("runai", "submit-dist", "pytorch", name, *image, "--", "sh", "-c", script)


def wait_until_followed(replicas: list[Cluster], name: str) -> None:
    """All ranks have spoken, and every one of these servers has read it."""
    for replica in replicas:
        replica.until(lambda r=replica: sum(t.count(" says ") for t in followed(r, name)) == 9, "all logs are followed")  # type: ignore[misc]


def end(replica: Cluster, name: str, mark: Path) -> None:
    """The master ends, its workers are deleted, and then the job."""
    mark.touch()
    replica.run("rowlock", "wait", name, "-p", "team-a", "--timeout", "200s")
    replica.run("rowlock", "delete", name, "-p", "team-a")


def runs(replica: Cluster) -> list[dict[str, Any]]:
    """The history of the project's runs, the newest first."""
    listed: list[dict[str, Any]] = replica.api("GET", "/api/v1/runs")["runs"]
    return listed


def said(replica: Cluster, name: str) -> list[str]:
    """What the ranks said, in no order."""
    text = replica.run("rowlock", "logs", name, "-p", "team-a", code=None)
    return sorted(line.partition("] ")[2] for line in text.splitlines() if " says " in line)


def followed(replica: Cluster, name: str = "") -> list[str]:
    """What lies in the files of logs that this server follows, or has not found in the archive yet."""
    found = []
    for path in (replica.data / "archive-shared").glob("*/following/*/*.log"):
        with contextlib.suppress(FileNotFoundError):  # it is in the archive now
            if json.loads(path.with_name("pod.json").read_text())["pod"].startswith(name):
                found.append(path.read_text())
    return found


def test_the_leader_is_killed_while_pods_go(replicas: list[Cluster], tmp_path: Path, other_cluster: Path) -> None:
    leader, other = by_role(replicas)
    submit(other, "before", tmp_path / "before")
    wait_until_followed(replicas, "before")
    end(other, "before", tmp_path / "before")
    for replica in replicas:
        replica.until(lambda r=replica: said(r, "before") == sorted(LINES), "both have the logs of what is gone")  # type: ignore[misc]
        assert [(run["name"], bool(run["deletedAt"])) for run in runs(replica)] == [("before", True)]
    submit(leader, "killed", tmp_path / "killed")
    wait_until_followed(replicas, "killed")
    os.kill(leader.pid, signal.SIGKILL)
    end(other, "killed", tmp_path / "killed")  # while nobody leads
    other.until(lambda: not other.api("GET", PODS)["items"], "all pods are gone")
    other.until(lambda: said(other, "killed") == sorted(LINES), "all logs are whole, and nothing is doubled")
    other.until(
        lambda: {r["name"]: r["phase"] for r in runs(other)} == {"before": "Completed", "killed": "Completed"},
        "history is whole",
    )
    assert len(runs(other)) == 2
    leader.up("--kubeconfig", str(other_cluster), "--archive", leader.env["ARCHIVE"])
    leader.until(lambda: said(leader, "killed") == sorted(LINES), "who was killed reads what the other one wrote")
    assert runs(leader) == runs(other)
    for replica in replicas:
        replica.until(lambda r=replica: not followed(r), "what was followed is in the archive, and nowhere else")  # type: ignore[misc]


def test_who_stops_in_order_hands_over_at_once(replicas: list[Cluster], tmp_path: Path) -> None:
    leader, other = by_role(replicas)
    submit(leader, "ends", tmp_path / "ends")
    wait_until_followed(replicas, "ends")
    (tmp_path / "ends").touch()
    leader.run("rowlock", "wait", "ends", "-p", "team-a", "--timeout", "200s")
    leader.run("rowlock", "down", "--yes")
    submit(other, "later", tmp_path / "later")
    wait_until_followed([other], "later")
    end(other, "later", tmp_path / "later")
    other.run("rowlock", "delete", "ends", "-p", "team-a")
    for name in ("ends", "later"):
        other.until(lambda n=name: said(other, n) == sorted(LINES), "the logs of both are whole")  # type: ignore[misc]
    other.until(lambda: sorted(r["name"] for r in runs(other)) == ["ends", "later"], "both runs are known once")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("lab", "--archive takes s3://BUCKET/PREFIX or file:///DIRECTORY"),
        ("file:///no/such/directory", "is no directory here"),
        ("s3://no-such-bucket/x", "the archive s3://no-such-bucket/x cannot be used"),
    ],
)
def test_an_archive_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, other_cluster: Path, url: str, sentence: str
) -> None:
    with ExitStack() as stack:
        lab = stack.enter_context(lent(tmp_path))
        if url.startswith("s3"):
            lab.env.update(stack.enter_context(s3_server()))
        text = lab.run("rowlock", "up", "-d", "--kubeconfig", str(other_cluster), "--archive", url, code=1)
        assert sentence in text and len(text.splitlines()) == 1
        assert "--archive needs --kubeconfig FILE" in lab.run("rowlock", "up", "-d", "--archive", "s3://b/p", code=2)
