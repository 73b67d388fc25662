"""`rowlock down` never waits long for jobs that nobody stops, and names them."""

from __future__ import annotations

import json
import os
import signal
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.end_to_end.cluster import Cluster

from rowlock.cli.commands.down import _count_surviving_pods
from rowlock.cli.server_json import running_server

ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "silent"},
    "status": {"capacity": ROOM, "allocatable": ROOM, "conditions": [{"type": "Ready", "status": "True"}]},
}


def test_down_waits_once_for_all_jobs_that_nobody_stops(cluster: Cluster) -> None:
    """Pods on a node that has no kubelet are never taken away."""
    cluster.up("--without", "kubelet")
    cluster.run("rowlock", "run", "-d", "--name", "waits", "-g", "1", "--", "true")
    cluster.api("POST", "/api/v1/nodes", NODE)
    names = ("one", "two", "three", "four", "five", "six")
    for name in names:
        cluster.run("rowlock", "run", "-d", "--name", name, "--", "true")
    pods = "/api/v1/namespaces/runai-default/pods"
    cluster.until(
        lambda: sum("nodeName" in pod["spec"] for pod in cluster.api("GET", pods)["items"]) == len(names),
        lambda: cluster.run("rowlock", "list"),
    )
    began = time.monotonic()
    said = cluster.run("rowlock", "down", "--yes", "--timeout", "8s")
    assert time.monotonic() - began < 45, "8 seconds for all, not for each"
    assert "1 unfinished job was stopped" in said
    assert f"{len(names)} unfinished jobs" in said and "did not stop in time" in said
    assert sum(name in said for name in names) >= 3, "some are named"


