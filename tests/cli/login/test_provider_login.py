"""Logins of the command line at an identity provider: a code to type, a browser that comes back, renewal, and who one is then."""

from __future__ import annotations

import json
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.authentication.oidc.provider import Provider, running_provider
from tests.rest.served import EmbeddedServed, call, serving

from rowlock.cli.login import provider as provider_module
from rowlock.cli.session import FILE_NAME
from rowlock.identity.token_sources import IdentityProvider


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.agreed.set()
    running.refuses_refresh, running.lifetime = False, 3600
    return running


@pytest.fixture
def served(tmp_path: Path, provider: Provider, capsys: pytest.CaptureFixture[str]) -> Iterator[EmbeddedServed]:
    with serving(tmp_path, capsys, IdentityProvider.connect(provider.settings())) as server:
        (server.data / "token").unlink()  # of a server elsewhere
        yield server


def session_of(served: EmbeddedServed) -> dict[str, Any]:
    return dict(json.loads((served.data / FILE_NAME).read_text()))


def age(served: EmbeddedServed) -> None:
    """The token of the session has ended."""
    content = {**session_of(served), "expiresAt": time.time() - 1}
    (served.data / FILE_NAME).write_text(json.dumps(content))


@pytest.mark.parametrize("words", ["runai login remote-browser", "rowlock login --device"])
def test_a_code_is_typed_in_another_browser(served: EmbeddedServed, provider: Provider, words: str) -> None:
    provider.agreed.clear()
    threading.Timer(1.5, provider.agreed.set).start()
    said = served.ok(words)
    assert f"Open {provider.url}/type in any browser, and type the code ABCD-EFGH" in said
    assert said.endswith("Logged in successfully\n")
    file = served.data / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    answer = json.loads(served.ok("rowlock login --device --json"))
    assert (answer["result"], answer["username"]) == ("logged in", "oidc:ana@lab.example") and answer["until"] > "2026"
    said = served.ok("runai whoami")
    assert re.fullmatch(
        r"User: oidc:ana@lab.example\nLogged in Id: oidc:ana@lab.example\nUntil: [-\d: ]+ UTC, then renewed by itself\n",
        said,
    )
    told = served.ok("rowlock logout")
    assert told.startswith(
        "Logged out successfully\nYour session at 127.0.0.1 goes on. End it there: https://127.0.0.1:"
    ), told
    assert not file.exists()


def test_a_browser_of_this_machine_comes_back(
    served: EmbeddedServed, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser is played: it opens what the command prints, and follows where it is sent."""
    pages: list[httpx.Response] = []
    wait = provider_module._wait_for_code

    def visit(url: str) -> None:
        where = httpx.get(url, verify=False).headers["location"]
        pages.append(httpx.get(re.sub("state=[^&]+", "state=guess", where)))
        pages.append(httpx.get(where))

    def wait_and_visit(back: Any) -> str:
        url = served.capsys.readouterr().out.split("\n")[1]
        threading.Thread(target=visit, args=(url,), daemon=True).start()
        return wait(back)

    monkeypatch.setattr(provider_module, "_wait_for_code", wait_and_visit)
    assert served.ok("rowlock login --oidc").endswith("Logged in successfully\n")
    while len(pages) < 2:
        time.sleep(0.01)
    assert [page.status_code for page in pages] == [404, 200], "an answer to another login is none to this one"
    assert "close" in pages[1].text and "default-src 'none'" in pages[1].headers["content-security-policy"]
    assert served.ok("rowlock whoami").startswith("User: oidc:ana@lab.example\n")


def test_a_token_that_ends_is_renewed_until_the_provider_says_no(served: EmbeddedServed, provider: Provider) -> None:
    served.ok("rowlock login --device")
    before = session_of(served)
    age(served)
    assert served.ok("rowlock whoami").startswith("User: oidc:ana@lab.example\n")
    after = session_of(served)
    assert after["refreshToken"] != before["refreshToken"] and after["expiresAt"] > time.time()
    provider.refuses_refresh = True
    age(served)
    code, _, err = served.run("rowlock list")
    assert code == 1 and "the session was ended" in err and "`rowlock login --oidc`" in err


def test_what_does_not_go_together_is_said(served: EmbeddedServed) -> None:
    for words, says in (
        ("rowlock login -u ana --oidc", "give one of them"),
        ("rowlock login -p x", "needs a name"),
        ("rowlock login --oidc --listen-host 0.0.0.0", "for this machine alone"),
        ("rowlock login --oidc --listen-port 99999", "choose another --listen-port"),
    ):
        code, _, err = served.run(words)
        assert code != 0 and says in err, (words, err)


def test_without_a_provider_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path, capsys) as served:
        code, _, err = served.run("rowlock login --oidc")
        assert code == 1 and "knows no identity provider" in err
        assert served.ok("rowlock login") == "Logged in successfully\n", "the owner is who he is"
        assert call("runai", ["login", "sso"], served.data, capsys)[0] == 0
