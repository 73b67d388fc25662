"""The frame of the pages: which file comes when, and by which clock times are written."""

from __future__ import annotations

import re

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import expect, run

OTHER_PAGES = re.compile(r"/assets/pages\.js$")


def test_other_pages_are_loaded_once_the_first_one_stands(ui: Ui) -> None:
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    with page.expect_request(OTHER_PAGES) as asked:
        page.goto(ui.site.address())
        expect(page.get_by_role("heading", name="Workloads", exact=True)).to_be_visible()
    assert asked.value.response().status == 200
    page.get_by_role("link", name="Queue").click()
    expect(page.get_by_role("heading", name="Queue", exact=True)).to_be_visible()
    stranger.close()


def test_a_page_that_does_not_come_says_so(ui: Ui) -> None:
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.route(OTHER_PAGES, lambda route: route.abort())
    page.goto(ui.site.address())
    expect(page.get_by_role("heading", name="Workloads", exact=True)).to_be_visible()
    page.get_by_role("link", name="Nodes").click()
    expect(page.get_by_text("This page could not be loaded")).to_be_visible()
    page.unroute(OTHER_PAGES)
    page.get_by_role("button", name="RELOAD").click()
    expect(page.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()
    stranger.close()


def test_times_are_local_or_in_utc(ui: Ui) -> None:
    run(ui, "ends", "print(1)")
    expect(ui.row("ends")).to_contain_text("Completed")
    ui.row("ends").get_by_role("link", name="ends", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    moment = panel.get_by_role("listitem").locator("time").first
    expect(moment).to_have_attribute("title", re.compile(r". · 2\d{3}-\d\d-\d\dT[0-9:.]+Z \(UTC\)$"))
    panel.get_by_role("tab", name="Details").click()
    made = panel.locator("dt", has_text="Creation time").locator("xpath=following-sibling::dd[1]")
    expect(made).not_to_contain_text(re.compile(r"UTC\s+2"))
    ui.page.keyboard.press("Control+k")
    ui.page.keyboard.type("times utc")
    ui.page.keyboard.press("Enter")
    expect(made).to_contain_text(re.compile(r"UTC\s*2"))  # by that clock, and as it is written for machines
    panel.get_by_role("tab", name="Event History").click()
    expect(moment).to_have_attribute("title", re.compile(r"^2\d{3}-\d\d-\d\dT[0-9:.]+Z \(UTC\)$"))
    ui.page.reload()
    expect(moment).to_have_attribute("title", re.compile(r"^2\d{3}-"))


def test_who_looks_at_a_workload_that_is_gone_is_led_to_its_run(ui: Ui) -> None:
    run(ui, "ends", "print('words of the run')")
    expect(ui.row("ends")).to_contain_text("Completed")
    ui.row("ends").get_by_role("link", name="ends", exact=True).click()
    ui.cluster.run("rowlock", "delete", "-y", "ends")
    expect(ui.page.get_by_text("This workload is not here any more.")).to_be_visible()
    ui.page.get_by_role("complementary").get_by_role("link", name="Runs").click()
    expect(ui.page.get_by_role("log")).to_contain_text("words of the run")
