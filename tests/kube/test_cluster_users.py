"""Users of a cluster come in with its tokens, see what its RBAC shows them, and write as themselves; nobody else gets in."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.scripted import Answer, Asked, Scripted, refusal
from tests.kube.test_served_cluster import kubectl

from rowlock.errors import ApiError, TooManyRequests, Unauthorized, Unavailable
from rowlock.kube.client import Kube
from rowlock.kube.config import Credentials
from rowlock.kube.connection import Connection, Request
from rowlock.kube.rate_limit import Limits
from rowlock.kube.users import cluster_users
from rowlock.kube.users.application_secret import MAX_SECONDS, UNLIMITED_SECONDS, seconds_left
from rowlock.kube.users.cluster_users import EXPIRY_GRACE_S, KNOWN_SECONDS, MAX_QUESTIONS, UNKNOWN_SECONDS, ClusterUsers

TEAMS = ("team-a", "team-b")


@dataclass
class Tenants:
    """A server over a cluster with two projects, and an account for each that may edit there; `carl` may do nothing."""

    served: Cluster
    kubeconfig: Path
    tokens: dict[str, str] = field(default_factory=dict)
    image: str = "rowlock.dev/host"

    def ask(self, user: str, method: str, path: str, body: Any = None, token: str = "") -> httpx.Response:
        server = json.loads((self.served.data / "server.json").read_text())
        tls = ssl.create_default_context(cafile=str(self.served.data / "ca.crt"))
        headers = {"Authorization": f"Bearer {token or self.tokens[user]}"}
        with httpx.Client(base_url=server["url"], verify=tls, headers=headers, timeout=200) as client:
            return client.request(method, path, json=body)

    def post_form(self, path: str, form: str) -> httpx.Response:
        server = json.loads((self.served.data / "server.json").read_text())
        tls = ssl.create_default_context(cafile=str(self.served.data / "ca.crt"))
        return httpx.post(server["url"] + path, content=form, verify=tls, timeout=200)

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """To the cluster itself, as the owner of its kubeconfig."""

        async def send() -> Any:
            async with Kube.connect(self.kubeconfig) as kube:
                return await kube.connection.send(Request(method, path, body=body))

        return asyncio.run(send())

    def account(self, name: str) -> None:
        self.admin("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
        made = self.admin(
            "POST",
            f"/api/v1/namespaces/default/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )
        self.tokens[name] = made["status"]["token"]

    def bind(self, name: str, role: str, namespace: str) -> None:
        group = "rbac.authorization.k8s.io"
        self.admin(
            "POST",
            f"/apis/{group}/v1/namespaces/{namespace}/rolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            },
        )

    def role(self, name: str) -> None:
        """What a researcher of a project may do."""
        group = "rbac.authorization.k8s.io"
        rules = [
            {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        ]
        self.admin("POST", f"/apis/{group}/v1/clusterroles", {"metadata": {"name": name}, "rules": rules})

    def workloads(self, user: str) -> list[str]:
        answer = self.ask(user, "GET", "/api/v1/workloads")
        assert answer.status_code == 200, answer.text
        return sorted(w["name"] for w in answer.json()["workloads"])

    def projects(self, user: str) -> list[str]:
        return sorted(p["name"] for p in self.ask(user, "GET", "/api/v1/org-unit/projects").json()["projects"])

    def submit(self, user: str, name: str, project: str) -> httpx.Response:
        project_id = next(p["id"] for p in self.owner_projects() if p["name"] == project)
        body = {
            "name": name,
            "projectId": project_id,
            "clusterId": "any",
            "spec": {
                "image": self.image,
                "command": "true",
                "distributedFramework": "PyTorch",
                "numWorkers": 1,
            },
        }
        body["clusterId"] = self.ask("", "GET", "/api/v1/clusters", token=self.owner_token()).json()[0]["uuid"]
        return self.ask(user, "POST", "/api/v1/workloads/distributed", body)

    def owner_token(self) -> str:
        return (self.served.data / "token").read_text().strip()

    def owner_projects(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("", "GET", "/api/v1/org-unit/projects", token=self.owner_token()).json()[
            "projects"
        ]
        return found


def settle(tenants: Tenants) -> Tenants:
    tenants.served.up("--kubeconfig", str(tenants.kubeconfig), "--install-crds")
    tenants.role("researcher")
    for team, user in zip(TEAMS, ("ana", "bob"), strict=True):
        tenants.served.run("rowlock", "project", "create", team)
        image = ("-i", tenants.image, "--workers=1", "-p", team)
        tenants.served.run("runai", "submit-dist", "pytorch", f"of-{user}", *image, "--", "true")
        tenants.account(user)
        tenants.bind(user, "researcher", f"runai-{team}")
    tenants.account("carl")
    return tenants


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def tenants(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    home = tmp_path_factory.mktemp("served")
    if request.param == "real":
        if missing := real_cluster_missing(operator=True):
            pytest.skip(missing)
        with real_cluster(tmp_path_factory.mktemp("real"), "--operator") as kubeconfig, lent(home) as made:
            yield settle(Tenants(made, kubeconfig, image="localhost/host:1"))
        return
    other = tmp_path_factory.mktemp("other")
    with embedded_server(other, "rowlock.serve", "--warm-start", "off") as kubeconfig, lent(home) as made:
        yield settle(Tenants(made, kubeconfig))


def test_each_sees_the_projects_and_workloads_of_his_own(tenants: Tenants) -> None:
    tenants.served.until(lambda: tenants.workloads("ana") == ["of-ana"], "ana's rights are followed")
    assert tenants.workloads("bob") == ["of-bob"] and tenants.workloads("carl") == []
    assert [tenants.projects(user) for user in ("ana", "bob", "carl")] == [["team-a"], ["team-b"], []]


def test_who_he_is_is_what_the_cluster_says(tenants: Tenants) -> None:
    found = tenants.ask("ana", "GET", "/api/v1/workloads").json()["workloads"]
    assert found[0]["name"] == "of-ana"
    for token in ("nobody.knows.this", "x" * 40, tenants.tokens["ana"][:-4] + "AAAA"):
        refused = tenants.ask("", "GET", "/api/v1/workloads", token=token)
        assert refused.status_code == 401 and "sign in again with a new one" in refused.json()["message"]


def test_a_job_is_written_by_who_submits_it(tenants: Tenants) -> None:
    tenants.served.until(lambda: tenants.projects("ana") == ["team-a"], "ana's rights are followed")
    answer = tenants.submit("ana", "by-ana", "team-a")
    assert answer.status_code == 202, answer.text
    tenants.served.until(lambda: "by-ana" in tenants.workloads("ana"), "the job is shown")
    refused = tenants.submit("ana", "elsewhere", "team-b")
    assert refused.status_code == 400 and "was not found" in refused.text, "as if it were not there"
    assert "elsewhere" not in tenants.served.run("rowlock", "list", "-p", "team-b")


def test_what_is_shown_wrongly_is_refused_by_the_cluster(tenants: Tenants) -> None:
    """Deleting goes out with the user's own token, so nothing depends on what this server believes."""
    tenants.served.until(lambda: tenants.projects("bob") == ["team-b"], "bob's rights are followed")
    job = next(
        w for w in json.loads(tenants.served.run("rowlock", "list", "-p", "team-a", "--json")) if w["name"] == "of-ana"
    )
    for user, codes in (("bob", (403, 404)), ("carl", (403, 404))):
        assert tenants.ask(user, "DELETE", f"/api/v1/workloads/distributed/{job['id']}").status_code in codes
        assert tenants.ask(user, "GET", f"/api/v1/workloads/{job['id']}").status_code in codes
        path = "/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs/of-ana"
        assert tenants.ask(user, "GET", path).status_code == 403
    assert "of-ana" in tenants.workloads("ana")


