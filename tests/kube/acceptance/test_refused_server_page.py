"""The web UI while the cluster refuses the server's credentials: what was known stays, a banner says in plain words that it is old and why,
no page turns for ever or complains on its console, and all heals by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kube.acceptance.guarded import BACK_S, TOLD_S, GuardedServer, guarded_server
from tests.kube.acceptance.real_plane import RealPlane
from tests.ui.conftest import chromium as chromium

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
PAGES = (
    "overview",
    "runs",
    "queue",
    "nodes",
    "projects",
    "departments",
    "assets",
    "access",
    "deleted",
    "new",
    "workloads",
)
WHY = "the cluster refuses the credentials of this server, and what is shown is of "


@pytest.fixture(scope="module")
def world(plane: RealPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with guarded_server(plane, tmp_path_factory.mktemp("shown"), "showman") as made:
        yield made


def test_pages_say_that_they_are_old_and_why_and_heal_by_themselves(world: GuardedServer, chromium: Any) -> None:
    from playwright.sync_api import expect

    assert "submitted" in world.submit("seen")
    world.await_bound("seen")
    world.run("seen", "running")
    said = list[str]()

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            said.append(message.text)

    page = chromium.new_page(reduced_motion="reduce")
    page.set_default_timeout(40_000)
    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    url = world.served.json("rowlock", "ui", "--no-browser", "--json")["url"]
    page.goto(url)
    banner, row = page.locator(".banner"), page.get_by_role("link", name="seen", exact=True)
    expect(row).to_be_visible()
    expect(banner).to_have_count(0)
    base = page.url.partition("#")[0]
    world.take_token()
    try:
        expect(banner).to_contain_text(WHY, timeout=TOLD_S * 1000)
        expect(banner).to_contain_text("who runs the server gives it new ones")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        for name in PAGES:
            page.goto(f"{base}#/{name}")
            expect(banner).to_contain_text(WHY)
            expect(page.locator("main")).not_to_be_empty()
            expect(page.get_by_text("Loading…")).to_have_count(0)
        expect(row).to_be_visible()
        row.click()
        for tab in page.get_by_role("complementary").get_by_role("tab").all():
            tab.click()
            expect(page.get_by_role("complementary").get_by_text("Loading…")).to_have_count(0)
    finally:
        world.give_token()
    expect(banner).to_have_count(0, timeout=BACK_S * 1000)
    world.served.until(lambda: "submitted" in world.submit("later"), "submits are accepted again", BACK_S)
    expect(page.get_by_role("link", name="later", exact=True)).to_be_visible()
    page.close()
    assert not said, said
