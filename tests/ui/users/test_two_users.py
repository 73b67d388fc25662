"""Two users in two browsers: what the pages of one ask for, asked again with the session of the other, and with halves of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.ui.test_workloads_page import expect

PASSWORD = "correct horse battery"
MARK = "only-ana-knows"
TALKS = f"import time; print({MARK!r}, flush=True); time.sleep(600)"


@dataclass
class Person:
    """A browser of its own, signed in, and what its pages asked for."""

    name: str
    page: Any
    asked: list[tuple[str, str]]
    """Method and URL."""
    sockets: list[str]
    headers: dict[str, str]
    """Those of the last question to the API, which carry the session."""

    def ask(self, method: str, url: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """With nothing but these headers (its own); streams end after a moment. The code, 0 for a stream that goes on, and the text."""
        from playwright.sync_api import Error

        given = self.headers if headers is None else headers
        stranger = self.page.context.browser.new_context(ignore_https_errors=True)
        try:
            answer = stranger.request.fetch(url, method=method, headers=given, timeout=5_000, max_redirects=0)
            return answer.status, answer.text()
        except Error as error:
            assert "imeout" in str(error), error
            return 0, str(error)
        finally:
            stranger.close()


def _sign_in(browser: Any, url: str, name: str) -> Person:
    context = browser.new_context(
        ignore_https_errors=True, viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
    )
    context.set_default_timeout(60_000)
    page = context.new_page()
    person = Person(name, page, [], [], {})

    def note(request: Any) -> None:
        if "/api/v1/" in request.url and request.resource_type in ("fetch", "xhr"):
            person.asked.append((request.method, request.url))
            person.headers.update({k: v for k, v in request.all_headers().items() if not k.startswith(":")})

    page.on("requestfinished", note)
    page.on("websocket", lambda socket: person.sockets.append(socket.url))
    page.goto(url)
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_text(name, exact=True)).to_be_visible()
    return person


@pytest.fixture
def people(chromium: Any, tmp_path: Any) -> Iterator[tuple[Cluster, Person, Person]]:
    with lent(tmp_path) as cluster:
        cluster.up("--simulated-gpus", "2")
        for name, project in (("ana", "team-a"), ("ben", "team-b")):
            cluster.run("rowlock", "project", "create", project, "--gpus", "1")
            cluster.api("POST", "/api/v1/users", {"username": name, "password": PASSWORD})
            cluster.run("rowlock", "access-rule", "create", "--user", name, "--role", "editor", "-p", project)
        cluster.run("rowlock", "down", "--yes")
        cluster.up("--simulated-gpus", "2", "--ui-address", "127.0.0.2")  # it wants somebody who may come
        url = cluster.json("rowlock", "status", "--json")["uiOthers"][0]
        ana, ben = (_sign_in(chromium, url, name) for name in ("ana", "ben"))
        yield cluster, ana, ben
        for person in (ana, ben):
            person.page.goto("about:blank")
            person.page.context.close()


def test_neither_sees_what_is_the_others(people: tuple[Cluster, Person, Person]) -> None:
    cluster, ana, ben = people
    cluster.run("rowlock", "run", "-d", "-p", "team-a", "--name", MARK, "--", "python", "-uc", TALKS)
    cluster.run(
        "rowlock",
        "run",
        "-d",
        "-p",
        "team-b",
        "--name",
        "of-ben",
        "--",
        "python",
        "-uc",
        "import time; time.sleep(600)",
    )
    ana.page.get_by_role("link", name=MARK, exact=True).click()
    for tab in ("Logs", "Terminal"):
        ana.page.get_by_role("tab", name=tab).click()
    ana.page.get_by_role("button", name="CONNECT").click()
    expect(ana.page.get_by_role("button", name="DISCONNECT")).to_be_visible()
    ben.page.get_by_role("link", name="of-ben", exact=True).wait_for()
    assert MARK not in ben.page.content(), "the stream told of it"
    ben.page.goto(ana.page.url)
    expect(ben.page.get_by_text("ben", exact=True)).to_be_visible()
    ben.page.reload()
    expect(ben.page.get_by_text("ben", exact=True)).to_be_visible()
    assert f"print({MARK!r}" not in ben.page.content()

    asked = sorted(set(ana.asked))
    assert len(asked) > 3 and any(MARK in ana.ask(method, url)[1] for method, url in asked if method == "GET"), asked
    told = [(url, text[:300]) for method, url in asked if method == "GET" and MARK in (text := ben.ask(method, url)[1])]
    assert not told, told
    (socket,) = ana.sockets[-1:]
    assert ben.ask("GET", "http" + socket.removeprefix("ws"))[0] in (401, 403, 404)

    cookie = {name: person.headers["cookie"] for name, person in (("ana", ana), ("ben", ben))}
    keys = [
        name for name in ana.headers if ana.headers[name] != ben.headers.get(name) and name not in ("cookie", "referer")
    ]
    assert keys, "a session has a key beside its cookie"
    method, url = next((m, u) for m, u in asked if m == "GET" and MARK in ana.ask(m, u)[1])
    for taken in (
        {**ben.headers, "cookie": cookie["ana"]},
        {**ana.headers, "cookie": cookie["ben"]},
        {k: v for k, v in ana.headers.items() if k not in keys},
        {k: v for k, v in ana.headers.items() if k != "cookie"},
    ):
        code, text = ben.ask(method, url, taken)
        assert code in (401, 403) and MARK not in text, (code, text[:300])
