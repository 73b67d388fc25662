"""`rowlock up --kubeconfig`: the commands over a cluster that is not ours, an embedded one here and a real one where it is built."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import BIN, Cluster, lent

HELLO = ("--", "sh", "-c", "echo hello from $RANK")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Cluster]:
    """A server without a cluster of its own; `up` names one."""
    (tmp_path / "served").mkdir()
    with lent(tmp_path / "served") as made:
        yield made


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an embedded cluster with a node: it stands for a cluster somewhere else, whose pods really run."""
    with embedded_server(tmp_path_factory.mktemp("other"), "rowlock.serve", "--warm-start", "off") as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="module")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("real"), "--operator", "--scheduler") as kubeconfig:
        yield kubeconfig


def submit(served: Cluster, name: str, *flags: str, image: str = "rowlock.dev/host") -> None:
    where = ("--workers=1", "-p", "team-a")
    served.run("runai", "submit-dist", "pytorch", name, "-i", image, *where, *flags, *HELLO)


def phase_of(served: Cluster, name: str) -> str:
    return next((w["phase"] for w in served.json("rowlock", "list", "-p", "team-a", "--json") if w["name"] == name), "")


def test_the_commands_work_over_another_cluster(served: Cluster, other_cluster: Path) -> None:
    served.up("--kubeconfig", str(other_cluster))
    assert served.run("rowlock", "kubeconfig", "--path").strip() == str(other_cluster)
    served.run("rowlock", "project", "create", "team-a")
    submit(served, "greets", "--clean-pod-policy=None")  # else a slower worker goes with its log
    served.run("rowlock", "wait", "greets", "-p", "team-a", "--timeout", "200s")
    served.until(
        lambda: "hello from 1" in served.run("rowlock", "logs", "greets", "-p", "team-a"), "the worker has written"
    )
    log = served.run("rowlock", "logs", "greets", "-p", "team-a")
    assert "hello from 0" in log and "hello from 1" in log
    assert "node" in served.run("rowlock", "status").lower()
    served.run("rowlock", "delete", "greets", "-p", "team-a")
    assert phase_of(served, "greets") in ("", "Deleting")


def test_questions_to_our_scheduler_say_how_to_start_it_there(served: Cluster, other_cluster: Path) -> None:
    served.up("--kubeconfig", str(other_cluster))
    refusal = served.run("rowlock", "scheduler", "snapshot", code=1)
    assert "without rowlock's scheduler: start the server with `--scheduler own`" in refusal


def test_the_server_stops_without_the_jobs_of_the_cluster(served: Cluster, other_cluster: Path) -> None:
    served.up("--kubeconfig", str(other_cluster))
    refusal = served.run("rowlock", "down", "--stop-jobs", code=2)
    assert "not stopped with this server" in refusal
    assert "its jobs go on" in served.run("rowlock", "down")


def test_only_reads_of_who_has_the_token_are_passed_on(served: Cluster, other_cluster: Path) -> None:
    served.up("--kubeconfig", str(other_cluster))
    facts = json.loads((served.data / "server.json").read_text())
    token = (served.data / "token").read_text().strip()
    ours = {"Authorization": f"Bearer {token}"}
    with httpx.Client(verify=tls_context(served.data), base_url=facts["url"]) as client:
        assert client.get("/api/v1/nodes").status_code == 401
        assert client.get("/api/v1/nodes", headers={"Authorization": "Bearer " + "x" * 40}).status_code == 401
        assert client.get("/api/v1/nodes", headers=ours).json()["kind"] == "NodeList"
        refusal = client.delete("/api/v1/namespaces/default", headers=ours)
        assert (refusal.status_code, refusal.json()["reason"]) == (405, "MethodNotAllowed")
        assert client.get("/api/v1/nodes/nowhere", headers=ours).status_code == 404


def tls_context(data: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(data / "ca.crt"))


def test_a_program_of_this_machine_is_not_run_elsewhere(served: Cluster, other_cluster: Path) -> None:
    served.up("--kubeconfig", str(other_cluster))
    assert "name an image with --image" in served.run("rowlock", "run", "--", "true", code=2)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--context", "x"), "--context needs --kubeconfig FILE"),
        (("--install-crds",), "--install-crds needs --kubeconfig FILE"),
        (("--debug-image", "x"), "--debug-image needs --kubeconfig FILE"),
        (("--kubeconfig", "/nowhere/config"), "there is no kubeconfig /nowhere/config"),
        (("--kubeconfig", "/dev/null/..", "--nodes", "2"), "there is no kubeconfig"),
    ],
)
def test_flags_that_cannot_work_are_refused(served: Cluster, flags: tuple[str, ...], sentence: str) -> None:
    assert sentence in served.run("rowlock", "up", "-d", *flags, code=2)


def test_flags_of_this_machine_are_refused_for_another_cluster(served: Cluster, other_cluster: Path) -> None:
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(other_cluster), "--nodes", "2", code=2)
    assert "--nodes is for a cluster on this machine" in refusal


