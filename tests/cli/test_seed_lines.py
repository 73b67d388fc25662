"""Every `runai` line of the seeds, verbatim, run by bash: also those that are printed wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rest.served import TOKEN, Served

from rowlock import kinds

SUBMIT_V2 = r"""runai distributed submit dist-train1  --framework PyTorch \
    -i /kubeflow/pytorch-dist-mnist:latest --workers 2 
    --gpu-request-type portion --gpu-portion-request 0.1 --gpu-devices-request 1 --cpu-memory-request 100M
"""  # noqa: W291
"""As printed: no backslash at the end of the second line."""
SUBMIT_V1 = r"""runai config project team-a
runai submit-dist pytorch dist-train1 --workers=2 -g 0.1 \
    -i /kubeflow/pytorch-dist-mnist:latest
"""
SUBMIT_OLD = r"""runai submit-pytorch --name distributed-training-pytorch --workers=1 -g 1 \
        -i docker.io/YOUR-USER-NAME/distributed_training_pytorch
"""
SUBMIT_DIST = r"""runai submit-dist pytorch --name distributed-training-pytorch --workers=1 -g 1 \
        -i docker.io/YOUR-USER-NAME/distributed_training_pytorch       
"""  # noqa: W291
SUBMIT_TF = r"""runai submit-tf --name distributed-training-tf --workers=2 -g 1 \
        -i docker.io/YOUR-USER-NAME/distributed_training_tensorflow --no-master
"""
SUBMIT_API = r"""curl -L 'https://<COMPANY-URL>/api/v1/workloads/distributed' \ # (1)
-H 'Content-Type: application/json' \
-H 'Authorization: Bearer <TOKEN>' \ # (2)
-d '{ 
    "name": "dist-train1", 
    "projectId": "<PROJECT-ID>", '\ # (3)
    "clusterId": "<CLUSTER-UUID>", \ # (4)
    "spec": {
        "compute": {
            "cpuCoreRequest": 0.1,
            "gpuRequestType": "portion",
            "cpuMemoryRequest": "100M",
            "gpuDevicesRequest": 1,
            "gpuPortionRequest": 0.1
        },
        "image": "/kubeflow/pytorch-dist-mnist:latest",  
        "numWorkers": 2,  \ # (5)
        "distributedFramework": "PyTorch" \ # (6)
    }
}'
"""  # noqa: W291
"""As printed: the page's notes, backslashes and a quote stand inside the command and its JSON."""
HEADER = "Workload     Type         Status      Project     Preemptible      Running/Requested Pods     GPU Allocation"


