"""The UI over other networks than loopback: below the path of a reverse proxy, and after one that was silent for long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.ui.conftest import Ui, come_to_rest
from tests.ui.proxy import Proxy
from tests.ui.test_terminal import PROMPT
from tests.ui.test_workloads_page import LONG, expect, run

EIGHT_HOURS_MS = 8 * 3600 * 1000


@pytest.fixture
def proxied(ui: Ui) -> Iterator[Callable[[str], Proxy]]:
    """Opens the page through a proxy, below a path."""
    proxies: list[Proxy] = []

    def open_page(prefix: str) -> Proxy:
        address = urlsplit(ui.site.address())
        proxy = Proxy(address.port or 0, prefix)
        proxies.append(proxy)
        ui.page.goto(f"http://127.0.0.1:{proxy.port}{prefix}/#{address.fragment}")
        expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()
        return proxy

    yield open_page
    come_to_rest(ui.page)
    for proxy in proxies:
        proxy.close()


def in_stream_worker(ui: Ui, port: int, expression: str) -> None:
    """Run it in the SharedWorker that holds the stream of the pages of this port."""
    browser, answers = ui.context.browser.new_browser_cdp_session(), list[Any]()
    browser.on("Target.receivedMessageFromTarget", lambda answer: answers.append(answer))
    targets = browser.send("Target.getTargets")["targetInfos"]
    (worker,) = [one for one in targets if one["type"] == "shared_worker" and f":{port}/" in one["url"]]
    session = browser.send("Target.attachToTarget", {"targetId": worker["targetId"], "flatten": False})["sessionId"]
    message = {"id": 1, "method": "Runtime.evaluate", "params": {"expression": expression}}
    browser.send("Target.sendMessageToTarget", {"sessionId": session, "message": json.dumps(message)})
    deadline = time.monotonic() + 30
    while not answers:  # a session that ends at once takes its messages with it
        assert time.monotonic() < deadline, "the worker has not answered"
        ui.page.evaluate("0")  # events are delivered meanwhile
    assert "exceptionDetails" not in answers[0]["message"], answers
    browser.detach()


def test_any_path_of_a_proxy_will_do(ui: Ui, proxied: Callable[[str], Proxy]) -> None:
    """Pages, the live stream, charts and terminals: nothing is asked for beside the path."""
    proxy = proxied("/teams/blue/rowlock")
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel = ui.page.get_by_role("tabpanel")
    ui.page.get_by_role("tab", name="Logs").click()
    expect(panel.get_by_role("log")).to_contain_text("step 1")
    ui.page.get_by_role("tab", name="Metrics").click()
    expect(panel.get_by_role("region", name="Pods", exact=True).locator("canvas")).to_be_visible()
    ui.page.get_by_role("tab", name="Terminal").click()
    ui.page.get_by_role("button", name="CONNECT").click()
    screen = ui.page.get_by_role("group", name="Terminal").locator(".xterm-rows")
    expect(screen).to_contain_text(PROMPT)
    ui.page.keyboard.type("echo in-$((40 + 2))\n")
    expect(screen).to_contain_text("in-42")
    ui.page.reload()
    expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()
    ui.page.get_by_role("button", name="Sign out").click()
    expect(ui.page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert proxy.outside == []
    assert any(request.headers.get("upgrade") == "websocket" for request in proxy.requests)


def test_after_a_sleep_the_page_says_that_it_is_old_and_goes_on(ui: Ui, proxied: Callable[[str], Proxy]) -> None:
    """The lid was closed over night: connections look open and are dead, and only the clock on the wall knows."""
    proxy = proxied("")
    run(ui, "before", "print(1)")
    expect(ui.row("before")).to_contain_text("Completed")
    proxy.fall_silent()
    run(ui, "meanwhile", "print(1)")
    in_stream_worker(ui, proxy.port, f"const real = Date.now; Date.now = () => real() + {EIGHT_HOURS_MS}; 0")
    expect(ui.page.get_by_text("Reconnecting…")).to_be_visible()
    expect(ui.row("before")).to_be_visible()  # as it was, and it says so
    proxy.speak()
    expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()
    expect(ui.row("meanwhile")).to_be_visible()
    streams = [request for request in proxy.requests if request.path.endswith("/ui/workloads")]
    assert streams[-1].headers.get("last-event-id"), "it goes on where it was"


def test_a_page_that_was_frozen_shows_what_happened_meanwhile(ui: Ui) -> None:
    """As browsers freeze tabs that nobody looks at."""
    session = ui.context.new_cdp_session(ui.page)
    session.send("Page.setWebLifecycleState", {"state": "frozen"})
    run(ui, "meanwhile", "print(1)")
    session.send("Page.setWebLifecycleState", {"state": "active"})
    expect(ui.row("meanwhile")).to_be_visible()
    expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_name_that_is_not_this_machines_is_refused_by_every_path(ui: Ui, proxied: Callable[[str], Proxy]) -> None:
    """One that was rebound to this machine, say."""
    proxy = proxied("/rowlock")
    answer = ui.page.request.get(f"http://127.0.0.1:{proxy.port}/rowlock/", headers={"Host": "evil.example"})
    assert answer.status == 403 and "evil.example" in answer.text()
