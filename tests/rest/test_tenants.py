"""Tenants of one cluster, through both faces: whoever has rights in one project meets nothing of another, under no route and no verb.

What may not be read must look like what is not there: else a tenant guesses.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.authentication.oidc.provider import Provider, running_provider

from rowlock import kinds
from rowlock.accounts.user_accounts import UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.api import LogOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings, audit_into
from rowlock.archive.archive import Archive
from rowlock.audit.audit_log import AuditLog
from rowlock.authentication.access_tokens import AccessTokens
from rowlock.authentication.service_account_tokens import KEY_FILE, ServiceAccountTokens
from rowlock.authentication.users import AUTHENTICATED, User
from rowlock.authorization import bootstrap_policy
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.browser.door import BrowserDoor
from rowlock.diagnostics.event_files import EventFiles
from rowlock.http_server.certificates import ensure_certificates
from rowlock.identity.token_sources import IdentityProvider, rest_authenticator, user_token_issuer
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest import workloads
from rowlock.rest.app import RestApi
from rowlock.rest.call import Drain, RestSettings
from rowlock.rest.informers import InformerCache
from rowlock.rest.openapi.operations import OPERATIONS
from rowlock.rest.routes import ROUTES, paths_served
from rowlock.rest.visible_cache import VisibleCache
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.workloads.objects import WORKLOAD_ID

OWNER = "owner-owner-owner-owner"
TYPIST, PASSWORD = "typist" * 8, "correct horse"
"""Whoever has this for a token logs in with a password, and has the role of an access rule: an editor's."""
GUEST = "guest" * 8
"""Whoever has this comes with a token of the identity provider, and is an editor by a group that it names."""
PEOPLE = {name * 8: User(name, (AUTHENTICATED,)) for name in ("editor", "viewer", "admin", "nobody")}
MINE, THEIRS = "mine", "theirs"
STANDARD = ("trainings", "workspaces")
MARK = "hush"
"""In every name, label and text of the other project's objects."""


