"""The objects that run rowlock's server inside a cluster: what `rowlock manifests --image IMAGE` adds, and the Helm chart.

One pod of the server: a data directory has one server. It is no part of any job's life, so that jobs run on while it is
upgraded, moved or deleted; the volume keeps the archive and the certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object

NAME = "rowlock"
PORT = 8443
USER_ID = 65532
DATA_MOUNT = "/var/lib/rowlock"
DATA_DIRECTORY = f"{DATA_MOUNT}/server"
"""The volume itself belongs to root, and a data directory to its user alone."""
_SELECTOR = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "server"}
SERVICE_LABELS = _SELECTOR
"""By which a ServiceMonitor finds the Service."""


@dataclass(frozen=True, slots=True)
class ServerInstall:
    """What differs from one installation to the next."""

    image: str
    scheduler: str = "own"
    storage: str = "10Gi"
    storage_class: str = ""
    """Of the volume; "" = the cluster's default."""
    ingress_host: str = ""
    """A host name under which an Ingress leads to the server; "" = no Ingress."""
    account: str = NAME
    operator: str = "kubeflow"


def server_objects(install: ServerInstall) -> list[Object]:
    """In the order in which they can be created, behind the namespace and the service account."""
    made = [_claim(install), _deployment(install), _service(), _disruption_budget(), _network_policy()]
    return [*made, _ingress(install)] if install.ingress_host else made


def _meta(name: str = NAME) -> dict[str, Any]:
    return {"name": name, "namespace": SYSTEM_NAMESPACE}


def _claim(install: ServerInstall) -> Object:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": install.storage}},
        **({"storageClassName": install.storage_class} if install.storage_class else {}),
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(), "spec": spec}


def _deployment(install: ServerInstall) -> Object:
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # the old pod holds the volume
        "selector": {"matchLabels": dict(_SELECTOR)},
        "template": {"metadata": {"labels": dict(_SELECTOR)}, "spec": _pod_spec(install)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(), "spec": spec}


def _pod_spec(install: ServerInstall) -> dict[str, Any]:
    return {
        "serviceAccountName": install.account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(install)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _container(install: ServerInstall) -> dict[str, Any]:
    host = f"{NAME}.{SYSTEM_NAMESPACE}"
    names = ",".join(filter(None, (install.ingress_host, f"{host}.svc", f"{host}.svc.cluster.local", host)))
    flags = {
        "--data-dir": DATA_DIRECTORY,
        "--kubeconfig": "in-cluster",
        "--scheduler": install.scheduler,
        "--operator": install.operator,
        "--port": str(PORT),
        "--bind": "0.0.0.0",
        "--tls-san": names,
    }
    return {
        "name": NAME,
        "image": install.image,
        "command": ["rowlock", "up"],
        "args": [word for flag in flags.items() for word in flag],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "ROWLOCK_DATA_DIR", "value": DATA_DIRECTORY}],
        "ports": [{"name": "https", "containerPort": PORT}],
        "startupProbe": {**_probe("/readyz"), "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 10},
        "livenessProbe": {**_probe("/livez"), "periodSeconds": 20, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": DATA_MOUNT}, {"name": "tmp", "mountPath": "/tmp"}],
    }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}, "timeoutSeconds": 5}


def _service() -> Object:
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_meta(), "labels": dict(SERVICE_LABELS)},
        "spec": {"selector": dict(_SELECTOR), "ports": ports},
    }


def _disruption_budget() -> Object:
    """Drains of nodes move the server without asking: whoever schedules is away for seconds, and no job is."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(), "spec": spec}


def _network_policy() -> Object:
    """In: the HTTPS port. Out: names and the API server, whose address nobody knows here; so its usual ports."""
    spec = {
        "podSelector": {"matchLabels": dict(_SELECTOR)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
        "egress": [
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
            {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]},
        ],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _meta(), "spec": spec}


def _ingress(install: ServerInstall) -> Object:
    """The server speaks TLS of its own, so the controller is told (nginx) to do so, too."""
    backend = {"service": {"name": NAME, "port": {"name": "https"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    annotations = {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {**_meta(), "annotations": annotations},
        "spec": {"rules": [{"host": install.ingress_host, "http": {"paths": paths}}]},
    }
