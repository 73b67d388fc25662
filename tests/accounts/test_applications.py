"""Applications: programs that log in with a client id and a secret, as Run:ai's clients do."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.accounts import login_limits
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.authentication.access_tokens import AccessTokens
from rowlock.authentication.service_account_tokens import KEY_FILE, ServiceAccountTokens
from rowlock.authorization import bootstrap_policy
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.http_server.certificates import ensure_certificates
from rowlock.identity.token_sources import rest_authenticator, token_issuer
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

OWNER = "owner-owner-owner-owner"
APPLICATIONS, TOKEN, WORKLOADS = "/api/v1/applications", "/api/v1/token", "/api/v1/workloads"


class Platform:
    """Both faces over one store, as `assembly.py` puts them together, at a time that the test sets."""

    def __init__(self, directory: Path) -> None:
        ensure_certificates(directory)
        self.now = 1_800_000_000.0
        self.store = Store.open(None, admission=AdmissionChain, patches=Patcher())
        accounts = ServiceAccountTokens(directory / KEY_FILE, self.store.view, clock=lambda: self.now)
        tokens = AccessTokens(accounts, self.store.view, clock=lambda: self.now)
        settings = ApiServerSettings(OWNER, service_accounts=accounts, access_tokens=tokens)
        authorizer = RbacAuthorizer(self.store.view)
        rest_settings = RestSettings(
            token=OWNER,
            authenticate_token=rest_authenticator(settings, authorizer),
            issue_token=token_issuer(settings),
        )
        self.rest = RestApi(self.store, rest_settings, clock=lambda: self.now)
        self.app = application.application(self.rest.routes, self.store, settings, None, authorizer)

    async def ask(self, method: str, path: str, body: Any = None, token: str = OWNER) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(transport=transport, base_url="https://127.0.0.1", headers=headers) as client:
            return await client.request(
                method, path, **({"content": body} if isinstance(body, str) else {"json": body})
            )

    async def make(self, name: str = "ci") -> dict[str, Any]:
        answer = await self.ask("POST", APPLICATIONS, {"name": name})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    async def log_in(self, made: dict[str, Any]) -> str:
        body = {"grantType": "client_credentials", "clientId": made["clientId"], "clientSecret": made["clientSecret"]}
        answer = await self.ask("POST", TOKEN, body, "")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["accessToken"])

    async def bind(self, user: str) -> None:
        role = {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": "rowlock:viewer"}
        subject = {"apiGroup": kinds.ROLE.group, "kind": "User", "name": user}
        await self.store.create(
            kinds.CLUSTER_ROLE_BINDING, {"metadata": {"name": "x"}, "roleRef": role, "subjects": [subject]}
        )


@pytest.fixture
def play(tmp_path: Path) -> Any:
    def run(check: Any) -> None:
        async def main() -> None:
            platform = Platform(tmp_path)
            for kind, obj in [*bootstrap.initial_objects(), *bootstrap_policy.initial_objects()]:
                await platform.store.create(kind, obj)
            cache = asyncio.create_task(platform.rest.run())
            await check(platform)
            cache.cancel()

        asyncio.run(main())

    return run


def test_an_application_logs_in_and_may_do_what_it_is_bound_to(play: Any) -> None:
    async def check(platform: Platform) -> None:
        made = await platform.make()
        token = await platform.log_in(made)
        payload = token.split(".")[1]
        claims = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True))  # as runapy reads it
        assert (claims["sub"], claims["exp"]) == ("app:ci", 1_800_003_600)
        assert (await platform.ask("GET", "/api/v1/nodes", token=token)).status_code == 403
        await platform.bind("app:ci")
        assert (await platform.ask("GET", "/api/v1/nodes", token=token)).status_code == 200
        assert (await platform.ask("GET", WORKLOADS, token=token)).json() == {"workloads": []}
        assert (await platform.ask("GET", APPLICATIONS, token=token)).status_code == 403

    play(check)


def test_a_token_ends_after_an_hour_or_with_its_application(play: Any) -> None:
    async def check(platform: Platform) -> None:
        made = await platform.make()
        token = await platform.log_in(made)
        platform.now += 3599
        assert (await platform.ask("GET", WORKLOADS, token=token)).status_code == 200
        platform.now += 1
        assert (await platform.ask("GET", WORKLOADS, token=token)).status_code == 401
        token = await platform.log_in(made)
        assert (await platform.ask("DELETE", f"{APPLICATIONS}/{made['id']}")).status_code == 202
        assert (await platform.ask("GET", WORKLOADS, token=token)).status_code == 401
        await platform.make()
        assert (await platform.ask("GET", WORKLOADS, token=token)).status_code == 401

    play(check)


def test_nobody_is_told_the_secret_again(play: Any) -> None:
    async def check(platform: Platform) -> None:
        made = await platform.make()
        assert len(made["clientSecret"]) == 64
        listed = (await platform.ask("GET", APPLICATIONS)).json()["applications"]
        assert [one["name"] for one in listed] == ["ci"] and "clientSecret" not in listed[0]
        assert all(made["clientSecret"] not in json.dumps(one) for one in platform.store.view.all(kinds.SECRET))
        again = await platform.ask("POST", APPLICATIONS, {"name": "ci"})
        assert (again.status_code, "already exists" in again.json()["message"]) == (409, True)

    play(check)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"grantType": "app_token", "AppId": None, "AppSecret": None}, "app_token needs appid and appsecret"),
        ({"grantType": "client_credentials", "clientID": "ci", "clientSecret": "x"}, "is wrong"),
        ({"grantType": "client_credentials", "clientID": "other", "clientSecret": "x"}, "is wrong"),
        ({"grantType": "client_credentials", "clientID": ["ci"], "clientSecret": "x"}, "needs clientid"),
        ({"grantType": "password", "username": "a", "password": "b"}, "issues no tokens for 'password'"),
        ([], "client_credentials needs"),
    ],
)
def test_a_login_that_fails_is_one_sentence(play: Any, body: Any, said: str) -> None:
    async def check(platform: Platform) -> None:
        await platform.make()
        answer = await platform.ask("POST", TOKEN, body, "")
        assert (answer.status_code, said in answer.json()["message"]) == (400, True), answer.text

    play(check)


def test_every_spelling_of_the_fields_is_understood(play: Any) -> None:
    async def check(platform: Platform) -> None:
        made = await platform.make()
        for grant, first, second in (
            ("client_credentials", "clientID", "clientSecret"),
            ("app_token", "AppId", "AppSecret"),
            ("app_token", "appID", "appSecret"),
        ):
            body = {"grantType": grant, first: made["clientId"], second: made["clientSecret"]}
            assert (await platform.ask("POST", TOKEN, body, "")).json()["expiresIn"] == 3600
        form = f"grant_type=client_credentials&client_id={made['clientId']}&client_secret={made['clientSecret']}"
        answer = await platform.ask("POST", "/api/v2/token", form, "")
        assert (answer.status_code, answer.json()["token_type"]) == (200, "Bearer")
        answer = await platform.ask("POST", "/api/v2/token", form + "x", "")
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")

    play(check)


def test_who_guesses_is_slowed_down(play: Any) -> None:
    async def check(platform: Platform) -> None:
        made = await platform.make()
        wrong = {"grantType": "client_credentials", "clientId": "ci", "clientSecret": "x"}
        codes = [
            (await platform.ask("POST", TOKEN, wrong, "")).status_code for _ in range(login_limits.MAX_FAILURES + 1)
        ]
        assert codes == [400] * login_limits.MAX_FAILURES + [429]
        right = {**wrong, "clientSecret": made["clientSecret"]}
        assert (await platform.ask("POST", TOKEN, right, "")).status_code == 429
        platform.now += login_limits.WINDOW_S
        assert (await platform.ask("POST", TOKEN, right, "")).status_code == 200

    play(check)


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": "A"}, {"name": "a~b"}, {"name": "a" * 64}, {"name": 1}, []]
)
def test_a_name_is_a_label(play: Any, body: Any) -> None:
    async def check(platform: Platform) -> None:
        assert (await platform.ask("POST", APPLICATIONS, body)).status_code == 400

    play(check)


def test_a_login_is_small(play: Any) -> None:
    async def check(platform: Platform) -> None:
        assert (await platform.ask("POST", TOKEN, {"grantType": "x" * 20_000}, "")).status_code == 413

    play(check)


def test_the_next_application_of_a_name_has_none_of_the_rights(play: Any) -> None:
    """Rules of the REST API and bindings of `kubectl`, in one project and in all; others of the same binding keep theirs."""

    async def check(platform: Platform) -> None:
        await platform.make()
        rules = "/api/v1/authorization/access-rules"
        rule = {"subjectType": "app", "subjectId": "ci", "roleName": "viewer", "scopeType": "cluster"}
        assert (await platform.ask("POST", rules, rule)).status_code == 201
        await platform.bind("app:ci")
        group = kinds.ROLE.group
        people = [{"apiGroup": group, "kind": "User", "name": who} for who in ("app:ci", "eve", "app:ci", "ci")]
        shared = {
            "metadata": {"name": "shared", "namespace": "default"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}, "subjects": people,
        }  # fmt: skip
        await platform.store.create(kinds.ROLE_BINDING, shared)
        assert (await platform.ask("DELETE", f"{APPLICATIONS}/ci")).status_code == 202
        token = await platform.log_in(await platform.make())
        assert (await platform.ask("GET", "/api/v1/nodes", token=token)).status_code == 403
        left = platform.store.view.get(kinds.ROLE_BINDING, "default", "shared")
        assert left is not None and [one["name"] for one in left["subjects"]] == ["eve", "ci"]

    play(check)
