"""Who comes in by the door for browsers, and who does not: codes, both halves of a session, Host, Origin, the headers of answers."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient
from tests.browser.conftest import BOB, HOST, OWNER, PORT, Browser

from rowlock.browser import sessions
from rowlock.browser.door import KEY_HEADER, SESSION_PATH
from rowlock.browser.sessions import BrowserLogin, Sessions
from rowlock.browser.static_files import load_files
from rowlock.errors import Unauthorized

WORKLOADS = "/api/v1/workloads"

# ---------------------------------------------------------------- how many


def test_who_signs_in_again_and_again_ends_nobody_elses_session() -> None:
    known = Sessions(OWNER, lambda: 1000.0)
    other = known.begin(BrowserLogin("another user's token"))
    own = [known.begin(BrowserLogin("one token")) for _ in range(3000)]
    assert known.token_of(other.cookie, other.key) == "another user's token"
    for session in own[: -sessions.SESSIONS_PER_TOKEN]:
        with pytest.raises(Unauthorized, match="this session is over"):
            known.token_of(session.cookie, session.key)
    assert {known.token_of(s.cookie, s.key) for s in own[-sessions.SESSIONS_PER_TOKEN :]} == {"one token"}


def test_sessions_of_many_tokens_have_a_bound_and_their_ends_leave_nothing() -> None:
    known = Sessions(OWNER, lambda: 1000.0)
    begun = [known.begin(BrowserLogin(f"token {number}")) for number in range(sessions._MAX_SESSIONS + 5)]
    with pytest.raises(Unauthorized, match="this session is over"):
        known.token_of(begun[0].cookie, begun[0].key)
    assert len(known._logins) == sessions._MAX_SESSIONS
    for session in begun[5:]:
        known.end(session.cookie, session.key)
        with pytest.raises(Unauthorized, match="this session is over"):
            known.token_of(session.cookie, session.key)
    assert not known._logins and not known._ended


# ---------------------------------------------------------------- codes


def test_a_code_opens_the_door_once(browser: Browser) -> None:
    code = browser.code()
    answer = browser.exchange(code)
    assert answer.status_code == 200
    assert answer.json()["seconds"] == sessions.SESSION_LIFETIME_S
    again = browser.exchange(code)
    assert again.status_code == 401
    assert "rowlock ui" in again.json()["message"]


def test_the_cookie_is_for_this_server_and_no_script(browser: Browser) -> None:
    cookie = browser.exchange(browser.code()).headers["set-cookie"]
    assert cookie.startswith(f"rowlock-{PORT}=")
    words = {word.strip().lower() for word in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", f"max-age={sessions.SESSION_LIFETIME_S}"} <= words


def test_a_code_is_short_lived(browser: Browser) -> None:
    code = browser.code()
    browser.clock.now += sessions.CODE_LIFETIME_S
    assert browser.exchange(code).status_code == 401


def test_attempts_at_a_code_are_limited(browser: Browser) -> None:
    code = browser.code()
    name = code.partition(".")[0]
    for _ in range(sessions.CODE_ATTEMPTS):
        assert browser.exchange(f"{name}.guess").status_code == 401
    assert browser.exchange(code).status_code == 401, "it is worth nothing now"


def test_who_guesses_locks_out_nobody(browser: Browser) -> None:
    """Loopback is one address for all pods of this machine and its owner."""
    code = browser.code()
    for number in range(300):
        assert browser.exchange(f"name-{number}.guess").status_code == 401
    assert browser.exchange(code).status_code == 200


def test_who_asks_for_many_codes_pushes_out_only_his_own(browser: Browser) -> None:
    owners, first = browser.code(), browser.code(BOB)
    for _ in range(sessions.CODES_PER_TOKEN):
        browser.code(BOB)
    assert browser.exchange(first).status_code == 401
    assert browser.exchange(owners).status_code == 200


def test_only_who_has_a_token_gets_a_code(browser: Browser) -> None:
    answer = browser.api.post("/api/v1/ui/codes", headers={"authorization": "Bearer wrong-wrong-wrong"})
    assert answer.status_code == 401
    browser.log_in()
    assert browser.ask("/api/v1/ui/codes", "POST").status_code == 404, "a session makes no other sessions"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"code": 7}', b'{"code": "' + b"a" * 5000 + b'"}'])
def test_odd_exchanges_are_refused_in_a_sentence(browser: Browser, body: bytes) -> None:
    answer = browser.page.post(SESSION_PATH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413)
    assert answer.json()["message"]


def test_a_form_cannot_exchange(browser: Browser) -> None:
    """What another site can send without asking is no exchange, whoever's code it has."""
    answer = browser.page.post(
        SESSION_PATH, content=f'{{"code": "{browser.code()}"}}', headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 400


# ---------------------------------------------------------------- sessions


def test_nothing_is_told_without_both_halves(browser: Browser) -> None:
    browser.log_in()
    assert browser.ask(WORKLOADS).status_code == 200
    for halves in ({KEY_HEADER: ""}, {"cookie": ""}, {KEY_HEADER: "0" * 64}, {"cookie": f"rowlock-{PORT}=x.1.y.z"}):
        for path in (WORKLOADS, SESSION_PATH, "/api/v1/nosuch", "/api/v1/ui/events"):
            assert browser.ask(path, **halves).status_code == 401, (path, halves)


def test_the_owners_token_alone_is_not_accepted_here(browser: Browser) -> None:
    """Whoever can read it uses the API's port, where TLS hides it from the other users of this machine."""
    answer = browser.page.get(WORKLOADS, headers={"authorization": f"Bearer {OWNER}"})
    assert answer.status_code == 401


def test_a_session_acts_as_whoever_began_it(browser: Browser) -> None:
    browser.log_in()
    assert browser.ask(SESSION_PATH).json()["user"] == "ana"
    browser.log_in(BOB)
    assert browser.ask(SESSION_PATH, authorization=f"Bearer {OWNER}").json()["user"] == "bob"


def test_a_session_ends_with_the_token_it_was_begun_with(browser: Browser) -> None:
    browser.log_in(BOB)
    browser.banned.add(BOB)
    assert browser.ask(WORKLOADS).status_code == 401


def test_a_session_has_a_limited_life(browser: Browser) -> None:
    browser.log_in()
    browser.clock.now += sessions.SESSION_LIFETIME_S - 1
    assert browser.ask(WORKLOADS).status_code == 200
    browser.clock.now += 1
    answer = browser.ask(WORKLOADS)
    assert answer.status_code == 401
    assert "rowlock ui" in answer.json()["message"]


def test_a_session_can_be_ended(browser: Browser) -> None:
    browser.log_in()
    answer = browser.ask(SESSION_PATH, "DELETE")
    assert answer.status_code == 200
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert browser.ask(WORKLOADS).status_code == 401


def test_the_owners_session_outlives_a_restart_and_a_users_does_not() -> None:
    clock = 100.0
    before, after, elsewhere = (Sessions(token, lambda: clock) for token in (OWNER, OWNER, "another-token-another"))
    own, bobs = (before.exchange(before.issue_code(token)) for token in (OWNER, BOB))
    assert after.token_of(own.cookie, own.key) == OWNER
    with pytest.raises(Unauthorized, match="this session is over"):
        after.token_of(bobs.cookie, bobs.key)
    with pytest.raises(Unauthorized):
        elsewhere.token_of(own.cookie, own.key)


# ---------------------------------------------------------------- other sites


@pytest.mark.parametrize("path", ["/", WORKLOADS, SESSION_PATH])
@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", "localhost.", "", "0.0.0.0"]
)
def test_a_name_that_was_rebound_gets_nothing(browser: Browser, path: str, host: str) -> None:
    browser.log_in()
    assert browser.ask(path, host=host or " ").status_code == 403


