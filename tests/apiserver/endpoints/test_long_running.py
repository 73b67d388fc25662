"""Watches and followed logs that were begun with access, and go on without: they end."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from tests.apiserver.conftest import Running
from tests.waiting import PATIENCE, until

from rowlock import kinds
from rowlock.api import LogOptions
from rowlock.apiserver.http.requests import Call, Target
from rowlock.authentication.users import User
from rowlock.authorization import open_requests
from rowlock.authorization.open_requests import LongRunningRequests
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.errors import Unauthorized, Unavailable
from rowlock.storage.store import Store

Undo = Callable[[], object]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Stream(threading.Thread):
    """One long answer, read until it ends."""

    def __init__(self, server: Running, path: str, token: str) -> None:
        super().__init__(daemon=True)
        tls = ssl.create_default_context(cafile=str(server.ca))
        head = {"authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=server.url, verify=tls, headers=head, timeout=PATIENCE)
        self._path, self.code, self.text = path, 0, ""
        self.start()

    def run(self) -> None:
        try:
            with self._client.stream("GET", self._path) as answer:
                self.code = answer.status_code
                for piece in answer.iter_text():
                    self.text += piece
        except httpx.TransportError:
            pass  # it is cut off: nobody may take it for the whole
        self._client.close()


@pytest.fixture
def account(client: httpx.Client, space: str) -> str:
    """A token of the account `mole`, which may watch Secrets and read logs in the namespace by the binding `mole`."""
    name = space.rpartition("/")[2]
    client.post(f"{space}/serviceaccounts", json={"metadata": {"name": "mole"}}).raise_for_status()
    rules = [{"apiGroups": [""], "resources": ["secrets", "pods/log"], "verbs": ["get", "list", "watch"]}]
    client.post(
        f"{RBAC}/namespaces/{name}/roles", json={"metadata": {"name": "mole"}, "rules": rules}
    ).raise_for_status()
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mole"}
    subject = {"kind": "ServiceAccount", "name": "mole", "namespace": name}
    body = {"metadata": {"name": "mole"}, "roleRef": role, "subjects": [subject]}
    client.post(f"{RBAC}/namespaces/{name}/rolebindings", json=body).raise_for_status()
    answer = client.post(f"{space}/serviceaccounts/mole/token", json={"spec": {"expirationSeconds": 600}})
    return str(answer.json()["status"]["token"])


class Ticking:
    async def __call__(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        while True:
            yield b"tick\n"
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def soon(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(open_requests, "REVIEW_S", 0.05)
    monkeypatch.setattr(server.store, "log", Ticking())
    yield


@pytest.mark.parametrize("lost", ["token", "right"])
def test_what_is_open_ends_with_the_access(
    server: Running, client: httpx.Client, space: str, account: str, lost: str
) -> None:
    """The next owner of the namespace's name would have shown its Secrets to the one who was there before."""
    name = space.rpartition("/")[2]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}
    client.post(f"{space}/pods", json=pod).raise_for_status()
    watch, log = (
        Stream(server, f"{space}/{path}", account) for path in ("secrets?watch=true", "pods/p/log?follow=true")
    )
    until(lambda: watch.code == log.code == 200 and "tick" in log.text, "both are open")
    client.post(f"{space}/secrets", json={"metadata": {"name": "before"}}).raise_for_status()
    until(lambda: "before" in watch.text, "the watch is told")
    gone = f"{space}/serviceaccounts/mole" if lost == "token" else f"{RBAC}/namespaces/{name}/rolebindings/mole"
    client.delete(gone).raise_for_status()
    for stream in (watch, log):
        stream.join(PATIENCE)
        assert not stream.is_alive(), "it goes on"
    client.post(f"{space}/secrets", json={"metadata": {"name": "after"}}).raise_for_status()
    assert "after" not in watch.text


def test_whose_access_lasts_is_not_disturbed(
    server: Running, client: httpx.Client, space: str, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, find = [0], open_requests._find_refusal

    async def count(call: Call) -> object:
        checked[0] += 1
        return await find(call)

    monkeypatch.setattr(open_requests, "_find_refusal", count)
    watch = Stream(server, f"{space}/secrets?watch=true&timeoutSeconds=60", account)
    until(lambda: checked[0] > 5, "it was looked at")
    client.post(f"{space}/secrets", json={"metadata": {"name": "later"}}).raise_for_status()
    until(lambda: "later" in watch.text, "the watch goes on")
    client.delete(f"{space}/serviceaccounts/mole").raise_for_status()
    watch.join(PATIENCE)


def test_a_thousand_requests_of_one_user_are_one_check_and_an_unknown_answer_ends_nothing() -> None:
    answers: list[Exception | User] = [Unavailable("the provider is away"), ValueError("a bug"), User("ana")]
    asked = list[str]()

    async def identify() -> tuple[User, str]:
        asked.append("ana")
        answer = answers.pop(0) if answers else Unauthorized("gone")
        if isinstance(answer, Exception):
            raise answer
        return answer, ""

    async def one(requests: LongRunningRequests, authorizer: RbacAuthorizer) -> None:
        call = Call("GET", "/", {}, {}, User("ana"), authorizer, identify=identify)
        with requests.hold(call, "watch", Target(kinds.POD)):
            await asyncio.Event().wait()

    async def body() -> None:
        requests, authorizer = LongRunningRequests(1000), RbacAuthorizer(Store.open(None).view)
        ends = await asyncio.gather(*(one(requests, authorizer) for _ in range(1000)), return_exceptions=True)
        assert {type(end) for end in ends} == {Unauthorized} and len(asked) == 4
        assert not requests._open and not requests._counts

    asyncio.run(body())


def test_a_watch_begins_no_earlier_than_its_namespace(client: httpx.Client) -> None:
    spaces, name = "/api/v1/namespaces", "taken-again"
    secrets = f"{spaces}/{name}/secrets"
    client.post(spaces, json={"metadata": {"name": name}}).raise_for_status()
    made = client.post(secrets, json={"metadata": {"name": "theirs"}}).raise_for_status().json()
    since = int(made["metadata"]["resourceVersion"]) - 1
    first = client.get(secrets, params={"watch": "true", "resourceVersion": since, "timeoutSeconds": 3})
    assert '"ADDED"' in first.text and "theirs" in first.text
    client.delete(f"{spaces}/{name}").raise_for_status()
    until(lambda: client.get(f"{spaces}/{name}").status_code == 404, "the namespace is gone")
    client.post(spaces, json={"metadata": {"name": name}}).raise_for_status()
    again = client.get(secrets, params={"watch": "true", "resourceVersion": since, "timeoutSeconds": 3})
    assert "theirs" not in again.text and again.json()["object"]["code"] == 410
    exact: dict[str, str | int] = {"resourceVersion": since + 1, "resourceVersionMatch": "Exact"}
    assert client.get(secrets, params=exact).status_code == 410
