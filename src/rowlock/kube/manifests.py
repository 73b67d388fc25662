"""Manifests that an administrator applies so that rowlock can work with few rights.

Namespace, service account, the rights of `rights.py` (the scheduler's with `--scheduler own`), the kinds Queue and
PodGroup, and Run:ai's priority classes; with `--image` the server itself. `rowlock manifests` prints it for `kubectl apply`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import yaml

from rowlock import kinds
from rowlock.kube.install.job_kinds import job_crd_objects
from rowlock.kube.install.monitoring import monitoring_objects
from rowlock.kube.install.server_objects import ServerInstall, server_objects
from rowlock.kube.install.trainer_kinds import trainer_crd_objects
from rowlock.kube.install.user_roles import user_role_objects
from rowlock.kube.installation import crd_objects
from rowlock.kube.rights import SYSTEM_NAMESPACE, role_objects, roles_of
from rowlock.objects import Object
from rowlock.workloads.submission import PRIORITIES

ACCOUNT = "rowlock"


def install_objects(
    *,
    scheduler: str,
    crds: bool,
    operator: str = "kubeflow",
    is_shared: bool = False,
    server: ServerInstall | None = None,
    monitor: bool = False,
    credentials: bool = False,
    debug: bool = False,
) -> list[Object]:
    """All objects in an order in which they can be created. `scheduler`: as for `rowlock up --scheduler`; `crds`: include the kinds Queue
    and PodGroup, which KAI Scheduler brings itself; `is_shared`: several servers share an archive (`rowlock up --archive`); `server`: also
    run it in the cluster; `monitor`: add a ServiceMonitor; `credentials`, `debug`: grant the account rights to Secrets, to debug
    containers."""
    roles = roles_of(scheduler, operator, credentials=credentials, is_shared=is_shared, debug=debug)
    labels = {"app.kubernetes.io/name": "rowlock"}
    account = {"name": ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
        *(crd_objects() if crds else ()),
        *((*job_crd_objects(), *trainer_crd_objects()) if operator == "own" else ()),
        *_priority_classes(PRIORITIES),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        *(obj for role, rules in roles.items() for obj in role_objects(role, rules, ACCOUNT)),
        *user_role_objects(),
        *(server_objects(server) if server else ()),
        *(monitoring_objects() if monitor else ()),
    ]
    return [
        {**obj, "metadata": {**obj["metadata"], "labels": {**obj["metadata"].get("labels", {}), **labels}}}
        for obj in made
    ]


def _priority_classes(values: Mapping[str, int]) -> list[Object]:
    """Run:ai's priority classes. Gang schedulers read them from a label of the job; kube-scheduler must not preempt because of them."""
    kind = kinds.PRIORITY_CLASS
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
            "description": "Run:ai's priority class, by rowlock; workloads below 100 may be preempted",
        }
        for name, value in values.items()
    ]


def print_manifests(
    *,
    scheduler: str,
    operator: str,
    image: str,
    archive: str,
    debug_image: str,
    credentials: bool,
    monitor: bool,
    **server: Any,
) -> None:
    """Print the manifests as YAML. `server`: further fields of `ServerInstall`, used if `image` is not ""."""
    made = ServerInstall(image, scheduler, operator=operator, archive=archive, debug_image=debug_image, **server)
    objects = install_objects(
        scheduler=scheduler,
        crds=scheduler != "kai",
        operator=operator,
        is_shared=bool(archive),
        server=made if image else None,
        monitor=monitor,
        credentials=credentials,
        debug=bool(debug_image),
    )
    sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False))  # in one write: `| head` may close the pipe
