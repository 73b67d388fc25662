"""`runai`, second generation: families, lists and their formats, describe, streams, resources, configuration."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rest.served import Served

from rowlock import kinds
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandLine
from rowlock.submit_fields import SSH_MOUNT

SUBMIT = "runai training pytorch submit t1 -i img --workers 1 -g 1"


def _pod(served: Served, line: str, role: str = "Worker") -> dict[str, Any]:
    job = json.loads(served.ok([*line.split(), "--dry-run"]))[-1]
    specs = next(value for name, value in job["spec"].items() if name.endswith("ReplicaSpecs"))
    pod: dict[str, Any] = specs[role]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("line", "kind", "pods"),
    [
        ("runai distributed submit j -f TF -i x --no-master", "TFJob", ["j-worker-0"]),
        (
            "runai distributed submit j --framework mpi -i x --slots-per-worker 2",
            "MPIJob",
            ["j-launcher", "j-worker-0"],
        ),
        ("runai distributed submit j --framework XGBoost -i x", "XGBoostJob", ["j-master-0", "j-worker-0"]),
        ("runai pytorch submit j -i x", "PyTorchJob", ["j-master-0", "j-worker-0"]),
        ("runai tf submit j -i x", "TFJob", ["j-chief-0", "j-worker-0"]),
        ("runai training tensorflow submit j -i x --workers 2", "TFJob", ["j-chief-0", "j-worker-0", "j-worker-1"]),
        ("runai training jax submit j -i x", "JAXJob", ["j-worker-0"]),
        ("runai training submit j -i x", "PyTorchJob", ["j-master-0"]),
        ("runai training standard submit j -i x", "PyTorchJob", ["j-master-0"]),
        ("runai workspace submit j -i x", "PyTorchJob", ["j-master-0"]),
        ("runai mpi --name j -i x", "MPIJob", ["j-launcher", "j-worker-0"]),
    ],
)
def test_every_family_submits(served: Served, line: str, kind: str, pods: list[str]) -> None:
    served.node("a", 1)
    out = served.ok(line)
    if "--name" not in line:
        family = " ".join(line.split()[1 : line.split().index("submit")])
        assert out.splitlines() == [
            f"Creating {out.split()[1]} j...",
            f"To track the workload's status, run 'runai {family.replace('tf', 'tensorflow')} describe j'",
        ]
    served.bound(len(pods))
    assert sorted(p.removesuffix(p[len("j-launcher") :]) if "launcher" in p else p for p in served.pods()) == pods
    assert served.ok("runai describe job j -o name") == "j\n"
    assert served.store.view.get(next(k for k in kinds.JOBS if k.name == kind), "runai-default", "j")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--run-as-user", {"securityContext"}),
        ("--host-path path=/d,mount=/m", {"volumes"}),
        ("--exclude-node a,b", {"affinity"}),
        ("--termination-grace-period 2m", {"terminationGracePeriodSeconds"}),
        ("--env-secret A=s,key=k", set()),
    ],
)
def test_flags_reach_the_pods(served: Served, flags: str, expected: set[str]) -> None:
    assert expected <= set(_pod(served, f"{SUBMIT} {flags}"))


def test_flags_of_the_second_generation(served: Served) -> None:
    pod = _pod(
        served,
        f"{SUBMIT} --run-as-user 1000 --host-path path=/d,mount=/m,readwrite --host-path path=/e,mount=/n "
        "--secret-volume name=s,path=/s --empty-dir-volume path=/tmp/x,medium=Memory,size-limit=1Gi "
        "--env-secret A=s,key=k --env-pod-field-ref B=metadata.name -e C=1 --environment D=2 --environment-variable E=3 "
        "--port container=80 --seccomp-profile RuntimeDefault --run-as-non-root --capability SYS_ADMIN --exclude-node a",
    )
    assert pod["securityContext"] == {
        "runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    container = pod["containers"][0]
    assert [m.get("readOnly", False) for m in container["volumeMounts"][:2]] == [False, True]
    variables = {v["name"]: v for v in container["env"]}
    assert variables["A"]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert variables["B"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert [variables[name]["value"] for name in "CDE"] == ["1", "2", "3"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a"]}]}]


def test_the_master_may_differ(served: Served) -> None:
    line = (
        "runai training pytorch submit j -i x -g 2 --cpu-core-request 2 --master-gpu-devices-request 1 --restart-policy Never "
        "--master-restart-policy OnFailure -e A=1 -e B=2 --master-environment-variable A=-"
    )
    worker, master = _pod(served, line), _pod(served, line, "Master")
    assert worker["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert master["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert master["containers"][0]["resources"]["requests"]["cpu"] == "2.0"
    assert not {"A"} & {v["name"] for v in master["containers"][0]["env"]}
    job = json.loads(served.ok([*line.split(), "--dry-run"]))[-1]["spec"]["pytorchReplicaSpecs"]
    assert (job["Worker"]["restartPolicy"], job["Master"]["restartPolicy"]) == ("Never", "OnFailure")


@pytest.mark.parametrize(
    ("rest", "worker", "master"),
    [
        (["--", "A", "B"], (None, ["A", "B"]), (None, ["A", "B"])),
        (["--command", "--", "C", "A x"], (["C"], ["A x"]), (["C"], ["A x"])),
        (["--master-args", "X y", "--", "A"], (None, ["A"]), (None, ["X", "y"])),
        (["--master-command", "M x", "--", "A"], (None, ["A"]), (["M", "x"], None)),
        (["--master-command", "M", "--command", "--", "C"], (["C"], None), (["M"], None)),
    ],
)
def test_the_command_after_two_dashes(
    served: Served, rest: list[str], worker: tuple[Any, Any], master: tuple[Any, Any]
) -> None:
    made = json.loads(served.ok(["runai", "pytorch", "submit", "j", "-i", "x", "--dry-run", *rest]))[-1]
    for role, expected in (("Worker", worker), ("Master", master)):
        container = made["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["containers"][0]
        assert (container.get("command"), container.get("args")) == expected


def test_names_that_are_made_up(served: Served) -> None:
    assert served.ok("runai pytorch submit --name-prefix night -i x").startswith("Creating pytorch night-")
    name = served.ok("runai pytorch submit -i x").split()[2].removesuffix("...")
    assert name.startswith("workload-") and len(name) == len("workload-") + 12


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (
            "runai pytorch submit t1 -i x",
            1,
            "Workload named 't1' already exists in the project: delete it with `runai pytorch",
        ),
        ("runai pytorch submit j", 1, "-i, --image must be set"),
        ("runai pytorch submit j -i x --wokers 2", 2, "Did you mean `--workers`?"),
        ("runai pytorch submit j -i x --slots-per-worker 2", 2, "unknown flag: --slots-per-worker"),
        ("runai distributed submit j -f MPI -i x --no-master", 1, "--no-master: a MPI job needs its launcher"),
        (
            "runai distributed submit j -f TF -i x --max-replicas 2",
            1,
            "--max-replicas: only PyTorch workloads are elastic",
        ),
        (
            "runai pytorch submit j -i x --min-replicas 3 --max-replicas 2",
            1,
            "--max-replicas: must be no less than --min-replicas (3)",
        ),
        ("runai pytorch submit j -i x --new-pvc size=1x,path=/d", 1, "--new-pvc: '1x' is not a quantity"),
        ("runai distributed submit j -f pytroch -i x", 2, "Did you mean `pytorch`?"),
        ("runai pytorch submit j -i x --gpu-portion-request 2", 1, "--gpu-portion-request: must be greater than 0"),
        ("runai pytorch submit j -i x --gpu-request-type memory", 1, "--gpu-memory-request: is required"),
        ("runai pytorch submit j -i x --gpu-request-type migProfile", 1, "GPUs are not partitioned here"),
        ("runai pytorch submit j -i x --environment base", 1, "no asset of the kind environment 'base'"),
        ("runai pytorch submit j -i x --compute no-such", 1, "no asset of the kind compute 'no-such'"),
        ("runai pytorch submit j -i x --datasource d", 1, "there is no data source 'd' that this project may use"),
        ("runai pytorch submit j -i x --external-url container=80", 1, "this cluster has no ingress"),
        ("runai pytorch submit j -i x --user-group-source fromIdpToken", 1, "name no user of the nodes here"),
        ("runai pytorch submit j -i x --host-path path=d,mount=/d", 1, "--host-path: must be a directory of the node"),
        ("runai pytorch submit j -i x --termination-grace-period soon", 2, "write a duration"),
        (
            "runai pytorch submit j -i x --port container=80,service-type=NodePort",
            1,
            "--port: ports of pods are not opened",
        ),
        ("runai pytorch submit Bad_1 -i x", 1, "NAME: 'Bad_1' must consist of"),
        ("runai distributed list --status Runing", 2, "Did you mean `Running`?"),
        ("runai distributed list --columns nmae", 2, "Did you mean `name`?"),
        ("runai distributed list --json --yaml", 2, "exclude each other"),
        ("runai distributed list -p nowhere", 1, "project nowhere was not found"),
        ("runai distributed describe --uuid 1", 1, "no workload was found with the id 1"),
        ("runai distributed describe t1 --uuid 1", 2, "both name a workload"),
        ("runai training delete nothing", 1, "The job nothing does not exist in project default."),
        ("runai workload describe t1 --type workspace", 1, "t1 is of type Distributed, not workspace"),
        ("runai workload delete t1 --framework mpi", 1, "t1 is of framework PyTorch, not mpi"),
        ("runai config set --status-timeout-duration 5s", 1, "a status is answered at once"),
        ("runai workload list --framework pytroch", 2, "Did you mean `pytorch`?"),
        ("runai login user", 2, "needs a name: -u NAME"),
        ("runai login user -u a -p wrong", 1, "the user name or the password is wrong"),
        ("runai login application --client-id a --secret b", 1, "the client id or the client secret is wrong"),
        ("runai upgrade", 1, "rowlock never updates itself"),
        ("runai update", 1, "rowlock never updates itself"),
        ("runai report metrics a=1", 1, "`rowlock plot JOB` draws what the log has"),
        ("runai config set --cp-url https://x", 1, "is the data directory of a server of its own"),
        ("runai config set --cp-url x", 2, "https://HOST:PORT"),
        ("runai config set --auto-update enabled", 1, "never updates itself"),
        ("runai cluster set other", 1, "Cluster other does not exist"),
        ("runai inference submit j -i x", 1, "rowlock trains models and serves none"),
        ("runai datasource create x", 2, "a data source is one volume, but 0 are given"),
        (
            "runai datasource create x --nfs server=a/b,path=/x,mountpath=/y",
            1,
            "the name or the address of the NFS server",
        ),
        ("runai datasource create x --host-path path=a,mount=/y", 1, "must be a directory of the node"),
        ("runai template create x --type training --workers 2", 2, "--workers is for distributed workloads"),
        ("runai template create x --framework pytroch", 2, "there is no such framework"),
        ("runai template create x --wrokers 2", 2, "Did you mean"),
        ("runai template create x --datasource nowhere", 1, "there is no data source 'nowhere'."),
        ("runai completion tcsh", 2, "Known: bash, zsh, fish"),
        ("runai pytorch sumbit j", 2, "Did you mean `submit`?"),
        ("runai trainning list", 2, "Did you mean `training`?"),
        ("runai --config-file x.json distributed list", 1, "the configuration is config.json in the data directory"),
    ],
)
def test_refusals(served: Served, line: str, code: int, words: str) -> None:
    served.node("a", 1)
    served.ok("runai pytorch submit t1 -i x")
    found, out, err = served.run(line)
    assert found == code, out + err
    assert words in out + err
    assert len(list(served.store.view.all(kinds.PYTORCHJOB))) == 1


def test_a_submit_names_a_compute_resource(served: Served) -> None:
    """What the flags beside it say wins."""
    served.node("a", 1)
    served.ok("runai pytorch submit t1 -i x --compute small-fraction --cpu-core-request 2")
    (job,) = served.store.view.all(kinds.PYTORCHJOB)
    template = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    assert template["metadata"]["annotations"]["gpu-fraction"] == "0.1"
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2.0", "memory": "100M"}


def test_lists_in_every_format(served: Served) -> None:
    served.node("a", 2)
    served.ok("runai training submit one -i x")
    served.ok(SUBMIT)  # the newest first; within a second, the last by name
    assert [w["name"] for w in json.loads(served.ok("runai training list --json"))] == ["t1", "one"]
    assert [w["name"] for w in yaml.safe_load(served.ok("runai training pytorch list --yaml"))] == ["t1"]
    assert [w["name"] for w in json.loads(served.ok("runai training standard list --json"))] == ["one"]
    assert json.loads(served.ok("runai tf list --json")) == []
    assert served.ok("runai distributed list --columns name,framework --no-headers") == "t1  PyTorch\n"
    assert served.ok("runai distributed list --columns Workload").splitlines()[2] == "t1"
    assert json.loads(served.ok("runai workload list --type training --columns name --json")) == [
        {"name": "t1"},
        {"name": "one"},
    ]
    assert [w["name"] for w in json.loads(served.ok("runai training list -A --max-items 1 --raw"))] == ["t1"]
    code, out, err = served.run("runai training list --limit 1 --no-headers --columns name")
    assert (code, out, err) == (0, "t1\n", "There are more: --next-token 1\n")
    assert served.ok("runai training list --next-token 1 --no-headers --columns name") == "one\n"
    assert served.ok("runai training list --no-pagination --page-size 1 --no-headers --columns name") == "t1\none\n"
    assert served.ok("runai workspace list").splitlines()[0].startswith("Workload ")
    assert served.ok("runai inference list --json") == "[]\n"
    served.ok("runai config set --output json")
    assert json.loads(served.ok("runai distributed list"))[0]["name"] == "t1"
    assert served.ok("runai distributed list --table").startswith("Workload ")


def test_describe_in_sections_and_formats(served: Served) -> None:
    served.node("a", 2)
    served.ok(f"{SUBMIT} --host-path path=/d,mount=/m")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "\nPhase:              Running\n" in served.ok("runai pytorch describe t1"))
    out = served.ok("runai training describe t1")
    for words in ("Name:               t1\n", "\nGPU Compute   2.00        2.00", "\nPods (2/2 running)\nName ", "\nEvents\nTime ",
                  "\nStorage\nKind "):  # fmt: skip
        assert words in out
    assert sum(line.startswith("Phase:") for line in out.splitlines()) == 1
    only_pods = served.ok(
        "runai workload describe t1 --general=false --compute=false --events=false --storage=false --pod-limit 1"
    )
    assert only_pods.startswith("Pods (2/2 running)") and "1 more (--pod-limit -1 shows all)" in only_pods
    body = json.loads(served.ok("runai distributed describe t1 -o json"))
    assert body["name"] == "t1" and len(body["pods"]) == 2
    assert yaml.safe_load(served.ok(f"runai pytorch describe --uuid {body['id']} -o yaml"))["phase"] == "Running"


def test_suspend_resume_delete(served: Served) -> None:
    served.node("a", 2)
    served.ok(SUBMIT)
    served.ok("runai pytorch submit t2 -i x")
    assert served.ok("runai distributed suspend t1") == "Workload 't1' suspended successfully\n"
    assert served.ok("runai training pytorch resume t1") == "Workload 't1' resumed successfully\n"
    identity = json.loads(served.ok("runai workload describe t1 -o json"))["id"]
    assert served.ok(f"runai training delete -u {identity}") == "Workload 't1' deleted successfully\n"
    code, out, err = served.run("runai workload delete -y nothing t2")
    assert (code, out) == (1, "Workload 't2' deleted successfully\n") and "nothing does not exist" in err


def test_logs_of_the_first_rank_or_the_named_pod(served: Served) -> None:
    served.node("a", 2)
    served.ok(SUBMIT)
    served.bound(2)
    served.logs["t1-master-0"] = ["2026-01-01T00:00:00Z one"]
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:00Z two"]
    assert served.ok("runai pytorch logs t1") == served.ok("runai workload logs --name t1") == "one\n"
    assert served.ok("runai training logs t1 --pod worker-0 --timestamps") == "2026-01-01T00:00:00Z two\n"
    assert served.ok("runai logs t1 -c pytorch") == "one\n"
    code, _, err = served.run("runai pytorch logs t1 --wait-timeout 1ms")
    assert code == 1 and "workload is not ready to stream" in err
    code, _, err = served.run("runai pytorch exec t1 -- true")
    assert code == 1 and "Unable to run command in a pod that is not running" in err


def test_projects_and_other_resources(served: Served) -> None:
    served.node("a", 2)
    assert (
        served.ok("runai project create lab --resources nodepool=default,gpu-deserved=2")
        == "project lab created successfully\n"
    )
    assert served.ok("runai project set lab") == "project lab configured successfully\n"
    served.ok("runai project create other --description tests --resources gpu-over-quota-weight=3")
    other = next(p for p in json.loads(served.ok("runai project list --json")) if p["name"] == "other")
    assert (other["description"], other["resources"][0]["gpu"]["overQuotaWeight"]) == ("tests", 3)
    row = next(p for p in json.loads(served.ok("runai project list --json")) if p["name"] == "lab")
    assert row["totalResources"]["gpuQuota"] == 2
    assert "lab      2.00       0.00            0.00%" in served.ok("runai project list")
    assert served.ok("runai node list --no-headers --columns name,gpus") == "a  2\n"
    assert served.ok("runai nodepool list --no-headers --columns name,nodes,gpus") == "default  1  2\n"
    assert served.ok("runai department list --no-headers --columns name").split() == ["default"]
    cluster = json.loads(served.ok("runai cluster list --json"))[0]
    assert (
        served.ok(f"runai cluster set --id {cluster['uuid']}") == f"cluster {cluster['name']} configured successfully\n"
    )
    assert "PyTorchJob" in served.ok("runai workload-type list")
    assert served.ok("runai pvc list -A --json") == "[]\n"
    assert "small-fraction" in served.ok("runai compute list --json")
    for asset in ("environment", "datasource", "template"):
        assert served.ok(f"runai {asset} list --json") == "[]\n"


def test_account_and_configuration(served: Served, tmp_path: Path) -> None:
    for line in ("runai login", "runai login sso", "runai login remote-browser"):
        assert served.ok(line) == "Logged in successfully\n"
    assert served.ok("runai auth get-token") == "sesame\n"
    assert json.loads(served.ok("runai auth get-token -o kubeconfig"))["status"] == {"token": "sesame"}
    served.ok("runai config set --interactive disabled --auto-update disabled")
    assert json.loads(served.ok("runai config describe --json"))["interactive"] == "disabled"
    file = tmp_path / "made.yaml"
    served.ok(f"runai config generate -f {file}")
    assert yaml.safe_load(file.read_text())["interactive"] == "disabled"
    assert "Version: " in served.ok("runai version --wide")
    assert "complete -o default -F _runai runai" in served.ok("runai completion bash")


def test_kubeconfig_set_keeps_other_entries(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"clusters": [{"name": "rowlock", "cluster": {}}], "users": [], "contexts": [{"name": "rowlock", "context": {}}],
            "current-context": "rowlock"}  # fmt: skip
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(ours))
    target = tmp_path / "theirs"
    target.write_text(yaml.safe_dump({"contexts": [{"name": "prod", "context": {}}], "current-context": "prod"}))
    monkeypatch.setenv("KUBECONFIG", str(target))
    ours |= {
        "users": [{"name": "rowlock", "user": {}}, {"name": "other", "user": {}}],
        "contexts": [{"name": "rowlock", "context": {"cluster": "rowlock", "user": "rowlock"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(ours))
    served.ok("runai kubeconfig set --username runai-cli")
    renamed = yaml.safe_load(target.read_text())
    assert [one["name"] for one in renamed["users"]] == ["runai-cli", "other"]
    assert renamed["contexts"][-1]["context"]["user"] == "runai-cli"
    served.ok("runai kubeconfig set")
    merged = yaml.safe_load(target.read_text())
    assert [c["name"] for c in merged["contexts"]] == ["prod", "rowlock"] and merged["current-context"] == "rowlock"


def test_a_manifest_goes_to_the_project(served: Served, tmp_path: Path) -> None:
    """Of a job, which the scheduler places, and of what is beside it."""
    served.node("a")
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    job: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "made"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([settings, job]))
    assert served.ok(f"runai workload submit -f {file}") == (
        "configmap settings created in project default\npytorchjob made created in project default\n"
    )
    assert "made" in served.ok("runai workload list")
    served.bound(1)
    (kept,) = (
        one for one in served.store.view.all(kinds.CONFIG_MAP, "runai-default") if one["metadata"]["name"] == "settings"
    )
    assert kept["data"] == {"a": "b"}
    file.write_text(yaml.safe_dump({**job, "metadata": {"generateName": "many-"}}))
    assert re.match(r"pytorchjob many-[0-9a-f]{12} created", served.ok(f"runai workload submit -f {file}"))
    for wrong, words in (
        ({**job, "metadata": {"name": "odd"}, "spce": {}}, "spce"),
        (job, "already exists"),
        ({**job, "kind": "Secre"}, "serves no such kind"),
    ):
        file.write_text(yaml.safe_dump(wrong))
        code, _, said = served.run(f"runai workload submit -f {file}")
        assert code != 0 and words in said, said


def test_flags_of_every_command(served: Served) -> None:
    """They stand before the verb or after it."""
    served.node("a")
    for line in ("runai --loglevel debug list jobs", "runai list jobs --loglevel debug", "runai distributed list -d"):
        code, _, err = served.run(line)
        assert code == 0 and re.search(r"GET https?://127\.0\.0\.1:", err)
    assert served.run("runai list jobs -q") == (0, "", "")
    assert served.run("runai describe job nothing --quiet")[2].startswith("The job nothing does not exist")


def test_top_and_the_header_of_nodes_are_aligned(served: Served) -> None:
    served.node("a", 2)
    served.ok("runai submit j -i x -g 0.5")
    served.bound(1)
    for line in ("runai list nodes", "runai top node", "runai top nodes -d"):
        groups, header, _ = served.ok(line).splitlines()
        for group in groups.split():
            assert header[groups.index(group)] != " " and (
                groups.index(group) == 0 or header[groups.index(group) - 1] == " "
            )
    assert served.ok("runai top jobs").splitlines()[1].split()[:4] == ["j", "default", "ContainerCreating", "0.5"]
    assert served.ok("runai get j -o name") == "j\n"


def test_assets_and_templates_by_name(served: Served) -> None:
    """Made, listed, named by a submit, and what the flags say wins."""
    served.node("a", 2)
    assert (
        served.ok("runai compute create tiny --cpu-core-request 0.25 --cpu-memory-request 64M")
        == "compute tiny created successfully\n"
    )
    line = "runai environment create mnist -i pytorch-dist-mnist -e A=1 --run-as-uid 7 --command -- python train.py"
    served.ok(line)
    names = served.ok("runai compute list --no-headers --columns name").split()
    assert "tiny" in names and "small-fraction" in names
    assert "image: pytorch-dist-mnist" in served.ok("runai environment describe mnist")
    served.ok("runai pytorch submit named --workers 1 --environment mnist --environment B=2 --compute tiny")
    job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", "named") or {}
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python"] and container["resources"]["requests"]["cpu"] == "0.25"
    assert {(v["name"], v.get("value")) for v in container["env"]} >= {("A", "1"), ("B", "2")}
    code, _, err = served.run("runai pytorch submit other --environment mnis --compute tiny")
    assert code == 1 and "there is no asset of the kind environment 'mnis'" in err and err.startswith("--environment")
    template = {
        "meta": {"name": "base", "scopeType": "tenant"},
        "spec": {"image": "pytorch-dist-mnist", "numWorkers": 3, "distributedFramework": "TF", "backoffLimit": 2},
    }
    served.post("/api/v1/workload-templates/distributed", template)
    assert served.ok("runai list templates").split() == ["NAME", "DESCRIPTION", "base", "-"]
    assert "numWorkers: 3" in served.ok("runai template describe base")
    served.ok("runai distributed submit templated --template base --backoff-limit 1")
    tf = served.store.view.get(kinds.TFJOB, "runai-default", "templated") or {}
    assert tf["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3
    assert tf["spec"]["runPolicy"]["backoffLimit"] == 1
    assert served.ok("runai template delete base") == "template base deleted successfully\n"
    assert "was not found" in served.run("runai template describe base")[2]


def test_data_sources_and_templates_from_flags(served: Served) -> None:
    """Made with the flags of a submit, named by a submit, deleted."""
    served.node("a", 2)
    made = served.ok("runai datasource create corpus --host-path path=/srv/corpus,mount=/corpus --scope cluster")
    assert made == "datasource corpus created successfully\n"
    served.ok("runai datasource create labels --existing-pvc claimname=labels,path=/labels")
    served.ok("runai datasource create code --git-sync repository=https://example.test/x.git,path=/code")
    served.ok("runai datasource create settings --configmap-map-volume name=settings,path=/etc/settings")
    assert len(served.ok("runai datasource list --no-headers").splitlines()) == 4
    assert "mountPath: /corpus" in served.ok("runai datasource describe corpus")
    assert served.ok(
        "runai template create base -i pytorch-dist-mnist --workers 2 --datasource corpus --master-args one -- two"
    ) == "template base created successfully\n"  # fmt: skip
    served.ok("runai template create alone --type training -i pytorch-dist-mnist --scope department")
    served.ok("runai distributed submit j --template base --datasource labels")
    job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", "j") or {}
    replicas = job["spec"]["pytorchReplicaSpecs"]
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert replicas["Worker"]["replicas"] == 2 and container["args"] == ["two"]
    assert replicas["Master"]["template"]["spec"]["containers"][0]["args"] == ["one"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/corpus", "/labels"}
    assert served.ok("runai datasource delete corpus") == "datasource corpus deleted successfully\n"
    assert served.ok("runai template delete alone") == "template alone deleted successfully\n"


def test_credentials_and_the_data_sources_that_name_them(served: Served, tmp_path: Path) -> None:
    """What is secret comes from a file, and no command prints it."""
    served.node("a", 0)
    secret = tmp_path / "key"
    secret.write_text("hidden-word\n")
    made = served.ok(f"runai credential create bucket-key --type access-key --access-key-id AK --secret-file {secret}")
    assert made == "credential bucket-key created successfully\n"
    served.ok(f"runai credential create login --user ana --secret-file {secret}")
    served.ok(f"runai credential create ngc --type ngc-api-key --secret-file {secret}")
    assert served.ok("runai credential list --no-headers --columns name,kind").split() == [
        "bucket-key", "accessKey", "login", "password", "ngc", "ngcApiKey",
    ]  # fmt: skip
    shown = served.ok("runai credential describe login")
    assert "user: ana" in shown and "hidden-word" not in shown
    served.ok("runai datasource create sets --s3 bucket=b,path=/sets,accesskey=bucket-key")
    served.ok("runai datasource create keys --secret-volume name=login,path=/etc/keys")
    served.ok("runai datasource create home --nfs server=nas,path=/home,mountpath=/home,readwrite")
    served.ok("runai training submit uses -i x --datasource sets --datasource keys --datasource home")
    job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", "uses") or {}
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    sources = [{name: source for name, source in volume.items() if name != "name"} for volume in pod["volumes"]]
    assert {"nfs": {"server": "nas", "path": "/home"}} in sources and {"secret": {"secretName": "login"}} in sources
    assert [one["valueFrom"]["secretKeyRef"]["name"] for one in pod["initContainers"][0]["env"][-2:]] == [
        "bucket-key"
    ] * 2
    for name in ("sets", "keys", "home"):
        served.ok(f"runai datasource delete {name}")
    assert served.ok("runai credential delete login") == "credential login deleted successfully\n"
    assert served.store.view.get(kinds.SECRET, "runai-default", "login") is None
    for line, words in (
        (f"--type docker-registry --user a --secret-file {secret}", "needs --url"),
        (f"--user a --key b --secret-file {secret}", "--key is not for credentials of the type password"),
        ("--user a", "--secret-file FILE"),
        ("--user a --secret-file /nowhere", "/nowhere cannot be read"),
        ("--user a --password b", "--password"),
    ):
        code, _, err = served.run(f"runai credential create bad {line}")
        assert code in (1, 2) and words in err, err


def test_credentials_of_ones_own_and_a_workload_that_uses_them(served: Served, tmp_path: Path) -> None:
    """Run:ai's own lines; and what is secret from a file, which others do not see in `ps`."""
    served.node("a", 0)
    secret = tmp_path / "key"
    secret.write_text("hidden-word\n")
    items = "--item key=API_URL,value=https://api.test/?a=b,c --item key=DB_PASS,value=secret"
    made = served.ok(f"runai my-credential create app-config --type genericSecret {items}")
    assert made == "my-credential app-config created successfully\n"
    served.ok(
        "runai my-credential create hub --type dockerRegistry --item user=me,password=a,b,url=https://hub.test/v1/"
    )
    served.ok(f"runai my-credential create ngc --type ngcApiKey --secret-file {secret} --description for-nim")
    served.ok(f"runai my-credential create bucket --type accessKey --item access-key-id=AK --secret-file {secret}")
    listed = served.ok("runai my-credential list --no-headers --columns name,type,keys")
    assert [line.split(None, 2) for line in listed.splitlines()] == [
        ["app-config", "genericSecret", "API_URL, DB_PASS"], ["bucket", "accessKey", "AccessKeyId, SecretKey"],
        ["hub", "dockerRegistry", ".dockerconfigjson"], ["ngc", "ngcApiKey", "NGC_API_KEY"],
    ]  # fmt: skip
    assert served.ok("runai my-credential list --type ngcApiKey --no-headers --columns name") == "ngc\n"
    shown = served.ok("runai my-credential describe ngc")
    assert "description: for-nim" in shown and "hidden-word" not in shown
    served.ok(
        "runai training submit uses -i x --env-my-credentials URL=app-config,key=API_URL --image-pull-my-credentials hub"
    )
    job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", "uses") or {}
    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    reference = next(one["valueFrom"]["secretKeyRef"] for one in pod["containers"][0]["env"] if one["name"] == "URL")
    stored = served.store.view.get(kinds.SECRET, "runai-default", reference["name"]) or {}
    assert b64decode(stored["data"][reference["key"]]).decode() == "https://api.test/?a=b,c"
    login = served.store.view.get(kinds.SECRET, "runai-default", pod["imagePullSecrets"][0]["name"]) or {}
    assert (
        json.loads(b64decode(login["data"][".dockerconfigjson"]))["auths"]["https://hub.test/v1/"]["password"] == "a,b"
    )
    assert served.ok("runai my-credential delete ngc") == "my-credential ngc deleted successfully\n"
    assert "you have no credential 'ngc'" in served.run("runai my-credential describe ngc")[2]
    code, _, err = served.run("runai training submit no -i x --env-my-credentials A=none,key=B")
    assert code == 1 and "you have no credential 'none'" in err
    for line, words in (
        ("--item user=a", "say what it is: --type genericSecret|"),
        ("--type dockerRegistry --item user=a,url=b", "--secret-file FILE"),
        (f"--type dockerRegistry --secret-file {secret}", "needs user: --item user=…"),
        (f"--type ngcApiKey --item ngc-api-key=a --secret-file {secret}", "leave one of them out"),
        ("--type genericSecret --item name=a", "is key=…,value=…, not name"),
        ("--type password --item user=a,password=b --item user=c,password=d", "has one --item"),
        (f"--type genericSecret --item key=a --item key=b --secret-file {secret}", "but 2 items lack it"),
    ):
        code, _, err = served.run(f"runai my-credential create bad {line}")
        assert code in (1, 2) and words in err, (line, err)


