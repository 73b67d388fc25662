"""The web UI in a real browser, on a live server: what a person sees and does. Screenshots of each page lie in the directory that
`ROWLOCK_UI_PICTURES` names, if it does. `ROWLOCK_UI_SLOWDOWN=6` makes pages six times as slow, to find tests and pages that count on speed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Ui:
    """A browser that is signed in to the UI of a cluster."""

    cluster: Cluster
    context: Any
    page: Any
    said: list[str]
    """What pages complained of on their consoles: errors, and breaches of the content security policy."""

    def address(self, *flags: str) -> str:
        return str(self.cluster.json("rowlock", "ui", "--no-browser", "--json", *flags)["url"])

    def open_page(self) -> Any:
        page = self.context.new_page()
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        if slowdown := os.environ.get("ROWLOCK_UI_SLOWDOWN"):
            self.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": float(slowdown)})
        return page

    def _note(self, message: Any) -> None:
        """A browser also writes down each answer that is no success, and each that did not come: those the pages tell themselves."""
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.said.append(message.text)

    def picture(self, name: str) -> None:
        if folder := os.environ.get("ROWLOCK_UI_PICTURES"):
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    def pictures(self, name: str) -> None:
        """Light, dark and on a phone; nothing is wider than the phone."""
        size = self.page.viewport_size
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        self.picture(f"{name}-light")
        self.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        self.picture(f"{name}-dark")
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        self.page.set_viewport_size({"width": 390, "height": 800})
        assert self.page.evaluate(
            "document.querySelector('main').scrollWidth <= document.documentElement.clientWidth"
        ), name
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        self.picture(f"{name}-phone")
        self.page.set_viewport_size(size)

    def row(self, name: str) -> Any:
        return self.page.locator("tbody tr", has=self.page.get_by_role("link", name=name, exact=True))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser for the tests of a file: while it runs, its event loop is that of this thread, and other files have their own."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: `apt-get install chromium` (as root) is what these tests need")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: `make ui-test` installs it")
    expect.set_options(timeout=20_000)  # milliseconds, as for everything else: a busy machine is no failure
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def ui(chromium: Any, tmp_path: Path) -> Iterator[Ui]:
    """A cluster with two simulated GPUs and the project team-a, and a page of its UI."""
    with lent(tmp_path) as cluster:
        people = tmp_path / "users.csv"
        people.touch(0o600)
        people.write_text("vera-vera-vera-vera-vera,vera,1,rowlock:viewers\nalan-alan-alan-alan-alan,alan,2,\n")
        cluster.up("--simulated-gpus", "2", "--users", str(people))
        cluster.run("rowlock", "project", "create", "team-a", "--gpus", "2")
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        context.set_default_timeout(20_000)
        made = Ui(cluster, context, None, [])
        made.page = made.open_page()
        made.page.goto(made.address())
        made.page.get_by_role("heading", name="Workloads", exact=True).wait_for()
        yield made
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")  # an answer that a test was about to change goes nowhere any more
        context.close()
        assert not made.said, made.said
