"""Rows change while somebody works with them: what is open, chosen or being read stays, and nothing is asked for again for it."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run

# The page keeps the port of the worker that holds the stream, and the rows that came by it, so that a test can say more. What it said of a
# row stays so: the server tells of the same row whenever something is measured.
KEEP_STREAM = """
const Real = SharedWorker;
window.SharedWorker = class extends Real {
  constructor(...given) {
    super(...given);
    window.streamPort = this.port;
    window.seenRows = {};
    window.said = {};
    this.port.addEventListener('message', ({ data }) => {
      for (const row of data.rows ?? []) seenRows[row.name] = Object.assign(row, said[row.id]);
    });
  }
};
new MutationObserver(() => { window.saidNone ||= document.body?.innerText.includes('No workloads yet'); })
  .observe(document, { subtree: true, childList: true });
"""
SAY = "data => streamPort.dispatchEvent(new MessageEvent('message', { data }))"
DRAWN = "new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 500))"  # the view follows in 200 ms


def begin(ui: Ui, *names: str) -> Any:
    """The table with these workloads, and the port of its stream."""
    for name in names:
        run(ui, name, LONG)
        expect(ui.row(name)).to_contain_text("Its pod runs.")
    ui.page.add_init_script(KEEP_STREAM)
    ui.page.reload()
    for name in names:
        expect(ui.row(name)).to_contain_text("Its pod runs.")
    return ui.page


def change(page: Any, of: str, **fields: Any) -> None:
    """As the stream would tell it."""
    row = page.evaluate("name => seenRows[name]", of)
    changed = {**row, **fields}
    page.evaluate("([id, fields]) => { said[id] = fields }", [changed["id"], fields])
    page.evaluate(SAY, {"type": "rows", "rows": [changed]})


def test_rows_that_are_on_their_way_are_not_said_to_be_none(ui: Ui) -> None:
    page = begin(ui, "talks")
    assert page.evaluate("saidNone") is False


def test_a_log_is_read_once_however_often_its_row_changes(ui: Ui) -> None:
    page = begin(ui, "talks")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("step 1")
    for number in range(3):
        change(page, "talks", why=f"Change {number}.", idleGpus=number)
        expect(ui.row("talks")).to_contain_text(f"Change {number}.")
    page.evaluate(DRAWN)
    reads = [url for url in asked if re.search(r"/logs\?", url)]
    assert len(reads) == 1, reads
    assert len([url for url in asked if re.search(r"/runs/", url)]) == 1
    assert len([url for url in asked if url.endswith("/pods?limit=500")]) == 1


def test_a_list_that_begins_anew_keeps_what_is_chosen_and_open_until_it_is_whole(ui: Ui) -> None:
    """As after a restart of the server, on a machine that is busy."""
    page, panel = begin(ui, "talks", "other"), ui.page.get_by_role("complementary")
    ui.row("talks").get_by_role("checkbox").check()
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel.get_by_role("tab", name="Logs").click()
    panel.get_by_label("Search the log").fill("step 1")
    rows = [page.evaluate("name => seenRows[name]", name) for name in ("talks", "other")]
    page.evaluate(SAY, {"type": "reset", "rows": []})
    page.evaluate(DRAWN)
    expect(page.locator("tbody tr")).to_have_count(2)
    page.evaluate(SAY, {"type": "rows", "rows": rows[:1]})
    page.evaluate(DRAWN)
    page.evaluate(SAY, {"type": "ready", "time": page.evaluate("Date.now() / 1000")})
    expect(page.locator("tbody tr")).to_have_count(1)  # the other one went meanwhile
    expect(ui.row("talks").get_by_role("checkbox")).to_be_checked()
    expect(panel.get_by_label("Search the log")).to_have_value("step 1")
    assert page.evaluate("saidNone") is False


def test_enter_takes_what_the_palette_had_marked_though_the_list_has_moved(ui: Ui) -> None:
    page, palette = begin(ui, "talks"), ui.page.get_by_role("dialog", name="Commands")
    page.keyboard.press("Control+k")
    page.keyboard.type("alks")
    expect(palette.get_by_role("option").first).to_have_text(re.compile("^talks"))
    change(page, "talks", name="alks", id="another")  # it begins with what was typed, so it comes first
    expect(palette.get_by_role("option").first).to_have_text(re.compile("^alks"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary").get_by_role("heading", name="talks", exact=True)).to_be_visible()


def test_a_log_that_has_just_gone_may_have_been_scrolled(ui: Ui) -> None:
    """Scrolling is told a moment later. What a page complains of, the fixture reports."""
    page = begin(ui, "talks")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    page.get_by_role("tab", name="Logs").click()
    log = page.get_by_role("log")
    expect(log).to_contain_text("step 1")
    gone = log.element_handle()
    page.get_by_role("tab", name="Details").click()
    expect(log).to_have_count(0)
    gone.evaluate("log => log.dispatchEvent(new Event('scroll'))")
    page.evaluate(DRAWN)


def test_a_row_that_moves_keeps_the_focus(ui: Ui) -> None:
    """Up and down: of three rows the page moves one."""
    page, names = begin(ui, "one", "two", "three"), ui.page.locator("tbody tr td:nth-child(2)")
    box = ui.row("one").get_by_role("checkbox")
    for name, moment in (("two", "2050"), ("three", "2060")):  # they may have been made in the same second
        change(page, name, createdAt=f"{moment}-01-01T00:00:00Z")
    for moment, order in (("2090", ["one", "three", "two"]), ("1990", ["three", "two", "one"])):
        box.focus()
        change(page, "one", createdAt=f"{moment}-01-01T00:00:00Z")
        expect(names).to_have_text(order)
        expect(box).to_be_focused()


def test_escape_closes_what_is_on_top_and_nothing_else(ui: Ui) -> None:
    page, panel = begin(ui, "talks"), ui.page.get_by_role("complementary")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    page.get_by_role("button", name="COLUMNS").click()
    expect(page.get_by_role("checkbox", name="Framework")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Framework")).to_have_count(0)
    panel.get_by_role("tab", name="Logs").click()
    search = panel.get_by_label("Search the log")
    search.fill("step")
    search.press("Escape")
    expect(search).to_have_value("")  # the browser has cleared it
    search.press("Escape")
    expect(panel).to_have_count(0)
