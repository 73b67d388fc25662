"""The server of a cluster is upgraded, and uninstalled: jobs of users run on, with what they need, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.install.test_chart import render
from tests.kube.played_nodes import played_nodes
from tests.kube.test_own_scheduler import account_kubeconfig, bound_pods, submit
from tests.kube.test_served_cluster import kubectl

from rowlock.objects import Object, dig, name, namespace

OF_USERS = "pods,pytorchjobs,podgroups.scheduling.run.ai,services"
OPERATED = ("--set", "scheduler=own,operator=own")
KEPT = "helm.sh/resource-policy"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[tuple[Cluster, Path, Path]]:
    """A server that works as the service account, the kubeconfig of that, and the administrator's. Here it stands beside the
    cluster: nodes that are played run nothing."""
    if missing := real_cluster_missing():
        pytest.skip(missing)
    (tmp_path / "served").mkdir()
    with ExitStack() as stack:
        admin = stack.enter_context(real_cluster(tmp_path, "--crds"))
        stack.enter_context(played_nodes(admin, 1, 4))
        account = account_kubeconfig(admin, tmp_path, "--operator", "own")
        yield stack.enter_context(lent(tmp_path / "served")), account, admin


def objects_of_users(admin: Path) -> dict[str, str]:
    """Kind and name → uid, and where a pod is and how it is: what must not change."""
    items = json.loads(kubectl(admin, "get", OF_USERS, "-n", "runai-team-a", "-o", "json"))["items"]
    for kind in ("namespaces", "queues.scheduling.run.ai", "priorityclasses", "customresourcedefinitions"):
        items += json.loads(kubectl(admin, "get", kind, "-o", "json"))["items"]
    system = ("rowlock-system", "kube-")
    return {
        f"{item['kind']}/{name(item)}": f"{item['metadata']['uid']} {item.get('status', {}).get('phase', '')}"
        for item in items
        if not name(item).startswith(system)
    }


def chart_objects(*flags: str) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(render(*flags)) if obj]


def apply_objects(admin: Path, verb: str, objects: list[Object], directory: Path) -> None:
    (directory / f"{verb}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    flags = ("--ignore-not-found", "--wait=true") if verb == "delete" else ("--server-side", "--force-conflicts")
    kubectl(admin, verb, *flags, "-f", str(directory / f"{verb}.json"))


@pytest.mark.real
@pytest.mark.timeout(900)
def test_jobs_run_on_while_the_server_is_upgraded_and_uninstalled(
    installed: tuple[Cluster, Path, Path], tmp_path: Path
) -> None:
    served, account, admin = installed
    up = ("--kubeconfig", str(account), "--scheduler", "own", "--operator", "own")
    apply_objects(admin, "apply", chart_objects(*OPERATED), tmp_path)
    served.up(*up)
    served.run("rowlock", "project", "create", "team-a")
    submit(served, "runs", 2, "team-a")
    served.until(lambda: len(bound_pods(served, "runs")) == 2, "the gang is placed")
    served.until(lambda: "Running" in served.run("rowlock", "list", "-p", "team-a"), "the job runs")
    before = objects_of_users(admin)
    assert {"PyTorchJob/runs", "Pod/runs-master-0", "Queue/team-a", "Namespace/runai-team-a"} <= before.keys()

    served.run("rowlock", "down")
    apply_objects(admin, "apply", chart_objects(*OPERATED, "--set", "image=registry.example/rowlock:2"), tmp_path)
    served.up(*up)
    served.until(lambda: "Running" in served.run("rowlock", "list", "-p", "team-a"), "the new server knows the job")
    assert objects_of_users(admin) == before, "an upgrade touches nothing of users"

    served.run("rowlock", "down")
    going = [obj for obj in chart_objects(*OPERATED) if KEPT not in dig(obj, "metadata.annotations", {})]
    kept = {obj["kind"] for obj in chart_objects(*OPERATED)} - {obj["kind"] for obj in going}
    assert kept == {"CustomResourceDefinition", "PersistentVolumeClaim", "PriorityClass"}
    apply_objects(admin, "delete", going, tmp_path)
    for obj in going:
        place = ("-n", namespace(obj)) if namespace(obj) else ()
        assert not kubectl(admin, "get", obj["kind"], name(obj), *place, "--ignore-not-found").strip()
    assert objects_of_users(admin) == before, "helm uninstall touches nothing of users"
