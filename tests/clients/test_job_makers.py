"""Programs of others that make batch/v1 Jobs, each in an environment of its own: they train on the embedded cluster.

What they run is what docs/jobs.md shows: `examples/jobs/from_*.py`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = REPO / "examples" / "jobs"
JOBS = "/apis/batch/v1/namespaces/runai-default/jobs"
LIMIT = 600
"""Seconds for one program: Airflow alone takes a minute to begin, on a machine that does other work as well."""


@pytest.fixture(scope="module")
def prefect_port() -> int:
    """A port for Prefect's server, that pods reach."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, prefect_port: int) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("makers")) as made:
        made.up("--host-ports", str(prefect_port))
        yield made


@pytest.fixture(autouse=True)
def no_other_jobs(cluster: Cluster) -> None:
    cluster.api("DELETE", f"{JOBS}?propagationPolicy=Background")
    cluster.until(lambda: not cluster.api("GET", JOBS)["items"], "the former test's Jobs to go")


def programs(name: str) -> Path:
    """The programs of an environment that `make .venv-NAME` made."""
    place = REPO / f".venv-{name}" / "bin"
    if not (place / "python").exists():
        pytest.skip(f"{name} is not installed in an environment of its own (make .venv-{name})")
    return place


def run(cluster: Cluster, *command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=cluster.env | (env or {}), text=True, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + cluster.last_words()
    return done.stdout + done.stderr


def one_job(cluster: Cluster) -> dict[str, Any]:
    (job,) = cluster.api("GET", JOBS)["items"]
    found: dict[str, Any] = job
    return found


def complete(job: dict[str, Any]) -> bool:
    return any(c["type"] == "Complete" and c["status"] == "True" for c in job["status"].get("conditions", ()))


def losses(text: str) -> dict[str, float]:
    """The last loss of each training of a sweep, by its number, as `sweep.py` says it."""
    return {index: float(loss) for index, loss in re.findall(r"training (\d+): rate [\d.]+, loss ([\d.]+)", text)}


@pytest.mark.timeout(LIMIT + 60)
def test_luigi(cluster: Cluster, tmp_path: Path) -> None:
    python = programs("luigi") / "python"
    done = tmp_path / "done"
    said = run(cluster, python, EXAMPLES / "from_luigi.py", str(done))
    assert done.exists() and losses(said)["0"] < 0.01, said
    job = one_job(cluster)
    assert complete(job) and job["spec"]["parallelism"] == 0, "Luigi scales a finished Job down"
    assert [j["name"] for j in cluster.json("rowlock", "list", "--json")] == [job["metadata"]["name"]]


@pytest.mark.examples
@pytest.mark.timeout(LIMIT + 60)
def test_dagster(cluster: Cluster, tmp_path: Path) -> None:
    python = programs("dagster") / "python"
    said = run(cluster, python, EXAMPLES / "from_dagster.py", env={"DAGSTER_HOME": str(tmp_path)})
    assert losses(said)["0"] < 0.01, said
    assert complete(one_job(cluster))


@pytest.mark.examples
@pytest.mark.timeout(3 * LIMIT)
def test_airflow(cluster: Cluster, tmp_path: Path) -> None:
    bin_dir = programs("airflow")
    env = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
    }
    run(cluster, bin_dir / "airflow", "db", "migrate", env=env)
    said = run(cluster, bin_dir / "python", EXAMPLES / "from_airflow.py", env=env)
    assert sorted(losses(said)) == ["0", "1", "2"], said
    job = one_job(cluster)
    assert complete(job) and job["status"]["completedIndexes"] == "0-2"


@contextmanager
def prefect_server(bin_dir: Path, env: dict[str, str], port: int, log: Path) -> Iterator[None]:
    command = [str(bin_dir / "prefect"), "server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(200)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.examples
@pytest.mark.timeout(4 * LIMIT)
def test_prefect(cluster: Cluster, prefect_port: int, tmp_path: Path) -> None:
    bin_dir = programs("prefect")
    env = {
        "PATH": f"{bin_dir}{os.pathsep}{cluster.env['PATH']}",
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{prefect_port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    log = tmp_path / "server.log"
    with prefect_server(bin_dir, cluster.env | env, prefect_port, log):
        cluster.until(lambda: answers(prefect_port), lambda: f"Prefect's server: {log.read_text()[-2000:]}", LIMIT)
        prefect = bin_dir / "prefect"
        run(cluster, prefect, "work-pool", "create", "--type", "kubernetes", "k8s", env=env)
        flow_run = run(cluster, bin_dir / "python", EXAMPLES / "from_prefect.py", env=env).split()[-1]
        run(cluster, prefect, "worker", "start", "--pool", "k8s", "--run-once", env=env)
        cluster.until(lambda: complete(one_job(cluster)), lambda: str(one_job(cluster)["status"]), LIMIT)
        said = run(cluster, prefect, "flow-run", "inspect", flow_run, "-o", "json", env=env)
        assert '"COMPLETED"' in said, said
    assert "weight 2.965" in cluster.run("rowlock", "logs", one_job(cluster)["metadata"]["name"])