class Shell:
    """bash with `runai` on its PATH, as a reader of the seeds has it."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        program = folder / "runai"
        program.write_text(
            f"#!/bin/sh\nexec {sys.executable} -c 'from rowlock.cli.main import runai; runai()' \"$@\"\n"
        )
        program.chmod(0o755)
        self._env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "ROWLOCK_DATA_DIR": str(served.data)}

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", script], env=self._env, capture_output=True, text=True, timeout=200)

    def ok(self, script: str) -> str:
        done = self.run(script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def shell(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    served.node("a", 2)
    served.ok("rowlock project create team-a --gpus 1")
    return Shell(served, tmp_path_factory.mktemp("bin"))


@pytest.mark.parametrize("script", [SUBMIT_OLD, SUBMIT_DIST])
def test_seeds_000_and_001(shell: Shell, script: str) -> None:
    assert shell.ok(script).splitlines()[0] == "The job 'distributed-training-pytorch' has been submitted successfully"
    shell.served.bound(2)
    done = shell.run("runai describe job distributed-training-pytorch -p project_name")
    assert done.returncode == 1 and "project project_name was not found" in done.stderr
    shell.ok("rowlock() { :; }; runai project create project_name")
    done = shell.run("runai describe job distributed-training-pytorch -p project_name")
    assert "The job distributed-training-pytorch does not exist in project project_name." in done.stderr


def test_seed_000_tensorflow(shell: Shell) -> None:
    shell.ok(SUBMIT_TF)
    shell.served.bound(2)
    assert sorted(shell.served.pods()) == ["distributed-training-tf-worker-0", "distributed-training-tf-worker-1"]


def test_seed_002_v1(shell: Shell) -> None:
    assert shell.ok("runai login") == "Logged in successfully\n"
    assert shell.ok(SUBMIT_V1) == (
        "Project team-a has been set as default project\n"
        "The job 'dist-train1' has been submitted successfully\n"
        "You can run `runai describe job dist-train1 -p team-a` to check the job status\n"
    )
    shell.served.bound(3, "runai-team-a")
    assert shell.ok("runai list jobs").startswith("Showing jobs for project team-a\nNAME ")
    missing = shell.run("runai describe job train1")
    assert missing.returncode == 1 and "Did you mean `dist-train1`?" in missing.stderr
    shell.served.logs["dist-train1-worker-0"] = ["2026-01-01T00:00:00Z Train Epoch: 1"]
    assert shell.ok("runai logs dist-train1 --pod dist-train1-worker-0") == "Train Epoch: 1\n"
    assert shell.ok("runai delete job dist-train1") == "Job dist-train1 deleted successfully.\n"


def test_seed_002_v2(shell: Shell) -> None:
    assert shell.ok("runai project set team-a") == "project team-a configured successfully\n"
    done = shell.run(SUBMIT_V2)
    assert done.returncode == 127 and "--gpu-request-type: command not found" in done.stderr
    assert done.stdout == (
        "Creating distributed dist-train1...\n"
        "To track the workload's status, run 'runai distributed describe dist-train1'\n"
    )
    shell.served.bound(3, "runai-team-a")
    shell.served.run_pods("runai-team-a")
    shell.served.until(lambda: "Running" in shell.served.ok("runai distributed list"))
    header, rule, row = shell.ok("runai distributed list").splitlines()
    assert header == HEADER and set(rule) == {"─"} and len(rule) == len(header)
    assert row.split() == ["dist-train1", "Distributed", "Running", "team-a", "Yes", "3/3", "0.00"]
    missing = shell.run("runai training describe train1")
    assert missing.returncode == 1 and "Did you mean `dist-train1`?" in missing.stderr
    assert "\nPhase: " in shell.ok("runai training describe dist-train1")
    shell.served.logs["dist-train1-worker-0"] = ["2026-01-01T00:00:00Z Train Epoch: 1"]
    assert shell.ok("runai distributed logs dist-train1 --pod dist-train1-worker-0") == "Train Epoch: 1\n"
    assert shell.ok("runai training delete dist-train1") == "Workload 'dist-train1' deleted successfully\n"


def test_seed_002_api(shell: Shell) -> None:
    """Without the notes, and with what stands for a company, a token, a project and a cluster, it is a request like any."""
    assert shell.run(SUBMIT_API).returncode != 0, "nobody can run it as it is printed"
    state = json.loads((shell.served.data / "server.json").read_text())
    (project,) = [one for one in json.loads(shell.ok("runai project list --json")) if one["name"] == "team-a"]
    script = SUBMIT_API.replace(r"'\ # (3)", "")
    for note in range(1, 7):
        script = script.replace(rf"\ # ({note})", "\\" if note < 3 else "")
    for placeholder, word in {
        "https://<COMPANY-URL>": state["url"], "<TOKEN>": TOKEN, "<PROJECT-ID>": project["id"],
        "<CLUSTER-UUID>": project["clusterId"],
    }.items():  # fmt: skip
        script = script.replace(placeholder, word)
    answer = json.loads(shell.ok(f"export no_proxy=127.0.0.1; {script}"))
    assert (answer["name"], answer["desiredPhase"], answer["actualPhase"]) == ("dist-train1", "Running", "Creating")
    shell.served.bound(3, "runai-team-a")
    assert shell.ok("runai distributed list -p team-a").splitlines()[2].split()[0] == "dist-train1"


def test_seed_002_v2_with_its_missing_backslash(shell: Shell) -> None:
    shell.ok("runai project set team-a")
    shell.ok(SUBMIT_V2.replace("--workers 2 \n", "--workers 2 \\\n"))
    shell.served.bound(3, "runai-team-a")
    job = shell.served.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1") or {}
    for role in ("Master", "Worker"):
        template = job["spec"]["pytorchReplicaSpecs"][role]["template"]
        assert template["metadata"]["annotations"]["gpu-fraction"] == "0.1"
        assert template["spec"]["containers"][0]["resources"]["requests"] == {"memory": "100M"}
        assert template["spec"]["containers"][0]["image"] == "kubeflow/pytorch-dist-mnist:latest"
