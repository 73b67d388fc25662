"""The objects that run rowlock's server inside a cluster: what `rowlock manifests --image IMAGE` adds, and the Helm chart.

A data directory has one server. So there is one pod, whose volume keeps the archive and the certificates; or there are several
(`replicas`), whose archive is in a bucket, and none of which keeps anything. The server is no part of any job's life: jobs run on
while it is upgraded, moved or deleted.
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
TLS_MOUNT = "/etc/rowlock/tls"
ARCHIVE_MOUNT = "/var/lib/rowlock-archive"
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
    replicas: int | str = 1
    """More than one need an `archive`. A chart has a word in its place."""
    archive: str = ""
    """The URL of the archive that all replicas share; "" = the volume of the only one."""
    archive_secret: str = ""
    """The Secret whose keys are the storage's variables (AWS_ACCESS_KEY_ID and so on); "" = none is needed."""
    archive_claim: str = ""
    """The PersistentVolumeClaim (ReadWriteMany) that is mounted at `ARCHIVE_MOUNT` in all replicas, for file:// URLs; "" = none."""
    archive_port: int | str = 443
    """The port of the storage, for the NetworkPolicy."""
    tls_secret: str = ""
    """The Secret with `tls.crt` and `tls.key` that all replicas show to clients that name the server; "" = each has its own."""
    debug_image: str = ""
    """Of the debug containers that `rowlock why` adds to pods without py-spy; "" = none."""


def server_objects(install: ServerInstall) -> list[Object]:
    """In the order in which they can be created, behind the namespace and the service account."""
    made = [] if install.archive else [_claim(install)]
    made += [_deployment(install), _service(), _disruption_budget(), _network_policy(install)]
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
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    spec = {
        "replicas": install.replicas,
        "strategy": one_by_one if install.archive else {"type": "Recreate"},  # the old pod holds the volume
        "selector": {"matchLabels": dict(_SELECTOR)},
        "template": {"metadata": {"labels": dict(_SELECTOR)}, "spec": _pod_spec(install)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(), "spec": spec}


def _pod_spec(install: ServerInstall) -> dict[str, Any]:
    volume = {"emptyDir": {"sizeLimit": install.storage}} if install.archive else _claim_volume(NAME)
    return {
        "serviceAccountName": install.account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"topologySpreadConstraints": _spread()} if install.archive else {}),
        "containers": [_container(install)],
        "volumes": [
            {"name": "data", **volume},
            {"name": "tmp", "emptyDir": {}},
            *([{"name": "tls", "secret": {"secretName": install.tls_secret}}] if install.tls_secret else ()),
            *([{"name": "archive", **_claim_volume(install.archive_claim)}] if install.archive_claim else ()),
        ],
    }


def _claim_volume(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def _spread() -> list[dict[str, Any]]:
    """On different nodes, and in different zones, where there are some."""
    words = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": dict(_SELECTOR)}}
    return [{"topologyKey": key, **words} for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")]


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
        **({"--archive": install.archive} if install.archive else {}),
        **({"--tls-cert": f"{TLS_MOUNT}/tls.crt", "--tls-key": f"{TLS_MOUNT}/tls.key"} if install.tls_secret else {}),
        **({"--debug-image": install.debug_image} if install.debug_image else {}),
    }
    mounts: list[dict[str, Any]] = [{"name": "data", "mountPath": DATA_MOUNT}, {"name": "tmp", "mountPath": "/tmp"}]
    if install.tls_secret:
        mounts.append({"name": "tls", "mountPath": TLS_MOUNT, "readOnly": True})
    if install.archive_claim:
        mounts.append({"name": "archive", "mountPath": ARCHIVE_MOUNT})
    return {
        "name": NAME,
        "image": install.image,
        "command": ["rowlock", "up"],
        "args": [word for flag in flags.items() for word in flag],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "ROWLOCK_DATA_DIR", "value": DATA_DIRECTORY}],
        **({"envFrom": [{"secretRef": {"name": install.archive_secret}}]} if install.archive_secret else {}),
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
        "volumeMounts": mounts,
    }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}, "timeoutSeconds": 5}


def _service() -> Object:
    """A client stays with one replica: it sees there at once what it wrote."""
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_meta(), "labels": dict(SERVICE_LABELS)},
        "spec": {"selector": dict(_SELECTOR), "ports": ports, "sessionAffinity": "ClientIP"},
    }


def _disruption_budget() -> Object:
    """Drains of nodes may move the server: the scheduler is away for seconds then, and jobs run on."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(), "spec": spec}


def _network_policy(install: ServerInstall) -> Object:
    """In: the HTTPS port. Out: names, the API server, whose address nobody knows here; so its usual ports; the archive's storage."""
    out = [443, 6443, *([install.archive_port] if install.archive and install.archive_port != 443 else ())]
    spec = {
        "podSelector": {"matchLabels": dict(_SELECTOR)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"port": PORT, "protocol": "TCP"}]}],
        "egress": [
            {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
            {"ports": [{"port": port, "protocol": "TCP"} for port in out]},
        ],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _meta(), "spec": spec}


def _ingress(install: ServerInstall) -> Object:
    """The server speaks TLS of its own, so the controller is told (nginx) to do so, too."""
    backend = {"service": {"name": NAME, "port": {"name": "https"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    annotations = {
        "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
        "nginx.ingress.kubernetes.io/affinity": "cookie",  # it goes past the Service, so past its affinity
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {**_meta(), "annotations": annotations},
        "spec": {"rules": [{"host": install.ingress_host, "http": {"paths": paths}}]},
    }