def test_down_names_the_pods_of_no_job_which_go_on(cluster: Cluster) -> None:
    cluster.up()
    body = {
        "metadata": {"name": "alone"},
        "spec": {
            "containers": [{"name": "main", "image": "rowlock.dev/host", "command": ["sleep", "100000"]}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    one = "/api/v1/namespaces/runai-default/pods/alone"
    cluster.api("POST", one.rpartition("/")[0], body)
    cluster.until(lambda: cluster.api("GET", one)["status"].get("phase") == "Running", "alone to run")
    said = cluster.run("rowlock", "down")
    assert "1 pod without a job goes on (runai-default/alone)" in said, said
    cluster.up()
    assert cluster.api("GET", one)["status"]["phase"] == "Running", "the next server finds it"
    cluster.api("DELETE", one)
    assert "without a job" not in cluster.run("rowlock", "down")


def test_down_ends_the_ranks_that_run_on_after_their_job(cluster: Cluster) -> None:
    """A job is over when rank 0 is; Kubeflow leaves the others alone."""
    cluster.up()
    word = f"{os.getpid()}.1234"
    program = f"[ $RANK = 1 ] && exec sleep {word}; true"
    cluster.run("rowlock", "run", "-d", "--name", "over", "-n", "2", "--", "sh", "-c", program)
    cluster.until(lambda: "Completed" in cluster.run("rowlock", "list"), "rank 0 to end the job")
    cluster.until(lambda: _running(word), "rank 1 to run")
    refusal = cluster.run("rowlock", "down", code=1)
    assert "1 pod that runs on after the end of a job (runai-default/over-worker-0)" in refusal, refusal
    assert _running(word), "nothing was stopped"
    said = cluster.run("rowlock", "down", "--yes")
    assert "1 pod that runs on after the end of a job (runai-default/over-worker-0): deleted" in said, said
    assert not _running(word)


def _running(word: str) -> list[str]:
    """The processes of this machine that have the word in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def test_jobs_that_are_submitted_while_down_works_leave_no_process(cluster: Cluster) -> None:
    """What is taken is stopped; what comes later is refused, or finds no server."""
    cluster.up()
    word = f"{os.getpid()}.4711"
    server = json.loads((cluster.data / "server.json").read_text())
    token = (cluster.data / "token").read_text().strip()
    stop, taken, refusals = threading.Event(), threading.Event(), set[int]()

    def submit(thread: int) -> None:
        tls = ssl.create_default_context(cafile=str(cluster.data / "ca.crt"))
        head = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=server["url"], verify=tls, headers=head, timeout=200) as client:
            for number in range(1000):
                if stop.is_set():
                    return
                template = {
                    "spec": {
                        "containers": [{"name": "pytorch", "image": "rowlock.dev/host", "command": ["sleep", word]}]
                    }
                }
                job = {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "PyTorchJob",
                    "metadata": {"name": f"j-{thread}-{number}"},
                    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
                }
                try:
                    answer = client.post("/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", json=job)
                except httpx.HTTPError:
                    return  # the server has gone
                if answer.status_code == 201:
                    taken.set()
                else:
                    refusals.add(answer.status_code)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert taken.wait(200)
        cluster.until(lambda: _running(word), "the first job to run")
        said = cluster.run("rowlock", "down", "--yes")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert "did not stop" not in said, said
    assert refusals <= {503}, refusals
    cluster.until(lambda: not _running(word), "no process of these jobs to be left")


JOBS = "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs"
SAVING = """
touch $0/up.$RANK
trap 'sleep $1; touch $0/saved.$RANK; exit 0' TERM
while :; do sleep 0.05; done
"""
"""A rank that saves for so many seconds when it is asked to end."""


def _start_saving_job(
    cluster: Cluster, directory: Path, pods: int, seconds: str, grace: int = 60, hook: dict[str, Any] | None = None
) -> None:
    """A job of so many pods, each of which has said that it runs."""
    directory.mkdir()
    template = {
        "spec": {
            "terminationGracePeriodSeconds": grace,
            "containers": [
                {
                    "name": "pytorch",
                    "image": "rowlock.dev/host",
                    "command": ["sh", "-c", SAVING, str(directory), seconds],
                    "resources": {"requests": {"cpu": "10m"}},
                    "lifecycle": hook,
                }
            ],
        }
    }
    replicas = {"Master": {"replicas": 1, "template": template}}
    if pods > 1:
        replicas["Worker"] = {"replicas": pods - 1, "template": template}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "saves"}}
    cluster.api("POST", JOBS, {**job, "spec": {"pytorchReplicaSpecs": replicas}})
    cluster.until(lambda: len(list(directory.glob("up.*"))) == pods, "all ranks to run")


@pytest.mark.parametrize("flag", ["--yes", "--keep-jobs"])
def test_down_waits_for_the_pods_of_a_job_that_was_deleted(cluster: Cluster, tmp_path: Path, flag: str) -> None:
    """The job is gone at once, so nobody could stop it; its pods end one after the other, and each saves for a while."""
    cluster.up()
    told = tmp_path / "told"
    _start_saving_job(cluster, told, 20, "3")
    cluster.api("DELETE", f"{JOBS}/saves")
    said = cluster.run("rowlock", "down", flag)
    assert len(list(told.glob("saved.*"))) == 20, said
    assert not _running(str(told)), said
    assert "did not" not in said, said


def test_down_names_pods_that_do_not_end_in_time(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    told = tmp_path / "told"
    _start_saving_job(cluster, told, 2, "100000", grace=30)
    cluster.api("DELETE", f"{JOBS}/saves")
    said = cluster.run("rowlock", "down", "--yes", "--timeout", "3s")
    assert (
        "2 pods that are being deleted (runai-default/saves-master-0, runai-default/saves-worker-0) did not end" in said
    )
    assert _running(str(told)), "this is what it says"
    cluster.up()
    cluster.until(lambda: not _running(str(told)), "the next server to end them")


def test_down_waits_for_a_pod_that_was_deleted_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """Its object is gone before its program is."""
    cluster.up()
    told = tmp_path / "told"
    _start_saving_job(cluster, told, 1, "1")
    cluster.api("DELETE", f"{JOBS}/saves?propagationPolicy=Orphan")
    pod = "/api/v1/namespaces/runai-default/pods/saves-master-0"
    cluster.until(lambda: not cluster.api("GET", pod)["metadata"].get("ownerReferences"), "the pod to be nobody's")
    cluster.api("DELETE", f"{pod}?gracePeriodSeconds=0")
    said = cluster.run("rowlock", "down", "--yes")
    assert not _running(str(told)), said


def _ask_to_end(cluster: Cluster, number: signal.Signals) -> None:
    """A signal to the server, as from systemd or a terminal; returns when it has said for whom it waits."""
    os.kill(cluster.pid, number)
    waits = "rowlock waits up to 40 s: 2 pods are being deleted (runai-default/saves-master-0, runai-default/saves-worker-0)"
    cluster.until(lambda: waits in cluster.last_words(), cluster.last_words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_end_waits_for_pods_that_are_being_deleted(
    cluster: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    """A pod with a hook before its end: without a server nobody would ask the program."""
    cluster.up()
    cluster.run("rowlock", "run", "-d", "--name", "stays", "--", "sleep", "300")
    told = tmp_path / "told"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"until [ -e {told}/go ]; do sleep 0.05; done"]}}}
    _start_saving_job(cluster, told, 2, "0", hook=hook)
    cluster.api("DELETE", f"{JOBS}/saves")
    _ask_to_end(cluster, number)
    assert "the server is being stopped and takes no new jobs" in cluster.run(
        "rowlock", "run", "-d", "--", "true", code=1
    )
    assert not list(told.glob("saved.*"))
    (told / "go").touch()
    cluster.until(lambda: running_server(str(cluster.data)) is None, cluster.last_words)
    assert len(list(told.glob("saved.*"))) == 2, cluster.last_words()
    assert "rowlock stops; 1 pod keeps running" in cluster.last_words()
    cluster.up()
    assert "Running" in cluster.run("rowlock", "list")


def test_a_second_signal_ends_a_server_that_waits(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    told = tmp_path / "told"
    _start_saving_job(cluster, told, 2, "100000", grace=300)
    cluster.api("DELETE", f"{JOBS}/saves")
    _ask_to_end(cluster, signal.SIGTERM)
    os.kill(cluster.pid, signal.SIGTERM)
    cluster.until(lambda: running_server(str(cluster.data)) is None, cluster.last_words)
    assert "rowlock waits no longer: 2 pods are being deleted" in cluster.last_words()
    assert _running(str(told))
    cluster.up()
    pods = "/api/v1/namespaces/runai-default/pods"
    for pod in cluster.api("GET", pods)["items"]:
        cluster.api("DELETE", f"{pods}/{pod['metadata']['name']}?gracePeriodSeconds=1")
    cluster.until(lambda: not _running(str(told)), "the next server to end them")


def test_down_says_what_runs_on_of_owners_that_this_cluster_does_not_know(cluster: Cluster, tmp_path: Path) -> None:
    """It waits for none of them: such a pod lives as long as its owner, which is elsewhere."""
    cluster.up()
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "others",
        "uid": "3f0d0c36-0000-4000-8000-000000000000",
    }
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sleep", "100000"]}
    pods = "/api/v1/namespaces/runai-default/pods"
    metadata = {"name": "theirs", "ownerReferences": [owner]}
    cluster.api(
        "POST", pods, {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    )
    cluster.until(lambda: cluster.api("GET", f"{pods}/theirs")["status"].get("phase") == "Running", "the pod to run")
    said = cluster.run("rowlock", "down", "--yes")
    assert "The programs of 1 pod run on, though no job of rowlock has them." in said, said
    cluster.up()
    cluster.api("DELETE", f"{pods}/theirs")
    assert "run on" not in cluster.run("rowlock", "down", "--yes")


def test_down_says_what_runs_on_after_a_killed_server(cluster: Cluster) -> None:
    """ "No server is running" alone reads as if nothing ran."""
    cluster.up()
    cluster.run("rowlock", "run", "-d", "-n", "2", "--name", "left", "--", "sleep", "300")
    cluster.run("rowlock", "wait", "left", "--for", "running", "--timeout", "200s")
    pid = json.loads((cluster.data / "server.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    cluster.until(lambda: "No server is running" in cluster.run("rowlock", "down", code=None), "the server runs on")
    assert "The programs of 2 pods run on: the server ended without stopping them." in cluster.run("rowlock", "down")
    cluster.up()
    cluster.run("rowlock", "down", "--yes")
    assert "run on" not in cluster.run("rowlock", "down")


def test_what_programs_put_in_place_of_a_start_holds_nobody_up(tmp_path: Path) -> None:
    container = tmp_path / "pods" / "uid" / "c"
    container.mkdir(parents=True)
    os.mkfifo(container / "start.0")
    (container / "start.1").symlink_to("/dev/zero")
    (container / "start.2").write_text("[" * 100_000)
    (container / "start.3").write_text('"pid"')
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert _count_surviving_pods(str(tmp_path)) == 0
    (container / "start.4").write_text(json.dumps({"pid": os.getpid(), "ticks": int(ticks)}))
    assert _count_surviving_pods(str(tmp_path)) == 1
