"""The Python clients on a real embedded cluster: one cluster, jobs with names of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

import rowlock


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("sdk")) as made:
        made.up()
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Iterator[rowlock.Client]:
    with rowlock.Client(data_dir=cluster.data) as made:
        yield made


def test_a_job_from_submit_to_delete(client: rowlock.Client) -> None:
    job = client.submit("walk", [sys.executable, "-c", "import os; print('I am', os.environ['RANK'], os.environ['A'])"], nnodes=2, env={"A": "b"})  # fmt: skip
    lines = sorted(((line.rank, line.text) for line in job.logs(follow=True)), key=str)
    assert lines == [(0, "I am 0 b"), (1, "I am 1 b")]
    assert job.wait(timeout=200).phase == "Completed"
    assert [(pod.rank, pod.exit_code) for pod in job.pods()] == [("rank 0", 0), ("rank 1", 0)]
    assert [line.text for line in job.logs(rank=1)] == ["I am 1 b"]
    assert client.job("walk").id == job.id and "walk" in [w.name for w in client.workloads("default")]
    assert [project.name for project in client.projects()] == ["default"]
    job.delete()
    assert job.wait(("Deleted",), timeout=200).phase == "Deleted"
    assert ("walk", "Completed") in [(run.name, run.phase) for run in client.runs(name="walk")]


def test_a_job_that_waits_is_stopped_and_resumed(client: rowlock.Client) -> None:
    job = client.submit("nap", ["sleep", "600"])
    assert job.wait(("Running",), timeout=200).phase == "Running"
    with pytest.raises(TimeoutError, match="nap is Running"):
        job.wait(timeout=0.05)
    job.suspend()
    assert job.wait(("Stopped",), timeout=200).phase == "Stopped"
    job.resume()
    assert job.wait(("Running",), timeout=200).phase == "Running"
    job.delete()


def test_refusals_are_the_servers_sentences(client: rowlock.Client) -> None:
    with pytest.raises(rowlock.RequestRefused, match='Did you mean "image"') as refusal:
        client.submit("odd", "true", spec={"imagee": "x"})
    assert refusal.value.status == 400 and refusal.value.issues[0][0] == "spec.imagee"
    with pytest.raises(rowlock.RequestRefused, match="nope"):
        rowlock.submit(len, args=((),), client=client, image="nope")
    with pytest.raises(rowlock.RequestRefused, match="there is no workload 'nobody'"):
        client.job("nobody")
    with pytest.raises(rowlock.RequestRefused) as gone:
        client.request("GET", "/api/v1/nothing")
    assert gone.value.status == 404


def test_a_function_of_this_program_runs_as_ranks(client: rowlock.Client, cluster: Cluster) -> None:
    secret = "not in the job's object"

    def share(total: int, *, label: str) -> dict[str, object]:
        kept = [name for name in os.environ if name.startswith("ROWLOCK_FUNCTION")]
        return {"rank": int(os.environ["RANK"]), "of": total, "label": label, "length": len(secret), "kept": kept}

    job = rowlock.submit(share, args=(2,), kwargs={"label": "x"}, nnodes=2, client=client)
    assert job.results(timeout=200) == [
        {"rank": rank, "of": 2, "label": "x", "length": len(secret), "kept": []} for rank in (0, 1)
    ]
    manifest = cluster.run("kubectl", "get", "pytorchjob", job.name, "-n", "runai-default", "-o", "yaml")
    assert "ROWLOCK_FUNCTION_0" not in manifest


def test_a_function_that_raises_says_who_and_why(client: rowlock.Client) -> None:
    def fall() -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("no such luck")

    with pytest.raises(rowlock.JobFailed, match=r"rank 1 .*ValueError: no such luck"):
        rowlock.submit(fall, nnodes=2, client=client).results(timeout=200)


def test_the_same_with_an_event_loop(cluster: Cluster) -> None:
    async def play() -> tuple[list[str], str, list[str]]:
        async with rowlock.AsyncClient(data_dir=cluster.data) as client:
            job = await client.submit("loop", ["sh", "-c", "echo one; echo two"], nnodes=2)
            lines = [line.text async for line in job.logs(follow=True)]
            phase = (await job.wait(timeout=200)).phase
            assert [pod.exit_code for pod in await job.pods()] == [0, 0]
            with pytest.raises(rowlock.RequestRefused):
                await client.job("nobody")
            return lines, phase, [workload.name async for workload in client.workloads()]

    lines, phase, names = asyncio.run(play())
    assert sorted(lines) == ["one", "one", "two", "two"] and phase == "Completed" and "loop" in names


def test_an_application_logs_in_and_its_token_is_renewed(client: rowlock.Client, cluster: Cluster) -> None:
    made = client.request("POST", "/api/v1/applications", body={"name": "ci"})
    rule = ("rowlock", "access-rule", "create", "--application", "ci", "--role", "viewer", "-p", "default")
    cluster.run(*rule)
    ca = cluster.data / "ca.crt"
    login = {"client_id": made["clientId"], "client_secret": made["clientSecret"]}
    with rowlock.Client(client.address.url, ca=ca, **login) as other:
        assert [project.name for project in other.projects()] == ["default"]
        other._token = "run out"
        assert [project.name for project in other.projects()] == ["default"]
        with pytest.raises(rowlock.RequestRefused) as refusal:
            other.submit("mine", "true")
        assert refusal.value.status == 403
    with (
        rowlock.Client(client.address.url, ca=ca, client_id="ci", client_secret="wrong" * 5) as wrong,
        pytest.raises(rowlock.RequestRefused),
    ):
        next(wrong.projects())


def test_a_server_that_is_not_there_is_said_in_a_sentence(client: rowlock.Client, tmp_path: Path) -> None:
    with pytest.raises(rowlock.ServerUnreachable, match="no server is running"):
        rowlock.Client(data_dir=tmp_path)
    with (
        rowlock.Client(client.address.url, token="x" * 30) as stranger,
        pytest.raises(rowlock.ServerUnreachable, match="is not the server that"),
    ):
        next(stranger.projects())
