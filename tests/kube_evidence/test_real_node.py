"""A real kube-apiserver, training operator and kubelet: what users do there, from submit to what remains of a run.

Our scheduler places the pods, containerd runs them, and torch talks over the pods' own network.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.conformance.subjects import REPO, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.install.test_engines import compare_with, twenty_jobs
from tests.kube.test_served_cluster import kubectl
from tests.kube_evidence.played_registry import played_registry

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]  # a cluster starts in the first one
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {int(total)}", flush=True)
dist.destroy_process_group()
"""
HANG = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
def load():
    print("loading", flush=True)
    time.sleep(600)
def step():
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    load()
step()
"""
JOINS = 'import torch.distributed as dist; dist.init_process_group("gloo")'
FAILS = """
import os, threading, time
from torch.distributed.elastic.multiprocessing.errors import record
def wait_for_a_file():
    while not os.path.exists("/tmp/go"): time.sleep(0.1)
def fail(depth):
    if depth: fail(depth - 1)
    raise ValueError("bad batch")
@record
def main():
    threading.Thread(target=wait_for_a_file).start()
    fail(30)
try:
    main()
except ValueError:
    os.close(2)
    raise
"""
"""A thread keeps a program that has failed, and no log tells why: torch alone wrote it down."""
REST = 'trap "exit 0" TERM; sleep 600 & wait'
"""As process 1 `sleep` alone would not hear SIGTERM, and its pod would stay for the 30 s of its grace."""
SPEAK = f"for n in 1 2 3; do echo $RANK says $n; done; [ $RANK = 0 ] || {{ {REST}; }}; while [ ! -e /tmp/go ]; do sleep 0.1; done"
WORKERS = 8


@contextmanager
def real_node(directory: Path, *flags: str) -> Iterator[Path]:
    """The kubeconfig of a cluster with one real node, which says that it has eight GPUs."""
    if missing := real_cluster_missing(operator="--operator" in flags):
        pytest.skip(missing)
    os.environ["ROWLOCK_REAL_NODE_MOUNT"] = ":".join({str(REPO), sys.base_prefix})
    if missing := node_missing():
        pytest.skip(missing)
    with real_cluster(directory, *flags, "--kubelet") as kubeconfig:
        gpus = json.dumps({"status": {"capacity": {"nvidia.com/gpu": "8"}}})
        kubectl(kubeconfig, "patch", "node", "real-node", "--subresource=status", "--type=merge", "-p", gpus)
        wait_for_gpus(kubeconfig)
        yield kubeconfig


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("real")
    with real_node(directory, "--operator") as kubeconfig:
        program = [str(REPO / ".venv/bin/python"), "-c", TRAIN]
        command = [
            sys.executable,
            "scripts/real_cluster",
            "image",
            str(kubeconfig.parent),
            "docker.io/ekink/training:1",
        ]
        subprocess.run([*command, "--", *program], check=True, cwd=REPO)
        yield kubeconfig


def wait_for_gpus(kubeconfig: Path) -> None:
    """The kubelet makes what there is allocatable when it writes the node's status the next time, within ten seconds."""
    deadline, path = time.monotonic() + 90, r"jsonpath={.status.allocatable.nvidia\.com/gpu}"
    while kubectl(kubeconfig, "get", "node", "real-node", "-o", path).strip() != "8":
        assert time.monotonic() < deadline, "the kubelet does not take the node's GPUs"
        time.sleep(0.2)


def node_missing() -> str:
    asked = [sys.executable, "scripts/real_cluster", "can-run-a-node"]
    return subprocess.run(asked, capture_output=True, text=True, cwd=REPO).stdout.strip()


@pytest.fixture
def served(tmp_path: Path, node: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(node), "--scheduler", "own", "--install-crds")
        made.run("rowlock", "project", "create", "team-a", code=None)
        yield made


def logs(served: Cluster, name: str) -> str:
    return served.run("rowlock", "logs", name, "-p", "team-a", code=None)


def submit(served: Cluster, name: str, workers: int, script: str) -> None:
    image = ("-i", "localhost/host:1", f"--workers={workers}", "-p", "team-a")
    served.run("runai", "submit-dist", "pytorch", name, *image, "--", "sh", "-c", script)


def tell_to_end(served: Cluster, name: str, project: str, rank: str) -> None:
    """Whatever the exit code is: the program may end, and its container with it, before `touch` does."""
    served.run("rowlock", "exec", name, "-p", project, "--pod", f"{name}-{rank}", "--", "touch", "/tmp/go", code=None)


