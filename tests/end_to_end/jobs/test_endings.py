"""Each way in which a pod ends, with a program that needs its helper process while it saves: SIGTERM reaches the first process
alone, there is time to save, and the run's record says which action it was and what became of the grace."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

SAVES = """
import multiprocessing, pathlib, signal, sys, time

def help_(queue):
    while True:
        queue.put(1)
        time.sleep(0.05)

if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    queue = multiprocessing.Queue(2)
    helper = multiprocessing.Process(target=help_, args=(queue,), daemon=True)
    helper.start()
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    (place / "ready").touch()
    while not stop:
        queue.get(timeout=200)
    for _ in range(6):
        queue.get(timeout=50)
    part = place / "part"
    part.write_text(f"helper alive while saving: {helper.is_alive()}")
    part.rename(place / "saved")
    helper.terminate()
"""


@dataclass
class Stage:
    """A server with three nodes of one simulated GPU, and the directory in which the program and its marks are."""

    cluster: Cluster
    place: Path
    name: str
    project: str = "default"
    grace: int = 57
    """Seconds; nothing else uses the number 57."""

    @property
    def jobs(self) -> str:
        return f"/apis/kubeflow.org/v1/namespaces/runai-{self.project}/pytorchjobs"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/runai-{self.project}/pods"

    @property
    def master(self) -> str:
        return f"{self.pods}/{self.name}-master-0"

    def start(self, *, others: int = 0, peer: str = "", run_policy: Any = None, gpus: int = 0, **spec: Any) -> None:
        """A job whose first `others + 1` ranks run the program: a master and `others` workers. `peer`: what a further worker runs.
        `spec`: further fields of the master's pod. Returns when the programs are ready."""
        command = f"mkdir -p {self.place}/$RANK; exec python {self.place}/saves.py {self.place}/$RANK"
        if peer:
            command = f"if [ $RANK = {others + 1} ]; then {peer}; fi; {command}"
        limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
        container = {"name": "pytorch", "image": "rowlock.dev/host", "command": ["sh", "-c", command], **limits}
        container |= spec.pop("container", {})
        template = {"spec": {"terminationGracePeriodSeconds": self.grace, "containers": [container], **spec}}
        replica = {"restartPolicy": "Never", "template": template}
        count = others + bool(peer)
        job = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": self.name},
            "spec": {
                "runPolicy": run_policy or {},
                "pytorchReplicaSpecs": {
                    "Master": {**replica, "replicas": 1},
                    **({"Worker": {**replica, "replicas": count}} if count else {}),
                },
            },
        }
        self.cluster.api("POST", self.jobs, job)
        self.wait_until_ready(others)

    @property
    def batch_job(self) -> str:
        return f"/apis/batch/v1/namespaces/runai-{self.project}/jobs/{self.name}"

    def start_batch_job(self, spec: dict[str, Any]) -> None:
        """A batch/v1 Job whose pods all run the program."""
        body = {"metadata": {"name": self.name}, "spec": {**spec, "template": self._template("exec")}}
        self.cluster.api("POST", self.batch_job.rpartition("/")[0], body)
        self.wait_until_ready(spec.get("parallelism", 1) - 1)

    def start_jobset(self, spec: dict[str, Any]) -> None:
        """A JobSet of two Jobs: one runs the program, the other fails when that is ready, but only once."""
        once = (
            f"while [ ! -e {self.place}/0/ready ]; do sleep 0.1; done; mkdir {self.place}/failed && exit 3; sleep 999;"
        )
        jobs = [
            {"name": name, "template": {"spec": {"backoffLimit": 0, "template": self._template(before)}}}
            for name, before in (("saves", "exec"), ("fails", f"{once} exec"))
        ]
        version, spec = "jobset.x-k8s.io/v1alpha2", {**spec, "replicatedJobs": jobs}
        body = {"apiVersion": version, "kind": "JobSet", "metadata": {"name": self.name}, "spec": spec}
        self.cluster.api("POST", f"/apis/{version}/namespaces/runai-{self.project}/jobsets", body)
        self.wait_until_ready()

    def _template(self, before: str) -> dict[str, Any]:
        """Of a Job's pods: each runs the program in the directory of its index, after `before`."""
        rank = f"{self.place}/${{JOB_COMPLETION_INDEX:-0}}"
        command = f"mkdir -p {rank}; {before} python {self.place}/saves.py {rank}"
        container = {"name": "c", "image": "rowlock.dev/host", "command": ["sh", "-c", command]}
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": self.grace, "containers": [container]}
        return {"spec": pod}

    def wait_until_ready(self, last: int = 0) -> None:
        marks = [self.place / str(rank) / "ready" for rank in range(last + 1)]
        self.cluster.until(lambda: all(mark.exists() for mark in marks), "the programs are ready")

    def node(self) -> str:
        return str(self.cluster.api("GET", self.master)["spec"]["nodeName"])

    def saved(self, rank: int = 0) -> str:
        """What the program wrote when it saved; "" before."""
        mark = self.place / str(rank) / "saved"
        return mark.read_text() if mark.exists() else ""

    def ends(self) -> str:
        """What the records of the runs with this name say of programs that were asked to end."""
        runs = self.cluster.json("rowlock", "history", "-p", self.project, "--json")
        shown = [self.cluster.json("rowlock", "show", r["id"], "--json") for r in runs if r["name"] == self.name]
        return "\n".join(end["sentence"] for run in shown for end in run["ends"])

    def fill_gpus(self) -> None:
        """The job runs on every GPU there is."""
        self.start(others=len(self.cluster.api("GET", "/api/v1/nodes")["items"]) - 1, gpus=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("endings")) as made:
        made.up("--nodes", "3", "--simulated-gpus", "1")
        made.run("rowlock", "project", "create", "small", "--gpus", "1")
        made.run("rowlock", "project", "create", "doomed")
        yield made


