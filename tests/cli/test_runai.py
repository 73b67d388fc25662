"""`runai`: the seeds' own lines (000, 001 and V1 of 002), and V1's words for everything."""

from __future__ import annotations

import json
import re

import pytest
from tests.rest.served import Served

from rowlock import kinds, objects

SEED_000 = (
    "runai submit-pytorch --name distributed-training-pytorch --workers=1 -g 1 "
    "-i docker.io/YOUR-USER-NAME/distributed_training_pytorch"
)
SEED_001 = SEED_000.replace("submit-pytorch", "submit-dist pytorch")
SEED_002 = "runai submit-dist pytorch dist-train1 --workers=2 -g 0.1 -i /kubeflow/pytorch-dist-mnist:latest"
WHOLE = SEED_002.replace("-g 0.1", "-g 1")
"""What both engines run: shares of GPUs are the embedded cluster's, and KAI's."""
SEED_TF = (
    "runai submit-tf --name distributed-training-tf --workers=2 -g 1 "
    "-i docker.io/YOUR-USER-NAME/distributed_training_tensorflow --no-master"
)


@pytest.mark.parametrize("line", [SEED_000, SEED_001])
def test_seed_000_and_001_submit(served: Served, line: str) -> None:
    served.node("a", 1)
    served.node("b", 1)
    assert served.ok(line) == (
        "The job 'distributed-training-pytorch' has been submitted successfully\n"
        "You can run `runai describe job distributed-training-pytorch -p default` to check the job status\n"
    )
    served.bound(2)
    assert sorted(served.pods()) == [f"distributed-training-pytorch-{r}-0" for r in ("master", "worker")]
    again = served.run(line)
    message = "the job distributed-training-pytorch already exists, please delete it first (use 'runai delete distributed-training-pytorch')"
    assert (again[0], again[2].strip()) == (1, message)


def test_seed_000_tensorflow_has_no_master(served: Served) -> None:
    served.node("a", 2)
    served.ok(SEED_TF)
    served.bound(2)
    assert sorted(served.pods()) == ["distributed-training-tf-worker-0", "distributed-training-tf-worker-1"]