def test_a_cluster_that_does_not_answer_or_has_no_such_context_is_one_sentence(served: Cluster, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [cluster],
        "contexts": [context],
    }
    nowhere.write_text(json.dumps({**config, "users": [{"name": "u", "user": {"token": "t"}}]}))
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(nowhere), code=1)
    assert f"the cluster of {nowhere} cannot be used" in refusal and "cannot be reached" in refusal
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(nowhere), "--context", "absent", code=1)
    assert "Traceback" not in refusal and str(nowhere) in refusal


def test_a_directory_of_an_embedded_cluster_is_left_alone(served: Cluster, other_cluster: Path) -> None:
    served.data.mkdir(mode=0o700)
    (served.data / "cluster.db").touch()
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(other_cluster), code=1)
    assert "holds a cluster of this machine" in refusal


# ------------------------------------------------------------ a real kube-apiserver and training operator


def kubectl(kubeconfig: Path, *argv: str) -> str:
    place = subprocess.run(
        [BIN / "python", "scripts/real_cluster", "where"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = [f"{place}/kubectl", "--kubeconfig", str(kubeconfig), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=200).stdout


@pytest.mark.real
def test_a_real_cluster_without_the_kinds_is_refused_or_gets_them(served: Cluster, real_kubeconfig: Path) -> None:
    refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(real_kubeconfig), "--scheduler", "own", code=1)
    assert "queues.scheduling.run.ai" in refusal and "--install-crds" in refusal
    notice = served.run("rowlock", "up", "-d", "--kubeconfig", str(real_kubeconfig))
    assert "queues.scheduling.run.ai" in notice and "--install-crds" in notice
    refusal = served.run("rowlock", "project", "create", "team-a", code=1)
    assert "the cluster does not serve queues.scheduling.run.ai" in refusal
    served.run("rowlock", "down")
    ready = served.run("rowlock", "up", "-d", "--kubeconfig", str(real_kubeconfig), "--install-crds")
    assert "no gang scheduler" in ready
    served.run("rowlock", "project", "create", "team-a")
    assert "team-a" in served.run("rowlock", "project", "list")
    submit(served, "dist1", "-g", "1", image="localhost/host:1")
    served.until(lambda: len(pod_names(real_kubeconfig)) == 2, "the operator makes a master and a worker")
    assert "kai.scheduler/queue" in kubectl(
        real_kubeconfig, "get", "pytorchjob", "dist1", "-n", "runai-team-a", "-o", "yaml"
    )
    assert "dist1-worker-0" in served.run("rowlock", "describe", "dist1", "-p", "team-a")
    served.run("rowlock", "suspend", "dist1", "-p", "team-a")
    served.until(lambda: phase_of(served, "dist1") == "Stopped" and not pod_names(real_kubeconfig), "it is suspended")
    served.run("rowlock", "resume", "dist1", "-p", "team-a")
    served.until(lambda: len(pod_names(real_kubeconfig)) == 2, "its pods come back")
    served.run("rowlock", "down")
    assert len(pod_names(real_kubeconfig)) == 2
    served.up("--kubeconfig", str(real_kubeconfig))
    served.run("rowlock", "delete", "dist1", "-p", "team-a")
    served.until(lambda: not pod_names(real_kubeconfig), "its pods are gone")


@pytest.mark.real
def test_a_namespace_that_kubectl_deletes_takes_its_queue_along(served: Cluster, real_kubeconfig: Path) -> None:
    """And doctor names a queue that stayed, of a project from before."""
    served.up("--kubeconfig", str(real_kubeconfig), "--install-crds")
    served.run("rowlock", "project", "create", "short-lived")

    def queues(*flags: str) -> str:
        return kubectl(real_kubeconfig, "get", "queues.scheduling.run.ai", *flags)

    owners = "jsonpath={.metadata.ownerReferences[*].name}"
    served.until(lambda: "runai-short-lived" in queues("short-lived", "-o", owners), "its namespace owns the queue")
    kubectl(real_kubeconfig, "delete", "namespace", "runai-short-lived", "--wait=false")
    served.until(lambda: "short-lived" not in queues("-o", "name"), "the queue goes with it", 120)
    served.until(lambda: "short-lived" not in served.run("rowlock", "project", "list"), "and so does the project")
    served.run("rowlock", "project", "create", "from-before")
    served.until(lambda: "runai-from-before" in queues("from-before", "-o", owners), "its namespace owns the queue")
    served.run("rowlock", "down")
    no_owner = (
        "patch",
        "queues.scheduling.run.ai",
        "from-before",
        "--type=merge",
        "-p",
        '{"metadata":{"ownerReferences":null}}',
    )
    kubectl(real_kubeconfig, *no_owner)
    kubectl(real_kubeconfig, "delete", "namespace", "runai-from-before")
    said = served.run("rowlock", "doctor", "--kubeconfig", str(real_kubeconfig), code=None)
    assert "queues of projects that have no namespace: from-before" in said
    kubectl(real_kubeconfig, "delete", "queues.scheduling.run.ai", "from-before")


def pod_names(kubeconfig: Path) -> list[str]:
    return kubectl(kubeconfig, "get", "pods", "-n", "runai-team-a", "-o", "name").split()