def pods(served: Cluster) -> list[str]:
    found = served.api("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    return [pod["metadata"]["name"] for pod in found]


def test_the_readmes_job_trains_and_its_logs_outlive_it(served: Cluster) -> None:
    """The first seed's command, with a tag, since untagged images are always pulled."""
    name = "distributed-training-pytorch"
    served.run(
        "runai", "submit-pytorch", "--name", name, "--workers=1", "-g", "1", "-i", "ekink/training:1", "-p", "team-a"
    )  # fmt: skip
    served.run("rowlock", "wait", name, "-p", "team-a", "--timeout", "200s")
    served.until(lambda: "rank 1 of 2 has 3" in logs(served, name), "both ranks have spoken")
    assert "rank 0 of 2 has 3" in logs(served, name)
    assert "real-node" in served.run("runai", "describe", "job", name, "-p", "team-a")
    served.run("runai", "delete", "job", name, "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")
    text = logs(served, name)
    assert "rank 0 of 2 has 3" in text and "rank 1 of 2 has 3" in text
    assert "It completed" in served.run("rowlock", "show", name, "-p", "team-a")


def test_who_is_killed_as_the_master_ends_has_every_log(served: Cluster, node: Path) -> None:
    submit(served, "killed", WORKERS, SPEAK)
    following = served.data / "archive" / "following"
    wanted = WORKERS + 1

    def spoken() -> int:
        return sum(path.read_text().count(" says 3") for path in following.glob("*/*.log"))

    served.until(lambda: spoken() == wanted, "all have spoken", 120)
    tell_to_end(served, "killed", "team-a", "master-0")
    os.kill(served.pid, signal.SIGKILL)
    served.up("--kubeconfig", str(node), "--scheduler", "own")
    served.run("rowlock", "wait", "killed", "-p", "team-a", "--timeout", "200s")
    served.run("rowlock", "delete", "killed", "-p", "team-a")
    said = [f"{rank} says {n}" for rank in range(wanted) for n in (1, 2, 3)]

    def missing() -> list[str]:
        text = logs(served, "killed")
        return [line for line in said if line not in text]

    served.until(lambda: not missing(), lambda: f"every log is whole; missing: {missing()}")
    assert all(logs(served, "killed").count(line) == 1 for line in said), "no line is there twice"


def test_a_shell_in_a_pod_and_the_reason_of_a_failure(served: Cluster) -> None:
    submit(
        served,
        "works",
        1,
        f"[ $RANK = 0 ] && {{ {REST}; }}; while [ ! -e /tmp/fail ]; do sleep 0.2; done; echo 'RuntimeError: no data' >&2; exit 7",
    )
    served.until(lambda: "Running" in served.run("rowlock", "list", "-p", "team-a"), "it runs", 120)
    pod = ("works", "-p", "team-a", "--pod", "works-worker-0")
    served.until(lambda: "worker-0" in served.run("rowlock", "exec", *pod, "--", "hostname", code=None), "exec works")
    served.run("rowlock", "exec", *pod, "--", "touch", "/tmp/fail", code=None)
    served.until(lambda: "exit code 7" in why(served), "the rank that failed is named")
    assert "rank 1" in why(served) and "no data" in why(served)
    served.run("rowlock", "delete", "works", "-p", "team-a")


def why(served: Cluster, name: str = "works", *flags: str) -> str:
    return served.run("rowlock", "why", name, "-p", "team-a", *flags, code=None)


def test_who_keeps_the_others_waiting_is_seen_from_inside_the_pods(served: Cluster) -> None:
    """With py-spy in the image, and without; of programs that are not Python the silence is told."""
    spied = f"PATH={REPO}/.venv/bin:$PATH; export PATH; exec python -c '{HANG}'"
    submit(served, "hangs", 1, spied)
    submit(served, "quiet", 1, f"echo here; {REST}")
    submit(served, "waits", 1, f"export WORLD_SIZE=3 {spied.replace(HANG, JOINS)}")
    for name in ("hangs", "quiet", "waits"):
        served.run("rowlock", "wait", name, "-p", "team-a", "--for", "running", "--timeout", "200s")
    expected = "rank 1 (pod hangs-worker-0, node real-node) keeps the others waiting: it is at load (<string>:"
    served.until(lambda: expected in why(served, "hangs"), lambda: why(served, "hangs", "--stacks"), 60)
    text = why(served, "hangs", "--stacks")
    assert "rank 0 waits in all_reduce at" in text and "load (<string>:" in text, text
    silence = why(served, "quiet")
    assert "No rank has written a line for " in silence and "they are not Python programs" in silence, silence
    incomplete = "The rendezvous is not complete: 2 ranks run, they expect 3; they are in init_process_group at "
    served.until(lambda: incomplete in why(served, "waits"), lambda: why(served, "waits", "--stacks"), 60)
    for name in ("hangs", "quiet", "waits"):
        served.run("rowlock", "delete", name, "-p", "team-a")


STEPS = """
import os, socket, sys, time
if sys.argv[1] == "meet" and os.environ["RANK"] == "0":
    server = socket.create_server(("", 4711))
    peer = server.accept()
elif sys.argv[1] == "meet":
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], 4711))
            break
        except OSError:
            time.sleep(0.2)
for step in range(6000):
    print("step", step, "loss", 1 / (step + 1), flush=True)
    time.sleep(0.2)
"""


def test_ranks_that_never_met_are_told_while_they_run(served: Cluster) -> None:
    """And those that are connected are not."""
    for name in ("apart", "meet"):
        submit(served, name, 1, f"PATH={REPO}/.venv/bin:$PATH; exec python -c '{STEPS}' {name}")
    served.until(
        lambda: all(logs(served, name).count("step 3 loss") == 2 for name in ("apart", "meet")), "all ranks train", 120
    )
    said = why(served, "apart")
    assert "rank 0 and rank 1 never connected to each other (no pod has accepted a connection in " in said, said
    assert "never connected" not in (said := why(served, "meet")) and "rank" in said, said
    for name in ("apart", "meet"):
        served.run("rowlock", "delete", name, "-p", "team-a")


DEBUG_IMAGE = "localhost/debug:1"


def debug_containers(served: Cluster, name: str) -> list[list[str]]:
    """Of each pod of a job."""
    found = served.api("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
    specs = [pod["spec"] for pod in found if pod["metadata"]["name"].startswith(f"{name}-")]
    return [[one["name"] for one in spec.get("ephemeralContainers", ())] for spec in specs]


def test_pods_without_py_spy_are_seen_from_a_debug_container(node: Path, tmp_path: Path) -> None:
    """Which is added once, though two ask; where it cannot be added or its image is not there, the answer says so."""
    path = ("--path", f"{REPO}/.venv/bin:{os.defpath}", "--", "nothing")
    made = [sys.executable, "scripts/real_cluster", "image", str(node.parent), DEBUG_IMAGE, *path]
    subprocess.run(made, check=True, cwd=REPO)
    with lent(tmp_path) as served:
        up = ("--kubeconfig", str(node), "--scheduler", "own", "--install-crds", "--debug-image")
        served.up(*up, DEBUG_IMAGE)
        served.run("rowlock", "project", "create", "team-a", code=None)
        for name in ("bare", "second"):
            submit(served, name, 1, f"exec {REPO}/.venv/bin/python -c '{HANG}'")
            served.run("rowlock", "wait", name, "-p", "team-a", "--for", "running", "--timeout", "200s")
        enforce = ("label", "namespace", "runai-team-a", "--overwrite", "pod-security.kubernetes.io/enforce=baseline")
        kubectl(node, *enforce)
        refused = why(served, "bare")
        assert "no debug container: the Pod Security of its namespace (baseline) refuses SYS_PTRACE" in refused, refused
        assert debug_containers(served, "bare") == [[], []]
        kubectl(node, *enforce[:-1], "pod-security.kubernetes.io/enforce-")
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda _: why(served, "bare"), range(2)))
        expected = "rank 1 (pod bare-worker-0, node real-node) keeps the others waiting: it is at load (<string>:"
        served.until(lambda: expected in why(served, "bare"), lambda: why(served, "bare", "--stacks"), 60)
        assert "rank 0 waits in all_reduce at" in why(served, "bare")
        assert debug_containers(served, "bare") == [["rowlock-debug-1"]] * 2
        served.run("rowlock", "down", "--yes")
        served.up(*up, "localhost:1/none:1")
        absent = "no debug container: its image localhost:1/none:1 cannot be pulled ("
        served.until(lambda: absent in why(served, "second"), lambda: why(served, "second"), 60)
        assert "No rank has written a line for " in why(served, "second")
        for name in ("bare", "second"):
            served.run("rowlock", "delete", name, "-p", "team-a")