def test_seed_002_v1(served: Served) -> None:
    served.node("a", 1)
    assert served.ok("runai login") == "Logged in successfully\n"
    served.ok("rowlock project create team-a --gpus 1")
    assert served.ok("runai config project team-a") == "Project team-a has been set as default project\n"
    assert "has been submitted successfully" in served.ok(SEED_002)
    served.bound(3, "runai-team-a")
    served.run_pods("runai-team-a")
    one = served.store.view
    served.until(
        lambda: objects.is_condition_true(one.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1") or {}, "Running")
    )
    listed = served.ok("runai list jobs").splitlines()
    assert listed[0] == "Showing jobs for project team-a"
    assert re.split(r"  +", listed[1]) == [
        "NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs Allocated (Requested)",
        "PODs Running (Pending)", "SERVICE URL(S)",
    ]  # fmt: skip
    row = re.split(r"  +", listed[2])
    assert row[:2] + row[3:] == [
        "dist-train1", "Running", "a", "kubeflow/pytorch-dist-mnist:latest", "Train", "team-a", "ana", "0.3 (0.3)", "3 (0)",
    ]  # fmt: skip
    code, _, err = served.run("runai describe job train1")
    assert code == 1
    assert "The job train1 does not exist in project team-a." in err and "dist-train1" in err
    served.logs["dist-train1-worker-0"] = ["2026-01-01T00:00:00Z Train Epoch: 1"]
    assert served.ok("runai logs dist-train1 --pod dist-train1-worker-0") == "Train Epoch: 1\n"
    assert served.ok("runai delete job dist-train1") == "Job dist-train1 deleted successfully.\n"


KEYS = (
    "NAME, NAMESPACE, TYPE, STATUS, TRAINING DURATION, GPUS, TOTAL REQUESTED GPUS, ALLOCATED GPUS, "
    "ALLOCATED GPUS MEMORY, RUNNING PODS, PENDING PODS, PARALLELISM, COMPLETIONS, SUCCEEDED PODS, FAILED PODS, "
    "IS DISTRIBUTED WORKLOAD, CREATED BY CLI, SERVICE URL(S), COMMAND LINE"
).split(", ")


def test_describe_job(served: Served) -> None:
    served.node("a", 3)
    served.ok(WHOLE)
    served.bound(3)
    served.run_pods()
    served.until(lambda: "STATUS: Running" in served.ok("runai describe job dist-train1"))
    facts, pods, events = served.ok("runai describe job dist-train1").split("\n\n", 2)
    assert [line.partition(":")[0] for line in facts.splitlines()] == KEYS
    assert "TOTAL REQUESTED GPUS: 3" in facts and "\nGPUS: 1" in facts
    assert f"COMMAND LINE: {WHOLE}" in facts
    table = pods.splitlines()
    assert table[0] == "Pods:" and table[1].split() == ["POD", "STATUS", "TYPE", "AGE", "NODE"]
    assert [line.split()[:3] for line in table[2:]] == [
        [f"dist-train1-{pod}", "RUNNING", "TRAIN"] for pod in ("master-0", "worker-0", "worker-1")
    ]
    assert events.startswith("Events:\nSOURCE")
    body = json.loads(served.ok("runai describe job dist-train1 -o json"))
    assert body["chiefName"] == "dist-train1-master-0" and len(body["instances"]) == 3
    assert "status: Running" in served.ok("runai describe job dist-train1 -o yaml")
    assert served.ok("runai describe job dist-train1 -o name") == "dist-train1\n"


def test_v1_words_for_the_end_of_a_job(served: Served) -> None:
    served.node("a", 3)
    served.ok(WHOLE)
    served.bound(3)
    served.run_pods()
    served.finish()
    served.until(lambda: "Succeeded" in served.ok("runai list jobs"))
    row = re.split(r"  +", served.ok("runai list").splitlines()[2])
    assert row[8] == "- (3)"


def test_suspend_and_resume(served: Served) -> None:
    served.node("a", 3)
    served.ok(WHOLE)
    served.bound(3)
    assert served.ok("runai suspend dist-train1") == "Job dist-train1 suspended successfully.\n"
    served.until(served.reap)
    served.until(
        lambda: "Suspended" in served.ok("runai list jobs")
    )  # another client than the server's has reaped the pods
    assert served.ok("runai resume dist-train1") == "Job dist-train1 resumed successfully.\n"
    served.bound(3)


def test_flags_reach_the_pods(served: Served) -> None:
    served.node("a", 4)
    served.ok(
        [
            *"runai submit-dist pytorch j -i img -e A=1,2 -e B=x=y --workers 1 -g2 --master-gpu 0".split(),
            *"--master-environment A=- --cpu=0.5 --memory 0.5Gb --command --working-dir /tmp -l team=red".split(),
            *("--backoff-limit=2", "--", "python", "a b.py", "$X"),
        ]
    )
    job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", "j")
    assert job is not None
    worker, master = (
        job["spec"]["pytorchReplicaSpecs"][r]["template"]["spec"]["containers"][0] for r in ("Worker", "Master")
    )
    assert worker["command"] == ["python"] and worker["args"] == ["a b.py", "$X"]
    env = {e["name"]: e.get("value") for e in worker["env"]}
    assert (env["A"], env["B"]) == ("1,2", "x=y")
    assert "A" not in {e["name"] for e in master["env"]}
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "2" and "limits" not in master["resources"]
    assert worker["resources"]["requests"]["memory"] in ("0.5G", "500M")
    assert job["spec"]["runPolicy"] == {"backoffLimit": 2, "cleanPodPolicy": "Running", "suspend": False} | {
        k: v for k, v in job["spec"]["runPolicy"].items() if k not in ("backoffLimit", "cleanPodPolicy")
    }


def test_names_without_a_name(served: Served) -> None:
    for expected in ("job-0", "job-1"):
        assert f"The job '{expected}'" in served.ok("runai submit-dist pytorch -i x")
    assert "The job 'night-0'" in served.ok("runai submit-dist pytorch -i x --job-name-prefix night")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("runai submit-dist pytorch j", 1, "-i, --image must be set"),
        ("runai submit-dist pytorch j k -i x", 1, "unexpected arguments"),
        ("runai submit-dist pytorch j -i x --wokers 2", 2, "Did you mean `--workers`?"),
        ("runai submit-dist pytroch j -i x", 2, "Did you mean `pytorch`?"),
        ("runai sumbit-pytorch j -i x", 2, "Did you mean `submit-pytorch`?"),
        ("runai submit-dist pytorch j -i x -g 1.5", 1, "Ask for 1 or 2, or for a share below 1"),
        ("runai submit-dist pytorch j -i x -g nan", 2, "must be a number"),
        ("runai submit-dist pytorch j -i x -g -1", 1, "no less than 0"),
        ("runai submit-dist pytorch j -i x -g 0.5 --gpu-memory 1G", 1, "unexpected to accept both gpu and gpu-memory"),
        ("runai submit-dist pytorch j -i x -g 1", 1, "no node of this cluster has one"),
        ("runai submit-dist pytorch j -i x --image-pull-policy Sometimes", 2, '"Always", "IfNotPresent", "Never"'),
        ("runai submit-dist pytorch j -i x -t", 1, "--stdin is required"),
        ("runai submit-dist pytorch j -i x -v data:/b", 2, "write HOST:CONTAINER[:ro|rw], both beginning with /"),
        ("runai submit-dist pytorch j -i x -v /a:/b:now:nas", 2, "'now' must be ro or rw"),
        ("runai submit-dist pytorch j -i x --nfs-server nas", 2, "says whose directories -v names"),
        ("runai submit-dist pytorch j -i x --mig-profile 1g.5gb", 1, "GPUs are not partitioned here"),
        ("runai submit-dist pytorch j -i x --existing-pvc claimname=c,pth=/d", 2, "Did you mean `path`?"),
        (
            "runai submit-dist pytorch j -i x --existing-pvc claimname=c,path=d",
            1,
            "--existing-pvc: must be a directory of the container",
        ),
        ("runai submit-dist pytorch j -i x --new-pvc path=/a", 1, "--new-pvc: a new claim needs a size"),
        (
            "runai submit-dist pytorch j -i x --pvc c:/d --new-pvc size=1Gi,path=e",
            1,
            "--pvc or --new-pvc: must be a dir",
        ),
        ("runai submit-dist pytorch j -i x --cpu 2 --cpu-limit 1", 1, "--cpu-limit: must be no less than --cpu (2.0)"),
        ("runai submit-dist pytorch j -i x --port 5:99999", 2, "write LOCAL:REMOTE, ports from 1 to 65535"),
        (
            "runai submit-dist mpi j -i x --no-master",
            2,
            "--no-master. Only PyTorch, TF and XGBoost jobs have it. `runai",
        ),
        ("runai list jobs -o foo", 2, "unknown flag: -o. It prints a table. `runai list jobs --help` lists the flags."),
        ("runai submit-dist pytorch j -i x --pvc 10Gi", 2, "write NAME:PATH, or [CLASS]:SIZE:PATH"),
        ("runai submit-dist pytorch j -i x --git-sync branch=main,target=/code", 1, "git sync must contain Repository"),
        (
            "runai submit-dist pytorch j -i x --git-sync source=a,target=/c,password=b",
            1,
            "put username and password into a Secret",
        ),
        ("runai submit-dist pytorch j -i x --toleration operator=Exist,key=a", 1, "must be one of Equal, Exists"),
        ("runai submit-dist pytorch j -i x --port 80:http -s portforward", 2, "write LOCAL:REMOTE"),
        (
            "runai submit-dist pytorch j -i x --port 80:80 -s nodeport",
            1,
            "ports of pods are not opened on the nodes here",
        ),
        ("runai submit-dist pytorch j -i x --run-as-uid ana", 2, "must be a whole number"),
        (
            "runai submit-dist pytorch j -i x --supplemental-groups staff",
            1,
            "--supplemental-groups: must be numbers of groups",
        ),
        ("runai submit-dist pytorch j -i x -e A", 1, "write NAME=VALUE"),
        ("runai submit-dist mpi j -i x --no-master", 2, "unknown flag: --no-master"),
        ("runai submit-dist mpi j -i x --master-gpu 1", 2, "unknown flag: --master-gpu"),
        ("runai submit j -i x --jupyter", 1, "runai port-forward"),
        ("runai submit-dist pytorch Job_1 -i x", 1, "Use 'job-1'"),
        ("runai submit-dist pytorch j -i x -p team-z", 1, "was not found"),
        ("runai submit-dist xgboost j -i x --no-master", 1, "needs its master"),
        ("runai config project nowhere", 1, "view all avaliable projects. `rowlock project create nowhere --gpus 1`"),
        ("runai submit j -i x --workers 2", 2, "unknown flag: --workers."),
        (
            "runai submit-dist --name j --workers=1",
            2,
            "`runai submit-dist` needs a command before --name: pytorch, tf,",
        ),
        ("runai submit-dist pytorch j -i x --interactive", 2, "unknown flag: --interactive. `runai submit-dist"),
        ("runai logs nothing", 1, "The job nothing does not exist in project default"),
        ("runai delete job nothing", 1, "Job nothing does not exist in project default"),
        ("runai delete job", 2, "`runai delete` needs the name of a job"),
        ("runai delete jobs -y", 2, "`runai delete` needs the name of a job"),
        ("runai delete job job", 1, "Job job does not exist in project default"),
        ("runai list pods", 2, "has no command `pods`"),
    ],
)
def test_refusals(served: Served, line: str, code: int, words: str) -> None:
    served.node("a", 0)
    found, out, err = served.run(line)
    assert found == code, out + err
    assert words in out + err
    assert not list(served.store.view.all(kinds.PYTORCHJOB))


