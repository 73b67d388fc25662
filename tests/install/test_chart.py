"""The server inside a cluster: chart and manifests are one, a real API server takes them, and the pod can do no more than it must."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.conformance.subjects import REPO, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import BIN
from tests.kube.test_served_cluster import kubectl

from rowlock import KUBERNETES
from rowlock.errors import BadRequest
from rowlock.kube.install.in_cluster import write_kubeconfig
from rowlock.kube.install.server_objects import ServerInstall, server_objects
from rowlock.objects import Object, dig

CHART = REPO / "deploy" / "helm" / "rowlock"

INSTALL = ServerInstall("registry.example/rowlock:1", ingress_host="rowlock.example")


def by_kind(kind: str) -> Object:
    return next(obj for obj in server_objects(INSTALL) if obj["kind"] == kind)


def test_the_chart_is_the_one_that_the_manifests_make() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/make_chart.py", "--check"], capture_output=True, text=True, cwd=REPO
    )
    assert done.returncode == 0, done.stdout


def test_the_container_is_nobody_and_writes_to_its_volumes_alone() -> None:
    pod = by_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert {m["mountPath"] for m in container["volumeMounts"]} == {"/var/lib/rowlock", "/tmp"}
    args = container["args"]
    assert args[args.index("--data-dir") + 1].startswith("/var/lib/rowlock/")


def test_who_selects_the_pod_finds_it() -> None:
    labels = dig(by_kind("Deployment"), "spec.template.metadata.labels").items()
    for kind, path in (
        ("Service", "spec.selector"),
        ("PodDisruptionBudget", "spec.selector.matchLabels"),
        ("NetworkPolicy", "spec.podSelector.matchLabels"),
        ("Deployment", "spec.selector.matchLabels"),
    ):
        assert dig(by_kind(kind), path).items() <= labels


SEVERAL = replace(INSTALL, replicas=3, archive="s3://lab/x", archive_secret="s3", archive_port=9000, tls_secret="tls")


def test_several_servers_keep_nothing_share_an_archive_and_stand_apart() -> None:
    made = {obj["kind"]: obj for obj in server_objects(SEVERAL)}
    assert "PersistentVolumeClaim" not in made
    spec = made["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 3 and spec["strategy"]["type"] == "RollingUpdate"
    assert {c["topologyKey"] for c in pod["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    (container,) = pod["containers"]
    args = container["args"]
    assert args[args.index("--archive") + 1] == "s3://lab/x" and container["envFrom"] == [{"secretRef": {"name": "s3"}}]
    mounted = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert args[args.index("--tls-cert") + 1].startswith(mounted["tls"])
    assert {v["name"] for v in pod["volumes"]} == mounted.keys() and "emptyDir" in pod["volumes"][0]
    assert {"port": 9000, "protocol": "TCP"} in made["NetworkPolicy"]["spec"]["egress"][1]["ports"]
    assert made["Service"]["spec"]["sessionAffinity"] == "ClientIP"
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_a_directory_of_all_servers_is_a_claim() -> None:
    shared = replace(INSTALL, replicas=2, archive="file:///var/lib/rowlock-archive", archive_claim="share")
    pod = next(obj for obj in server_objects(shared) if obj["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert {"name": "archive", "persistentVolumeClaim": {"claimName": "share"}} in pod["volumes"]
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert "file://" + mounts["archive"] == shared.archive


def test_only_with_a_debug_image_the_account_may_add_debug_containers() -> None:
    def made(*flags: str) -> list[Object]:
        command = [str(BIN / "rowlock"), "manifests", "--image", "registry.example/rowlock:1", *flags]
        return list(yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout))

    with_image, without = made("--debug-image", "registry.example/debug:1"), made()
    (role,) = (obj for obj in with_image if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", "rowlock-debug"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]}]
    (args,) = (
        obj["spec"]["template"]["spec"]["containers"][0]["args"] for obj in with_image if obj["kind"] == "Deployment"
    )
    assert args[args.index("--debug-image") + 1] == "registry.example/debug:1"
    assert "ephemeralcontainers" not in str(without) and "--debug-image" not in str(without)


def test_so_it_is_in_the_chart() -> None:
    for flags in ((), ("--set", "archive.url=s3://lab/x,replicas=2")):
        plain, debug = render(*flags), render(*flags, "--set", "debugImage=registry.example/debug:1")
        assert "ephemeralcontainers" not in plain and "--debug-image" not in plain
        assert "pods/ephemeralcontainers" in debug
        servers = [obj for obj in yaml.safe_load_all(debug) if obj and obj["kind"] == "Deployment"]
        (args,) = (obj["spec"]["template"]["spec"]["containers"][0]["args"] for obj in servers)
        assert args[args.index("--debug-image") + 1] == "registry.example/debug:1"


def test_more_servers_than_one_need_an_archive(tmp_path: Path) -> None:
    rowlock = [str(BIN / "rowlock"), "manifests"]
    for flags, sentence in (
        (("--image", "x", "--replicas", "2"), "need one archive for all of them"),
        (("--image", "x", "--replicas", "0"), "--replicas must be at least 1"),
        (("--replicas", "2"), "--replicas is of the server in the cluster"),
        (("--image", "x", "--archive-secret", "s"), "--archive-secret is of the storage that --archive names"),
    ):
        done = subprocess.run([*rowlock, *flags], capture_output=True, text=True)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
    everything = subprocess.run(
        [*rowlock, "--image", "x", "--replicas", "2", "--archive", "s3://lab/x"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [(obj["kind"], obj["metadata"]["name"]) for obj in yaml.safe_load_all(everything.stdout)]
    assert ("Role", "rowlock-archive") in found and ("Deployment", "rowlock") in found


def test_in_a_pod_the_kubeconfig_names_the_files_that_the_kubelet_renews(tmp_path: Path) -> None:
    account = tmp_path / "account"
    account.mkdir()
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(BadRequest, match="in-cluster is for a pod"):
        write_kubeconfig(tmp_path, environment, account)
    (account / "token").write_text("t")
    config = json.loads(write_kubeconfig(tmp_path, environment, account).read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://[fd00::1]:6443"
    assert config["users"][0]["user"] == {"tokenFile": str(account / "token")}


# ------------------------------------------------------------ a real kube-apiserver


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := real_cluster_missing():
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("real")) as made:
        yield made


def apply_as_dry_run(kubeconfig: Path, text: str, directory: Path) -> str:
    (directory / "all.yaml").write_text(text)
    return kubectl(kubeconfig, "apply", "--dry-run=server", "--validate=strict", "-f", str(directory / "all.yaml"))


@pytest.mark.real
def test_a_real_api_server_takes_the_manifests(kubeconfig: Path, tmp_path: Path) -> None:
    command = [str(BIN / "rowlock"), "manifests", "--image", INSTALL.image, "--ingress-host", INSTALL.ingress_host]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "rowlock-system" not in kubectl(kubeconfig, "get", "namespaces", "-o", "name"):
        kubectl(kubeconfig, "create", "namespace", "rowlock-system")
    answer = apply_as_dry_run(kubeconfig, text, tmp_path)
    assert answer.count("(server dry run)") == len(list(yaml.safe_load_all(text))), answer


@pytest.mark.real
@pytest.mark.parametrize("scheduler", ["own", "cluster"])
def test_a_real_api_server_takes_the_chart(kubeconfig: Path, tmp_path: Path, scheduler: str) -> None:
    if "rowlock-system" not in kubectl(kubeconfig, "get", "namespaces", "-o", "name"):
        kubectl(kubeconfig, "create", "namespace", "rowlock-system")
    text = render("--include-crds", "--set", f"scheduler={scheduler},ingress.host=lab.example,storage.class=fast")
    assert "VALUE-" not in text and "lab.example" in text and "storageClassName" in text
    assert ("rowlock-scheduler" in text) == (scheduler == "own")
    assert apply_as_dry_run(kubeconfig, text, tmp_path).count("(server dry run)") > 15


@pytest.mark.real
def test_a_real_api_server_takes_several_servers(kubeconfig: Path, tmp_path: Path) -> None:
    if "rowlock-system" not in kubectl(kubeconfig, "get", "namespaces", "-o", "name"):
        kubectl(kubeconfig, "create", "namespace", "rowlock-system")
    values = "replicas=3,archive.url=s3://lab/x,archive.secret=s3,archive.port=9000,tls.secret=tls"
    text = render("--set", values)
    assert "VALUE-" not in text and "kind: PersistentVolumeClaim" not in text and "claimName" not in text
    assert apply_as_dry_run(kubeconfig, text, tmp_path).count("(server dry run)") > 10
    (deployment,) = [obj for obj in yaml.safe_load_all(text) if obj and obj["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 3
    (alone,) = [obj for obj in yaml.safe_load_all(render()) if obj and obj["kind"] == "Deployment"]
    assert {v["name"] for v in alone["spec"]["template"]["spec"]["volumes"]} == {"data", "tmp"}
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        render("--set", "replicas=2")
    assert "replicas above 1 need archive.url" in refusal.value.stderr


MONITOR_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["selector", "endpoints"],
                                "properties": {
                                    "selector": {
                                        "type": "object",
                                        "properties": {
                                            "matchLabels": {
                                                "type": "object",
                                                "additionalProperties": {"type": "string"},
                                            }
                                        },
                                    },
                                    "endpoints": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                **{
                                                    field: {"type": "string"}
                                                    for field in ("port", "path", "interval", "bearerTokenFile")
                                                },
                                                "scheme": {"type": "string", "enum": ["http", "https"]},
                                                "tlsConfig": {
                                                    "type": "object",
                                                    "properties": {"insecureSkipVerify": {"type": "boolean"}},
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""The fields of the Prometheus operator's kind that are used here, with its types."""


