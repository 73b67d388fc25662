"""The web UI in a real browser, on a live server: what a person sees and does. Screenshots of each page lie in the directory that
`ROWLOCK_UI_PICTURES` names, if it does. `ROWLOCK_UI_SLOWDOWN=6` makes pages six times as slow, to find tests and pages that count on speed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import real_cluster_missing
from tests.conftest import ENGINES
from tests.end_to_end.cluster import Cluster
from tests.engines.real_node import RealNode, node_missing, real_node
from tests.engines.ui_sites import Site, embedded_site, real_site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Ui:
    """A browser that is signed in to the UI of a cluster, of either engine (`tests/engines/`)."""

    site: Site
    context: Any
    page: Any
    said: list[str]
    """What pages complained of on their consoles: errors, and breaches of the content security policy."""

    @property
    def cluster(self) -> Cluster:
        return self.site.cluster

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

    def choose_program(self, command: str, directory: str = "") -> None:
        """In the form of a new training: this command, with this machine's programs, in this directory."""
        if environment := self.site.environment:
            self.page.get_by_role("radio", name=environment).check()
            self.page.get_by_label("Command", exact=True).fill(command)
            self.page.get_by_label("Working directory").fill(directory)
            return
        self.page.get_by_role("button", name="NEW ENVIRONMENT").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Environment name").fill("of-the-test")
        dialog.get_by_label("Image URL").fill(self.site.image)
        dialog.get_by_label("Command", exact=True).fill(command)
        dialog.get_by_label("Working directory").fill(directory)
        dialog.get_by_role("button", name="CREATE ENVIRONMENT").click()
        self.page.get_by_role("radio", name="of-the-test").wait_for()

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
    expect.set_options(timeout=100_000)  # milliseconds, as for everything else: a busy machine is no failure
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def come_to_rest(page: Any) -> None:
    """Leave the page before it is closed. Chromium may say that it has closed a page that is just going somewhere else, as after a
    sign-out, and not close it; Playwright waits for that for ever (microsoft/playwright#41900, #42366)."""
    from playwright.sync_api import Error

    with suppress(Error):  # it goes elsewhere by itself at this moment, or has crashed: both were judged before
        page.goto("about:blank")


@pytest.fixture(scope="session")
def real_node_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A real cluster with a node and a server over it, for all tests of a run."""
    if missing := real_cluster_missing(operator=True) or node_missing():
        pytest.skip(missing)
    with real_node(tmp_path_factory.mktemp("node")) as engine:
        yield engine


@pytest.fixture(params=ENGINES)
def ui(request: pytest.FixtureRequest, chromium: Any, tmp_path: Path) -> Iterator[Ui]:
    """A cluster with two GPUs and the project team-a, and a page of its UI."""
    if request.param == "real":
        engine = request.getfixturevalue("real_node_engine")
        if request.node.get_closest_marker("empty_history"):
            engine.forget_history()
        made_site = real_site(engine, tmp_path)
    else:
        made_site = embedded_site(tmp_path)
    with made_site as site:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        context.set_default_timeout(100_000)
        made = Ui(site, context, None, [])
        made.page = made.open_page()
        made.page.goto(site.address())
        made.page.get_by_role("heading", name="Workloads", exact=True).wait_for()
        yield made
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")  # an answer that a test was about to change goes nowhere any more
        said = list(
            made.said
        )  # what a page complains of while it is left, as that it was not answered, is nobody's fault
        for page in context.pages:
            come_to_rest(page)
        context.close()
        assert not said, said