@pytest.mark.parametrize("host", ["localhost:8123", "[::1]:8123", "LOCALHOST", "127.0.0.1:9000"])
def test_this_machine_has_several_names(browser: Browser, host: str) -> None:
    """And other ports, through a tunnel."""
    browser.log_in()
    assert browser.ask(WORKLOADS, host=host, origin=f"http://{host}").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_gets_nothing(browser: Browser, headers: dict[str, str]) -> None:
    """Also one of another port of this machine, as a pod may serve: to cookies that is the same site."""
    browser.log_in()
    for method in ("GET", "POST", "DELETE"):
        assert browser.ask(f"{WORKLOADS}/count", method, **headers).status_code == 403
    assert browser.exchange(browser.code(), **headers).status_code == 403


def test_the_api_speaks_to_no_other_site(browser: Browser) -> None:
    browser.log_in()
    answer = browser.ask(WORKLOADS)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cache-control"] == "no-store"


# ---------------------------------------------------------------- files


def test_every_answer_has_the_strict_policy(browser: Browser) -> None:
    browser.log_in()
    for path in ("/", "/assets/nosuch.js", WORKLOADS, "/api/v1/nosuch"):
        headers = browser.ask(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/assets/nosuch.js", "/workloads", "/index", "/../door.py", "/%2e%2e/door.py"])
def test_a_missing_file_is_missing(browser: Browser, path: str) -> None:
    """Never the page: what asks for a script must not be given HTML."""
    answer = browser.page.get(path)
    assert answer.status_code == 404
    assert "<html" not in answer.text


def test_the_page_and_all_that_it_names_are_served(browser: Browser) -> None:
    page = browser.page.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text)
    assert named, "the page loads a script"
    for path in named:
        assert path.startswith("./"), f"{path} would not be found below another base path"
        assert browser.page.get(path[1:]).status_code == 200
    assert not re.search(r"https?://", re.sub(r"http://www\.w3\.org/", "", page.text)), "nothing of another site"


def test_a_file_is_not_sent_twice(browser: Browser) -> None:
    first = browser.page.get("/")
    again = browser.page.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_files_are_only_read(browser: Browser) -> None:
    assert browser.page.post("/").status_code == 405
    assert browser.page.head("/").content == b""


def test_any_base_path_works(browser: Browser) -> None:
    """As behind a proxy, which says where it put us."""
    client = TestClient(browser.api.app, base_url=f"http://{HOST}")
    client.portal = browser.api.portal
    assert client.get("/door/").text == browser.page.get("/").text
    answer = client.post(f"/door{SESSION_PATH}", json={"code": browser.code()})
    assert "path=/door/;" in answer.headers["set-cookie"].lower()
    cookie = answer.headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    headers = {"cookie": cookie, KEY_HEADER: answer.json()["key"]}
    assert client.get(f"/door{WORKLOADS}", headers=headers).json() == {"workloads": []}


def test_the_built_files_are_of_types_that_are_served() -> None:
    files = load_files()
    assert "index.html" in files
    assert all(re.fullmatch(r"[\w./-]+", name) for name in files)


def test_the_api_has_no_page(browser: Browser) -> None:
    """`/` is Kubernetes' there."""
    assert browser.api.get("/").status_code == 404
