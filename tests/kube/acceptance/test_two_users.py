"""Acceptance 6: two users, two projects. What each may list, read, write, and which logs and shells he may open through our server
equals what `kubectl auth can-i` says of him.

No kubelet is there: a log or a shell that is allowed fails at the node, and one that is not is refused before.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.conformance.subjects import REPO
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.kube.acceptance.real_plane import ACCOUNTS, RBAC, RealPlane, make_token, run

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
PROJECTS = ("red", "blue")
JOBS = "pytorchjobs.kubeflow.org"
SEE = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
ROLES: Mapping[str, list[dict[str, Any]]] = {
    "researcher": [
        SEE,
        {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    ],
    "reader": [
        SEE,
        {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ],
    "operator": [
        SEE,
        {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get", "list", "patch", "update"]},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ],
}
GRANTS: Mapping[tuple[str, str], str] = {
    ("ann", "red"): "researcher",
    ("ann", "blue"): "reader",
    ("ben", "blue"): "operator",
}
"""(user, project) → role; ben has none in red."""
PLACES = [(user, project) for user in ("ann", "ben") for project in PROJECTS]


@dataclass
class Users:
    """Two users of a cluster, and our server over it."""

    plane: RealPlane
    served: Cluster
    tokens: dict[str, str] = field(default_factory=dict)

    def facts(self) -> tuple[str, ssl.SSLContext]:
        facts = json.loads((self.served.data / "server.json").read_text())
        return str(facts["url"]), ssl.create_default_context(cafile=str(self.served.data / "ca.crt"))

    def ask(self, user: str, method: str, path: str, body: Any = None) -> httpx.Response:
        url, tls = self.facts()
        headers = {"Authorization": f"Bearer {self.tokens[user]}"}
        with httpx.Client(base_url=url, verify=tls, headers=headers, timeout=200) as client:
            return client.request(method, path, json=body)

    def can(self, user: str, verb: str, resource: str, project: str) -> bool:
        """What `kubectl auth can-i` says."""
        where = subprocess.run(
            [BIN / "python", "scripts/real_cluster", "where"], capture_output=True, text=True, check=True, cwd=REPO
        ).stdout.strip()
        plural, _, part = resource.partition("/")
        command = [f"{where}/kubectl", "--kubeconfig", str(self.plane.kubeconfig), "auth", "can-i", verb, plural]
        account = f"system:serviceaccount:default:{user}"
        flags = ("-n", f"runai-{project}", "--as", account, *((f"--subresource={part}",) if part else ()))
        answer = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=200)
        assert answer.stdout.strip() in ("yes", "no"), answer.stderr
        return answer.stdout.strip() == "yes"

    def submit(self, user: str, name: str, project: str) -> httpx.Response:
        (owned,) = (one for one in self.projects() if one["name"] == project)
        cluster = self.served.api("GET", "/api/v1/clusters")[0]["uuid"]
        spec = {"image": "nothing:1", "distributedFramework": "PyTorch", "numWorkers": 1}
        body = {"name": name, "projectId": owned["id"], "clusterId": cluster, "spec": spec}
        return self.ask(user, "POST", "/api/v1/workloads/distributed", body)

    def projects(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.served.api("GET", "/api/v1/org-unit/projects")["projects"]
        return found

    def job(self, name: str) -> str:
        """The id of a workload, as the owner sees it."""
        found = self.served.api("GET", "/api/v1/workloads?limit=500")["workloads"]
        return next(str(one["id"]) for one in found if one["name"] == name)

    def fresh_job(self, name: str, project: str) -> str:
        """A job that the owner makes, to be changed or deleted by a user."""
        image = ("-i", "nothing:1", "--workers=1", "-p", project)
        self.served.run("runai", "submit-dist", "pytorch", name, *image, "--", "true")
        return self.job(name)

    def open_shell(self, user: str, project: str) -> int:
        """The status with which a shell in the project's pod is answered, by websocket."""
        url, tls = self.facts()
        parts = urlsplit(url)
        path = f"/api/v1/namespaces/runai-{project}/pods/pod/exec?command=true&stdout=true"
        lines = (
            f"GET {path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: v4.channel.k8s.io",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Authorization: Bearer {self.tokens[user]}",
        )  # fmt: skip
        with socket.create_connection((parts.hostname or "", parts.port or 0), 60) as raw:
            with tls.wrap_socket(raw, server_hostname=parts.hostname) as connection:
                connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
                return int(connection.recv(4096).split(b" ", 2)[1])