def test_torchs_error_file_is_read_through_the_pod(served: Cluster) -> None:
    """From a container that runs, and from the status of one that ended: of a long report the end."""
    spied = f"PATH={REPO}/.venv/bin:$PATH; export PATH TORCHELASTIC_ERROR_FILE=/dev/termination-log"
    submit(served, "fails-late", 1, f"[ $RANK = 0 ] && {{ {REST}; exit; }}; {spied}; exec python -c '{FAILS}'")
    served.run("rowlock", "wait", "fails-late", "-p", "team-a", "--for", "running", "--timeout", "200s")
    expected = "rank 1 (pod fails-late-worker-0, node real-node) has failed and does not end: ValueError: bad batch"
    served.until(lambda: expected in why(served, "fails-late"), lambda: why(served, "fails-late", "--stacks"), 60)
    tell_to_end(served, "fails-late", "team-a", "worker-0")
    ended = "ended with exit code 1"
    served.until(lambda: ended in why(served, "fails-late"), lambda: why(served, "fails-late"), 60)
    assert "ValueError: bad batch (<string>:" in why(served, "fails-late"), why(served, "fails-late")
    assert "ValueError" not in logs(served, "fails-late"), logs(served, "fails-late")
    served.run("rowlock", "delete", "fails-late", "-p", "team-a")


