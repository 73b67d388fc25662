"""The login page beyond loopback, in a browser: passwords, the identity provider, signing out, a session that ends under an open page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.authentication.oidc.provider import Provider, running_provider
from tests.end_to_end.cluster import Cluster, lent
from tests.ui.test_accessibility import AXE, judge
from tests.ui.test_workloads_page import LONG, expect

PASSWORD = "correct horse battery"


@dataclass
class Site:
    """A server with a login page at 127.0.0.2, and the account ana, an editor of team-a."""

    cluster: Cluster
    provider: Provider
    browser: Any
    url: str = ""
    said: list[str] = field(default_factory=list)

    def open(self, **settings: Any) -> Any:
        """A page of a browser that knows nothing yet."""
        context = self.browser.new_context(
            ignore_https_errors=True,
            **{"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **settings},
        )
        context.set_default_timeout(40_000)
        page = context.new_page()
        page.on("console", lambda message: self._note(message))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(self.url)
        page.get_by_role("heading", name="Sign in", exact=True).wait_for()
        page.get_by_role("button", name="Sign in with Lab").wait_for()
        return page

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.said.append(message.text)


@pytest.fixture(scope="module")
def site(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    with running_provider(home / "provider") as provider, lent(home) as cluster:
        cluster.up("--simulated-gpus", "2", "--ui-address", "127.0.0.2", *provider.flags())
        cluster.run("rowlock", "project", "create", "team-a", "--gpus", "2")
        cluster.api("POST", "/api/v1/users", {"username": "ana", "password": PASSWORD})
        for name in ("ana", "oidc:ana@lab.example"):
            cluster.run("rowlock", "access-rule", "create", "--user", name, "--role", "editor", "-p", "team-a")
        made = Site(cluster, provider, chromium)
        made.url = cluster.json("rowlock", "status", "--json")["uiOthers"][0]
        yield made
        assert not made.said, made.said


def log_in(page: Any, password: str = PASSWORD, user: str = "ana") -> None:
    """With the keyboard alone."""
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")


def expect_inside(page: Any, user: str) -> None:
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text(user, exact=True)).to_be_visible()


def test_a_password_leads_in_and_signing_out_leads_back(site: Site) -> None:
    page = site.open()
    log_in(page, "wrong horse")
    expect(page.get_by_role("alert")).to_have_text("The user name or the password is wrong.")
    log_in(page)
    expect_inside(page, "ana")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.reload()
    expect_inside(page, "ana")
    other = page.context.new_page()
    other.goto(site.url)
    expect_inside(other, "ana")
    page.get_by_role("button", name="Sign out").click()
    for one in (page, other):
        expect(one.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    log_in(page)
    expect_inside(page, "ana")
    expect_inside(other, "ana")
    page.context.close()


@contextmanager
def held_until_left(page: Any, pattern: str) -> Iterator[None]:
    """The requests of a page to these addresses wait until the block is left."""
    held: list[Any] = []
    page.route(pattern, lambda route: held.append(route))
    yield
    page.unroute(pattern)
    assert held, f"nothing was asked for at {pattern}"
    for route in held:
        route.continue_()


# Every page keeps the port of the worker that holds the stream of all pages, so that a test can say late what it said.
KEEP_PORT = """
const Real = SharedWorker;
window.SharedWorker = class extends Real {
  constructor(...given) { super(...given); window.streamPort = this.port; }
};
"""
SAY_LATE = "state => streamPort.dispatchEvent(new MessageEvent('message', { data: { type: 'state', ...state } }))"
KEY = "localStorage.getItem('rowlock.key')"


def test_what_is_said_late_of_an_ended_session_ends_no_newer_one(site: Site) -> None:
    """By the stream of all pages, and by a request that was on its way: the answer 401 is to the session of before."""
    page = site.open()
    page.context.add_init_script(KEEP_PORT)
    page.reload()
    log_in(page)
    expect_inside(page, "ana")
    other = page.context.new_page()
    held: list[Any] = []
    other.route(
        "**/api/v1/**", lambda route: held.append(route) if "/ui/" not in route.request.url else route.continue_()
    )
    with other.expect_request(lambda request: "/api/v1/" in request.url and "/ui/" not in request.url):
        other.goto(f"{site.url}#/nodes")
    expect_inside(other, "ana")
    ended = page.evaluate(KEY)
    page.get_by_role("button", name="Sign out").click()
    for one in (page, other):
        expect(one.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    with held_until_left(other, "**/api/v1/ui/session"):  # the other page begins when the stream of all is live already
        log_in(page)
        expect_inside(page, "ana")
    expect_inside(other, "ana")
    begun = page.evaluate(KEY)
    assert begun not in (None, ended)
    page.evaluate(SAY_LATE, {"state": "signed-out", "key": ended})
    late = [route for route in held if route.request.headers["x-rowlock-key"] == ended]
    assert late, "no request of the first session was held"
    for route in late:
        with other.expect_event("requestfinished", lambda request, asked=route.request: request == asked):
            route.fulfill(status=401, json={"message": "The session is over."})
    for one in (page, other):
        one.evaluate("new Promise(requestAnimationFrame)")
        expect_inside(one, "ana")
    assert page.evaluate(KEY) == begun
    other.unroute_all(behavior="ignoreErrors")
    page.context.close()


def test_the_provider_leads_in_and_back_to_where_one_was(site: Site) -> None:
    page = site.open()
    page.goto(f"{site.url}#/queue")
    page.get_by_role("button", name="Sign in with Lab").click()
    expect_inside(page, "oidc:ana@lab.example")
    assert page.url == f"{site.url}#/queue"
    cookies = [one for one in page.context.cookies() if one["domain"] == "127.0.0.2"]
    assert [(one["httpOnly"], one["secure"], one["sameSite"]) for one in cookies] == [(True, True, "Strict")]
    page.context.close()


def test_a_session_that_ends_takes_its_terminal_and_leads_back(site: Site) -> None:
    site.cluster.run("rowlock", "run", "-d", "-p", "team-a", "--name", "talks", "--", "python", "-uc", LONG)
    page = site.open()
    log_in(page)
    page.get_by_role("link", name="talks", exact=True).click()
    page.get_by_role("tab", name="Terminal").click()
    with page.expect_websocket() as opened:
        page.get_by_role("button", name="CONNECT").click()
    expect(page.get_by_role("button", name="DISCONNECT")).to_be_visible()
    where = page.url
    site.cluster.run("rowlock", "user", "logout", "ana")
    if not opened.value.is_closed():
        opened.value.wait_for_event("close", timeout=30_000)
    expect(page.get_by_role("alert")).to_contain_text("Your session is over")
    log_in(page)
    expect_inside(page, "ana")
    assert page.url == where
    page.context.close()


FORM_DRAFT = "sessionStorage.getItem('rowlock.draft')"


def fill_form(page: Any) -> str:
    """The form of a new training, with a name; its address."""
    page.get_by_role("button", name="New Workload").click()
    page.get_by_role("menuitem", name="Training").click()
    page.get_by_label("Training name").fill("half-done")
    page.wait_for_function(f"(({FORM_DRAFT}) ?? '').includes('half-done')")
    return str(page.url)


def test_a_form_outlives_the_session_for_who_typed_it(site: Site) -> None:
    page = site.open()
    log_in(page)
    where = fill_form(page)
    site.cluster.run("rowlock", "user", "logout", "ana")
    expect(page.get_by_role("alert")).to_contain_text("Your session is over")
    log_in(page)
    expect(page.get_by_label("Training name")).to_have_value("half-done")
    assert page.url == where
    other = page.context.new_page()
    other.goto(site.url)
    expect_inside(other, "ana")
    with other.expect_navigation():  # it loads itself again; a browser that is closed meanwhile may never answer
        other.get_by_role("button", name="Sign out").click()
    for one in (page, other):
        expect(one.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    assert page.evaluate(FORM_DRAFT) is None, "signing out forgets it, in all tabs"
    page.context.close()


def test_a_form_is_shown_to_nobody_else(site: Site) -> None:
    site.cluster.api("POST", "/api/v1/users", {"username": "bob", "password": PASSWORD})
    site.cluster.run("rowlock", "access-rule", "create", "--user", "bob", "--role", "editor", "-p", "team-a")
    page = site.open()
    log_in(page)
    fill_form(page)
    site.cluster.run("rowlock", "user", "logout", "ana")
    expect(page.get_by_role("alert")).to_contain_text("Your session is over")
    log_in(page, user="bob")
    expect(page.get_by_text("bob", exact=True)).to_be_visible()
    expect(page.get_by_label("Training name")).to_have_value("")
    assert page.evaluate(FORM_DRAFT) is None
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_it_fits_a_phone(site: Site, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make ui` installs it")
    page = site.open(color_scheme=scheme)
    assert judge(page) == []
    picture(page, f"login-{scheme}")
    log_in(page, "wrong horse")
    expect(page.get_by_role("alert")).to_be_visible()
    assert judge(page) == [], "a refusal"
    page.context.close()
    phone = site.open(color_scheme=scheme, viewport={"width": 375, "height": 720})
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(phone, f"login-{scheme}-phone")
    phone.context.close()


def test_who_guesses_is_told_to_wait(site: Site) -> None:
    """The last test of the file: ana waits from here on."""
    page = site.open()
    for _ in range(10):
        log_in(page, "wrong horse")
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_enabled()
        expect(page.get_by_role("alert")).to_be_visible()
        if "too many" in page.get_by_role("alert").inner_text():
            break
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text("try again in")
    page.context.close()


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("ROWLOCK_UI_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))
