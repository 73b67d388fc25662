"""A door over the REST API of a store in memory, asked as a browser asks: with the headers that it sets by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from rowlock.browser.door import KEY_HEADER, SESSION_PATH, BrowserDoor
from rowlock.rest.app import RestApi
from rowlock.rest.authentication import Principal
from rowlock.rest.call import RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

OWNER, BOB = "owner-owner-owner-owner", "bob-bob-bob-bob-bob-bob"
PORT = 8123
HOST = f"127.0.0.1:{PORT}"


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Browser:
    """The API's own port (`api`), and the door (`page`) with what a browser keeps for it."""

    api: TestClient
    page: TestClient
    clock: Clock
    store: Store
    key: str = ""
    cookie: str = ""
    banned: set[str] = field(default_factory=set)
    """Tokens that are not accepted any more."""

    def code(self, token: str = OWNER) -> str:
        answer = self.api.post("/api/v1/ui/codes", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 201, answer.text
        url, _, code = answer.json()["url"].partition("#code=")
        assert url == f"http://{HOST}/"
        return str(code)

    def exchange(self, code: str, **headers: str) -> Any:
        return self.page.post(SESSION_PATH, json={"code": code}, headers={"origin": f"http://{HOST}", **headers})

    def log_in(self, token: str = OWNER) -> None:
        answer = self.exchange(self.code(token))
        assert answer.status_code == 200, answer.text
        self.key = answer.json()["key"]
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.page.cookies.clear()

    def ask(self, path: str, method: str = "GET", **headers: str) -> Any:
        own = {"sec-fetch-site": "same-origin", KEY_HEADER: self.key, "cookie": self.cookie}
        return self.page.request(method, path, headers={name: v for name, v in {**own, **headers}.items() if v})


@pytest.fixture
def browser() -> Iterator[Browser]:
    store, clock, banned = Store.open(None), Clock(), set[str]()

    def authenticate(token: str, address: str) -> Principal | None:
        people = {OWNER: Principal(""), BOB: Principal("bob")}
        return None if token in banned else people.get(token)

    settings = RestSettings(token=OWNER, user="ana", authenticate_token=authenticate)
    rest = RestApi(store, settings)
    door = BrowserDoor(rest, OWNER, PORT, version="1.0", clock=clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for kind, obj in bootstrap.initial_objects():
            await store.create(kind, obj)
        running = asyncio.create_task(rest.run())
        yield
        running.cancel()
        await asyncio.wait({running})

    app = Starlette(routes=[door.code_route, Mount("/door", app=door), *rest.routes], lifespan=lifespan)
    with TestClient(app, base_url="https://127.0.0.1:6443") as api:
        assert api.portal is not None
        page = TestClient(door, base_url=f"http://{HOST}")
        page.portal = api.portal  # one event loop for both
        yield Browser(api, page, clock, store, banned=banned)
