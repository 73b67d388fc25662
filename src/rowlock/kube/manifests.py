"""Manifests that an administrator applies so that rowlock can work with few rights: `python -m rowlock.kube.manifests`.

Namespace, service account, the rights of `rights.py` (the scheduler's with `--scheduler own`), the kinds Queue and
PodGroup, and Run:ai's priority classes; with `--image` the server itself. `rowlock manifests` prints it for `kubectl apply`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import yaml

from rowlock import kinds
from rowlock.gangs.dialects import DIALECTS
from rowlock.kube.install.job_kinds import job_crd_objects
from rowlock.kube.install.monitoring import monitoring_objects
from rowlock.kube.install.server_objects import ServerInstall, server_objects
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
    """Everything, in the order in which it can be created. `scheduler` as `rowlock up --scheduler` takes it; `crds`
    leaves the kinds Queue and PodGroup out where it is False: KAI Scheduler brings them. `is_shared`: several servers have one
    archive (`rowlock up --archive`). `server` runs in the cluster; `monitor` tells Prometheus of it; `credentials` gives the account
    the right to Secrets, and `debug` that to add debug containers."""
    roles = roles_of(scheduler, operator, credentials=credentials, is_shared=is_shared, debug=debug)
    labels = {"app.kubernetes.io/name": "rowlock"}
    account = {"name": ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    made: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
        *(crd_objects() if crds else ()),
        *(job_crd_objects() if operator == "own" else ()),
        *_priority_classes(PRIORITIES),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        *(obj for role, rules in roles.items() for obj in role_objects(role, rules, ACCOUNT)),
        *(server_objects(server) if server else ()),
        *(monitoring_objects() if monitor else ()),
    ]
    return [
        {**obj, "metadata": {**obj["metadata"], "labels": {**obj["metadata"].get("labels", {}), **labels}}}
        for obj in made
    ]


def _priority_classes(values: Mapping[str, int]) -> list[Object]:
    """Run:ai's priority classes. Gang schedulers read them from a label of the job; kube-scheduler must not preempt for
    them."""
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


def main(argv: list[str] | None = None) -> int:
    """Print the manifests as YAML."""
    parser = argparse.ArgumentParser(prog="python -m rowlock.kube.manifests")
    parser.add_argument("--scheduler", choices=("auto", *DIALECTS), default="own")
    parser.add_argument("--operator", choices=("kubeflow", "own"), default="kubeflow")
    parser.add_argument("--image", default="", help="run the server in the cluster, from this image")
    parser.add_argument("--storage", default="10Gi", help="size of the server's volume")
    parser.add_argument("--ingress-host", default="")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--archive", default="", help="the archive that several servers share")
    parser.add_argument("--archive-secret", default="", help="the Secret with the variables of its storage")
    parser.add_argument("--archive-claim", default="", help="the claim of the directory of a file:// archive")
    parser.add_argument("--archive-port", type=int, default=443, help="the port of its storage")
    parser.add_argument("--tls-secret", default="", help="the Secret with the certificate of all servers")
    parser.add_argument("--service-monitor", action="store_true", help="tell the Prometheus operator of the server")
    parser.add_argument("--credentials", action="store_true", help="let the account make and change Secrets")
    parser.add_argument("--debug-image", default="", help="let the account add debug containers of this image to pods")
    options = parser.parse_args(argv)
    server = ServerInstall(
        options.image,
        options.scheduler,
        options.storage,
        ingress_host=options.ingress_host,
        operator=options.operator,
        replicas=options.replicas,
        archive=options.archive,
        archive_secret=options.archive_secret,
        archive_claim=options.archive_claim,
        archive_port=options.archive_port,
        tls_secret=options.tls_secret,
        debug_image=options.debug_image,
    )
    objects = install_objects(
        scheduler=options.scheduler,
        crds=options.scheduler != "kai",
        operator=options.operator,
        is_shared=bool(options.archive),
        server=server if options.image else None,
        monitor=options.service_monitor,
        credentials=options.credentials,
        debug=bool(options.debug_image),
    )
    sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False))  # at once: `| head` may close the pipe behind it
    return 0


if __name__ == "__main__":
    sys.exit(main())