@pytest.mark.real
def test_a_real_api_server_takes_the_service_monitor(kubeconfig: Path, tmp_path: Path) -> None:
    """From the chart where the kind is there and asked for, and from the manifests; they are the same."""
    if "rowlock-system" not in kubectl(kubeconfig, "get", "namespaces", "-o", "name"):
        kubectl(kubeconfig, "create", "namespace", "rowlock-system")
    (tmp_path / "crd.json").write_text(json.dumps(MONITOR_CRD))
    kubectl(kubeconfig, "apply", "-f", str(tmp_path / "crd.json"))
    kubectl(kubeconfig, "wait", "--for=condition=Established", f"crd/{MONITOR_CRD['metadata']['name']}")
    flags = ("--set", "metrics.serviceMonitor=true")
    assert "ServiceMonitor" not in render(*flags) and "rowlock-metrics" in render(*flags), "the kind is not there"
    assert "rowlock-metrics" not in render()
    chart = render(*flags, "--api-versions", "monitoring.coreos.com/v1")
    assert apply_as_dry_run(kubeconfig, chart, tmp_path).count("servicemonitor") == 1
    command = [str(BIN / "rowlock"), "manifests", "--image", INSTALL.image, "--service-monitor"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert apply_as_dry_run(kubeconfig, text, tmp_path).count("servicemonitor") == 1
    (of_chart,), (of_manifests,) = (
        [obj for obj in yaml.safe_load_all(one) if obj and obj["kind"] == "ServiceMonitor"] for one in (chart, text)
    )
    assert of_chart["spec"] == of_manifests["spec"]
    service = next(obj for obj in yaml.safe_load_all(chart) if obj and obj["kind"] == "Service")
    assert of_chart["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


def render(*flags: str) -> str:
    """What helm would apply; skips the test where helm is not built."""
    helm = shutil.which("helm") or f"{where()}/helm"
    if not Path(helm).exists():
        pytest.skip("helm is not built: run `make real-cluster` (needs Go)")
    command = [helm, "template", "rowlock", str(CHART), "-n", "rowlock-system", "--kube-version", KUBERNETES, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def where() -> str:
    asked = [sys.executable, "scripts/real_cluster", "where"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, cwd=REPO).stdout.strip()