class Tenancy:
    """Two projects with the same things in them; editor, viewer and admin have roles in one."""

    def __init__(self, directory: Path, provider: Provider) -> None:
        self.provider = provider
        self.store = Store.open(None, admission=AdmissionChain, patches=Patcher(), log_source=self._log)
        self.ids: dict[str, str] = {}
        self.typed = ""
        """The token that a password gave."""
        authorizer = RbacAuthorizer(self.store.view)
        accounts = UserAccounts.open(directory)
        ensure_certificates(directory)
        signer = ServiceAccountTokens(directory / KEY_FILE, self.store.view)
        tokens = AccessTokens(signer, self.store.view, accounts)
        self.audit_log = AuditLog(directory)
        identity = IdentityProvider.connect(provider.settings())
        settings = ApiServerSettings(
            token=OWNER, tokens=PEOPLE, audit=audit_into(self.audit_log), service_accounts=signer, access_tokens=tokens,
            id_tokens=identity.tokens,
        )  # fmt: skip
        self.rest = RestApi(
            self.store,
            RestSettings(
                token=OWNER,
                sweep_key="sealed" * 8,
                authenticate_token=rest_authenticator(settings, authorizer),
                accounts=accounts,
                credentials=UserCredentials.open(directory),
                issue_user_token=user_token_issuer(settings),
                oidc=identity.logins,
                look_up_token=identity.tokens.look_up,
                event_files=EventFiles(directory),
            ),
            drain=Drain(lambda _: None, list),
            archive=Archive(directory / "archive"),
            audit_log=self.audit_log,
        )
        self.door = BrowserDoor(self.rest, OWNER, 8123)
        self.app = application.application(
            [self.door.code_route, *self.rest.routes], self.store, settings, None, authorizer
        )

    async def _log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        yield f"said by {pod}\n".encode()

    async def make(self) -> None:
        for kind, obj in [*bootstrap.initial_objects(), *bootstrap_policy.initial_objects()]:
            await self.store.create(kind, obj)
        for project, mark in ((MINE, "plain"), (THEIRS, MARK)):
            answer = await self.ask(OWNER, "POST", "/api/v1/org-unit/projects", {"name": f"{project}-{mark}"})
            assert answer.status_code == 201, answer.text
            self.ids[f"{project} project"] = answer.json()["id"]
            body = {
                "name": f"job-{mark}", "projectId": answer.json()["id"],
                "spec": {"image": mark, "numWorkers": 1, "distributedFramework": "PyTorch"},
            }  # fmt: skip
            answer = await self.ask(OWNER, "POST", "/api/v1/workloads/distributed", body)
            assert answer.status_code == 202, answer.text
            self.ids[f"{project} workload"] = answer.json()["workloadId"]
            for word in STANDARD:
                body = {"name": f"{word}-{mark}", "projectId": self.ids[f"{project} project"], "spec": {"image": mark}}
                answer = await self.ask(OWNER, "POST", f"/api/v1/workloads/{word}", body)
                assert answer.status_code == 202, answer.text
                self.ids[f"{project} {word}"] = answer.json()["workloadId"]
            answer = await self.ask(
                OWNER, "POST", SWEEPS, {**sweep(self.ids[f"{project} project"]), "name": f"sweep-{mark}"}
            )
            assert answer.status_code == 202, answer.text
            for rest in ("", "/stop", "/resume"):
                self.ids[f"{project} {SWEEPS}/{{id}}{rest}"] = answer.json()["id"]
            for path, body_of in ASSETS.items():
                body = body_of(self.ids[f"{project} project"])
                body["meta"]["name"] = f"{path.rpartition('/')[2] if 'credentials' in path else 'asset'}-{mark}"
                answer = await self.ask(OWNER, "POST", path, body)
                assert answer.status_code == 202, answer.text
                self.ids[f"{project} {path}/{{id}}"] = answer.json()["meta"]["id"]
            self.ids[f"{project} /api/v1/workload-templates/{{id}}"] = answer.json()["meta"]["id"]
            rule = {
                "subjectType": "user",
                "subjectId": f"somebody-{mark}",
                "roleName": "viewer",
                "scopeType": "project",
            }
            scope = {"scopeId": self.ids[f"{project} project"]}
            answer = await self.ask(OWNER, "POST", "/api/v1/authorization/access-rules", {**rule, **scope})
            assert answer.status_code == 201, answer.text
            self.ids[f"{project} rule"] = str(answer.json()["id"])
            for kind, obj in self._objects(f"runai-{project}-{mark}", mark):
                await self.store.create(kind, obj)
        for name, role in (("editor", "rowlock:editor"), ("viewer", "rowlock:viewer"), ("admin", "rowlock:admin")):
            binding = {
                "metadata": {"name": name, "namespace": f"runai-{MINE}-plain"},
                "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": name, "apiGroup": kinds.ROLE.group}],
            }
            await self.store.create(kinds.ROLE_BINDING, binding)
        team = {"kind": "Group", "name": "oidc:team", "apiGroup": kinds.ROLE.group}
        guests = {**binding, "metadata": {"name": "guests", "namespace": f"runai-{MINE}-plain"}, "subjects": [team]}
        guests["roleRef"] = {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": "rowlock:editor"}
        await self.store.create(kinds.ROLE_BINDING, guests)

    def _objects(self, namespace: str, mark: str) -> list[tuple[Kind, Object]]:
        job = self.store.view.get(kinds.PYTORCHJOB, namespace, f"job-{mark}")
        assert job is not None
        owner = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        container = {"name": "main", "image": "none"}
        about = {"kind": "Pod", "name": f"pod-{mark}", "namespace": namespace}
        contents: dict[Kind, dict[str, Any]] = {
            kinds.POD: {"spec": {"containers": [container]}}, kinds.SECRET: {"stringData": {"password": mark}},
            kinds.CONFIG_MAP: {"data": {"a": mark}}, kinds.EVENT: {"involvedObject": about, "reason": "Any", "message": mark},
            kinds.SERVICE: {"spec": {"clusterIP": "None"}}, kinds.LEASE: {}, kinds.SERVICE_ACCOUNT: {}, kinds.ROLE: {"rules": []},
            kinds.PERSISTENT_VOLUME_CLAIM: {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        }  # fmt: skip
        meta = {"name": f"pod-{mark}", "namespace": namespace, "labels": {"of": mark}}
        return [
            (kind, {"metadata": {**meta, **({"ownerReferences": [owner]} if kind is kinds.POD else {})}, **content})
            for kind, content in contents.items()
        ]

    async def _log_in(self) -> str:
        """As people do: the owner makes an account and a rule, a password gives a token."""
        person = {"username": "typist", "password": PASSWORD}
        rule = {"subjectType": "user", "subjectId": "typist", "roleName": "researcher", "scopeType": "project"}
        assert (await self.ask(OWNER, "POST", "/api/v1/users", person)).status_code == 201
        scope = {"scopeId": self.ids[f"{MINE} project"]}
        made = await self.ask(OWNER, "POST", "/api/v1/authorization/access-rules", {**rule, **scope})
        assert made.status_code == 201, made.text
        answer = await self.ask("", "POST", "/api/v1/token", {"grantType": "password", **person})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["accessToken"])

    async def real_token(self, token: str) -> str:
        """What is sent for whoever has to log in first."""
        if token == GUEST:
            return self.provider.token()
        if token == TYPIST:
            self.typed = self.typed or await self._log_in()
            return self.typed
        return token

    async def ask(self, token: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        token = await self.real_token(token)
        transport = httpx.ASGITransport(app=self.app)
        given = {"authorization": f"Bearer {token}", **{key.replace("_", "-"): value for key, value in headers.items()}}
        async with httpx.AsyncClient(transport=transport, base_url="https://127.0.0.1", headers=given) as client:
            return await client.request(method, path, json=body)


Check = Callable[[Tenancy], Awaitable[None]]


def play(check: Check) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Tenancy]:
        tenancy = Tenancy(Path(directory), provider)
        cache = asyncio.create_task(tenancy.rest.run())
        try:
            await tenancy.make()
            yield tenancy
        finally:
            cache.cancel()
            await asyncio.gather(cache, return_exceptions=True)

    async def main() -> None:
        async with opened() as tenancy:
            await check(tenancy)

    with tempfile.TemporaryDirectory() as directory, running_provider(Path(directory)) as provider:
        asyncio.run(main())


# ---------------------------------------------------------------- REST


def fill(path: str, identity: str, mark: str) -> str:
    query = {
        "/wait": "?timeout=0",
        "/org-unit/projects/{id}/metrics": "?metricType=GPU_QUOTA&start=2026-01-02T03:04:05Z&end=2026-01-02T03:04:06Z",
        "/metrics": "?metricType=CPU_USAGE_CORES&start=2026-01-02T03:04:05Z&end=2026-01-02T03:04:06Z",
    }
    filled = path.replace("{id}", identity).replace("{pod}", f"pod-{mark}")
    return filled + next((text for ending, text in query.items() if path.endswith(ending)), "")


def workload_of(tenancy: Tenancy, whose: str, path: str) -> str:
    """The id of somebody's workload of the type that a path is about."""
    return tenancy.ids[f"{whose} {next((word for word in STANDARD if word in path), 'workload')}"]


def asset(spec: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    return lambda project: {"meta": {"name": "new", "scope": "project", "projectId": project}, "spec": spec}


def template(project: str) -> dict[str, Any]:
    return {"meta": {"name": "new", "scopeType": "project", "scopeId": project}, "spec": {"image": "i"}}


def sweep(project: str) -> dict[str, Any]:
    spec = {"image": "i", "noWorkers": True, "distributedFramework": "PyTorch"}
    return {"name": "new", "parameters": {"x": "1..3"}, "workload": {"projectId": project, "spec": spec}}


SWEEPS = "/api/v1/sweeps"
ASSETS: dict[str, Callable[[str], dict[str, Any]]] = {
    "/api/v1/asset/environment": asset({"image": "i"}),
    "/api/v1/asset/compute": asset({"cpuCoreRequest": 1}),
    "/api/v1/asset/credentials/access-key": asset({"accessKeyId": "i", "secretAccessKey": "s"}),
    "/api/v1/asset/credentials/password": asset({"user": "u", "password": "s"}),
    "/api/v1/asset/credentials/docker-registry": asset({"user": "u", "password": "s", "url": "r.test"}),
    "/api/v1/asset/credentials/generic-secret": asset({"keyValuePairs": [{"key": "k", "value": "s"}]}),
    "/api/v1/asset/credentials/ngc-api-key": asset({"ngc_api_key": "s"}),
    "/api/v1/asset/datasource/secrets": asset({"credentialAssetId": "generic-secret-plain", "mountPath": "/etc/s"}),
    "/api/v1/asset/datasource/nfs": asset({"server": "nas", "path": "/d", "mountPath": "/d"}),
    "/api/v1/asset/datasource/s3": asset({"bucket": "b", "path": "/d"}),
    "/api/v1/asset/datasource/pvc": asset({"path": "/data", "existingPvc": True, "claimName": "data"}),
    "/api/v1/asset/datasource/host-path": asset({"path": "/data", "mountPath": "/data"}),
    "/api/v1/asset/datasource/git": asset({"repository": "https://example.test/x.git", "path": "/code"}),
    "/api/v1/asset/datasource/config-map": asset({"configMap": "settings", "mountPath": "/etc/settings"}),
    **{f"/api/v1/workload-templates/{word}": template for word in ("distributed", *STANDARD)},
}
BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    **ASSETS,
    **{f"/api/v1/workloads/{word}": lambda project: {"name": "new", "projectId": project, "spec": {"image": "i"}} for word in STANDARD},
    "/api/v1/workloads/distributed": lambda project: {"name": "new", "projectId": project, "spec": {"image": "i", "numWorkers": 1, "distributedFramework": "PyTorch"}},
    "/api/v1/authorization/access-rules": lambda project: {"subjectId": "new", "subjectType": "user", "roleId": 4, "scopeType": "project", "scopeId": project},
    "/api/v2/workloads": lambda project: {"metadata": {"name": "new", "projectId": project}, "manifest": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}}}},
    "/api/v1/notify/test": lambda project: {"projectId": project, "notify": {"url": "http://127.0.0.1:9/"}},
    SWEEPS: sweep,
    "/api/v1/check": lambda project: {"objects": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}], "project": project},
}  # fmt: skip
QUERIES = {
    "/api/v1/workload-templates/name-availability": "?templateName=asset-plain",
    "/api/v1/workloads/telemetry": "?telemetryType=WORKLOADS_COUNT&groupBy=project",
    "/api/v1/org-unit/projects/telemetry": "?telemetryType=GPU_QUOTA&groupBy=project",
}
"""What a path cannot do without."""
NOWHERE = "00000000-0000-4000-8000-000000000000"
NO_RULE = "9" * 12
OPEN_TO_ALL = {
    *(("GET", f"/api/v1/{path}") for path in (
        "org-unit/priorities", "clusters", "clusters/{id}", "workload-priorities", "workload-types", "workload-categories",
        "authorization/roles", "authorization/roles/{id}", "openapi.json",
    )),
    *(("GET", f"/api/v1/{path}") for path in (
        "me", "authorization/me/access-rules", "authorization/me/access-rules/count", "me/credentials", "me/credentials/{id}",
    )),
    *(("GET", f"/api/v2/policy{path}") for path in ("", "/distributed", "/training", "/workspace")),
    ("POST", "/api/v1/me/password"), ("POST", "/api/v1/me/credentials"),
    ("PUT", "/api/v1/me/credentials/{id}"), ("DELETE", "/api/v1/me/credentials/{id}"),
}  # fmt: skip
"""Routes that need no right: they say what is the same for everybody, what is the caller's own, or (policies) what their endpoints leave
of it. Whoever adds one here says why nobody learns of another project by it, and has a test of that."""
BY_SCOPE = {
    scope: [(m, p, r) for m, p, r, _ in ROUTES if r.scope == scope]
    for scope in ("everybody", "cluster", "project", "workload", "list", "body", "batch", "asset", "rule")
}