# ------------------------------------------------------------ programs that fail, and jobs that are evicted

LENDER, OWNER = "lent-a", "lent-b"
"""Projects with half of the node each."""


def run_on_half(served: Cluster, project: str, name: str, script: str, *flags: str) -> str:
    """A job of two pods that hold half of the node each, as `rowlock run` submits it where nobody names a restartPolicy."""
    words = (
        "rowlock",
        "run",
        "--detach",
        "--image",
        "localhost/host:1",
        "-p",
        project,
        "--nnodes",
        "2",
        "--name",
        name,
    )
    return served.run(*words, *flags, "--", "sh", "-c", script)


def states(served: Cluster, project: str) -> dict[str, str]:
    """The phase of each pod that nobody has begun to delete, by uid."""
    found = served.api("GET", f"/api/v1/namespaces/runai-{project}/pods")["items"]
    return {
        pod["metadata"]["uid"]: pod["status"]["phase"] for pod in found if "deletionTimestamp" not in pod["metadata"]
    }


def job_of(served: Cluster, project: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = served.api("GET", f"/apis/kubeflow.org/v1/namespaces/runai-{project}/pytorchjobs/{name}")
    return found


def conditions(served: Cluster, project: str, name: str) -> dict[str, str]:
    found = (job_of(served, project, name).get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


def test_a_program_that_fails_is_stopped_and_its_first_failure_named(served: Cluster) -> None:
    """Since its job may be evicted it cannot have `Never`: it is started once more, and that is all. Of what a program writes to two
    streams a container runtime may log either first, so it writes to one."""
    script = "echo began $RANK; [ $RANK = 1 ] && { echo 'ValueError: no data'; exit 7; }; exec sleep 600"
    assert "warning" not in run_on_half(served, "team-a", "fails", script)
    served.until(lambda: conditions(served, "team-a", "fails").get("Failed") == "True", "the job is Failed", 60)
    served.until(lambda: not states(served, "team-a"), "nothing runs any more", 60)
    text = served.run("rowlock", "why", "fails", "-p", "team-a", code=None)
    assert "rank 1" in text and "exit code 7" in text and "no data" in text, text
    assert "fails-worker-0 ended with exit code 7" in served.run("rowlock", "describe", "fails", "-p", "team-a")
    both = ("rank 1, run 0: exit code 7", "rank 1, run 1: exit code 7")
    served.until(lambda: all(run in why(served, "fails") for run in both), lambda: why(served, "fails"))
    for attempt in ("1", "2"):
        of_attempt = ("rowlock", "logs", "fails", "-p", "team-a", "--rank", "1", "--attempt", attempt)
        served.until(lambda: served.run(*of_attempt, code=None).count("began 1") == 1, f"run {attempt} is kept")  # noqa: B023
    served.run("rowlock", "delete", "fails", "-p", "team-a")


def with_side_containers(name: str, init: str, main: str, side: str) -> dict[str, Any]:
    """A job of one pod: a sidecar and a container that fetches before its program starts, and another beside it."""

    def container(called: str, script: str, **fields: Any) -> dict[str, Any]:
        return {"name": called, "image": "localhost/host:1", "command": ["sh", "-c", script], **fields}

    inits = [container("proxy", f"echo proxy is up; {REST}", restartPolicy="Always"), container("fetch", init)]
    pod = {"initContainers": inits, "containers": [container("pytorch", main), container("metrics", side)]}
    master = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }  # fmt: skip


def test_containers_beside_the_program_have_verdicts_and_logs(served: Cluster, tmp_path: Path) -> None:
    """Also when the job has been deleted."""
    path = tmp_path / "job.json"
    fetching = with_side_containers("fetches", "echo 'OSError: no bucket'; exit 7", "echo trains", REST)
    metering = with_side_containers(
        "metered", "echo fetched", f"echo trains; {REST}", "echo 'ValueError: bad port'; exit 3"
    )
    outlived = with_side_containers("outlived", "echo fetched", "echo trains", REST)
    for job in (fetching, metering, outlived):
        path.write_text(json.dumps(job))
        served.run("runai", "workload", "submit", "-f", str(path), "-p", "team-a")
    fetch = "init container fetch of rank 0 (pod fetches-master-0, node real-node) ended with exit code 7 ("
    served.until(lambda: fetch in why(served, "fetches"), lambda: why(served, "fetches"), 120)
    assert " times); the last line of its log: OSError: no bucket" in why(served, "fetches")
    metrics = "container metrics of rank 0 (pod metered-master-0, node real-node) ended with exit code 3"
    served.until(lambda: metrics in why(served, "metered"), lambda: why(served, "metered"), 120)
    assert "ValueError: bad port" in why(served, "metered")
    ended = "Container pytorch of pod outlived-master-0 ended with exit code 0 at "
    served.until(lambda: ended in why(served, "outlived"), lambda: why(served, "outlived"), 120)
    assert ", but metrics still runs in that pod: the pod stays Running until that one ends." in why(served, "outlived")
    said = {"proxy": "proxy is up", "fetch": "fetched", "pytorch": "trains", "metrics": "ValueError: bad port"}

    def log(name: str, container: str) -> str:
        return served.run("rowlock", "logs", name, "-p", "team-a", "-c", container, code=None)

    for container, text in said.items():
        served.until(lambda c=container, t=text: t in log("metered", c), f"{container} has spoken")  # type: ignore[misc]
    assert "OSError: no bucket" in log("fetches", "fetch")
    served.run("rowlock", "delete", "fetches", "metered", "outlived", "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")
    for container, text in said.items():
        served.until(lambda c=container, t=text: t in log("metered", c), f"the log of {container} is kept")  # type: ignore[misc]
    assert "OSError: no bucket" in log("fetches", "fetch")
    assert "it has fetch, metrics, proxy, pytorch" in log("metered", "nothing")


ENDS_ON_TERM = "trap 'exit 143' TERM; while :; do sleep 0.2; done"


def test_what_happens_to_the_node_is_said(served: Cluster, node: Path) -> None:
    """It is drained, and opened again; then its kubelet stops to answer."""
    on_node = ("--image", "localhost/host:1", "-p", "team-a", "-g", "1")
    served.run("rowlock", "run", "-d", *on_node, "--name", "moved", "--", "sh", "-c", ENDS_ON_TERM)
    running = ("rowlock", "wait", "moved", "-p", "team-a", "--for", "running", "--timeout", "200s")
    served.run(*running)
    kubelet = next(
        one["pid"] for one in json.loads((node.parent / "pids.json").read_text()) if one["name"] == "kubelet"
    )
    try:
        kubectl(node, "drain", "real-node", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s")
        cordoned = "Node real-node could, but it is cordoned (`kubectl uncordon real-node`)"
        served.until(lambda: cordoned in why(served, "moved"), lambda: why(served, "moved"))
        served.until(
            lambda: "exit code 143, EvictionByEvictionAPI" in why(served, "moved"), lambda: why(served, "moved")
        )
        kubectl(node, "uncordon", "real-node")
        served.run(*running)
        os.kill(kubelet, signal.SIGSTOP)
        lost = "(its kubelet is silent): nothing is known of rank 0, which runs there."
        served.until(lambda: lost in why(served, "moved"), lambda: why(served, "moved"), 180, every=1)
        assert "CPUs" not in why(served, "moved"), "what was not measured is not printed"
        served.run("rowlock", "run", "-d", *on_node, "--name", "waits", "--", "true")
        not_ready = "Node real-node could, but it is not ready (its kubelet is silent)"
        served.until(lambda: not_ready in why(served, "waits"), lambda: why(served, "waits"))
    finally:
        os.kill(kubelet, signal.SIGCONT)
        kubectl(node, "uncordon", "real-node")
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    served.until(lambda: kubectl(node, "get", "node", "real-node", "-o", ready) == "True", "the node is back", 120)
    served.run("rowlock", "delete", "moved", "waits", "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")


def test_a_worker_that_came_late_holds_nothing_after_the_job(served: Cluster) -> None:
    """Its master has ended before its init container, which waits for the master's name, could see it."""
    served.run(
        "rowlock", "run", "-d", "--image", "localhost/host:1", "-p", "team-a", "--nnodes", "2", "-g", "1", "--name", "brief",
        "--", "sh", "-c", f"[ $RANK = 0 ] || {{ {REST}; }}",
    )  # fmt: skip
    served.run("rowlock", "wait", "brief", "-p", "team-a", "--timeout", "200s")
    served.until(lambda: set(states(served, "team-a").values()) <= {"Succeeded"}, "nothing runs any more", 120)
    assert conditions(served, "team-a", "brief").get("Succeeded") == "True"
    served.run("rowlock", "delete", "brief", "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")


@pytest.mark.parametrize("code", [1, 143])
def test_an_evicted_job_begins_again_and_succeeds(served: Cluster, code: int) -> None:
    """Whatever its program answers SIGTERM with: torchrun says 1, `rowlock.runtime` 143."""
    evict_and_resume(served, code)


def evict_and_resume(served: Cluster, code: int) -> None:
    """A job of `rowlock run` holds a whole node, is evicted since another project wants its quota, and begins again."""
    for project in (LENDER, OWNER):
        served.run("rowlock", "project", "create", project, "--gpus", "4", code=None)
    script = f"trap 'exit {code}' TERM; echo began; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo done"
    name = f"long-{code}"
    run_on_half(served, LENDER, name, script, "-g", "4")

    def running() -> set[str]:
        found = states(served, LENDER)
        return set(found) if list(found.values()) == ["Running"] * 2 else set()

    served.until(lambda: bool(running()), "it runs", 60)
    first = running()
    run_on_half(served, OWNER, "short", REST, "-g", "2")
    served.until(lambda: "Running" in states(served, OWNER).values(), "who has the quota runs", 90)
    served.until(lambda: not first & set(states(served, LENDER)), "the other one was evicted")
    served.run("rowlock", "delete", "short", "-p", OWNER)
    served.until(lambda: bool(running()), "it runs again", 90)
    assert not first & running() and conditions(served, LENDER, name).get("Failed") != "True"
    for rank in ("master-0", "worker-0"):
        tell_to_end(served, name, LENDER, rank)
    served.run("rowlock", "wait", name, "-p", LENDER, "--timeout", "200s")
    assert "Succeeded" in served.run("runai", "describe", "job", name, "-p", LENDER)
    served.run("rowlock", "delete", name, "-p", LENDER)


SEED_000 = """runai submit-pytorch --name distributed-training-pytorch --workers=1 -g 1 \\
        -i docker.io/YOUR-USER-NAME/distributed_training_pytorch
"""
SEED_000_TF = """runai submit-tf --name distributed-training-tf --workers=2 -g 1 \\
        -i docker.io/YOUR-USER-NAME/distributed_training_tensorflow --no-master
"""
SEED_001 = """runai submit-dist pytorch --name distributed-training-pytorch --workers=1 -g 1 \\
        -i docker.io/YOUR-USER-NAME/distributed_training_pytorch
"""
SEED_002 = """runai config project team-a
runai submit-dist pytorch dist-train1 --workers=2 -g 0.1 \\
    -i /kubeflow/pytorch-dist-mnist:latest
"""
TF_PROGRAM = "import json, os; task = json.loads(os.environ['TF_CONFIG'])['task']; print('I am', task['type'], task['index'], flush=True)"


def follow_to_its_end(served: Cluster, name: str, *said: str) -> None:
    """Wait for the job, read its logs, and delete it, all with the words of the seeds."""
    served.run("rowlock", "wait", name, "-p", "team-a", "--timeout", "200s")
    served.until(lambda: all(line in logs(served, name) for line in said), f"{name} has said {said}")
    assert "Succeeded" in served.run("runai", "describe", "job", name, "-p", "team-a")
    served.run("runai", "delete", "job", name, "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")


def test_seeds_000_to_002_as_they_are_printed(served: Cluster, node: Path) -> None:
    """But for YOUR-USER-NAME, which its reader replaces. A registry on loopback stands in for docker.io."""
    python = str(REPO / ".venv/bin/python")
    torch, tensorflow = [python, "-c", TRAIN], [python, "-c", TF_PROGRAM]
    images = {
        "ekink/distributed_training_pytorch": torch,
        "ekink/distributed_training_tensorflow": tensorflow,
        "kubeflow/pytorch-dist-mnist": torch,
    }
    served.run("runai", "config", "project", "team-a")
    with played_registry(node.parent, images):
        for script in (SEED_000, SEED_001):
            served.run("bash", "-c", script.replace("YOUR-USER-NAME", "ekink"))
            both = ("rank 0 of 2 has 3", "rank 1 of 2 has 3")
            follow_to_its_end(served, "distributed-training-pytorch", *both)
        served.run("bash", "-c", SEED_000_TF.replace("YOUR-USER-NAME", "ekink"))
        follow_to_its_end(served, "distributed-training-tf", "I am worker 0", "I am worker 1")
        refusal = served.run("bash", "-c", SEED_002, code=1)
        assert "share of a GPU" in refusal and "KAI" in refusal, "nobody would enforce a share of a GPU here"
        served.run("bash", "-c", SEED_002.replace("-g 0.1", "-g 1"))
        three = (f"rank {rank} of 3 has 6" for rank in range(3))
        follow_to_its_end(served, "dist-train1", *three)


def test_volumes_secrets_and_templates_of_the_rest_api(served: Cluster, node: Path) -> None:
    """A credential, data sources of a Secret, a ConfigMap and a host's path, an environment and a template: pods of a real kubelet
    have what they say."""
    projects = served.api("GET", "/api/v1/org-unit/projects")["projects"]
    project = next(one["id"] for one in projects if one["name"] == "team-a")
    cluster = served.api("GET", "/api/v1/clusters")[0]["uuid"]

    def make(path: str, name: str, spec: dict[str, Any]) -> str:
        meta = {"name": name, "scope": "project", "projectId": int(project)}
        made = served.api("POST", f"/api/v1/asset/{path}", {"meta": meta, "spec": spec})
        return str(made["meta"]["id"])

    pair = {"keyValuePairs": [{"key": "WANDB_API_KEY", "value": "word-of-the-secret"}]}
    credential = make("credentials/generic-secret", "keys", pair)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"lr": "0.1"}}
    (node.parent / "settings.json").write_text(json.dumps(config))
    kubectl(node, "apply", "-n", "runai-team-a", "-f", str(node.parent / "settings.json"))
    (node.parent / "set").mkdir(exist_ok=True)
    (node.parent / "set" / "data.txt").write_text("of the host\n")
    sources: dict[str, dict[str, Any]] = {
        "secrets": {"credentialAssetId": credential, "mountPath": "/keys", "defaultMode": "0400"},
        "config-map": {"configMap": "settings", "mountPath": "/settings"},
        "host-path": {"path": str(node.parent / "set"), "mountPath": "/set", "readOnly": True},
    }
    ids = [make(f"datasource/{path}", f"of-{path}", spec) for path, spec in sources.items()]
    script = "cat /keys/WANDB_API_KEY /settings/lr /set/data.txt; echo; echo word $WORD"
    environment = make("environment", "host", {"image": "localhost/host:1", "command": f"sh -c '{script}'"})
    meta = {"name": "two", "scopeType": "project", "scopeId": project}
    content = {"meta": meta, "spec": {"distributedFramework": "PyTorch", "numWorkers": 1}}
    template = served.api("POST", "/api/v1/workload-templates/distributed", content)
    variable = {"name": "WORD", "secret": {"name": "keys", "key": "WANDB_API_KEY"}}
    body = {
        "name": "assets", "projectId": project, "clusterId": cluster, "templateId": template["meta"]["id"],
        "assets": {"environment": environment, "datasources": [{"id": one} for one in ids]},
        "spec": {"environmentVariables": [variable]},
    }  # fmt: skip
    served.api("POST", "/api/v1/workloads/distributed", body)
    follow_to_its_end(served, "assets", "word-of-the-secret", "0.1", "of the host", "word word-of-the-secret")
    served.api("DELETE", f"/api/v1/asset/credentials/generic-secret/{credential}")
    assert "keys" not in kubectl(node, "get", "secrets", "-n", "runai-team-a", "-o", "name"), "its Secret goes with it"