def test_the_configuration_is_where_run_ai_names_it(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    served.ok(f"runai --config-path {other} config set --interactive disabled")
    told = json.loads(served.ok(f"runai config describe --json --config-path {other}"))
    assert (told["dataDirectory"], told["interactive"]) == (str(other), "disabled")
    told = json.loads(served.ok("runai --config-file config.json config describe --json"))
    assert told["dataDirectory"] == str(served.data)
    monkeypatch.delenv("ROWLOCK_DATA_DIR", raising=False)
    monkeypatch.setenv("RUNAI_CLI_CONFIG_PATH", "/named")
    places = [data_dir(CommandLine(program, "", [])) for program in ("runai", "rowlock")]
    assert places == ["/named", os.path.expanduser("~/.rowlock")], "it is Run:ai's word"


def test_a_refused_flag_may_ask_for_what_is_done_anyway(served: Served) -> None:
    served.node("a", 0)
    served.ok(f"runai mpi submit j -i x --launcher-creation-policy AtStartup --ssh-auth-mount-path {SSH_MOUNT}")
    served.ok("runai training standard submit one -i x --parallelism 1 --runs=1")
    for line in (
        "runai mpi submit k -i x --launcher-creation-policy WaitForWorkersReady",
        "runai training standard submit k -i x --parallelism 2",
    ):
        code, _, err = served.run(line)
        assert code == 1 and "is not supported by rowlock" in err


def test_columns_are_remembered_for_a_list(served: Served) -> None:
    served.node("a", 0)
    served.ok("runai my-credential create key --type genericSecret --item key=A,value=b")
    usual = served.ok("runai my-credential list")
    chosen = served.ok("runai my-credential list --columns type,name --set-default-columns")
    assert chosen.split()[:2] == ["Type", "Name"]
    assert served.ok("runai my-credential list") == chosen
    assert served.ok("runai my-credential list --columns name --no-headers") == "key\n", "what is said counts"
    assert "type" in served.ok("runai my-credential list --json"), "JSON stays whole"
    assert served.ok("runai workspace list") != chosen, "of this list alone"
    assert served.ok("runai my-credential list --set-default-columns") == usual == served.ok("runai my-credential list")


def test_v1_volumes_of_nfs_servers(served: Served) -> None:
    served.node("a", 0)
    served.ok("runai config project default")
    served.ok("runai submit one -i x -v /a:/b:ro:nas")
    served.ok("runai submit two -i x -v /a:/b --nfs-server nas")
    for name, read_only in (("one", True), ("two", False)):
        job = served.store.view.get(kinds.PYTORCHJOB, "runai-default", name) or {}
        (volume,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"]
        assert volume["nfs"] == {"server": "nas", "path": "/a", **({"readOnly": True} if read_only else {})}
