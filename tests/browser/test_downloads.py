"""Logs are saved by the browser itself: a ticket stands for the key that a link cannot send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.browser.conftest import BOB, Browser

from rowlock.browser import downloads
from rowlock.browser.door import KEY_HEADER
from rowlock.browser.downloads import DOWNLOADS_PATH, Download

BODY = {"name": "train", "projectId": "1", "spec": {"image": "rowlock.dev/host", "command": "true", "numWorkers": 1}}
NOT_YET = 400
"""The REST API's code for a log that has not begun."""


def post(browser: Browser, path: str, body: Any) -> Any:
    headers = {"sec-fetch-site": "same-origin", KEY_HEADER: browser.key, "cookie": browser.cookie}
    return browser.page.post(path, json=body, headers=headers)


def log_path(browser: Browser) -> str:
    """That of a workload whose pods nobody makes here: the REST API says in a sentence that there is no log yet."""
    project = browser.ask("/api/v1/org-unit/projects").json()["projects"][0]["id"]
    made = post(browser, "/api/v1/workloads/distributed", {**BODY, "projectId": project})
    assert made.status_code == 202, made.text
    return f"/api/v1/workloads/{made.json()['workloadId']}/logs?follow=false"


def ticket(browser: Browser, path: str, name: str = "train.log") -> str:
    answer = post(browser, DOWNLOADS_PATH, {"path": path, "name": name})
    assert answer.status_code == 201, answer.text
    return f"{DOWNLOADS_PATH}/{answer.json()['ticket']}"


def follow_link(browser: Browser, address: str, **headers: str) -> Any:
    """As a link does it: with the cookie, without the key."""
    own = {"sec-fetch-site": "same-origin", "cookie": browser.cookie}
    return browser.page.get(address, headers={name: value for name, value in {**own, **headers}.items() if value})


def test_a_link_gets_what_the_page_would_get(browser: Browser) -> None:
    browser.log_in()
    path = log_path(browser)
    plain = browser.ask(path)
    assert "has started yet" in plain.json()["message"]
    answer = follow_link(browser, ticket(browser, path))
    assert (answer.status_code, answer.text) == (plain.status_code, plain.text)
    assert "content-disposition" not in answer.headers, "a refusal is no file"


async def _answer(download: Download, send: Any, message: Any) -> None:
    await download.attach(send)(message)


def test_only_a_success_is_a_file() -> None:
    async def send(message: Any) -> None:
        sent.append(message)

    for status, headers in ((200, [(b"content-disposition", b'attachment; filename="train.log"')]), (400, [])):
        sent: list[Any] = []
        start = {"type": "http.response.start", "status": status, "headers": []}
        asyncio.run(_answer(Download("key", "/", "", "train.log", 0.0), send, start))
        assert sent == [{**start, "headers": headers}]


def test_a_ticket_works_once_for_a_minute(browser: Browser) -> None:
    browser.log_in()
    path = log_path(browser)
    address = ticket(browser, path)
    assert follow_link(browser, address).status_code == NOT_YET
    again = follow_link(browser, address)
    assert again.status_code == 404
    assert "DOWNLOAD again" in again.json()["message"]
    late = ticket(browser, path)
    browser.clock.now += downloads.TICKET_LIFETIME_S
    assert follow_link(browser, late).status_code == 404


def test_a_ticket_alone_opens_nothing(browser: Browser) -> None:
    """A page of a pod is sent no ticket; who has one, by a log of a proxy perhaps, lacks the cookie."""
    browser.log_in()
    path = log_path(browser)
    assert follow_link(browser, ticket(browser, path), cookie="").status_code == 401
    assert follow_link(browser, ticket(browser, path), **{"sec-fetch-site": "same-site"}).status_code == 403
    address, owner = ticket(browser, path), browser.cookie
    browser.log_in(BOB)
    assert browser.cookie != owner
    assert follow_link(browser, address).status_code == 401, "another session's"


def test_a_ticket_ends_with_its_session(browser: Browser) -> None:
    browser.log_in()
    address = ticket(browser, log_path(browser))
    assert browser.ask("/api/v1/ui/session", "DELETE").status_code == 200
    assert follow_link(browser, address).status_code == 401


def test_who_asks_for_many_tickets_pushes_out_only_his_own(browser: Browser) -> None:
    browser.log_in()
    path = log_path(browser)
    addresses = [ticket(browser, path) for _ in range(downloads.TICKETS_PER_SESSION + 1)]
    assert follow_link(browser, addresses[0]).status_code == 404
    assert follow_link(browser, addresses[1]).status_code == NOT_YET


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ([], "path"),
        ({"path": "/api/v1/users", "name": "x"}, "a download is a log"),
        ({"path": "/api/v1/workloads/x/logs/../../users", "name": "x"}, "a download is a log"),
        ({"path": "/api/v1/workloads/x/logs", "name": 'a"b'}, "name"),
        ({"path": "/api/v1/workloads/x/logs", "name": "../x"}, "name"),
    ],
)
def test_odd_downloads_are_refused_in_a_sentence(browser: Browser, body: Any, word: str) -> None:
    browser.log_in()
    answer = post(browser, DOWNLOADS_PATH, body)
    assert answer.status_code == 400
    assert word in answer.json()["message"]
