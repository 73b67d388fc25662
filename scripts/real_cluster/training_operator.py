"""Kubeflow's training operator against a control plane that has no pod network.

Its webhooks are called through a Service of type ExternalName that points at loopback, so the API server checks the
certificate's real name and no hosts file changes. The operator keeps its certificate in a Secret that a kubelet would
mount; here we put those files where it looks.
"""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from control_plane import Plane
from recipe import MANIFESTS, OPERATOR_BINARY

from processes import launch, runs, until

NAMESPACE = "kubeflow"
SECRET = "training-operator-webhook-cert"
FIXED = Path("/tmp/k8s-webhook-server/serving-certs")
"""The operator waits until there are files here, and then reads them from its own directory; the path is compiled in."""

KINDS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}

LOADER, DUMPER = getattr(yaml, "CSafeLoader", yaml.SafeLoader), getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Four megabytes of schemas: seconds in Python, a moment in C."""


def apply_crds(plane: Plane) -> None:
    """Only the kinds: what a test of the API needs when nobody is to act on the objects."""
    text = (plane.bin / MANIFESTS).read_text()
    kinds = [item for item in yaml.load_all(text, Loader=LOADER) if item and item["kind"] == "CustomResourceDefinition"]
    path = plane.dir / "crds.yaml"
    path.write_text(yaml.dump_all(kinds, Dumper=DUMPER))
    plane.insist("apply", "--server-side", "-f", str(path))
    plane.insist("wait", "--for=condition=Established", "--timeout=30s", "-f", str(path))


def start_operator(plane: Plane) -> None:
    """Rights and webhooks, then the program; returns when a job is checked by its webhook, and when what a job of any
    kind owns goes with it."""
    _see_collection(plane)
    webhook, health, metrics = plane.port + 5, plane.port + 6, plane.port + 7
    manifests = list(_manifests((plane.bin / MANIFESTS).read_text(), webhook))
    path = plane.dir / MANIFESTS
    path.write_text(yaml.dump_all(manifests, Dumper=DUMPER))
    plane.insist("apply", "--server-side", "-f", str(path))
    scratch = plane.dir / "operator"
    certificates = scratch / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True, exist_ok=True)
    flags = {
        "kubeconfig": plane.kubeconfig,
        "webhook-server-port": webhook,
        "health-probe-bind-address": f"127.0.0.1:{health}",
        "metrics-bind-address": f"127.0.0.1:{metrics}",
        "kube-api-qps": 500,
        "kube-api-burst": 1000,
    }
    command = [plane.bin / OPERATOR_BINARY, *(f"--{name}={value}" for name, value in flags.items())]
    # What an earlier operator left here would let this one read its own certificate before we have written it.
    for left in FIXED.glob("*"):
        left.unlink(missing_ok=True)
    log = plane.dir / "training-operator.log"

    def answers(ready: Callable[[], bool]) -> bool:
        """Start the operator again when it has ended, as the kubelet would with its Deployment's pod."""
        if not runs(plane.dir, "training-operator"):
            launch(plane.dir, "training-operator", command, env={"TMPDIR": str(scratch)})
        return ready()

    until("the operator's certificate", lambda: answers(lambda: _mount(plane, certificates)), log=log)
    until("the operator's webhook", lambda: answers(lambda: _checks(plane)), log=log)


def _see_collection(plane: Plane) -> None:
    """A job of every kind and something that it owns are made, and the jobs deleted, before anybody acts on jobs. Until
    the collector has seen that, a test that deletes a job would judge its start, not its work."""
    jobs = [
        {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "a-probe"}, "spec": {field: {}}}
        for kind, field in KINDS.items()
    ]
    plane.insist("create", "-n", "default", "-f", "-", text=_list(jobs))
    made = plane.insist("get", "-n", "default", "-o", "json", "-f", "-", text=_list(jobs))
    owned = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"a-probe-{job['kind'].lower()}", "ownerReferences": [_owner(job)]},
        }
        for job in json.loads(made)["items"]
    ]
    plane.insist("create", "-n", "default", "-f", "-", text=_list(owned))
    plane.insist("delete", "-n", "default", "--wait=false", "-f", "-", text=_list(jobs))
    names = [item["metadata"]["name"] for item in owned]
    log = plane.dir / "kube-controller-manager.log"
    gone = ("get", "configmap", "-n", "default", "--ignore-not-found", "-o", "name", *names)
    until("garbage collection of every job kind", lambda: not plane.insist(*gone), seconds=120, log=log)


def _owner(job: dict[str, Any]) -> dict[str, str]:
    metadata = job["metadata"]
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _manifests(text: str, port: int) -> Iterator[dict[str, Any]]:
    """The module's objects without its Deployment; its Service leads to loopback."""
    for item in yaml.load_all(text, Loader=LOADER):
        if not item or item["kind"] == "Deployment":
            continue
        for hook in item.get("webhooks", ()):
            hook["clientConfig"]["service"]["port"] = port
        if item["kind"] == "Service":
            item["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        yield item


def _mount(plane: Plane, certificates: Path) -> bool:
    done = plane.kubectl("get", "secret", SECRET, "-n", NAMESPACE, "-o", "json")
    data = json.loads(done.stdout).get("data") or {} if done.returncode == 0 else {}
    if "tls.key" not in data:
        return False
    FIXED.mkdir(parents=True, exist_ok=True)
    for directory in (certificates, FIXED):  # all of its own files first: the other directory's let it read them
        for name, content in data.items():
            (directory / name).write_bytes(base64.b64decode(content))
    return True


def _checks(plane: Plane) -> bool:
    """A job with a name that only the webhook refuses: refused means that the webhook answers."""
    probe = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "a-probe", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Chief": {"template": {"spec": {"containers": []}}}}},
    }
    done = plane.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(probe))
    return "validator.pytorchjob" in done.stderr and "denied the request" in done.stderr
