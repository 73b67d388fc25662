"""The objects that run rowlock's server inside a cluster: what `rowlock manifests --image IMAGE` adds, and the Helm chart.

A data directory belongs to one server. So there is either one pod, whose volume holds the archive and the certificates, or several
(`replicas`) without state, whose archive is in a bucket. Jobs do not depend on the server: they run on while it is upgraded, moved or
deleted.
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
"""A subdirectory, because root owns the volume's own directory and a data directory must belong to its user."""
TLS_MOUNT = "/etc/rowlock/tls"
ARCHIVE_MOUNT = "/var/lib/rowlock-archive"
_SELECTOR = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "server"}
SERVICE_LABELS = _SELECTOR
"""Labels by which a ServiceMonitor selects the Service."""


@dataclass(frozen=True, slots=True)
class ServerInstall:
    """The parameters of an installation."""

    image: str
    scheduler: str = "own"
    storage: str = "10Gi"
    storage_class: str = ""
    """The volume's storage class; "" = the cluster's default."""
    ingress_host: str = ""
    """A host name under which an Ingress leads to the server; "" = no Ingress."""
    account: str = NAME
    operator: str = "kubeflow"
    replicas: int | str = 1
    """More than one need an `archive`. A str is a placeholder of the Helm chart."""
    archive: str = ""
    """The URL of the archive that all replicas share; "" = the volume of the only one."""
    archive_secret: str = ""
    """The Secret with the storage's environment variables (AWS_ACCESS_KEY_ID and so on); "" = none."""
    archive_claim: str = ""
    """The PersistentVolumeClaim (ReadWriteMany) that is mounted at `ARCHIVE_MOUNT` in all replicas, for file:// URLs; "" = none."""
    archive_port: int | str = 443
    """The port of the storage, for the NetworkPolicy."""
    tls_secret: str = ""
    """The Secret with `tls.crt` and `tls.key` that all replicas serve to clients that send a server name; "" = each has its own."""
    debug_image: str = ""
    """The image of the debug containers that `rowlock why` adds to pods without py-spy; "" = none."""


def server_objects(install: ServerInstall) -> list[Object]:
    """The server's objects in an order in which they can be created, after the namespace and the service account."""
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
    """Constraints that prefer different nodes and zones for the replicas."""
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
    """The Service. Session affinity keeps a client on one replica, where it reads its own writes."""
    ports = [{"name": "https", "port": 443, "targetPort": "https"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_meta(), "labels": dict(SERVICE_LABELS)},
        "spec": {"selector": dict(_SELECTOR), "ports": ports, "sessionAffinity": "ClientIP"},
    }


def _disruption_budget() -> Object:
    """Lets node drains move the server: scheduling stops for some seconds, and jobs run on."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(), "spec": spec}


def _network_policy(install: ServerInstall) -> Object:
    """Ingress: the HTTPS port. Egress: DNS, the API server's usual ports (its address is not known here), and the archive's storage."""
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
    """The Ingress. Its annotation makes nginx use TLS to the server, which serves only HTTPS."""
    backend = {"service": {"name": NAME, "port": {"name": "https"}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    annotations = {
        "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
        "nginx.ingress.kubernetes.io/affinity": "cookie",  # nginx bypasses the Service and so its session affinity
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {**_meta(), "annotations": annotations},
        "spec": {"rules": [{"host": install.ingress_host, "http": {"paths": paths}}]},
    }