@pytest.mark.parametrize("line", ["runai delete job", "runai delete job job"])
def test_a_job_may_be_named_job(served: Served, line: str) -> None:
    served.ok("runai submit-dist pytorch job -i x")
    assert served.ok(line) == "Job job deleted successfully.\n"


def test_lists_of_context(served: Served) -> None:
    served.node("a", 2, card_memory=16000)
    served.ok("rowlock project create team-a --gpus 2")
    assert "default (default)" in served.ok("runai list projects")
    assert served.ok("runai project set team-a") == "project team-a configured successfully\n"
    projects = served.ok("runai project list")
    assert re.split(r"  +", projects.splitlines()[0]) == ["Name", "GPU Quota", "Allocated GPUs", "GPU Allocation Ratio"]
    assert "team-a (default)" in served.ok("runai list projects")
    nodes = served.ok("runai list nodes").splitlines()
    assert nodes[0].split() == ["GENERAL", "CPU", "MEMORY", "GPU"] and nodes[2].split()[0] == "a"
    assert "\nGPU MEMORY: 16000Mi\n" in served.ok("runai describe node a")
    assert "Configured clusters on this computer are:" in served.ok("runai list clusters")
    assert served.ok("runai whoami").startswith("User: ")
    assert "Version: " in served.ok("runai version")


