"""What the flags of a submit become in the pods: the objects that `--dry-run` prints, for both generations."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.rest.served import Served

from rowlock import kinds


def _objects(served: Served, line: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(served.ok([*line.split(), "--dry-run"]))
    return made


def _pod(job: dict[str, Any], role: str = "Worker") -> dict[str, Any]:
    specs = next(value for name, value in job["spec"].items() if name.endswith("ReplicaSpecs"))
    pod: dict[str, Any] = specs[role]["template"]["spec"]
    return pod


def _worker(served: Served, flags: str) -> dict[str, Any]:
    return _pod(_objects(served, f"runai submit-dist pytorch j -i img {flags}")[-1])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--host-ipc --host-network", {"hostIPC": True, "hostNetwork": True}),
        ("--run-as-uid 1000 --run-as-gid 100", {"securityContext": {"runAsUser": 1000, "runAsGroup": 100}}),
        ("--run-as-user", {"securityContext": {"runAsUser": os.getuid(), "runAsGroup": os.getgid()}}),
        ("--supplemental-groups 10,20", {"securityContext": {"supplementalGroups": [10, 20]}}),
        (
            "--toleration operator=Equal,key=gpu,value=a100,effect=NoExecute,seconds=30 --toleration operator=Exists",
            {
                "tolerations": [
                    {
                        "operator": "Equal",
                        "key": "gpu",
                        "value": "a100",
                        "effect": "NoExecute",
                        "tolerationSeconds": 30,
                    },
                    {"operator": "Exists"},
                ]
            },
        ),
        ("--node-type dgx", {"nodeSelector": {"run.ai/type": "dgx"}}),
        (
            "-v /data:/in:ro -v /out:/out",
            {
                "volumes": [
                    {"name": "host-0", "hostPath": {"path": "/data"}},
                    {"name": "host-1", "hostPath": {"path": "/out"}},
                ]
            },
        ),
        (
            "--pvc mine:/d --existing-pvc claimname=c,path=/e",
            {
                "volumes": [
                    {"name": "pvc-0", "persistentVolumeClaim": {"claimName": "mine"}},
                    {"name": "pvc-1", "persistentVolumeClaim": {"claimName": "c"}},
                ]
            },
        ),
        (
            "--configmap-volume name=settings,path=/etc/x",
            {"volumes": [{"name": "files-0", "configMap": {"name": "settings"}}]},
        ),
    ],
)
def test_v1_flags_reach_the_pod(served: Served, flags: str, expected: dict[str, Any]) -> None:
    pod = _worker(served, flags)
    assert {name: pod.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--port 8080:80,9090:90",
            {"ports": [{"name": "port-80", "containerPort": 80}, {"name": "port-90", "containerPort": 90}]},
        ),
        ("--add-capability NET_ADMIN", {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}),
        ("--allow-privilege-escalation", {"securityContext": {"allowPrivilegeEscalation": True}}),
        ("--local-image", {"imagePullPolicy": "Never"}),
        (
            "-v /data:/in:ro -v /out:/out",
            {
                "volumeMounts": [
                    {"name": "host-0", "mountPath": "/in", "readOnly": True},
                    {"name": "host-1", "mountPath": "/out"},
                ]
            },
        ),
    ],
)
def test_v1_flags_reach_the_container(served: Served, flags: str, expected: dict[str, Any]) -> None:
    container = _worker(served, flags)["containers"][0]
    assert {name: container.get(name) for name in expected} == expected


def test_topology_is_the_gangs(served: Served) -> None:
    job = _objects(served, "runai submit-dist pytorch j -i x --required-pod-topology-key rack")[-1]
    assert job["metadata"]["annotations"]["kai.scheduler/topology-required-placement"] == "rack"
    job = _objects(served, "runai submit-dist pytorch j -i x --preferred-pod-topology-key zone")[-1]
    assert job["metadata"]["annotations"]["kai.scheduler/topology-preferred-placement"] == "zone"


def test_a_repository_is_cloned_before_the_program_starts(served: Served) -> None:
    pod = _worker(served, "--git-sync source=https://example.com/r.git,branch=main,rev=abc,target=/code")
    clone = pod["initContainers"][0]
    variables = {v["name"]: v["value"] for v in clone["env"]}
    assert variables["GIT_REPOSITORY"] == "https://example.com/r.git"
    assert (variables["GIT_BRANCH"], variables["GIT_REVISION"], variables["GIT_DIRECTORY"]) == ("main", "abc", "/code")
    assert clone["volumeMounts"] == pod["containers"][0]["volumeMounts"] == [{"name": "git-0", "mountPath": "/code"}]


def test_a_new_claim_is_made_beside_the_job_once(served: Served) -> None:
    line = "runai submit-dist pytorch j -i x --new-pvc claimname=data,size=1Gi,path=/d,accessmode-rwm"
    claim, _ = _objects(served, line)
    assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", "data")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    served.ok(line)
    served.ok("runai delete job j")
    served.until(lambda: served.reap() or True)
    code, _, err = served.run(line)
    assert code == 1 and "the claim data already exists: use it with --existing-pvc" in err


def test_the_master_may_go_without_claims(served: Served) -> None:
    job = _objects(served, "runai submit-dist pytorch j -i x --pvc c:/d -v /a:/b --master-no-pvcs")[-1]
    assert [next(k for k in v if k != "name") for v in _pod(job, "Master")["volumes"]] == ["hostPath"]
    assert len(_pod(job)["volumes"]) == 2


def test_a_home_of_its_own(served: Served) -> None:
    container = _worker(served, "--create-home-dir")["containers"][0]
    assert {"name": "HOME", "value": "/home/job"} in container["env"]
    assert container["volumeMounts"] == [{"name": "home", "mountPath": "/home/job"}]


def test_ports_stand_in_the_services_of_the_ranks(served: Served) -> None:
    """A Service with several ports needs their names: without them the operator could not make it."""
    served.node("a")
    served.ok("runai submit-dist pytorch j -i img --port 8080:80,23456")
    served.until(lambda: len(served.all_of(kinds.SERVICE, "runai-default")) == 2)
    service = served.store.view.get(kinds.SERVICE, "runai-default", "j-master-0") or {}
    assert {(p["name"], p["port"]) for p in service["spec"]["ports"]} == {("port-80", 80), ("pytorchjob-port", 23456)}


def test_submit_makes_a_job_of_one_pod(served: Served) -> None:
    served.node("a", 1)
    assert "The job 'job-0' has been submitted" in served.ok("runai submit -i img -g 0.5 -- python train.py")
    served.bound(1)
    assert list(served.pods()) == ["job-0-master-0"]
    job = _objects(served, "runai submit shell -i img --interactive")[-1]
    assert job["metadata"]["labels"]["priorityClassName"] == "high"