def test_rights_that_are_taken_away_count(tenants: Tenants) -> None:
    tenants.account("dora")
    tenants.bind("dora", "researcher", "runai-team-b")
    tenants.served.until(lambda: tenants.projects("dora") == ["team-b"], "dora's rights are followed")
    tenants.admin("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/runai-team-b/rolebindings/dora")
    tenants.served.until(lambda: tenants.projects("dora") == [], "they are taken away")


def log_in(tenants: Tenants, client_id: str, secret: str) -> httpx.Response:
    """As Run:ai's Python client does."""
    body = {"grantType": "app_token", "AppId": client_id, "AppSecret": secret}
    return tenants.ask("", "POST", "/api/v1/token", body, token="of nobody")


@pytest.mark.parametrize("client_id", ["default:ana", "system:serviceaccount:default:ana"])
def test_an_application_logs_in_with_a_token_of_the_cluster(tenants: Tenants, client_id: str) -> None:
    answer = log_in(tenants, client_id, tenants.tokens["ana"] + "\n")
    assert answer.status_code == 200, answer.text
    assert answer.json()["accessToken"] == tenants.tokens["ana"] and 3000 < answer.json()["expiresIn"] <= 3607
    form = f"grant_type=client_credentials&client_id={client_id}&client_secret={tenants.tokens['ana']}"
    assert tenants.post_form("/api/v2/token", form).json()["access_token"] == tenants.tokens["ana"]


