"""`--kubeconfig in-cluster`: the cluster that this process runs in, with the service account of its pod.

Writes a kubeconfig that names the files which the kubelet keeps current, so that all other code works as outside a cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rowlock.errors import BadRequest
from rowlock.kube.config import SERVICE_ACCOUNT

IN_CLUSTER = "in-cluster"
FILE_NAME = "in-cluster.kubeconfig"


def write_kubeconfig(
    data_dir: Path, environment: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT
) -> Path:
    """Write the kubeconfig into the data directory and return its path. Raises BadRequest outside of a pod, OSError."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        raise BadRequest(
            f"--kubeconfig {IN_CLUSTER} is for a pod with a service account, and this is none: {account}/token is not there,"
            " or KUBERNETES_SERVICE_HOST is not set; name a kubeconfig's file"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": IN_CLUSTER,
        "clusters": [
            {"name": IN_CLUSTER, "cluster": {"server": server, "certificate-authority": str(account / "ca.crt")}}
        ],
        "users": [{"name": IN_CLUSTER, "user": {"tokenFile": str(account / "token")}}],
        "contexts": [{"name": IN_CLUSTER, "context": {"cluster": IN_CLUSTER, "user": IN_CLUSTER}}],
    }
    path, new = data_dir / FILE_NAME, data_dir / f"{FILE_NAME}.new"
    new.write_text(json.dumps(config, indent=1))
    new.replace(path)
    return path