def test_every_route_names_its_right() -> None:
    assert sum(map(len, BY_SCOPE.values())) == len(ROUTES)
    assert {(method, path) for method, path, _ in BY_SCOPE["everybody"]} == OPEN_TO_ALL
    assert all(right.verb for _, _, right, _ in ROUTES if right.scope != "everybody")
    assert {path for _, path, _ in BY_SCOPE["body"]} == set(BODIES)
    named = {"{id}" in path for _, path, right, _ in ROUTES if right.scope in ("project", "workload", "asset")}
    assert named == {True}
    unbound = {
        path
        for _, path, right, _ in ROUTES
        if "{id}" in path and right.scope not in ("project", "workload", "asset", "rule")
    }
    of_the_cluster = {
        f"/api/v1/clusters/{{id}}{rest}"
        for rest in ("", "/metrics", "/nodepools/{pool}/metrics", "/nodes", "/nodes/count")
    }
    departments = "/api/v1/org-unit/departments/{id}"
    assert unbound == {
        "/api/v1/applications/{id}",
        "/api/v1/authorization/roles/{id}",
        "/api/v1/me/credentials/{id}",
        *(f"/api/v1/users/{{id}}{rest}" for rest in ("", "/password", "/logout")),
        "/api/v1/node-pools/{id}",
        departments,
        f"{departments}/resources",
        f"{departments}/metrics",
        "/api/v1/nodes/{id}/metrics",
        *of_the_cluster,
    }