def test_a_command_line_logs_in_as_an_application(tenants: Tenants) -> None:
    credentials = ("--client-id", "default:ana", "--secret", tenants.tokens["ana"])
    try:
        tenants.served.run("runai", "login", "application", *credentials, "--save")
        said = tenants.served.run("runai", "whoami")
    finally:
        tenants.served.run("runai", "logout")
    assert said.startswith("User: system:serviceaccount:default:ana\nLogged in Id: app:default:ana\nUntil: ")


def test_a_secret_that_does_not_count_says_what_to_do(tenants: Tenants) -> None:
    ana, owner = tenants.tokens["ana"], tenants.owner_token()
    for client_id, secret, words in (
        ("default:ana", ana[:-4] + "AAAA", "is wrong, is over or was taken back; `kubectl create token"),
        ("default:bob", ana, "is the token of system:serviceaccount:default:ana, and not of 'default:bob'"),
        ("ana", ana, "give the name as the client id"),
        ("default:ana", owner, "is the token of the data directory"),
        ("default:ana", "a\nb: c", "a text that can be no token"),
    ):
        refused = log_in(tenants, client_id, secret)
        assert refused.status_code == 400 and words in refused.json()["message"], refused.text
        assert secret not in refused.text


def test_applications_of_a_real_cluster_are_its_service_accounts(tenants: Tenants) -> None:
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", "/ci")):
        body = {"name": "ci"} if method == "POST" else None
        refused = tenants.ask("", method, f"/api/v1/applications{path}", body, token=tenants.owner_token())
        assert refused.status_code == 405 and "kubectl create serviceaccount" in refused.text, refused.text


def test_creates_in_a_namespace_are_passed_on_with_the_users_rights(tenants: Tenants) -> None:
    job = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "passed-on"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}}},
    }  # fmt: skip
    path = "/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs"
    assert tenants.ask("bob", "POST", path, job).status_code == 403
    made = tenants.ask("ana", "POST", path, job)
    assert made.status_code == 201 and made.json()["metadata"]["uid"], made.text
    assert tenants.ask("ana", "POST", path, job).status_code == 409
    for method, below in (("DELETE", f"{path}/passed-on"), ("POST", f"{path}/passed-on/status"), ("PUT", path)):
        refused = tenants.ask("ana", method, below, job)
        assert refused.status_code == 405 and "with its own kubeconfig" in refused.text, refused.text


