"""Over a real cluster, people sign in with its tokens: the cluster says whose one is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.browser.conftest import HOST, OWNER, PORT

from rowlock.audit.audit_log import AuditLog
from rowlock.browser.door import KEY_HEADER, SESSION_PATH, BrowserDoor
from rowlock.browser.login_page import LOGIN_PATH
from rowlock.errors import Unavailable
from rowlock.gangs.dialects import OWN
from rowlock.rest.app import RestApi
from rowlock.rest.authentication import Principal
from rowlock.rest.call import RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

BEN = "the token of ben"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[TestClient]:
    store, known, audit = Store.open(None), dict[str, str](), AuditLog(tmp_path)

    async def look_up(token: str) -> None:
        """As the cluster answers."""
        if token == "slow":
            raise Unavailable("the cluster does not answer")
        assert token != OWNER, "no cluster knows the owner's token, and none is told it"
        if token == BEN:
            known[token] = "ben"

    def authenticate(token: str, address: str) -> Principal | None:
        return Principal("") if token == OWNER else Principal(known[token]) if token in known else None

    settings = RestSettings(
        token=OWNER, user="ana", authenticate_token=authenticate, look_up_token=look_up, dialect=OWN
    )
    rest = RestApi(store, settings, audit_log=audit)
    door = BrowserDoor(rest, OWNER, PORT)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for kind, obj in bootstrap.initial_objects():
            await store.create(kind, obj)
        running = [asyncio.create_task(one) for one in (rest.run(), audit.run())]
        yield
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    with TestClient(Starlette(lifespan=lifespan)) as outer:
        client = TestClient(door, base_url=f"http://{HOST}")
        client.portal = outer.portal
        yield client


def sign_in(page: TestClient, body: Any) -> Any:
    return page.post(LOGIN_PATH, json=body, headers={"sec-fetch-site": "same-origin"})


@pytest.mark.parametrize(("token", "user"), [(BEN, "ben"), (f" {BEN}\n", "ben"), (OWNER, "ana")])
def test_a_token_opens_a_session_of_its_user(page: TestClient, token: str, user: str) -> None:
    assert page.get(LOGIN_PATH).json() == {"password": False, "oidc": None, "code": True, "token": True}
    answer = sign_in(page, {"token": token})
    assert answer.status_code == 200, answer.text
    session = page.get(SESSION_PATH, headers={KEY_HEADER: answer.json()["key"], "sec-fetch-site": "same-origin"})
    assert (session.json()["user"], session.json()["isReal"]) == (user, True)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"token": "guessed"}, 401, "The cluster does not know this token"),
        ({"token": ""}, 401, "The cluster does not know this token"),
        ({"token": "slow"}, 503, "the cluster does not answer"),
        ({"token": 7}, 400, '{"token": "…"}'),
        ({"username": "ana", "password": "horse"}, 400, '{"token": "…"}'),
    ],
)
def test_what_the_cluster_does_not_know_opens_nothing(page: TestClient, body: Any, code: int, said: str) -> None:
    answer = sign_in(page, body)
    assert answer.status_code == code and said in answer.json()["message"]
    assert "set-cookie" not in answer.headers