@pytest.mark.parametrize("person", ["editor", "viewer", "admin", "nobody", "typist", "guest"])
def test_what_one_may_not_read_is_not_there(person: str) -> None:
    async def check(tenancy: Tenancy) -> None:
        token = person * 8
        for scope in ("workload", "project", "asset"):
            for method, path, _ in BY_SCOPE[scope]:
                theirs = tenancy.ids["theirs project"] if scope == "project" else workload_of(tenancy, "theirs", path)
                theirs = tenancy.ids[f"theirs {path}"] if scope == "asset" else theirs
                body = {"name": "x"} if method == "PUT" else None
                secret = await tenancy.ask(token, method, fill(path, theirs, MARK), body)
                absent = await tenancy.ask(token, method, fill(path, NOWHERE, MARK), body)
                assert (secret.status_code, absent.status_code) == (404, 404), (method, path, secret.text)
                assert secret.text.replace(theirs, NOWHERE) == absent.text, (method, path)
        for method, path, _ in BY_SCOPE["rule"]:
            theirs = tenancy.ids["theirs rule"]
            secret = await tenancy.ask(token, method, path.replace("{id}", theirs))
            absent = await tenancy.ask(token, method, path.replace("{id}", NO_RULE))
            assert (secret.status_code, absent.status_code) == (404, 404), (method, path, secret.text)
            assert secret.text.replace(theirs, NO_RULE) == absent.text, (method, path)
        for method, path, _ in BY_SCOPE["list"]:
            answer = await tenancy.ask(token, method, path + QUERIES.get(path, ""))
            assert answer.status_code == 200 and MARK not in answer.text, (path, answer.text)
        for method, path in OPEN_TO_ALL:
            answer = await tenancy.ask(
                token, method, path.replace("{id}", "4"), {} if method in ("POST", "PUT") else None
            )
            assert answer.status_code in (200, 400, 403, 404) and MARK not in answer.text, (path, answer.text)
        for method, path, _ in BY_SCOPE["cluster"]:
            for served in paths_served(path):
                assert (await tenancy.ask(token, method, served, {"name": "x"})).status_code == 403, served
        for _, path, _ in BY_SCOPE["body"]:
            secret = await tenancy.ask(token, "POST", path, BODIES[path](tenancy.ids["theirs project"]))
            absent = await tenancy.ask(token, "POST", path, BODIES[path](NOWHERE))
            assert secret.status_code == absent.status_code == 400, secret.text
            assert secret.text.replace(tenancy.ids["theirs project"], NOWHERE) == absent.text
        searches = (
            f"search={MARK}",
            f"filterBy=name==job-{MARK}",
            f"filterBy=projectName=={THEIRS}-{MARK}",
            "sortBy=name&limit=500",
        )
        for search in searches:
            answer = await tenancy.ask(token, "GET", f"/api/v1/workloads?{search}")
            assert MARK not in answer.text.replace(search, ""), answer.text
            assert (await tenancy.ask(token, "GET", f"/api/v1/workloads/count?{search}")).json()["count"] <= 3

    play(check)


@pytest.mark.parametrize("person", ["editor", "nobody"])
def test_no_filter_tells_of_another_project(person: str) -> None:
    """Whatever a list is filtered by: that nothing passes does not depend on whether somebody else has it."""

    async def check(tenancy: Tenancy) -> None:
        pairs = [(tenancy.ids[f"theirs {what}"], NOWHERE) for what in ("project", "workload")]
        pairs += [(f"{word}-{MARK}", f"{word}-none") for word in (THEIRS, "job")]
        for method, path, _ in BY_SCOPE["list"]:
            needed = QUERIES.get(path, "?limit=5" if "limit" in OPERATIONS[method, path].query else "?")
            for name in set(OPERATIONS[method, path].query) - {"offset", "limit", "sortBy", "sortOrder", "since"}:
                for theirs, nobodys in pairs:
                    secret, absent = [
                        await tenancy.ask(person * 8, method, f"{path}{needed}&{name}={word}")
                        for word in (theirs, nobodys)
                    ]
                    assert secret.status_code == absent.status_code, (path, name, secret.text)
                    assert MARK not in secret.text.lower().replace(theirs, ""), (path, name, secret.text)

    play(check)


