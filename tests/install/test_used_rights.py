"""The rights of `rowlock manifests` are those that are used: the audit log of a real API server says who asked for what.

A server with its scheduler and its operators runs as the service account, and the commands are walked. What the account was refused
would be a right that lacks. What it never used is a right too many, or stands in `NOT_WALKED` with the reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.played_nodes import played_nodes
from tests.kube.test_own_scheduler import account_kubeconfig, bound_pods, submit

from rowlock import kinds
from rowlock.kube.rights import roles_of

ACCOUNT = "system:serviceaccount:rowlock-system:rowlock"
JOB_PLURALS = frozenset(kind.plural for kind in kinds.JOBS)
OLDER = "streamed lists are watches; servers before Kubernetes 1.32 are listed"
NO_NODE = "streams of pods need a kubelet: tests/kube_evidence/test_real_node.py"
CHANCE = "whether it comes to that depends on time"
NOT_WALKED: Mapping[str, tuple[str, ...]] = {
    OLDER: (
        "list roles", "list rolebindings", "list clusterroles", "list clusterrolebindings", "list priorityclasses",
        "list pods", "list namespaces", "list jobs", "list queues", "list podgroups", "list configmaps", "list services",
        "list serviceaccounts", "list horizontalpodautoscalers", "list events", "list persistentvolumeclaims", "list persistentvolumes",
        "list secrets",
    ),
    NO_NODE: ("create pods/exec", "get pods/attach", "create pods/attach", "get pods/portforward", "create pods/portforward",
              "patch pods/ephemeralcontainers"),
    CHANCE: (
        "update pods/status", "update podgroups", "patch podgroups/status", "patch queues/status", "patch events", "get pods",
        "update jobs", "get namespaces", "get leases", "update leases",
    ),
    "OpenShift asks for it when an owner is named": ("update jobs/finalizers",),
    "a webhook of a Service, which this cluster has none of": ("get services", "list endpointslices"),
    "a claim that waits for its first consumer, or a job that is refused halfway": ("patch persistentvolumeclaims", "delete persistentvolumeclaims"),
    "what the operators mend where somebody else has changed or removed it": (
        *(f"{verb} {what}" for what in ("services", "configmaps", "serviceaccounts", "horizontalpodautoscalers", "roles", "rolebindings")
          for verb in ("patch", "update", "delete")), "patch pods", "update pods",
    ),
    "an audit log has a watch when it ends, after minutes; events are listed first": ("watch events",),
    "elastic jobs": ("create horizontalpodautoscalers",),
    "kinds of Kubeflow Trainer and JobSet, which this cluster has none of: the server watches them and finds that": (
        *(f"{verb} {what}" for what in ("jobsets", "trainjobs") for verb in ("list", "get", "patch", "delete")),
        "update jobsets", "patch jobs/status",
        *(f"update {what}/{part}" for what in ("jobsets", "trainjobs") for part in ("status", "finalizers")),
    ),
}  # fmt: skip
"""Reason → rights that the walk may not meet."""


class Used(NamedTuple):
    """What the account asked for, as `verb resource`."""

    allowed: set[str]
    refused: set[str]


def used_rights(log: Path) -> Used:
    used = Used(set(), set())
    for line in log.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            continue  # it is being written
        event = json.loads(line)
        target = event.get("objectRef")
        if event["user"]["username"] != ACCOUNT or not target:
            continue
        forbidden = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        resource = target.get("resource", "") + (f"/{target['subresource']}" if target.get("subresource") else "")
        (used.refused if forbidden else used.allowed).add(f"{event['verb']} {spell(resource)}")
    return used


def spell(resource: str) -> str:
    """All kinds of jobs are one."""
    plural, slash, subresource = resource.partition("/")
    return ("jobs" if plural in JOB_PLURALS else plural) + slash + subresource


def listed_rights() -> set[str]:
    rules = [rule for role in roles_of("own", "own", credentials=True, debug=True).values() for rule in role]
    return {f"{verb} {spell(resource)}" for rule in rules for resource in rule.resources for verb in rule.verbs}


@pytest.fixture
def walked(tmp_path: Path) -> Iterator[tuple[Cluster, Path, Path]]:
    """A server on a real cluster, the kubeconfig of its account, and the audit log."""
    if missing := real_cluster_missing():
        pytest.skip(missing)
    (tmp_path / "served").mkdir()
    with ExitStack() as stack:
        admin = stack.enter_context(real_cluster(tmp_path, "--crds", "--audit"))
        if not (tmp_path / "audit.jsonl").exists():
            pytest.skip("the cluster of ROWLOCK_REAL_CLUSTER_KUBECONFIG keeps no audit log here: unset it")
        stack.enter_context(played_nodes(admin, 2, 4))
        account = account_kubeconfig(admin, tmp_path, "--operator", "own", "--credentials")
        served = stack.enter_context(lent(tmp_path / "served"))
        served.up("--kubeconfig", str(account), "--scheduler", "own", "--operator", "own")
        yield served, account, tmp_path / "audit.jsonl"


@pytest.mark.real
@pytest.mark.timeout(900)
def test_every_right_is_used_and_none_lacks(walked: tuple[Cluster, Path, Path]) -> None:
    served, account, log = walked
    walk(served, account)
    excused = {right for rights in NOT_WALKED.values() for right in rights}
    deadline = time.monotonic() + 60
    while (unused := listed_rights() - used_rights(log).allowed - excused) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not unused, f"nobody uses these rights: take them out of kube/rights.py, or say why: {sorted(unused)}"
    assert used_rights(log).refused == set(), "a right lacks in kube/rights.py"


def test_what_is_not_walked_is_a_right() -> None:
    """The table of reasons holds no rights that are long gone."""
    assert {right for rights in NOT_WALKED.values() for right in rights} <= listed_rights()


def walk(served: Cluster, account: Path) -> None:
    """The commands, with what each needs of the cluster. Logs and shells fail, since no kubelet is there, when they were allowed."""
    served.run("rowlock", "doctor", "--kubeconfig", str(account), "--scheduler", "own", code=None)
    served.run("rowlock", "project", "create", "team-a", "--gpus", "4")
    served.run("rowlock", "project", "update", "team-a", "--gpus", "6")
    (project,) = (one for one in served.api("GET", "/api/v1/org-unit/projects")["projects"] if one["name"] == "team-a")
    served.api("PUT", f"/api/v1/org-unit/projects/{project['id']}", {"name": "team-a", "description": "a team"})
    submit(served, "one", 2, "team-a")
    served.until(lambda: len(bound_pods(served, "one")) == 2, "the gang is placed")
    walk_assets(served, project["id"])
    served.run("rowlock", "status")
    for verb in ("list", "describe one", "explain one", "why one", "exec one -- true", "suspend one"):
        word, *rest = verb.split()
        served.run("rowlock", word, *rest[:1], "-p", "team-a", *rest[1:], code=None)
    served.until(lambda: not bound_pods(served, "one"), "the operator has deleted the pods")
    served.run("rowlock", "resume", "one", "-p", "team-a")
    served.run("runai", "list", "nodes")
    claim = ("--new-pvc", "size=1Gi,path=/data")
    served.run("runai", "submit-dist", "mpi", "two", "-i", "nothing:1", "--workers=1", "-p", "team-a", *claim)
    served.until(
        lambda: bool(served.api("GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/runai-team-a/roles")["items"]),
        "a Role",
    )
    served.run("rowlock", "delete", "one", "two", "-p", "team-a", code=None)
    served.run("rowlock", "delete", "--all", "--yes", "-p", "team-a", code=None)
    served.until(lambda: not served.api("GET", "/api/v1/workloads")["workloads"], "the jobs are gone")
    served.run("rowlock", "project", "delete", "--yes", "team-a")


def walk_assets(served: Cluster, project: str) -> None:
    """An environment and a credential, from create to delete."""
    meta = {"scope": "project", "projectId": int(project)}
    assets = "/api/v1/asset"
    pair = {"keyValuePairs": [{"key": "KEY", "value": "word"}]}
    for path, spec, changed in (
        ("environment", {"image": "nothing:1"}, {"image": "nothing:2"}),
        ("credentials/generic-secret", pair, pair),
    ):
        made = served.api("POST", f"{assets}/{path}", {"meta": {**meta, "name": "walked"}, "spec": spec})
        one = f"{assets}/{path}/{made['meta']['id']}"
        served.api("PUT", one, {"meta": {"name": "walked-again"}, "spec": changed})
        served.api("DELETE", one)
    served.api("POST", f"{assets}/credentials/generic-secret", {"meta": {**meta, "name": "kept"}, "spec": pair})
    named = {"existingSecretName": "kept"}
    served.api("POST", f"{assets}/credentials/generic-secret", {"meta": {**meta, "name": "again"}, "spec": named})