def test_twenty_jobs_are_the_same_on_both_engines(node: Path, tmp_path: Path) -> None:
    compare_with(node, tmp_path, twenty_jobs())


def test_a_sweep_stops_the_runs_that_fall_behind(served: Cluster) -> None:
    """They are compared by what their pods have printed."""
    script = 'echo step=1 loss={x}.5; echo step=2 loss={x}.25; trap "exit 0" TERM; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo step=3 loss={x}.1'
    space = ("--param", "x=1..3", "--metric", "loss", "--stop", "asha", "--stop-after", "2")
    served.run("rowlock", "sweep", "race", *space, "-p", "team-a", "-i", "localhost/host:1", "--", "sh", "-c", script)

    def phases() -> dict[str, str]:
        shown = served.json("rowlock", "sweep", "show", "race", "-p", "team-a", "--json")
        return {run["name"]: run["phase"] for run in shown["entries"]}

    served.until(
        lambda: [phases()[f"race-{n}"] for n in (1, 2)] == ["Stopped"] * 2, lambda: f"two are stopped: {phases()}", 120
    )
    tell_to_end(served, "race-0", "team-a", "master-0")
    assert "stopped early" in served.run("rowlock", "sweep", "wait", "race", "-p", "team-a", "--timeout", "60s")
    assert "Best: race-0, loss 1.1" in served.run("rowlock", "sweep", "show", "race", "-p", "team-a")
    served.run("rowlock", "sweep", "delete", "race", "-y", "-p", "team-a")
    served.until(lambda: not pods(served), "the pods are gone")