@pytest.mark.parametrize(
    ("person", "refused"),
    [
        ("editor", set[str]()),
        ("viewer", {"POST", "PUT", "PATCH", "DELETE"}),
        ("admin", set[str]()),
        ("typist", set[str]()),
        ("guest", set[str]()),
    ],
)
def test_what_one_may_do_in_ones_own_project(person: str, refused: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin of one project may change its objects; its quota is the cluster's affair, whoever asks."""
    monkeypatch.setattr(workloads, "_SCHEDULER_TIMEOUT", 0.0)  # there is no scheduler to wait for

    async def check(tenancy: Tenancy) -> None:
        token = person * 8
        routes = [(m, p, r) for scope in ("list", "workload") for m, p, r in BY_SCOPE[scope]]
        gone: set[str] = set()
        for method, path, _ in sorted(routes, key=lambda one: one[0] == "DELETE"):
            mine = workload_of(tenancy, "mine", path)
            if method == "DELETE" and "DELETE" not in refused and mine in gone:
                continue  # a route before this one has deleted it
            gone |= {mine} if method == "DELETE" else set()
            where = fill(path, mine, "plain") + QUERIES.get(path, "")
            bodies: dict[str, dict[str, Any]] = {"PUT": {"metadata": {"category": "Train"}}, "PATCH": {"note": "x"}}
            body = bodies.get(method)
            answer = await tenancy.ask(token, method, where, body)
            expected = 403 if method in refused else 200 if method in ("GET", "PATCH") else 202
            silent = path.endswith("/logs") and "started yet" in answer.text
            unmeasured = path.endswith("/metrics") and answer.status_code == 207
            assert silent or unmeasured or answer.status_code == expected, (method, path, answer.text)
        answer = await tenancy.ask(
            token,
            "POST",
            "/api/v1/workloads/distributed",
            BODIES["/api/v1/workloads/distributed"](tenancy.ids["mine project"]),
        )
        assert answer.status_code == (403 if "POST" in refused else 202), answer.text
        where = f"/api/v1/org-unit/projects/{tenancy.ids['mine project']}"
        assert (await tenancy.ask(token, "GET", where)).status_code == 200
        assert (await tenancy.ask(token, "PUT", where, {"description": "x"})).status_code == 403
        assert (await tenancy.ask(token, "DELETE", where)).status_code == 403
        assert tenancy.store.view.get(kinds.NAMESPACE, "", "runai-mine-plain") is not None

    play(check)


@pytest.mark.parametrize(("person", "own"), [("editor", 3), ("viewer", 3), ("nobody", 0)])
def test_what_is_deleted_stays_whose_it_was(person: str, own: int) -> None:
    """The archive knows more than the store, and tells nobody more: not of another project, not of a later one of the name."""

    async def check(tenancy: Tenancy) -> None:
        token = person * 8
        paths = [p for m, p, r in BY_SCOPE["workload"] if m == "GET" and "/logs" not in p and "{id}" in p]
        for whose in (MINE, THEIRS):
            for word in ("distributed", *STANDARD):
                where = f"/api/v1/workloads/{word}/{tenancy.ids[f'{whose} {word}' if word in STANDARD else f'{whose} workload']}"
                assert (await tenancy.ask(OWNER, "DELETE", where)).status_code == 202
        answer = await tenancy.ask(OWNER, "GET", "/api/v1/runs?phase=deleted")
        assert len(answer.json()["runs"]) == 6
        theirs, mine = tenancy.ids["theirs workload"], tenancy.ids["mine workload"]
        for path in paths:
            secret = await tenancy.ask(token, "GET", fill(path, theirs, MARK))
            absent = await tenancy.ask(token, "GET", fill(path, NOWHERE, MARK))
            assert secret.text.replace(theirs, NOWHERE) == absent.text, path
        for path in ("/api/v1/workloads?deleted=true", "/api/v1/runs"):
            answer = await tenancy.ask(token, "GET", path)
            assert MARK not in answer.text, answer.text
            assert len(answer.json()["runs" if "runs" in path else "workloads"]) == own
        for by, count in (("job", own), ("project", min(own, 1))):
            answer = await tenancy.ask(token, "GET", f"/api/v1/hours?by={by}")
            assert MARK not in answer.text and len(answer.json()["rows"]) == count, answer.text
            assert answer.json()["total"]["runs"] == own
        shown = await tenancy.ask(token, "GET", f"/api/v1/workloads/{mine}")
        assert shown.status_code == (200 if own else 404), shown.text
        name = "runai-mine-plain"
        namespace = tenancy.store.view.get(kinds.NAMESPACE, "", name)
        assert namespace is not None
        bindings = [one for one in tenancy.store.view.all(kinds.ROLE_BINDING, name)]
        await tenancy.ask(OWNER, "DELETE", f"/api/v1/org-unit/projects/{tenancy.ids['mine project']}")
        current = tenancy.store.view.get(kinds.NAMESPACE, "", name)
        assert current is not None, "nobody collects its content here"
        await tenancy.store.update(kinds.NAMESPACE, {**current, "spec": {"finalizers": []}}, subresource="finalize")
        while tenancy.rest.cache.namespace(name) is not None:
            await asyncio.sleep(0.01)
        again = await tenancy.ask(OWNER, "POST", "/api/v1/org-unit/projects", {"name": "mine-plain"})
        assert again.status_code == 201, again.text
        for binding in bindings:
            meta = {"name": binding["metadata"]["name"] + "-again", "namespace": name}
            await tenancy.store.create(kinds.ROLE_BINDING, {**binding, "metadata": meta})
        assert (await tenancy.ask(token, "GET", "/api/v1/runs")).json()["runs"] == []
        assert (await tenancy.ask(token, "GET", "/api/v1/hours")).json()["rows"] == []
        assert (await tenancy.ask(token, "GET", f"/api/v1/workloads/{mine}")).status_code == 404
        assert (await tenancy.ask(OWNER, "GET", f"/api/v1/workloads/{mine}")).status_code == 200

    play(check)


def test_a_job_of_another_project_with_the_id_of_ones_own_hides_nothing() -> None:
    """Neither while both are there, whichever the server has seen first (as after a restart), nor when both are gone."""

    async def check(tenancy: Tenancy) -> None:
        async def answers() -> list[tuple[int, str]]:
            paths = ("/api/v1/workloads/twice", "/api/v1/runs/twice")
            found = [await tenancy.ask("editor" * 8, "GET", path) for path in paths]
            return [(answer.status_code, answer.json().get("name")) for answer in found]

        homes = {f"runai-{THEIRS}-{MARK}": "forged", "runai-mine-plain": "own"}
        for namespace, name in homes.items():
            job = tenancy.store.view.all(kinds.PYTORCHJOB, namespace)[0]
            meta = {"namespace": namespace, "name": name, "labels": {**job["metadata"]["labels"], WORKLOAD_ID: "twice"}}
            made = await tenancy.store.create(kinds.PYTORCHJOB, {**job, "metadata": meta})
            while not tenancy.rest.cache.has_job(made["metadata"]["uid"]):
                await asyncio.sleep(0.01)
        assert await answers() == [(200, "own")] * 2
        marked = await tenancy.ask("editor" * 8, "PATCH", "/api/v1/runs/twice", {"note": "mine"})
        assert marked.status_code == 200, marked.text
        for namespace, name in reversed(homes.items()):
            await tenancy.store.delete(kinds.PYTORCHJOB, namespace, name)
            assert await answers() == [(200, "own")] * 2, name
        marked = await tenancy.ask("editor" * 8, "PATCH", "/api/v1/runs/twice", {"note": "still mine"})
        assert marked.status_code == 200 and marked.json()["note"] == "still mine", marked.text

    play(check)


@pytest.mark.parametrize(
    ("person", "may_change"), [("editor", True), ("viewer", False), ("admin", True), ("typist", True), ("guest", True)]
)
def test_the_assets_of_ones_own_project(person: str, may_change: bool) -> None:
    """Whoever may change the project's ConfigMaps changes its assets; those of the cluster are read by all, changed by its admins."""

    async def check(tenancy: Tenancy) -> None:
        token = person * 8
        order = ["GET", "PUT", "PATCH", "POST", "DELETE"]
        for method, path, _ in sorted(BY_SCOPE["asset"], key=lambda one: order.index(one[0])):
            where = path.replace("{id}", tenancy.ids[f"mine {path}"])
            body = {"meta": {"name": "changed"}} if method in ("PUT", "PATCH") else None
            answer = await tenancy.ask(token, method, where, body)
            expected = 200 if method == "GET" else 202 if may_change else 403
            assert answer.status_code == expected, (method, path, answer.text)
        shared = {"meta": {"name": "for-all", "scope": "cluster"}, "spec": {"cpuCoreRequest": 1}}
        assert (await tenancy.ask(token, "POST", "/api/v1/asset/compute", shared)).status_code == 403
        made = await tenancy.ask(OWNER, "POST", "/api/v1/asset/compute", shared)
        one = f"/api/v1/asset/compute/{made.json()['meta']['id']}"
        assert (await tenancy.ask(token, "GET", one)).json()["meta"]["name"] == "for-all"
        assert (await tenancy.ask(token, "PUT", one, {"meta": {"name": "x"}})).status_code == 403
        assert (await tenancy.ask(token, "DELETE", one)).status_code == 403

    play(check)


@pytest.mark.parametrize("person", ["editor", "admin"])
def test_nobody_lifts_or_reads_the_policy_of_another_project(person: str) -> None:
    """Admins of the cluster set policies; one project's are nothing to the other, and its own are no ConfigMaps in it."""

    async def check(tenancy: Tenancy) -> None:
        path, ids = "/api/v2/policy/distributed", {w: tenancy.ids[f"{w} project"] for w in (MINE, THEIRS)}
        for whose, name in ((MINE, "plain"), (THEIRS, MARK)):
            meta = {"name": name, "scope": "project", "projectId": int(ids[whose])}
            body = {"meta": meta, "policy": {"rules": {"worker": {"image": {"options": [{"value": MARK}]}}}}}
            assert (await tenancy.ask(person * 8, "PUT", path, body)).status_code == 403
            assert (await tenancy.ask(OWNER, "PUT", path, body)).status_code == 200
        listed = (await tenancy.ask(person * 8, "GET", "/api/v2/policy")).json()["policies"]
        assert [one["meta"]["name"] for one in listed] == ["plain"]
        secret = await tenancy.ask(person * 8, "GET", f"{path}?projectId={ids[THEIRS]}")
        absent = await tenancy.ask(person * 8, "GET", f"{path}?projectId={NOWHERE}")
        assert secret.status_code == 404 and secret.text.replace(ids[THEIRS], NOWHERE) == absent.text
        job = BODIES["/api/v1/workloads/distributed"](ids[MINE])
        answer = await tenancy.ask(person * 8, "POST", "/api/v1/workloads/distributed", job)
        assert answer.status_code == 400 and "value must be one of" in answer.text
        assert (await tenancy.ask(person * 8, "DELETE", f"{path}?projectId={ids[MINE]}")).status_code == 403
        mine = (await tenancy.ask(person * 8, "GET", "/api/v1/namespaces/runai-mine-plain/configmaps")).json()
        assert "policy-distributed" not in str(mine)

    play(check)


def test_who_may_change_a_project_says_where_it_tells_things_and_who_submits_there_does_not() -> None:
    """An editor may write the Secrets of the namespace, and so the one with the address: it is not used then."""

    async def check(tenancy: Tenancy) -> None:
        path = f"/api/v1/org-unit/projects/{tenancy.ids['mine project']}/notify"
        body = {"url": "https://chat.example.com/T0-password"}
        for person in ("editor", "viewer"):
            for method, where in (("PUT", path), ("DELETE", path), ("POST", f"{path}/test")):
                assert (await tenancy.ask(person * 8, method, where, body)).status_code == 403, (person, method)
        answer = await tenancy.ask("admin" * 8, "PUT", path, body)
        assert answer.status_code == 200, answer.text
        secrets = "/api/v1/namespaces/runai-mine-plain/secrets"
        listed = (await tenancy.ask("editor" * 8, "GET", secrets)).json()["items"]
        [name] = [one["metadata"]["name"] for one in listed if one["metadata"]["name"].startswith("project-notify-")]
        for person in ("editor", "viewer"):
            shown = await tenancy.ask(person * 8, "GET", path)
            assert shown.json()["target"] == "https://chat.example.com/…" and not shown.json()["problem"], shown.text
            seen = await tenancy.ask(person * 8, "GET", "/api/v1/namespaces/runai-mine-plain")
            assert "T0-password" not in shown.text + seen.text
        patch = {"stringData": {"url": "https://elsewhere.example.com/"}}
        kind = {"content_type": "application/merge-patch+json"}
        assert (await tenancy.ask("editor" * 8, "PATCH", f"{secrets}/{name}", patch, **kind)).status_code == 200
        assert "was changed after" in (await tenancy.ask("viewer" * 8, "GET", path)).json()["problem"]
        annotation = {"metadata": {"annotations": {"rowlock.dev/project-notify": None}}}
        where = "/api/v1/namespaces/runai-mine-plain"
        assert (await tenancy.ask("editor" * 8, "PATCH", where, annotation, **kind)).status_code == 403
        assert (await tenancy.ask("admin" * 8, "PUT", path, body)).json()["problem"] == ""
        assert (await tenancy.ask("admin" * 8, "DELETE", path)).json()["target"] == ""

    play(check)


@pytest.mark.parametrize("word", ["id", "name"])
def test_nobody_submits_with_an_asset_of_another_project(word: str) -> None:
    """Neither the id nor the name of one tells whether it is there."""

    async def check(tenancy: Tenancy) -> None:
        path = "/api/v1/asset/environment/{id}"
        theirs = tenancy.ids[f"theirs {path}"] if word == "id" else f"asset-{MARK}"
        own = {"name": "new", "projectId": tenancy.ids["mine project"]}
        for environment in (theirs, NOWHERE):
            body = {**own, "assets": {"environment": environment}}
            answer = await tenancy.ask("editor" * 8, "POST", "/api/v1/workloads/trainings", body)
            assert answer.status_code == 400 and "there is no asset of the kind environment" in answer.text
        body = {**own, "assets": {"environment": tenancy.ids[f"mine {path}"]}}
        assert (await tenancy.ask("editor" * 8, "POST", "/api/v1/workloads/trainings", body)).status_code == 202

    play(check)


@pytest.mark.parametrize("action", ["delete", "suspend", "resume"])
def test_a_batch_reaches_only_what_one_may_change(action: str) -> None:
    """What is not there, what one may not see and what one may not change fail alone; the first two look the same."""

    async def check(tenancy: Tenancy) -> None:
        mine, theirs = tenancy.ids["mine workload"], tenancy.ids["theirs workload"]
        body = {"ids": [theirs, NOWHERE, mine], "action": action}
        for person, mine_is in (("viewer", 403), ("nobody", 404), ("editor", 200)):
            answer = (await tenancy.ask(person * 8, "POST", "/api/v1/workloads/batch", body)).json()
            failures = {one["id"]: (one["code"], one["message"].replace(one["id"], "")) for one in answer["failed"]}
            assert failures[theirs] == failures[NOWHERE] and failures[theirs][0] == 404, answer
            assert failures.get(mine, (200,))[0] == mine_is, answer
            assert answer["succeeded"] == ([mine] if mine_is == 200 else []), answer
        assert tenancy.store.view.get(kinds.PYTORCHJOB, f"runai-theirs-{MARK}", f"job-{MARK}") is not None

    play(check)


def test_a_refusal_names_the_right_that_is_missing() -> None:
    async def check(tenancy: Tenancy) -> None:
        answer = await tenancy.ask(
            "viewer" * 8, "DELETE", f"/api/v1/workloads/distributed/{tenancy.ids['mine workload']}"
        )
        sentence = 'You do not have sufficient permissions: user "viewer" cannot delete resource "pytorchjobs" in API group "kubeflow.org" in the namespace "runai-mine-plain".'
        assert answer.json() == {"code": 403, "message": sentence, "details": "Forbidden"}

    play(check)


def test_who_holds_the_gpus_is_said_as_far_as_the_reader_may_see_it() -> None:
    async def check(tenancy: Tenancy) -> None:
        room = {"cpu": "8", "memory": "16Gi", "pods": "9", "nvidia.com/gpu": "2"}
        await tenancy.store.create(kinds.NODE, {"metadata": {"name": "n"}, "status": {"allocatable": room}})
        for project, mark in ((MINE, "plain"), (THEIRS, MARK)):
            owner = tenancy.store.view.get(kinds.PYTORCHJOB, f"runai-{project}-{mark}", f"job-{mark}")
            assert owner is not None
            reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "controller": True}
            reference |= {word: owner["metadata"][word] for word in ("name", "uid")}
            container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            meta = {"name": f"holds-{mark}", "namespace": f"runai-{project}-{mark}", "ownerReferences": [reference]}
            pod = {"metadata": meta, "spec": {"nodeName": "n", "containers": [container]}}
            await tenancy.store.create(kinds.POD, pod)
        compute = {"gpuDevicesRequest": 2}
        spec = {"image": "i", "noWorkers": True, "distributedFramework": "PyTorch", "compute": compute}
        body = {"name": "waits", "projectId": tenancy.ids["mine project"], "spec": spec}
        made = await tenancy.ask(OWNER, "POST", "/api/v1/workloads/distributed", body)
        assert made.status_code == 202, made.text
        path = f"/api/v1/workloads/{made.json()['workloadId']}"
        for token, named in ((OWNER, "job-hush of project theirs-hush (1 GPU) and "), ("viewer" * 8, "")):
            answer = await tenancy.ask(token, "GET", f"{path}/explain")
            assert answer.status_code == 200, answer.text
            held_by = answer.json()["heldBy"]
            assert set(held_by.removeprefix("GPUs are held by ").removesuffix(".").split(" and ")) == set(
                f"{named}job-plain (1 GPU)".split(" and ")
            )
            assert (MARK in answer.text) == bool(named)
            assert held_by in (await tenancy.ask(token, "GET", f"{path}/why")).json()["sentence"]

    play(check)