def test_others_reach_it_where_it_is_bound_but_not_with_the_owners_token(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with embedded_server(tmp_path_factory.mktemp("other"), "rowlock.serve", "--without", "kubelet") as kubeconfig:
        with lent(tmp_path) as made:
            made.up("--kubeconfig", str(kubeconfig), "--bind", "127.0.0.2")
            tenants = Tenants(made, kubeconfig)
            tenants.account("ana")
            (url,) = json.loads((made.data / "server.json").read_text())["others"]
            tls = ssl.create_default_context(cafile=str(made.data / "ca.crt"))
            with httpx.Client(base_url=url, verify=tls) as client:
                for token, code in ((tenants.tokens["ana"], 200), (tenants.owner_token(), 401)):
                    answer = client.get("/api/v1/workloads", headers={"Authorization": f"Bearer {token}"})
                    assert answer.status_code == code, answer.text


def jwt(**claims: Any) -> str:
    return f"eyJ.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.signature"


def test_the_end_of_a_token_is_the_one_that_it_names() -> None:
    assert [seconds_left(jwt(exp=end), 1000) for end in (1600, 1000.9, 5)] == [600, 0, 0]
    for token in ("opaque", "a.b.c", "x.=.y", "a..b", jwt(), jwt(exp="never"), jwt(exp=None)):
        assert seconds_left(token, 1000) == UNLIMITED_SECONDS, token
    assert seconds_left(jwt(exp=1e300), 1000) == MAX_SECONDS


# ------------------------------------------------------------ answers that are kept


REVIEW = {"status": {"userInfo": {"username": "ana", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}}}
NOBODY = Answer(401, refusal(401, "Unauthorized"))
Script = Callable[[ClusterUsers, Scripted, list[float]], Coroutine[Any, Any, None]]


def play(tmp_path: Path, script: Script, *answers: Answer | Callable[[Asked], Answer]) -> None:
    """Run a script against users of a cluster that answers so; the last argument is the time, in seconds."""

    async def body() -> None:
        async with Scripted(*answers).running() as server:
            connection = Connection(Credentials(server.kubeconfig(tmp_path), anonymous=True), Limits(max_tries=1))
            now = [0.0]
            users = ClusterUsers(connection, clock=lambda: now[0], wall_clock=lambda: 1000.0 + now[0])
            try:
                await script(users, server, now)
            finally:
                await users.close()

    asyncio.run(body())


def test_the_cluster_is_asked_with_the_users_token_once_a_minute(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        assert users.find("of-ana") is None, "nobody has asked yet"
        await asyncio.gather(*(users.look_up("of-ana") for _ in range(20)))
        assert users.find("of-ana") == ("ana", ("g",), "7", {"k": ["v"]})
        assert [a.headers["authorization"] for a in server.asked] == ["Bearer of-ana"], (
            "and never with the kubeconfig's"
        )
        now[0] = KNOWN_SECONDS - 1
        await users.look_up("of-ana")
        assert len(server.asked) == 1
        now[0] = KNOWN_SECONDS + EXPIRY_GRACE_S
        assert users.find("of-ana") is None
        await users.look_up("of-ana")
        assert len(server.asked) == 2

    play(tmp_path, script, Answer(201, REVIEW))


def test_a_token_is_asked_about_again_when_it_says_that_it_is_over(tmp_path: Path) -> None:
    token = jwt(exp=1020)

    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        for moment, asked in ((0.0, 1), (19.0, 1), (20.0, 2), (20.5, 2), (21.0, 3)):  # its clock is behind
            now[0] = moment
            await users.look_up(token)
            assert users.find(token) is not None and len(server.asked) == asked, moment
        now[0] = 22.0
        await users.look_up(token)
        assert users.find(token) is None

    play(tmp_path, script, *(Answer(201, REVIEW),) * 3, NOBODY)


def test_who_is_nobody_is_nobody_for_a_while(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        for moment, asked in ((0.0, 1), (UNKNOWN_SECONDS - 1, 1), (UNKNOWN_SECONDS + 1, 2)):
            now[0] = moment
            await users.look_up("guess")
            assert users.find("guess") is None and len(server.asked) == asked

    play(tmp_path, script, NOBODY)


def test_who_is_refused_is_asked_about_anew(tmp_path: Path) -> None:
    """What was remembered of him counts no longer: he is told what to do, and is nobody from then on."""

    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        await users.look_up("of-ana")
        connection = users.connection_of("of-ana")
        with pytest.raises(Unauthorized, match=r"was taken back; sign in again with a new one \(`kubectl create token"):
            await connection.send(Request("POST", "/api/v1/namespaces/a/pods", body={}))
        assert users.find("of-ana") is None and len(server.asked) == 3
        with pytest.raises(Unauthorized, match="sign in again"):
            async with connection.stream(Request("GET", "/log"), endless=True):
                raise AssertionError("it is refused")
        with pytest.raises(Unauthorized, match="sign in again"):
            await connection.client_config(await connection.client_config())
        with pytest.raises(Unauthorized, match="sign in again"):
            await connection.fetch(Request("GET", "/api"))

    play(tmp_path, script, Answer(201, REVIEW), NOBODY)


def test_a_node_that_refuses_the_api_server_signs_nobody_out(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        with pytest.raises(Unavailable, match="your token counts at the cluster, and yet this was refused there: no"):
            await users.connection_of("of-ana").fetch(
                Request("GET", "/api/v1/namespaces/a/pods/p/log", is_relayed=True)
            )
        assert users.find("of-ana") is not None

    play(tmp_path, script, NOBODY, Answer(201, REVIEW))


def test_a_stream_learns_that_the_token_behind_it_counts_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_users, "REVIEW_S", 0.01)

    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        await users.look_up("of-ana")
        now[0] = KNOWN_SECONDS
        assert "sign in again" in await asyncio.wait_for(users.connection_of("of-ana").wait_until_refused(), 200)
        assert len(server.asked) == 3

    play(tmp_path, script, Answer(201, REVIEW), Answer(503, refusal(503, "ServiceUnavailable")), NOBODY)


def test_an_answer_that_ends_between_question_and_use_signs_nobody_out(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        await users.look_up("of-ana")
        now[0] = KNOWN_SECONDS - 0.001
        await users.look_up("of-ana")
        now[0] = KNOWN_SECONDS + 0.001
        assert users.find("of-ana") is not None

    play(tmp_path, script, Answer(201, REVIEW))


@pytest.mark.parametrize("answer", [Answer(500, refusal(500, "InternalError")), Answer(cut=True)])
def test_a_cluster_that_does_not_answer_makes_nobody_a_stranger(tmp_path: Path, answer: Answer) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        with pytest.raises(ApiError):
            await users.look_up("of-ana")
        await users.look_up("of-ana")
        assert users.find("of-ana") is not None

    play(tmp_path, script, answer, Answer(201, REVIEW))


def test_an_anonymous_answer_is_nobodys(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        await users.look_up("odd")
        assert users.find("odd") is None

    play(tmp_path, script, Answer(201, {"status": {"userInfo": {"username": "system:anonymous", "groups": []}}}))


def test_guesses_do_not_keep_the_cluster_busy(tmp_path: Path) -> None:
    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        results = await asyncio.gather(*(users.look_up(f"guess {n}") for n in range(100)), return_exceptions=True)
        assert sum(isinstance(r, TooManyRequests) for r in results) == 100 - MAX_QUESTIONS
        assert len(server.asked) == MAX_QUESTIONS

    play(tmp_path, script, NOBODY)


def test_few_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_users, "MAX_ANSWERS", 3)

    async def script(users: ClusterUsers, server: Scripted, now: list[float]) -> None:
        for n in range(10):
            await users.look_up(f"guess {n}")
        assert len(users._answers) <= 3

    play(tmp_path, script, NOBODY)


def test_anonymous_credentials_have_no_token(tmp_path: Path) -> None:
    """Nor a certificate, whose word an API server takes before a token's: the real cluster's kubeconfig has one (above)."""

    async def anonymous_and_own() -> tuple[str, str]:
        source = tmp_path / "kubeconfig"
        own, anonymous = Credentials(source), Credentials(source, anonymous=True)
        return (await own.renew()).token, (await anonymous.renew()).token

    (tmp_path / "kubeconfig").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    assert asyncio.run(anonymous_and_own()) == ("secret", "")


@pytest.mark.real
def test_the_recipe_for_other_users_is_enough_on_a_real_cluster(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Kubernetes' own `edit` in the namespace of a project, with what `rowlock manifests` adds to it; `view` only looks."""
    if missing := real_cluster_missing(operator=True):
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("real"), "--operator") as kubeconfig, lent(tmp_path) as made:
        (tmp_path / "manifests.yaml").write_text(made.run("rowlock", "manifests"))
        kubectl(kubeconfig, "apply", "--server-side", "-f", str(tmp_path / "manifests.yaml"))
        made.up("--kubeconfig", str(kubeconfig), "--install-crds")
        tenants = Tenants(made, kubeconfig, image="localhost/host:1")
        for team, user, role in (("team-a", "ana", "edit"), ("team-b", "bob", "view")):
            made.run("rowlock", "project", "create", team)
            tenants.account(user)
            tenants.bind(user, role, f"runai-{team}")
        made.until(lambda: tenants.projects("ana") == ["team-a"], "the cluster has added the rights to its roles")
        made.until(lambda: tenants.submit("ana", "of-ana", "team-a").status_code == 202, "ana may submit")
        made.until(lambda: tenants.workloads("ana") == ["of-ana"], "and sees it")
        assert tenants.submit("ana", "of-ana", "team-b").status_code in (400, 403, 404)
        assert tenants.submit("bob", "of-bob", "team-b").status_code == 403 and tenants.projects("bob") == ["team-b"]
