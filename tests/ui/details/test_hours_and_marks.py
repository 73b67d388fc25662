"""The page of GPU hours, and what is written on a run."""

from __future__ import annotations

import re

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import expect

WORKS = "print('done')"


def test_hours_by_project_and_job(ui: Ui) -> None:
    ui.site.run("counted", WORKS, "-p", "team-a", waits=True)
    ui.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Hours").click()
    table = ui.page.get_by_role("table", name="GPU hours")
    expect(table.get_by_role("row", name="team-a")).to_be_visible()
    ui.page.get_by_role("combobox", name="By", exact=True).select_option("job")
    expect(table.get_by_role("row", name="counted")).to_contain_text("team-a")
    expect(ui.page.get_by_text("rowlock usage --by job --since 7d")).to_be_visible()
    ui.pictures("hours")
    table.get_by_role("link", name="counted").click()
    expect(ui.page.get_by_role("heading", name="counted")).to_be_visible()


def test_tags_and_a_note_are_written_and_found(ui: Ui) -> None:
    ui.site.run("marked", WORKS, "-p", "team-a", waits=True)
    ui.page.get_by_role("link", name="Runs").click()
    ui.page.get_by_role("table", name="Runs").get_by_role("link", name="marked").first.click()
    marks = ui.page.get_by_role("region", name="Tags and note")
    marks.get_by_role("button", name="EDIT").click()
    marks.get_by_label("Tags, with spaces between").fill("two words-here a,b")
    marks.get_by_role("button", name="SAVE").click()
    expect(marks.get_by_role("alert")).to_contain_text("'a,b' is no tag")
    marks.get_by_label("Tags, with spaces between").fill("paper v2")
    marks.get_by_label("Note").fill("the first\nthat learned")
    marks.get_by_role("button", name="SAVE").click()
    expect(marks).to_contain_text("paper v2 the first that learned", use_inner_text=False)
    marks.get_by_label("Favourite").check()
    expect(marks.get_by_label("Favourite")).to_be_checked()
    ui.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    table = ui.page.get_by_role("table", name="Runs")
    ui.page.get_by_label("Tag of a run").fill("nosuch")
    expect(ui.page.get_by_text("No run matches.")).to_be_visible()
    ui.page.get_by_label("Tag of a run").fill("paper")
    row = table.get_by_role("row", name=re.compile("marked"))
    expect(row).to_contain_text("that learned")
    expect(row.get_by_label("favourite")).to_be_visible()
