"""Acceptance 3: each kind absent, each right removed, one by one. The server is ready, what cannot be done names what is missing,
and the cluster is not bothered with questions.

A server here is the REST API with what `rowlock up --kubeconfig` runs beside it, as an account of the cluster with all rights of
`rowlock manifests` but one rule. All of them stand over the same control plane at the same time.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.kube.acceptance.real_plane import RealPlane, ensure_queues, make_account

from rowlock import kinds
from rowlock.errors import ApiError
from rowlock.gangs.dialects import OWN
from rowlock.kinds import Kind
from rowlock.kube.cache import Cache
from rowlock.kube.client import Kube
from rowlock.kube.cluster_probe import ClusterProbe
from rowlock.kube.connection import Request
from rowlock.kube.doctor import diagnose
from rowlock.kube.installation import CRD, choose_dialect, missing_kinds, require_kinds
from rowlock.kube.rights import SERVER_RULES, Rule
from rowlock.kube.users.followed_roles import FollowedRoles
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
PROJECT = "rights"
NAMESPACE = f"runai-{PROJECT}"
QUIET_S = 12.0
"""Seconds in which the requests of each server are counted, after its verbs have been asked."""
PATIENCE_S, NAMED_S = 60.0, 20.0


@dataclass
class Face:
    """A server over the cluster with an account's rights; `said` is all that it says at its start."""

    kube: Kube
    rest: RestApi
    roles: FollowedRoles
    client: httpx.AsyncClient
    said: str

    async def ask(self, method: str, path: str, body: Any = None) -> str:
        """The answer, and what is said beside it."""
        answer = await self.client.request(method, path, json=body)
        return f"{answer.status_code} {answer.headers.get('warning', '')} {answer.text}"

    async def submit(self, name: str, **spec: Any) -> str:
        projects = self.rest.cache.projects()
        body = {
            "name": name, "projectId": projects[NAMESPACE].id, "clusterId": self.rest.cache.cluster,
            "spec": {"image": "nothing:1", "distributedFramework": "PyTorch", "numWorkers": 1, **spec},
        }  # fmt: skip
        return await self.ask("POST", "/api/v1/workloads/distributed", body)

    async def pass_on(self, path: str) -> str:
        """As `ApiProxy` does for the owner."""
        try:
            return str(await self.kube.connection.send(Request("GET", path, is_relayed=True)))
        except ApiError as error:
            return error.message