def test_simulated_gpus_are_said_to_be_simulated(served: Served) -> None:
    """Beside the tables, whose columns are Run:ai's, and as a field of what programs read."""
    served.node("a", 2, card_memory=16000)
    served.ok("runai submit-dist pytorch j -i x -g 1")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "STATUS: Running" in served.ok("runai describe job j"))
    tables = (
        "runai list nodes", "runai describe node a", "runai node list", "runai nodepool list", "runai top node",
        "runai describe job j", "runai workload describe j",
    )  # fmt: skip
    for line in tables:
        assert "simulated" not in "".join(served.run(line)[1:]), line
    mark = {"metadata": {"annotations": {"rowlock.dev/simulated-gpus": "true"}}}
    served.do(lambda: served.store.patch(kinds.NODE, "", "a", mark, type="merge"))
    served.until(lambda: json.loads(served.ok("runai node list --json"))[0]["gpusSimulated"] is True)
    note = "These GPUs are simulated: they do no work, and their type and memory are made up.\n"
    for line in tables:
        code, out, err = served.run(line)
        assert code == 0 and err.startswith(note) and "simulated" not in out, line
    assert served.run("runai node list --json")[2] == ""
    (pool,) = json.loads(served.ok("runai nodepool list --json"))
    assert pool["gpusSimulated"] is True
    served.node("b", 0)
    served.node("c", 1)
    served.until(lambda: len(json.loads(served.ok("runai node list --json"))) == 3)
    assert served.run("runai list nodes")[2] == note.replace("These GPUs", "The GPUs of a")


def test_a_share_by_memory_is_counted_everywhere(served: Served) -> None:
    served.node("a", 1, card_memory=16000)
    served.ok("runai submit-dist pytorch j -i x --gpu-memory 4000Mi")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "STATUS: Running" in served.ok("runai describe job j"))
    assert re.split(r"  +", served.ok("runai list jobs").splitlines()[2])[-2:] == ["0.5 (0.5)", "2 (0)"]
    described = served.ok("runai describe job j")
    for line in ("GPUS: 0.25", "TOTAL REQUESTED GPUS: 0.5", "ALLOCATED GPUS: 0.5", "ALLOCATED GPUS MEMORY: 8000Mi"):
        assert f"\n{line}\n" in described
    body = json.loads(served.ok("runai workload describe j -o json"))
    assert body["workloadRequestedResources"]["gpu"]["request"] == body["allocatedResources"]["gpu"] == 0.5
    assert [p["requestedResources"]["gpu"]["request"] for p in body["pods"]] == [0.25, 0.25]
    assert served.ok("runai list nodes").splitlines()[2].split()[-1] == "0.5"
    assert served.ok("runai node list --no-headers --columns allocatedGpus") == "0.50\n"
    assert served.ok("rowlock list").splitlines()[1].split()[4] == "0.5"