def test_the_server_runs_in_the_cluster_with_the_rights_of_its_manifests(node: Path, tmp_path: Path) -> None:
    """As nobody, on a read-only root, in a pod on the real kubelet. There is no network between pods and the API server here,
    and no storage: so it is on the machine's, and its volume is an empty one."""
    command = [str(BIN / "rowlock"), "manifests", "--image", "localhost/host:1"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    manifests = [fit_to_node(obj, node) for obj in yaml.safe_load_all(text)]
    (tmp_path / "server.yaml").write_text(yaml.safe_dump_all(manifests))
    kubectl(node, "apply", "-f", str(tmp_path / "server.yaml"))
    namespace = ("-n", "rowlock-system")
    try:
        kubectl(node, *namespace, "rollout", "status", "deployment/rowlock", "--timeout=55s")
        inside = (*namespace, "exec", "deploy/rowlock", "--", str(BIN / "rowlock"))
        assert "team-in" in kubectl(node, *inside, "project", "create", "team-in")
        assert "_1_" in kubectl(node, *inside, "status"), "its scheduler leads: the process 1 of the pod"
        assert "team-in" in kubectl(node, *inside, "project", "list")
        kubectl(node, *inside, "project", "delete", "--yes", "team-in")
        assert "forbidden" not in kubectl(node, *namespace, "logs", "deploy/rowlock"), "its rights are enough"
    finally:
        kubectl(node, "delete", "-f", str(tmp_path / "server.yaml"), "--ignore-not-found", "--wait=false")


def fit_to_node(obj: dict[str, Any], kubeconfig: Path) -> dict[str, Any]:
    if obj["kind"] == "Deployment":
        pod = obj["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        pod |= {"nodeName": "real-node", "hostNetwork": True, "terminationGracePeriodSeconds": 1}
        pod["volumes"] = [{"name": name, "emptyDir": {}} for name in ("data", "tmp")]
        container |= {"command": [str(BIN / "rowlock"), "up"], "imagePullPolicy": "Never"}
        port, server = free_port(), urlsplit(json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
        container["args"][container["args"].index("--port") + 1] = str(port)
        container["ports"] = [{"name": "https", "containerPort": port}]
        where = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        container["env"] += [{"name": name, "value": value} for name, value in where.items()]
    return obj


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])