def delete_pod(stage: Stage) -> None:
    stage.start()
    stage.cluster.api("DELETE", stage.master)


def delete_job(stage: Stage) -> None:
    stage.start()
    stage.cluster.run("rowlock", "delete", stage.name)


def delete_namespace(stage: Stage) -> None:
    stage.project = "doomed"
    stage.start()
    stage.cluster.api("DELETE", "/api/v1/namespaces/runai-doomed")


def suspend(stage: Stage) -> None:
    stage.start()
    stage.cluster.run("rowlock", "suspend", stage.name)


def preempt(stage: Stage) -> None:
    stage.fill_gpus()
    stage.cluster.run("rowlock", "run", "-d", "--interactive", "-g", "1", "--name", "urgent", "--replace", "--", "true")


def reclaim(stage: Stage) -> None:
    stage.project = "small"
    stage.fill_gpus()
    stage.cluster.run("rowlock", "run", "-d", "-g", "1", "--name", "owner", "--replace", "--", "true")


def evict_through_api(stage: Stage) -> None:
    stage.start()
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"{stage.name}-master-0"}}
    stage.cluster.api("POST", f"{stage.master}/eviction", body)


def taint(stage: Stage) -> None:
    stage.start()
    node = f"/api/v1/nodes/{stage.node()}"
    stage.cluster.api("PATCH", node, {"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}})
    stage.cluster.until(stage.saved, "the program saves")
    stage.cluster.api("PATCH", node, {"spec": {"taints": None}})


def fail_liveness(stage: Stage) -> None:
    probe = {
        "exec": {"command": ["test", "!", "-e", f"{stage.place}/stuck"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    stage.start(container={"livenessProbe": probe})
    (stage.place / "stuck").touch()


def exceed_pods_deadline(stage: Stage) -> None:
    stage.start()
    stage.cluster.api("PATCH", stage.master, {"spec": {"activeDeadlineSeconds": 1}})


def exceed_jobs_deadline(stage: Stage) -> None:
    stage.start()
    job = f"{stage.jobs}/{stage.name}"
    stage.cluster.api("PATCH", job, {"spec": {"runPolicy": {"activeDeadlineSeconds": 1, "cleanPodPolicy": "All"}}})


def clean_pods(stage: Stage) -> None:
    wait = f"while [ ! -e {stage.place}/fail ]; do sleep 0.1; done; exit 3"
    stage.start(peer=wait, run_policy={"cleanPodPolicy": "Running"})
    (stage.place / "fail").touch()


def scale_down(stage: Stage) -> None:
    stage.start(others=2)
    workers = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}
    stage.cluster.api("PATCH", f"{stage.jobs}/{stage.name}", workers)


def fill_disk(stage: Stage) -> None:
    stage.grace = 2  # a kubelet gives no more to a pod that takes the disk
    volume = {"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}
    stage.start(
        terminationGracePeriodSeconds=57,
        volumes=[volume],
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
    )
    stage.cluster.run("rowlock", "exec", stage.name, "--", "dd", "if=/dev/zero", "of=/v/full", "bs=1M", "count=9")


def remove_node(stage: Stage) -> None:
    stage.start()
    stage.cluster.api("DELETE", f"/api/v1/nodes/{stage.node()}")


def restart_job(stage: Stage) -> None:
    """A rank has failed, and the job that was submitted has a restart left: the other rank ends, too."""
    stage.grace = 30
    (stage.place / "0").mkdir()
    fails = f"while [ ! -e {stage.place}/0/ready ]; do sleep 0.1; done; exit 3"
    command = f"if [ $RANK = 1 ]; then {fails}; fi; exec python {stage.place}/saves.py {stage.place}/0"
    flags = ("-d", "--name", stage.name, "--nnodes", "2", "--backoff-limit", "0")
    stage.cluster.run("rowlock", "run", *flags, "--", "sh", "-c", command)


def end_batch_job(stage: Stage) -> None:
    """A batch/v1 Job that is over its deadline."""
    stage.start_batch_job({})
    stage.cluster.api("PATCH", stage.batch_job, {"spec": {"activeDeadlineSeconds": 1}})


def lower_parallelism(stage: Stage) -> None:
    """A Job of two indexes that is to have one now."""
    stage.start_batch_job({"completionMode": "Indexed", "completions": 2, "parallelism": 2})
    stage.cluster.api("PATCH", stage.batch_job, {"spec": {"completions": 1, "parallelism": 1}})


def fail_jobset(stage: Stage) -> None:
    """A JobSet in which another Job fails."""
    stage.start_jobset({})


def restart_jobset(stage: Stage) -> None:
    """The same, with a restart left: all Jobs are made anew."""
    stage.start_jobset({"failurePolicy": {"maxRestarts": 1}})


def rerun_on_save(stage: Stage) -> None:
    stage.grace = 30
    (stage.place / "0").mkdir()
    command = ["python", "saves.py", f"{stage.place}/0"]
    with subprocess.Popen(
        ["rowlock", "run", "--rerun-on-save", "--name", stage.name, "--", *command],
        cwd=stage.place,
        env=stage.cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        stage.wait_until_ready()
        with (stage.place / "saves.py").open("a") as source:
            source.write("# another version\n")
        stage.cluster.until(stage.saved, "the program saves")
        run.send_signal(signal.SIGINT)
        run.wait(timeout=200)


def interrupt(stage: Stage) -> None:
    """Ctrl-C of `rowlock run`."""
    stage.grace = 30
    (stage.place / "0").mkdir()
    command = ["python", "saves.py", f"{stage.place}/0"]
    with subprocess.Popen(
        ["rowlock", "run", "--name", stage.name, "--", *command],
        cwd=stage.place,
        env=stage.cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        stage.wait_until_ready()
        run.send_signal(signal.SIGINT)
        run.wait(timeout=200)


def stop_cluster(stage: Stage) -> None:
    stage.start()
    stage.cluster.run("rowlock", "down", "--yes")
    stage.cluster.up()


WAYS: dict[Callable[[Stage], None], tuple[str, int]] = {
    delete_pod: ("delete: the pod was deleted", 0),
    delete_job: ("delete: its job was deleted", 0),
    delete_namespace: ("namespace deletion: the namespace runai-doomed was deleted with all that is in it", 0),
    suspend: ("suspend: its job was suspended", 0),
    preempt: ("preemption: Pod runai-default/preempt-master-0 was preempted by higher priority", 0),
    reclaim: ("reclaim: Pod runai-small/reclaim-master-0 was preempted by", 0),
    evict_through_api: ("eviction: Eviction API: evicting", 0),
    taint: ("node removal: Taint manager: deleting due to NoExecute taint", 0),
    fail_liveness: ("liveness: Container pytorch failed liveness probe", 0),
    exceed_pods_deadline: ("deadline: the pod's activeDeadlineSeconds (1) are over", 0),
    exceed_jobs_deadline: ("cleanPodPolicy All: its job has failed", 0),
    clean_pods: ("cleanPodPolicy Running: its job has failed", 0),
    scale_down: ("scale-down: its job has 1 worker now", 2),
    fill_disk: ('eviction: Usage of EmptyDir volume "v" exceeds the limit "1Mi")', 0),
    remove_node: ("node removal: ", 0),
    restart_job: ("its job has failed", 0),
    lower_parallelism: ("scale-down: its job runs at most 1 of its pods at a time now", 1),
    fail_jobset: (
        "end of the job: its job has failed (jobset failed due to one or more job failures (first failed job: ",
        0,
    ),
    restart_jobset: (
        "restart: its job starts again (applying RestartJobSet failure policy action (first failed job: ",
        0,
    ),
    end_batch_job: ("end of the job: its job has failed (Job was active longer than specified deadline)", 0),
    rerun_on_save: ("delete: its job was deleted by `rowlock run --rerun-on-save`", 0),
    interrupt: ("its job was", 0),
    stop_cluster: ("suspend: its job was suspended by `rowlock down`", 0),
}
"""How a pod ends → what the record calls it, and the last rank that is asked."""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.timeout(240)
def test_a_program_saves_with_its_helpers_and_the_record_says_why(
    server: Cluster, tmp_path: Path, way: Callable[[Stage], None]
) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    stage = Stage(server, tmp_path, way.__name__.replace("_", "-"))
    reason, rank = WAYS[way]
    way(stage)
    server.until(lambda: stage.saved(rank), lambda: f"the program saves; the record: {stage.ends()}")
    assert stage.saved(rank) == "helper alive while saving: True"
    server.until(lambda: reason in stage.ends(), stage.ends)
    graces = [int(seconds) for seconds in re.findall(r"of (\d+) s of grace, with exit code 0", stage.ends())]
    # a deletion's time has whole seconds, and what has passed of the grace before the kubelet looks is gone
    assert any(stage.grace - 20 < seconds <= stage.grace for seconds in graces), stage.ends()
    server.run("rowlock", "delete", stage.name, "-p", stage.project, code=None)