def test_a_right_that_is_taken_away_is_gone_at_once() -> None:
    async def check(tenancy: Tenancy) -> None:
        path = f"/api/v1/workloads/{tenancy.ids['mine workload']}"
        assert (await tenancy.ask("viewer" * 8, "GET", path)).status_code == 200
        await tenancy.store.delete(kinds.ROLE_BINDING, "runai-mine-plain", "viewer")
        assert (await tenancy.ask("viewer" * 8, "GET", path)).status_code == 404

    play(check)


def test_the_cache_of_a_user_hides_everything_that_it_does_not_filter() -> None:
    """Whoever adds a question to the cache says what a user may see of its answer."""
    questions = {name for name, member in vars(InformerCache).items() if not name.startswith("_")}
    assert questions <= vars(VisibleCache).keys()


# ---------------------------------------------------------------- Kubernetes


def requests_of(kind: Kind, namespace: str, name: str) -> list[tuple[str, str]]:
    """Every method on every path of a kind in a namespace."""
    base = f"/api/{kind.version}" if not kind.group else f"/apis/{kind.group}/{kind.version}"
    many = f"{base}/namespaces/{namespace}/{kind.plural}"
    asked = [("GET", many), ("GET", many + "?watch=1&timeoutSeconds=1"), ("POST", many), ("DELETE", many)]
    asked += [(method, f"{many}/{name}") for method in ("GET", "PUT", "PATCH", "DELETE")]
    asked += [
        ("GET", f"{many}?fieldSelector=metadata.name%3D{name}"),
        ("GET", f"{base}/watch/namespaces/{namespace}/{kind.plural}"),
    ]
    asked += [
        (method, f"{many}/{name}/{sub}")
        for sub in sorted(kind.subresources)
        for method in ("GET", "POST", "PUT", "PATCH")
    ]
    return asked


