"""What a program finds in its environment: by equality."""

from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kubelet.images.base_environment import STANDARD_PATH, base_environment
from rowlock.kubelet.node.gpus import ContainerGpus, gpu_environment
from rowlock.kubelet.pod.exec_space import ExecSpace, expand
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import parse_container, parse_pod_spec
from rowlock.kubelet.worker.environment import (
    EnvironmentContext,
    declared_environment,
    platform_environment,
    thread_count,
)
from rowlock.objects import Object

POD_OBJECT: Object = {
    "metadata": {
        "name": "p-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"role": "trainer"},
        "annotations": {"note": "hi"},
    },
    "spec": {"serviceAccountName": "robot", "containers": []},
}
POD = parse_pod_spec(POD_OBJECT)
SILENT = parse_container({"name": "main"})
PLACE = EnvironmentContext("node-0", "10.77.1.1", cpus=Decimal(8), memory=1 << 30, pods_on_node=3)


def lookup(kind: Kind, namespace: str, name: str) -> Object | None:
    objects: dict[tuple[str, str], Object] = {
        ("ConfigMap", "settings"): {"data": {"LR": "0.1", "OPT": "adam"}},
        ("Secret", "creds"): {"data": {"PASSWORD": b64encode(b"s3cret").decode()}},
    }
    return objects.get((kind.name, name)) if namespace == "team" else None


def field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$A $", "$A $"),
        ("$$$(A)", "$1"),
        ("kill $$", "kill $"),
        ("$(A", "$(A"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['role']", "trainer"),
        ("metadata.annotations['note']", "hi"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "node-0"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.77.1.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    assert declared_environment(
        POD, parse_container({"name": "main", "env": [field(path)]}), PLACE, lookup, ExecSpace("main")
    ) == {"X": value}


def test_sources_and_order() -> None:
    container = {
        "name": "main",
        "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}},
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}, {"secretRef": {"name": "creds"}}],
        "env": [
            {"name": "ROLE", **{k: v for k, v in field("metadata.labels['role']").items() if k != "name"}},
            {"name": "GREETING", "value": "hello $(ROLE) $(P_LR)"},
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LR"}}},
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "PASSWORD"}}},
            {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "none", "optional": True}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "MILLI", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
            {"name": "P_OPT", "value": "sgd"},
            {"name": "EMPTY"},
        ],
    }
    assert declared_environment(POD, parse_container(container), PLACE, lookup, ExecSpace("main")) == {
        "P_LR": "0.1", "P_OPT": "sgd", "PASSWORD": "s3cret", "ROLE": "trainer", "GREETING": "hello trainer 0.1",
        "ONE": "0.1", "PW": "s3cret", "CPUS": "2", "MILLI": "1500", "MEM": "64", "EMPTY": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        ({"envFrom": [{"configMapRef": {"name": "none"}}]}, 'configmap "none" not found'),
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, 'secret "none" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "none"}}}]},
            "couldn't find key none in ConfigMap team/settings",
        ),
        ({"env": [field("spec.none")]}, "unsupported field path spec.none"),
        ({"env": [{"name": "X", "valueFrom": {"otherRef": {}}}]}, "does not know the source"),
    ],
)
def test_what_is_missing(container: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ContainerConfigError, match=sentence.replace("(", "\\(")):
        declared_environment(POD, parse_container({"name": "main", **container}), PLACE, lookup, ExecSpace("main"))


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"cpu": "3500m"}}, 3),
        ({"limits": {"cpu": "500m"}}, 1),
        ({"requests": {"cpu": "4"}}, 4),
        ({"requests": {"cpu": "100m"}}, 2),
        ({}, 2),
    ],
)
def test_threads_follow_the_cpu_share(resources: dict[str, Any], expected: int) -> None:
    assert thread_count(parse_container({"name": "main", "resources": resources}), PLACE) == expected


def test_what_the_platform_adds_gives_way_to_the_pod() -> None:
    assert platform_environment(SILENT, PLACE, {}) == {"OMP_NUM_THREADS": "2"}
    assert platform_environment(SILENT, PLACE, {"OMP_NUM_THREADS": "7"}) == {}
    proxied = EnvironmentContext("n", "ip", proxy="http://proxy", peers=("p-0", "p-1"))
    found = platform_environment(SILENT, proxied, {"HTTPS_PROXY": "mine", "OMP_NUM_THREADS": "1"})
    assert found["http_proxy"] == found["HTTP_PROXY"] == "http://proxy" and "https_proxy" not in found
    assert found["no_proxy"].endswith(",p-0,p-1")


def test_devices() -> None:
    none = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert gpu_environment(ContainerGpus(), {}) == {}
    assert gpu_environment(ContainerGpus(devices=()), {}) == none
    two = gpu_environment(ContainerGpus(devices=("GPU-a", "GPU-b")), {})
    assert two["CUDA_VISIBLE_DEVICES"] == two["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    # Paddle's launcher takes an empty CUDA_VISIBLE_DEVICES for a GPU without a name: where there is no driver it is unset
    pretend = gpu_environment(ContainerGpus(simulated="0,3"), {})
    assert pretend == {"ROWLOCK_SIMULATED_GPU": "0,3"}
    assert gpu_environment(ContainerGpus(devices=(), simulated="0"), {}) == {**none, "ROWLOCK_SIMULATED_GPU": "0"}


def test_the_base_is_small_and_the_opt_in_names_what_comes_along() -> None:
    server = {
        "HOME": "/h",
        "PATH": "/x:/bin",
        "AWS_SECRET": "s",
        "WANDB_KEY": "w",
        "HF_HOME": "/hf",
        "LD_LIBRARY_PATH": "/l",
    }
    assert base_environment(server, host=False, first="/img/bin") == {
        "HOME": "/h", "LANG": "C.UTF-8", "PATH": f"/img/bin:{STANDARD_PATH}",
    }  # fmt: skip
    host = base_environment(server, host=True, first="/env/bin")
    assert host["PATH"].startswith("/env/bin:/x:/bin:/usr") and host["LD_LIBRARY_PATH"] == "/l"
    assert "WANDB_KEY" not in host and "AWS_SECRET" not in host
    assert kinds.SECRET.name == "Secret"
