"""A terminal's websocket at the door: who may open one, what the API is asked, and that a refusal reaches the page."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from starlette.types import Receive, Scope, Send
from tests.browser.conftest import BOB, HOST, Browser

from rowlock.browser import open_requests
from rowlock.browser.door import BrowserDoor

EXEC = "/api/v1/namespaces/runai-default/pods/talks-master-0/exec?command=sh&stdin=true&tty=true"


class Api:
    """Stands for the API: notes what it was asked, and answers as told."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.refusal: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await receive()
        if self.refusal is not None:
            await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
            return await send({"type": "websocket.http.response.body", "body": msgspec.json.encode(self.refusal)})
        await send({"type": "websocket.accept", "subprotocol": "v5.channel.k8s.io"})
        await send({"type": "websocket.send", "bytes": b"\x01hello"})
        await send({"type": "websocket.close", "code": 1000})


@pytest.fixture
def api(browser: Browser) -> Api:
    made, door = Api(), browser.page.app
    assert isinstance(door, BrowserDoor)
    door.exec_app = made
    return made


def first_message(browser: Browser, path: str = EXEC, **changed: str) -> bytes:
    own = {"origin": f"http://{HOST}", "host": HOST, "cookie": browser.cookie, **changed}
    key = own.pop("key", browser.key)
    with browser.page.websocket_connect(
        f"ws://{HOST}{path}",
        subprotocols=["v5.channel.k8s.io", f"{open_requests.KEY_PROTOCOL}{key}"],
        headers={name: value for name, value in own.items() if value},
    ) as socket:
        return socket.receive_bytes()


def refusal(message: bytes) -> str:
    assert message[:1] == b"\x03", message
    return str(msgspec.json.decode(message[1:])["message"])


def test_a_session_opens_a_terminal_with_the_token_behind_it(browser: Browser, api: Api) -> None:
    browser.log_in(BOB)
    assert first_message(browser, **{"impersonate-user": "admin", "authorization": "Bearer x"}) == b"\x01hello"
    (scope,) = api.scopes
    headers = dict(scope["headers"])
    assert headers[b"authorization"] == f"Bearer {BOB}".encode()
    assert not {b"cookie", b"impersonate-user"} & headers.keys()
    assert scope["subprotocols"] == ["v5.channel.k8s.io"], "the key goes no further"
    assert browser.key.encode() not in headers[b"sec-websocket-protocol"]
    assert scope["path"] == EXEC.partition("?")[0] and b"tty=true" in scope["query_string"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"origin": ""}, "another site's page"),
        ({"origin": "http://evil.example"}, "another site's page"),
        ({"origin": "http://127.0.0.1:9"}, "another site's page"),
        ({"host": "evil.example"}, "answers to"),
        ({"cookie": ""}, "no session"),
        ({"key": "guess"}, "no session"),
        ({"path": "/api/v1/namespaces/runai-default/pods/talks-master-0/portforward"}, "for terminals alone"),
        ({"path": "/api/v1/namespaces/a/pods/b/exec/../../../secrets"}, "for terminals alone"),
    ],
)
def test_nobody_else_comes_in(browser: Browser, api: Api, changed: dict[str, str], reason: str) -> None:
    browser.log_in()
    assert reason in refusal(first_message(browser, **changed))
    assert not api.scopes


def test_a_refusal_of_the_api_reaches_the_page(browser: Browser, api: Api) -> None:
    browser.log_in(BOB)
    api.refusal = {
        "status": "Failure",
        "message": 'pods "x" is forbidden: User "bob" cannot create resource "pods/exec"',
    }
    assert "cannot create" in refusal(first_message(browser))
