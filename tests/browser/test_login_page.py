"""People who log in at the door: with a password, at an identity provider; what ends a session ends all that it has open."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.authentication.oidc.provider import Provider, running_provider
from tests.browser.conftest import OWNER, PORT, Clock

from rowlock.accounts.user_accounts import FAILURES_OF_ONE, UserAccount, UserAccounts
from rowlock.audit.audit_log import AuditLog
from rowlock.browser import login_page, open_requests
from rowlock.browser.door import KEY_HEADER, SESSION_PATH, BrowserDoor, Elsewhere
from rowlock.browser.login_page import CALLBACK_PATH, LOGIN_PATH, PROVIDER_PATH
from rowlock.browser.sessions import BrowserLogin
from rowlock.errors import ApiError, Unauthorized
from rowlock.identity.token_sources import IdentityProvider
from rowlock.rest.app import RestApi
from rowlock.rest.authentication import Principal
from rowlock.rest.call import AccessToken, RestSettings
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

LAN_PORT = 8443
LAN = f"gpu-box:{LAN_PORT}"
PASSWORD = "correct horse"


@dataclass
class Site:
    """The door beyond loopback, and a browser's memory of it."""

    page: TestClient
    door: BrowserDoor
    provider: Provider
    identity: IdentityProvider
    accounts: UserAccounts
    clock: Clock
    audit_file: Path
    key: str = ""

    def do(self, work: Any) -> Any:
        assert self.page.portal is not None
        return self.page.portal.call(work)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        own = {"origin": f"https://{LAN}", "sec-fetch-site": "same-origin", KEY_HEADER: self.key}
        return self.page.post(path, json=body, headers={**own, **headers})

    def ask(self, path: str, method: str = "GET", **headers: str) -> Any:
        return self.page.request(method, path, headers={KEY_HEADER: self.key, **headers})

    def log_in(self, password: str = PASSWORD) -> Any:
        answer = self.post(LOGIN_PATH, {"username": "ana", "password": password})
        self.key = answer.json().get("key", "")
        return answer

    def go_to_provider(self) -> str:
        """And back: the address to which the provider sends the browser."""
        answer = self.post(PROVIDER_PATH, {})
        assert answer.status_code == 200, answer.text
        url = answer.json()["url"]
        back = httpx.get(url, verify=_trusting(self.provider), follow_redirects=False)
        assert back.status_code == 302
        return back.headers["location"]

    def come_back(self, location: str) -> Any:
        """As a browser does, from another site's page."""
        return self.page.get(location, headers={"sec-fetch-site": "cross-site"}, follow_redirects=False)

    def exchange(self, answer: Any) -> Any:
        assert answer.status_code == 303, answer.text
        code = answer.headers["location"].partition("#code=")[2]
        exchanged = self.post(SESSION_PATH, {"code": code})
        self.key = exchanged.json().get("key", "")
        return exchanged