async def end_tasks(tasks: list[asyncio.Task[None]]) -> None:
    """They end before their connections do."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@asynccontextmanager
async def running(plane: RealPlane, kubeconfig: Path) -> AsyncIterator[Face]:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(plane.connect(kubeconfig))
        notices = [*await require_kinds(kube, install=False), (await choose_dialect(kube, "auto"))[1]]
        probe, roles = ClusterProbe(kube), FollowedRoles(Cache(kube, kinds.RBAC))
        settings = RestSettings(token=None, user="ana", dialect=OWN)
        rest = RestApi(kube, settings, index_events=True, silence=probe.silence)
        tasks = [asyncio.create_task(work) for work in (rest.run(), probe.run(), roles.run())]
        stack.push_async_callback(end_tasks, tasks)
        transport = httpx.ASGITransport(Starlette(routes=rest.routes))
        client = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE_S)
        )
        assert await rest.cache.wait_until("", rest.cache.can_answer, PATIENCE_S), "the server is ready"
        yield Face(kube, rest, roles, client, "; ".join(notices))


# ------------------------------------------------------------ rights

Ask = Callable[[Face], Awaitable[str]]


def get(path: str) -> Ask:
    return lambda face: face.ask("GET", path)


def pass_on(*paths: str) -> Ask:
    async def ask(face: Face) -> str:
        return " ".join([await face.pass_on(f"/api/v1/namespaces/{NAMESPACE}/pods/none/{path}") for path in paths])

    return ask


async def doctor(face: Face) -> str:
    return " ".join(finding.found for finding in await diagnose(face.kube, "own"))


async def start(face: Face) -> str:
    return face.said


async def events(face: Face) -> str:
    (row,) = [row for row in face.rest.cache.rows() if row.name == "present"]
    return await face.ask("GET", f"/api/v1/workloads/{row.uid}/events")


async def users(face: Face) -> str:
    try:
        face.roles.require_authorizer()
    except ApiError as error:
        return error.message
    return ""


async def claim(face: Face) -> str:
    volume = {"claimName": "new", "path": "/data", "claimInfo": {"size": "1Gi"}}
    return await face.submit("with-claim", storage={"pvc": [volume]})


ASKS: Mapping[tuple[str, str], Ask] = {
    ("kubeflow.org", "tfjobs"): get("/api/v1/workloads"),
    ("batch", "jobs"): get("/api/v1/workloads"),
    ("jobset.x-k8s.io", "jobsets"): get("/api/v1/workloads"),
    ("trainer.kubeflow.org", "trainjobs"): get("/api/v1/workloads"),
    ("scheduling.run.ai", "queues"): get("/api/v1/org-unit/projects"),
    ("scheduling.run.ai", "podgroups"): get("/api/v1/workloads"),
    ("scheduling.run.ai", "bindrequests"): start,
    ("scheduling.k8s.io", "priorityclasses"): lambda face: face.submit("with-priority", priorityClass="low"),
    ("", "namespaces"): get("/api/v1/workloads"),
    ("", "nodes"): get("/api/v1/workloads"),
    ("", "pods"): get("/api/v1/workloads"),
    ("", "pods/log"): pass_on("log"),
    ("", "pods/exec"): pass_on("exec", "attach", "portforward"),
    ("", "events"): events,
    ("", "persistentvolumeclaims"): claim,
    ("", "configmaps"): get("/api/v1/asset/environment"),
    ("rbac.authorization.k8s.io", "roles"): users,
    ("storage.k8s.io", "storageclasses"): doctor,
    ("node.k8s.io", "runtimeclasses"): doctor,
    ("apps", "deployments"): doctor,
    ("", "services"): doctor,
    ("discovery.k8s.io", "endpointslices"): doctor,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): doctor,
}
"""Group and one resource of a rule → the verb that needs it."""


def ask_of(rule: Rule) -> Ask:
    return next(ask for (group, resource), ask in ASKS.items() if rule.group == group and resource in rule.resources)


def test_every_rule_has_a_verb_that_is_asked() -> None:
    assert {ask_of(rule) for rule in SERVER_RULES} == set(ASKS.values())


async def name_missing(rule: Rule, face: Face) -> None:
    """The verb names all that is missing; what is followed in the background was perhaps not asked for yet."""
    said, deadline = "", time.monotonic() + NAMED_S
    while not all(resource in said for resource in rule.resources):
        assert time.monotonic() < deadline, f"without {rule.resources} it is said: {said}"
        said = await ask_of(rule)(face)
        await asyncio.sleep(0.05)


async def play_rights(plane: RealPlane) -> None:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(plane.connect())
        await ensure_queues(admin)
        owner = await stack.enter_async_context(running(plane, plane.kubeconfig))
        assert (await owner.ask("POST", "/api/v1/org-unit/projects", {"name": PROJECT})).startswith("201")
        assert (await owner.submit("present")).startswith("202")
        faces: dict[str, tuple[Rule, Face]] = {}
        for number, rule in enumerate(SERVER_RULES):
            others = [one.policy_rule() for one in SERVER_RULES if one is not rule]
            kubeconfig = await make_account(plane, f"lacks-{number}", others)
            faces[f"lacks-{number}"] = rule, await stack.enter_async_context(running(plane, kubeconfig))
        for rule, face in faces.values():
            await name_missing(rule, face)
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        await asyncio.sleep(QUIET_S)
        asked = plane.asked(since)
        for account in faces:
            lists = [
                each for each in asked[account] if not each.endswith("/namespaces/kube-system")
            ]  # besides the probe
            assert asked[account] and len(lists) < QUIET_S, f"{account} asks more than once a second: {lists}"


def test_each_right_that_is_missing_is_named_and_the_server_is_ready(plane: RealPlane) -> None:
    asyncio.run(play_rights(plane))


# ------------------------------------------------------------ kinds


async def serve(kube: Kube, kind: Kind, *, served: bool) -> None:
    """Whether the cluster serves the kind, as after the deletion of its definition, and before it."""
    definition = await kube.get(CRD, "", kind.resource)
    versions = [{**version, "served": served} for version in definition["spec"]["versions"]]
    await kube.patch(CRD, "", kind.resource, {"spec": {"versions": versions}})
    async with asyncio.timeout(PATIENCE_S):
        while bool(await missing_kinds(kube, [kind])) is served:
            await asyncio.sleep(0.05)


async def ask_for_kind(face: Face, kind: Kind) -> str:
    """What needs the kind, of a cluster that does not serve it."""
    if kind in kinds.JOBS:
        words = {
            kinds.PYTORCHJOB: "PyTorch", kinds.TFJOB: "TF", kinds.MPIJOB: "MPI", kinds.XGBOOSTJOB: "XGBoost",
            kinds.JAXJOB: "JAX",
        }  # fmt: skip
        if kind in words:
            return await face.submit("absent", distributedFramework=words[kind])
    if kind == kinds.QUEUE:
        return await face.ask("POST", "/api/v1/org-unit/projects", {"name": "absent"})
    return face.said


async def play_kinds(plane: RealPlane) -> None:
    async with plane.connect() as admin:
        await ensure_queues(admin)
        async with running(plane, plane.kubeconfig) as owner:
            await owner.ask("POST", "/api/v1/org-unit/projects", {"name": PROJECT})
        for kind in (*kinds.JOBS, kinds.QUEUE, kinds.POD_GROUP):
            await serve(admin, kind, served=False)
            try:
                async with running(plane, plane.kubeconfig) as face:
                    assert kind.resource in face.said, "it is said at the start"
                    assert (await face.ask("GET", "/api/v1/workloads")).startswith("200")
                    said = await ask_for_kind(face, kind)
                    assert kind.resource in said, f"without {kind.resource} the verb says: {said}"
                    assert face.rest.cache.is_absent(kind)
            finally:
                await serve(admin, kind, served=True)


def test_each_kind_that_is_absent_is_named_and_the_server_is_ready(plane: RealPlane) -> None:
    asyncio.run(play_kinds(plane))