@pytest.fixture(scope="module")
def users(plane: RealPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with ExitStack() as stack:
        made = Users(plane, stack.enter_context(lent(tmp_path_factory.mktemp("users"))))
        made.served.up("--kubeconfig", str(plane.kubeconfig), "--install-crds")
        for project in PROJECTS:
            made.served.run("rowlock", "project", "create", project)
            made.fresh_job(f"of-{project}", project)
            container = {"name": "main", "image": "nothing:1"}
            pod = {"metadata": {"name": "pod"}, "spec": {"containers": [container]}}
            accounts = f"/api/v1/namespaces/runai-{project}/serviceaccounts"
            made.served.until(lambda where=accounts: plane.send("GET", where)["items"], "pods have an account")  # type: ignore[misc]
            plane.send("POST", f"/api/v1/namespaces/runai-{project}/pods", pod)
        for role, rules in ROLES.items():
            plane.send("POST", f"{RBAC}/clusterroles", {"metadata": {"name": f"two-{role}"}, "rules": rules})
        for user in ("ann", "ben"):
            plane.send("POST", ACCOUNTS, {"metadata": {"name": user}})
            made.tokens[user] = run(token_of(plane, user))
        for (user, project), role in GRANTS.items():
            bind(plane, user, role, project)
        yield made


async def token_of(plane: RealPlane, user: str) -> str:
    async with plane.connect() as kube:
        return await make_token(kube, user)


def bind(plane: RealPlane, user: str, role: str, project: str) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"two-{role}"}
    subject = {"kind": "ServiceAccount", "name": user, "namespace": "default"}
    body = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    plane.send("POST", f"{RBAC}/namespaces/runai-{project}/rolebindings", body)


# ------------------------------------------------------------ verbs


def lists(users: Users, user: str, project: str) -> bool:
    found = users.ask(user, "GET", "/api/v1/workloads?limit=500").json()["workloads"]
    return any(one["name"] == f"of-{project}" for one in found)


def shows(users: Users, user: str, project: str) -> bool:
    return users.ask(user, "GET", f"/api/v1/workloads/{users.job(f'of-{project}')}").status_code == 200


def submits(users: Users, user: str, project: str) -> bool:
    name = f"by-{user}-{secrets.token_hex(3)}"
    answer = users.submit(user, name, project)
    assert answer.status_code in (202, 400, 403), answer.text
    made = answer.status_code == 202
    owned = users.served.api("GET", f"/apis/kubeflow.org/v1/namespaces/runai-{project}/pytorchjobs")["items"]
    assert made == any(job["metadata"]["name"] == name for job in owned), "the answer is what happened"
    return made


def suspends(users: Users, user: str, project: str) -> bool:
    job = users.fresh_job(f"s-{user}-{secrets.token_hex(3)}", project)
    return users.ask(user, "POST", f"/api/v1/workloads/distributed/{job}/suspend").is_success


def deletes(users: Users, user: str, project: str) -> bool:
    job = users.fresh_job(f"d-{user}-{secrets.token_hex(3)}", project)
    return users.ask(user, "DELETE", f"/api/v1/workloads/distributed/{job}").is_success


def reads_events(users: Users, user: str, project: str) -> bool:
    return users.ask(user, "GET", f"/api/v1/workloads/{users.job(f'of-{project}')}/events").is_success


def lists_pods(users: Users, user: str, project: str) -> bool:
    return users.ask(user, "GET", f"/api/v1/namespaces/runai-{project}/pods").is_success


def reads_log(users: Users, user: str, project: str) -> bool:
    """A pod without a node has an empty log."""
    answer = users.ask(user, "GET", f"/api/v1/namespaces/runai-{project}/pods/pod/log")
    assert answer.status_code in (200, 403), answer.text
    return answer.status_code != 403


def opens_shell(users: Users, user: str, project: str) -> bool:
    return users.open_shell(user, project) != 403


VERBS: Mapping[str, tuple[Callable[[Users, str, str], bool], tuple[tuple[str, str], ...]]] = {
    "list": (lists, (("list", JOBS), ("get", "namespaces"))),
    "show": (shows, (("get", JOBS), ("get", "namespaces"))),
    "submit": (submits, (("create", JOBS), ("get", "namespaces"))),
    "suspend": (suspends, (("get", JOBS), ("patch", JOBS))),
    "delete": (deletes, (("get", JOBS), ("delete", JOBS))),
    "events": (reads_events, (("get", JOBS), ("list", "events"))),
    "pods": (lists_pods, (("list", "pods"),)),
    "log": (reads_log, (("get", "pods/log"),)),
    "exec": (opens_shell, (("create", "pods/exec"), ("get", "pods/exec"))),
}
"""Name → what our server lets a user do, and the rights of Kubernetes that it takes (a project is seen with `get namespaces`)."""


@pytest.mark.parametrize(("user", "project"), PLACES, ids=lambda word: word)
def test_what_he_may_is_what_the_cluster_says(users: Users, user: str, project: str) -> None:
    expected = GRANTS.get((user, project))
    users.served.until(lambda: lists(users, user, project) == (expected is not None), "his rights are followed")
    rights = {right for _, needed in VERBS.values() for right in needed}
    can = {right: users.can(user, right[0], right[1], project) for right in rights}
    allowed = {verb: all(can[right] for right in needed) for verb, (_, needed) in VERBS.items()}
    done = {verb: act(users, user, project) for verb, (act, _) in VERBS.items()}
    assert done == allowed


def test_the_table_is_no_empty_one(users: Users) -> None:
    """Each verb is allowed to one of them, and refused to one of them."""
    for verb, (_, needed) in VERBS.items():
        found = {all(users.can(user, *right, project) for right in needed) for user, project in PLACES}
        assert found == {True, False}, f"{verb} is the same for all: {found}"