def _trusting(provider: Provider) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(provider.ca_file))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def site(running: Provider, tmp_path: Path) -> Iterator[Site]:
    running.refuses_refresh, running.lifetime = False, 3600
    store, clock, audit = Store.open(None), Clock(), AuditLog(tmp_path)
    import time

    clock.now = time.time()
    accounts = UserAccounts.open(tmp_path, clock)
    identity = IdentityProvider.connect(running.settings())
    generations: dict[str, str] = {}

    async def issue(account: UserAccount) -> AccessToken:
        generations[f"typed-{account.generation}"] = account.name
        return AccessToken(f"typed-{account.generation}", 3600)

    def authenticate(token: str, address: str) -> Principal | None:
        name = generations.get(token, "")
        account = accounts.get(name)
        if account is not None and token == f"typed-{account.generation}":
            return Principal(name)
        user = identity.tokens.find_user(token)
        return Principal("") if token == OWNER else Principal(user.name) if user else None

    settings = RestSettings(
        token=OWNER, user="owner", authenticate_token=authenticate, look_up_token=identity.tokens.look_up,
        accounts=accounts, issue_user_token=issue, oidc=identity.logins,
    )  # fmt: skip
    rest = RestApi(store, settings, audit_log=audit)
    door = BrowserDoor(rest, OWNER, PORT, elsewhere=Elsewhere(LAN_PORT, ("gpu-box",)), clock=clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        for kind, obj in bootstrap.initial_objects():
            await store.create(kind, obj)
        await accounts.create("ana", PASSWORD, "owner")
        running_tasks = [asyncio.create_task(one) for one in (rest.run(), door.run(), audit.run())]
        yield
        for task in running_tasks:
            task.cancel()
        await asyncio.wait(running_tasks)

    with TestClient(Starlette(lifespan=lifespan)) as outer:
        page = TestClient(door, base_url=f"https://{LAN}")
        page.portal = outer.portal
        yield Site(page, door, running, identity, accounts, clock, tmp_path / "audit.jsonl")


# ---------------------------------------------------------------- passwords


def test_the_page_says_which_ways_there_are(site: Site) -> None:
    assert site.ask(LOGIN_PATH).json() == {
        "password": True,
        "oidc": {"name": "127.0.0.1"},
        "code": False,
        "token": False,
    }
    local = TestClient(site.door, base_url=f"http://127.0.0.1:{PORT}")
    local.portal = site.page.portal
    assert local.get(LOGIN_PATH).json()["code"] is True


def test_a_password_opens_a_session_of_its_user(site: Site) -> None:
    answer = site.log_in()
    assert answer.status_code == 200
    words = {word.strip().lower() for word in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "secure", "path=/"} <= words
    assert answer.headers["set-cookie"].startswith(f"rowlock-{LAN_PORT}=")
    assert site.ask(SESSION_PATH).json()["user"] == "ana"
    site.key = "0" * 64
    assert site.ask(SESSION_PATH).status_code == 401


def test_wrong_passwords_are_counted_and_said(site: Site) -> None:
    for _ in range(FAILURES_OF_ONE):
        answer = site.log_in("wrong horse")
        assert (answer.status_code, answer.json()["message"]) == (401, "The user name or the password is wrong.")
    answer = site.log_in()
    assert answer.status_code == 429
    assert "try again in" in answer.json()["message"]
    site.clock.now += 301
    assert site.log_in().status_code == 200
    assert site.post(LOGIN_PATH, {"username": "nobody", "password": PASSWORD}).status_code == 401


@pytest.mark.parametrize(
    "body", [{}, [], {"username": "ana"}, {"username": 7, "password": []}, {"username": "a" * 5000}]
)
def test_odd_logins_are_refused_in_a_sentence(site: Site, body: Any) -> None:
    answer = site.post(LOGIN_PATH, body)
    assert answer.status_code in (400, 413) and answer.json()["message"]


def test_another_site_cannot_log_anybody_in(site: Site) -> None:
    person = {"username": "ana", "password": PASSWORD}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
        assert site.post(LOGIN_PATH, person, **headers).status_code == 403
        assert site.post(PROVIDER_PATH, {}, **headers).status_code == 403
    form = site.page.post(LOGIN_PATH, data=person, headers={"origin": f"https://{LAN}"})
    assert form.status_code == 400


def test_the_owners_name_of_a_host_is_not_enough_beyond_loopback(site: Site) -> None:
    answer = site.ask(LOGIN_PATH, host="other-box:8443")
    assert answer.status_code == 403 and "--tls-san" in answer.json()["message"]


def test_a_new_password_ends_sessions(site: Site) -> None:
    site.log_in()
    site.do(lambda: site.accounts.set_password("ana", "another horse"))
    assert site.ask(SESSION_PATH).status_code == 401


def test_logins_are_in_the_audit_log_without_what_was_typed(site: Site) -> None:
    site.log_in("wrong horse")
    site.post(LOGIN_PATH, {"username": "hunter2-by-mistake", "password": "x"})
    site.log_in()
    while not site.audit_file.exists() or site.audit_file.read_text().count(LOGIN_PATH) < 3:
        site.do(lambda: asyncio.sleep(0.01))
    text = site.audit_file.read_text()
    assert '"code":401' in text and '"user":"ana"' in text
    assert "hunter2" not in text and "horse" not in text


# ---------------------------------------------------------------- the identity provider


def test_the_provider_opens_a_session_as_the_code_does(site: Site) -> None:
    back = site.go_to_provider()
    assert back.startswith(f"https://{LAN}{CALLBACK_PATH}?")
    answer = site.exchange(site.come_back(back))
    assert answer.status_code == 200
    assert site.ask(SESSION_PATH).json()["user"] == "oidc:ana@lab.example"
    assert site.come_back(back).status_code == 401, "each login comes back once"


def test_what_the_provider_is_asked(site: Site) -> None:
    answer = site.post(PROVIDER_PATH, {})
    query = {name: values[0] for name, values in parse_qs(urlsplit(answer.json()["url"]).query).items()}
    assert query["redirect_uri"] == f"https://{LAN}{CALLBACK_PATH}"
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["scope"] == "openid email groups"
    assert min(len(query[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    cookie = answer.headers["set-cookie"].lower()
    assert (
        "httponly" in cookie and "samesite=lax" in cookie and f"path={CALLBACK_PATH}" in cookie and "secure" in cookie
    )


def test_a_login_of_another_browser_is_not_ours(site: Site) -> None:
    """Else somebody could have his victim work in a session of his."""
    back = site.go_to_provider()
    site.page.cookies.clear()
    answer = site.come_back(back)
    assert answer.status_code == 401 and "another browser" in answer.text
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: re.sub("state=[^&]+", "state=guess", url), "not known"),
        (lambda url: re.sub("code=[^&]+", "code=guess", url), "the code is not known"),
        (lambda url: re.sub("code=[^&]+", "error=access_denied&error_description=%3Cb%3E", url), "&lt;b&gt;"),
        (lambda url: url + "&iss=https%3A%2F%2Fevil.example", "another provider"),
    ],
)
def test_answers_that_do_not_fit_are_said(site: Site, change: Any, says: str) -> None:
    answer = site.come_back(change(site.go_to_provider()))
    assert answer.status_code == 401
    assert says in answer.text and "<b>" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_token_of_another_login_opens_nothing(site: Site) -> None:
    """The nonce: a code that was stolen and given to somebody else's login."""
    back = site.go_to_provider()
    for asked in site.provider.codes.values():
        asked["nonce"] = "another"
    answer = site.come_back(back)
    assert answer.status_code == 401 and "another login" in answer.text


def test_a_login_that_takes_long_is_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    back = site.go_to_provider()
    monkeypatch.setattr(site.identity.logins, "_clock", lambda: site.clock.now + 3600)
    assert "longer than ten minutes" in site.come_back(back).text


def test_a_providers_session_is_renewed_and_ends_with_it(site: Site) -> None:
    site.exchange(site.come_back(site.go_to_provider()))
    site.clock.now += 3600 - 30
    site.provider.asked.clear()
    assert site.ask(SESSION_PATH).status_code == 200
    while "/token" not in site.provider.asked or site.ask(SESSION_PATH).status_code != 200:
        site.do(lambda: asyncio.sleep(0.01))
    login = next(iter(site.door._sessions._logins.values()))

    async def wait_for_renewal() -> None:  # the provider has answered, and the server may still have to read it
        assert login.renewal is not None
        await login.renewal

    site.do(wait_for_renewal)
    login.expires = site.clock.now
    site.provider.refuses_refresh, login.renew_after = True, 0.0
    site.ask(SESSION_PATH)
    assert login.refresh_token == "", "the provider ended it: nobody asks again"


def test_a_provider_that_is_away_ends_no_session_that_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        login = BrowserLogin("t", expires=site.clock.now + 30, refresh_token="r")
        page = site.door._logins
        site.provider.answers["/token"] = 503
        try:
            await page.renew(login)
            login.renew_after, login.expires = 0.0, site.clock.now
            with pytest.raises(ApiError):
                await page.renew(login)
        finally:
            site.provider.answers.clear()

    site.do(main)


def test_many_who_sign_in_are_slowed_down(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_page, "_STARTS_PER_MINUTE", 2)
    codes = [site.post(PROVIDER_PATH, {}).status_code for _ in range(3)]
    assert codes == [200, 200, 429]


# ---------------------------------------------------------------- ends of sessions


def play_open(site: Site, ends: Any, *, websocket: bool = False) -> list[Any]:
    """A request of a session that would go on for ever, and what `ends` it; the messages that its reader got."""
    sent: list[Any] = []

    async def main() -> None:
        started = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send(
                {"type": "websocket.accept"}
                if websocket
                else {"type": "http.response.start", "status": 200, "headers": []}
            )
            started.set()
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        async def check() -> None:
            if is_over:
                raise Unauthorized("over")

        async def receive() -> Any:
            await asyncio.Event().wait()

        is_over: list[bool] = []
        scope = {"type": "websocket" if websocket else "http"}
        serving = asyncio.create_task(site.door._open.serve("s", app, scope, receive, send, check=check))
        await started.wait()
        ends(is_over)
        async with asyncio.timeout(200):
            await serving

    site.do(main)
    return sent


def test_signing_out_closes_streams_and_terminals(site: Site) -> None:
    stream = play_open(site, lambda _: site.door._open.end("s"))
    assert stream[-1] == {"type": "http.response.body", "body": b""}
    terminal = play_open(site, lambda _: site.door._open.end("s"), websocket=True)
    assert b"The session is over" in terminal[-2]["bytes"] and terminal[-1]["type"] == "websocket.close"


def test_what_is_open_ends_with_its_session(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_requests, "REVIEW_S", 0.01)
    terminal = play_open(site, lambda is_over: is_over.append(True), websocket=True)
    assert terminal[-1]["type"] == "websocket.close"


def test_signing_out_ends_what_the_session_has_open(site: Site) -> None:
    site.log_in()
    (name,) = site.door._sessions._logins
    ended: list[str] = []
    site.door._open.end = ended.append  # type: ignore[method-assign, assignment]
    assert site.ask(SESSION_PATH, "DELETE").status_code == 200
    assert ended == [name]


def test_signing_out_leads_to_the_providers_own_page(site: Site) -> None:
    """Its session would sign the next one in without asking; the ID token, which counts as a password here, stays out of addresses."""
    site.exchange(site.come_back(site.go_to_provider()))
    url = site.ask(SESSION_PATH, "DELETE").json()["providerLogoutUrl"]
    page, _, query = url.partition("?")
    fields = parse_qs(query)
    assert page == f"{site.provider.url}/logout" and set(fields) == {"client_id", "post_logout_redirect_uri"}
    assert fields["post_logout_redirect_uri"][0].endswith("/")
    site.log_in()
    assert site.ask(SESSION_PATH, "DELETE").json()["providerLogoutUrl"] is None, (
        "a password is no affair of the provider's"
    )