EVERYWHERE = [
    f"/api/{k.version}/{k.plural}" if not k.group else f"/apis/{k.group}/{k.version}/{k.plural}"
    for k in (*kinds.KINDS, kinds.EVENTS_V1_EVENT)
    if k is not kinds.CLUSTER_TRAINING_RUNTIME
]
"""Where objects of all projects are. The runtimes of Kubeflow Trainer belong to none: an installation of it lets all users read them."""


@pytest.mark.parametrize("person", ["editor", "admin", "nobody", "typist", "guest"])
def test_no_verb_reaches_another_project(person: str) -> None:
    async def check(tenancy: Tenancy) -> None:
        token, there = person * 8, f"runai-{THEIRS}-{MARK}"
        for kind in (*(kind for kind in kinds.KINDS if kind.namespaced), kinds.EVENTS_V1_EVENT):
            present = requests_of(kind, there, f"pod-{MARK}")
            absent = requests_of(kind, there, "no-such-name")
            for (method, path), (_, other) in zip(present, absent, strict=True):
                headers = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
                answers = [await tenancy.ask(token, method, one, {}, **headers) for one in (path, other)]
                assert [a.status_code for a in answers] in ([403, 403], [405, 405], [404, 404]), (
                    method,
                    path,
                    answers[0].text,
                )
                texts = {a.text.replace(f"pod-{MARK}", "no-such-name") for a in answers}
                assert len(texts) == 1, texts
        for path in EVERYWHERE:
            for query in ("", "?watch=1&timeoutSeconds=1", f"?fieldSelector=metadata.name%3Dpod-{MARK}"):
                answer = await tenancy.ask(token, "GET", path + query)
                assert answer.status_code == 403, (path, answer.text)
        for name in (there, "runai-no-such"):
            for method in ("GET", "PATCH", "DELETE"):
                assert (await tenancy.ask(token, method, f"/api/v1/namespaces/{name}", {})).status_code == 403

    play(check)


def test_a_tenant_grants_no_way_into_another_project() -> None:
    async def check(tenancy: Tenancy) -> None:
        ref = {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": "cluster-admin"}
        me = [{"kind": "User", "name": "admin", "apiGroup": kinds.ROLE.group}]
        body = {"metadata": {"name": "x"}, "roleRef": ref, "subjects": me}
        rights = f"/apis/{kinds.ROLE.group}/v1"
        for path in (
            f"{rights}/namespaces/runai-mine-plain/rolebindings",
            f"{rights}/namespaces/runai-theirs-{MARK}/rolebindings",
            f"{rights}/clusterrolebindings",
        ):
            assert (await tenancy.ask("admin" * 8, "POST", path, body)).status_code == 403, path
        question = {
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": f"runai-theirs-{MARK}"}}
        }
        answer = await tenancy.ask(
            "admin" * 8, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question
        )
        assert answer.json()["status"] == {"allowed": False}
        for user in ("rowlock-admin", f"system:serviceaccount:runai-theirs-{MARK}:default"):
            answer = await tenancy.ask("admin" * 8, "GET", "/api/v1/secrets", impersonate_user=user)
            assert answer.status_code == 403 and "cannot impersonate" in answer.text

    play(check)
