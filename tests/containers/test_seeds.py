"""The seeds' own Dockerfile and job, in containers: what `make demo` does, with an engine there."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.containers import base
from tests.containers.conftest import IMAGE, listed
from tests.end_to_end.cluster import Cluster, make

REPO = Path(__file__).resolve().parents[2]
FROM = "pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime"


@pytest.fixture
def cluster(tmp_path: Path, docker: str) -> Cluster:
    made = make(tmp_path / "data", tmp_path)
    made.env |= {"DOCKER_HOST": f"unix://{docker}"} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
    return made


def test_a_cluster_from_the_command_line(cluster: Cluster, tmp_path: Path) -> None:
    found = cluster.run("rowlock", "doctor", code=None)
    assert "docker 20." in found or "docker " in found, found
    (tmp_path / "Dockerfile").write_text(
        f'FROM {IMAGE}\nWORKDIR /app\nRUN echo made > made\nCMD ["sh", "-c", "cat made; cat"]\n'
    )
    before = listed("network", "ls", "-q")
    cluster.up()
    try:
        said = cluster.run("rowlock", "build", "-t", "Team/App", str(tmp_path))
        assert "Successfully built team/app:latest in docker" in said
        assert any(
            line.split()[:2] == ["team/app:latest", "docker"]
            for line in cluster.run("rowlock", "image", "list").splitlines()
        )
        refused = cluster.run("rowlock", "image", "remove", "Team/App", code=1)
        assert "is an image of docker: `docker rmi Team/App` removes it" in refused
        node = cluster.api("GET", "/api/v1/nodes")["items"][0]
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("docker://")
        assert "runs images that it has or pulls" in node["metadata"]["annotations"]["rowlock.dev/runtime"]
        cluster.run(
            "rowlock", "run", "--name", "app", "--image", "Team/App", "--", "sh", "-c", "cat made; exit 3", code=3
        )
        cluster.run("runai", "submit-pytorch", "--name", "lives", "-i", "team/app", "--", "sleep", "600")
        cluster.run("rowlock", "wait", "lives", "--for", "running", "--timeout", "60s")
        os.kill(cluster.pid, signal.SIGKILL)
        running = listed("ps", "-q")
        cluster.up()
        pods = cluster.api("GET", "/api/v1/namespaces/runai-default/pods")["items"]
        lives = [p["status"] for p in pods if p["metadata"]["name"].startswith("lives")]
        assert [status["phase"] for status in lives] == ["Running", "Running"] and listed("ps", "-q") == running
        assert [status["containerStatuses"][0]["restartCount"] for status in lives] == [0, 0]
    finally:
        cluster.run("rowlock", "down", "--yes")
    assert not listed("ps", "-aq") and listed("network", "ls", "-q") == before


def test_without_an_engine_containers_are_refused(cluster: Cluster) -> None:
    cluster.env["DOCKER_HOST"] = f"unix://{cluster.data}/nobody"
    refused = cluster.run("rowlock", "up", "-d", "--runtime", "container", code=1)
    assert "--runtime container needs Docker or Podman: no container engine listens here" in refused


@pytest.mark.timeout(900)
def test_the_demo_trains_in_containers(docker: str) -> None:
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch is not installed here: `make test-containers` installs it")
    base.load(FROM, ["torch", "numpy", "pip"])
    done = subprocess.run([sys.executable, "examples/demo.py"], cwd=REPO, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "Successfully built your-user-name/distributed_training_pytorch:latest in docker" in done.stdout
    assert "epochs on 2 ranks" in done.stdout and "from the snapshot of epoch" in done.stdout
    assert not listed("ps", "-aq")
