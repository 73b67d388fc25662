"""The browser's stream of events in the matrix of tenants: nobody is told of another project, neither at first nor when it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.rest.test_tenants import MARK, OWNER, Tenancy, play

from rowlock.browser import feed
from rowlock.browser.door import FEED_PATH, KEY_HEADER, SESSION_PATH

HOST = "127.0.0.1:8123"


async def log_in(tenancy: Tenancy, token: str) -> list[tuple[bytes, bytes]]:
    """By a one-time code; the headers that the browser sends from then on."""
    answer = await tenancy.ask(token, "POST", "/api/v1/ui/codes")
    assert answer.status_code == 201, answer.text
    code = answer.json()["url"].partition("#code=")[2]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=tenancy.door), base_url=f"http://{HOST}") as client:
        exchanged = await client.post(SESSION_PATH, json={"code": code})
    cookie = exchanged.headers["set-cookie"].partition(";")[0]
    headers = {"host": HOST, "cookie": cookie, KEY_HEADER: exchanged.json()["key"]}
    return [(name.encode(), value.encode()) for name, value in headers.items()]


class OpenPage:
    """A page that follows the workloads: all that it was told."""

    def __init__(self, tenancy: Tenancy, headers: list[tuple[bytes, bytes]], last_event: str = "") -> None:
        self.text, self._gone, self._news = "", asyncio.Event(), asyncio.Event()
        extra = [(b"last-event-id", last_event.encode())] if last_event else []
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": FEED_PATH, "raw_path": FEED_PATH.encode(), "query_string": b"",
            "scheme": "http", "headers": [*headers, *extra], "server": ("127.0.0.1", 8123), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        self._serving = asyncio.create_task(tenancy.door(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.text += message.get("body", b"").decode()
        self._news.set()

    async def until(self, words: str, times: int) -> None:
        while self.text.count(words) < times:
            self._news.clear()
            await self._news.wait()

    async def close(self) -> None:
        self._gone.set()
        await self._serving


@pytest.mark.parametrize(
    ("person", "own"), [("editor", 3), ("viewer", 3), ("admin", 3), ("typist", 3), ("guest", 3), ("nobody", 0)]
)
def test_the_stream_tells_of_ones_own_project_alone(person: str, own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_S", 0.02)

    async def check(tenancy: Tenancy) -> None:
        page, everything = (
            OpenPage(tenancy, await log_in(tenancy, person * 8)),
            OpenPage(tenancy, await log_in(tenancy, OWNER)),
        )
        async with asyncio.timeout(200):
            for one in (page, everything):
                await one.until("event: ready", 1)
            assert (page.text.count('"projectName":"mine-plain"'), everything.text.count(f"theirs-{MARK}") > 0) == (
                own,
                True,
            )
            theirs = f"/api/v1/workloads/distributed/{tenancy.ids['theirs workload']}"
            for path in (f"{theirs}/suspend", ""):
                method = "POST" if path else "DELETE"
                answer = await tenancy.ask(OWNER, method, path or theirs)
                assert answer.status_code == 202, answer.text
            await everything.until("event: gone", 1)
            await page.until(": alive", page.text.count(": alive") + 5)
            identity = page.text.rpartition("id: ")[2].partition("\n")[0]
            again = OpenPage(tenancy, await log_in(tenancy, person * 8), identity)
            await again.until("event: ready", 1)
            for one in (page, again):
                assert MARK not in one.text and tenancy.ids["theirs workload"] not in one.text
                assert "event: gone" not in one.text
            for one in (page, everything, again):
                await one.close()

    play(check)


def test_a_stream_that_a_guessed_session_opens_tells_nothing() -> None:
    async def check(tenancy: Tenancy) -> None:
        headers = [(n, b"0" * 64 if n == KEY_HEADER.encode() else v) for n, v in await log_in(tenancy, "editor" * 8)]
        page = OpenPage(tenancy, headers)
        await page.close()
        assert "no session" in page.text and "event:" not in page.text

    play(check)
