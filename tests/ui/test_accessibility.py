"""WCAG 2.2 AA, as far as a program can judge it: axe finds nothing on any page, light or dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import FAILS, LONG, expect, run

AXE = Path(__file__).resolve().parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


def judge(page: Any) -> list[str]:
    """One sentence for each rule that is broken, with the places."""
    page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(ui: Ui, scheme: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make ui` installs it")
    page = ui.page
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    assert judge(page) == [], "without workloads"
    run(ui, "talks", LONG, "--nnodes", "2")
    run(ui, "fails", FAILS)
    expect(ui.row("fails")).to_contain_text("Failed")
    expect(ui.row("talks")).to_contain_text("Running")
    page.set_viewport_size({"width": 390, "height": 800})
    assert judge(page) == [], "on a phone"
    expect(page.get_by_role("cell", name="ended with exit code 3")).to_be_visible()  # it is a table there, too
    page.set_viewport_size({"width": 1280, "height": 800})
    ui.row("fails").get_by_role("checkbox").check()
    page.get_by_role("button", name="COLUMNS").click()
    assert judge(page) == [], "the table, with a menu"
    page.keyboard.press("Escape")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    for tab, words in (
        ("Event History", "talks"),
        ("Metrics", "running 2"),
        ("Logs", "step"),
        ("Pods", "talks"),
        ("Structure", "talks-worker-0"),
        ("Details", "talks"),
    ):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_contain_text(words)
        assert judge(page) == [], tab
    page.get_by_role("complementary").get_by_role("button", name="DELETE").click()
    assert judge(page) == [], "the question"
    page.get_by_role("button", name="CANCEL").click()
    page.keyboard.press("Control+k")
    page.keyboard.type("talks")
    expect(page.get_by_role("option", name="Logs of talks")).to_be_visible()
    assert judge(page) == [], "the commands"
    page.keyboard.press("Escape")
    page.get_by_role("link", name="MAKE A COPY").click()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("group", name="Compute resource")).to_be_visible()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()
    assert judge(page) == [], "a new training"
    page.get_by_role("button", name="NEW ENVIRONMENT").click()
    assert judge(page) == [], "a new environment"
    page.get_by_role("button", name="CANCEL").click()
    page.get_by_role("link", name="Projects").click()
    expect(page.get_by_role("cell", name="team-a", exact=True)).to_be_visible()
    assert judge(page) == [], "projects"
    page.get_by_role("link", name="Departments").click()
    expect(page.get_by_role("cell", name="default", exact=True).first).to_be_visible()
    assert judge(page) == [], "departments"
    page.go_back()
    page.get_by_role("button", name="Edit the quota of team-a").click()
    assert judge(page) == [], "a quota"
    page.get_by_role("button", name="CANCEL").click()
    run(ui, "half", LONG, "-g", "0.5")
    run(ui, "waits", LONG, "-g", "2", "--nnodes", "2")
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("region", name="By project")).to_contain_text("waits")
    assert judge(page) == [], "overview"
    page.get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("group", name="GPU ").get_by_role("link", name="half")).to_have_count(1)
    assert judge(page) == [], "nodes"
    page.get_by_role("button", name="Table", exact=True).click()
    assert judge(page) == [], "nodes as a table"
    page.get_by_role("button", name="GPU devices of").click()
    assert judge(page) == [], "the GPUs of a node"
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 800})
    assert judge(page) == [], "nodes as cards"
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("link", name="Queue").click()
    page.get_by_role("button", name="Would waits start now?").click()
    expect(page.locator("main li").get_by_role("status")).to_contain_text("would wait")
    assert judge(page) == [], "queue"


def test_axe_finds_nothing_on_the_pages_of_admins_and_of_runs(ui: Ui) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: `make ui` installs it")
    page = ui.page
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    run(ui, "fails", FAILS)
    for name, tabs in (
        ("Access", ("Users", "Access rules", "Roles", "Applications")),
        ("Assets", ("Environments", "Compute resources", "Data sources", "Credentials", "Templates")),
    ):
        page.get_by_role("link", name=name, exact=True).click()
        for tab in tabs:
            page.get_by_role("tab", name=tab, exact=True).click()
            expect(page.get_by_role("tabpanel")).to_contain_text(re.compile(r"\w+"))
            assert judge(page) == [], tab
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("link", name="Node pools, policies").click()
    for tab in ("Node pools", "Policies", "Clusters"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.get_by_role("tabpanel")).to_contain_text(re.compile(r"\w+"))
        assert judge(page) == [], tab
    page.get_by_role("link", name="Assets", exact=True).click()
    page.get_by_role("tab", name="Templates", exact=True).click()
    page.get_by_role("link", name="NEW TEMPLATE").click()
    page.get_by_label("Template name").fill("axe")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_text("General: priority").click()
    assert judge(page) == [], "a template"
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("tab", name="Data sources").click()
    page.get_by_role("button", name="NEW DATA SOURCE").click()
    assert judge(page) == [], "a new data source"
    page.get_by_role("button", name="CANCEL").click()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("link", name="fails", exact=True)).to_be_visible()
    assert judge(page) == [], "runs"
    page.get_by_role("link", name="fails", exact=True).click()
    expect(page.get_by_role("log")).to_contain_text("hello from 0")
    assert judge(page) == [], "a run"
    page.get_by_role("link", name="OPEN THE WORKLOAD").click()
    page.get_by_role("tab", name="Terminal").click()
    expect(page.get_by_text("None of its pods runs now")).to_be_visible()
    assert judge(page) == [], "a terminal"
