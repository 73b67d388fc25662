"""A real control plane as the acceptance tests use it: accounts with chosen rights, and what was asked of it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.kube.chaos.api_server import ApiServer

from rowlock import kinds
from rowlock.errors import AlreadyExists
from rowlock.kube.client import Kube
from rowlock.kube.connection import Request
from rowlock.kube.installation import install_crds, missing_kinds
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import Rule
from rowlock.objects import Object

Result = TypeVar("Result")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@dataclass(frozen=True)
class RealPlane:
    """`kubeconfig` is the administrator's."""

    directory: Path
    kubeconfig: Path
    api_server: ApiServer

    def connect(self, kubeconfig: Path | None = None) -> Kube:
        return Kube.connect(kubeconfig or self.kubeconfig, limits=Limits(qps=0))

    @property
    def address(self) -> str:
        """The API server's URL."""
        return str(json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])

    def pid(self, program: str) -> int:
        entries = json.loads((self.directory / "pids.json").read_text())
        return next(int(entry["pid"]) for entry in entries if entry["name"] == program)

    def asked(self, since: str) -> dict[str, list[str]]:
        """What each account of `default` has asked for since a moment (RFC 3339, UTC), as verb and path."""
        found: dict[str, list[str]] = defaultdict(list)
        for line in (self.directory / "audit.jsonl").read_text().splitlines(keepends=True):
            event = json.loads(line) if line.endswith("\n") else {}  # the last one is being written
            group, _, account = event.get("user", {}).get("username", "").rpartition(":")
            if group == "system:serviceaccount:default" and event["requestReceivedTimestamp"] >= since:
                found[account].append(f"{event['verb']} {event['requestURI'].partition('?')[0]}")
        return found

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """One request of the administrator."""
        return run(self._send(method, path, body))

    async def _send(self, method: str, path: str, body: Any) -> Any:
        async with self.connect() as kube:
            return await kube.connection.send(Request(method, path, body=body))

    def make_account(self, name: str, rules: Sequence[Rule]) -> Path:
        """The kubeconfig of a service account in `default` with these rights in the whole cluster."""
        return run(make_account(self, name, [rule.policy_rule() for rule in rules]))


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """In a thread of its own: that of a test with a browser has the browser's event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def make_account(plane: RealPlane, name: str, rules: Sequence[Object]) -> Path:
    """As `RealPlane.make_account`, for a loop that runs already."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    role, binding = {"metadata": {"name": name}, "rules": list(rules)}, {"metadata": {"name": name}}
    async with plane.connect() as kube:
        for path, body in (
            (ACCOUNTS, {"metadata": {"name": name}}),
            (f"{RBAC}/clusterroles", role),
            (f"{RBAC}/clusterrolebindings", {**binding, "roleRef": reference, "subjects": [subject]}),
        ):
            await kube.connection.send(Request("POST", path, body=body))
        return write_kubeconfig(plane, name, {"token": await make_token(kube, name)})


async def make_token(kube: Kube, account: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await kube.connection.send(Request("POST", f"{ACCOUNTS}/{account}/token", body=body))
    return str(made["status"]["token"])


def write_kubeconfig(plane: RealPlane, name: str, user: Mapping[str, Any], server: str = "") -> Path:
    """A copy of the administrator's for another user, and at another address where `server` says so."""
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "token", "user": user}]
    config["contexts"] = [one for one in config["contexts"] if one["name"] == "token"]
    if server:
        config["clusters"][0]["cluster"]["server"] = server
    path = plane.directory / f"{name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


async def ensure_queues(kube: Kube) -> None:
    """The kinds Queue and PodGroup, which the training operator does not bring."""
    if missing := await missing_kinds(kube, (kinds.QUEUE, kinds.POD_GROUP)):
        await install_crds(kube, missing)


async def ensure_namespace(kube: Kube, name: str) -> None:
    try:
        await kube.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except AlreadyExists:
        return
