"""Figures are of now: what projects hold, whatever the scheduler counted last; and how long something ran that was over at once."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_cluster_pages import open_page
from tests.ui.test_workloads_page import LONG, choose_columns, column_of, expect, run


def test_what_a_project_holds_is_not_what_was_counted_before(ui: Ui) -> None:
    """The scheduler's count stays as it was before anything ran."""
    page = ui.page
    before = ui.cluster.api("GET", "/api/v1/org-unit/projects?limit=500&sortBy=name")
    page.route(re.compile(r"/api/v1/org-unit/projects\?"), lambda route: route.fulfill(json=before))
    open_page(ui, "Projects")
    trial = page.get_by_role("region", name="What if the quotas were others?")
    ours = trial.get_by_role("listitem").filter(has_text="team-a")
    expect(ours).to_contain_text("holds 0, asks for 0")
    run(ui, "half", LONG, "-p", "team-a", "-g", "0.5")
    expect(ours).to_contain_text("holds 0.50, asks for 0.50")
    expect(column_of(page, page.get_by_role("row", name="team-a"), "Allocated GPUs")).to_contain_text("0.50")
    ui.cluster.run("rowlock", "delete", "-y", "-p", "team-a", "half")
    expect(ours).to_contain_text("holds 0, asks for 0")


def test_whoever_sees_no_cards_sees_what_his_workloads_hold(ui: Ui) -> None:
    page = ui.page
    before = ui.cluster.api("GET", "/api/v1/org-unit/projects?limit=500&sortBy=name")
    page.route(re.compile(r"/api/v1/org-unit/projects\?"), lambda route: route.fulfill(json=before))
    refusal: dict[str, Any] = {"code": 403, "message": "You may not see the pods of all projects."}
    page.route("**/api/v1/scheduler/cards", lambda route: route.fulfill(status=403, json=refusal))
    run(ui, "whole", LONG, "-p", "team-a", "-g", "1")
    open_page(ui, "Projects")
    trial = page.get_by_role("region", name="What if the quotas were others?")
    expect(trial.get_by_role("listitem").filter(has_text="team-a")).to_contain_text("holds 1, asks for 1")


def test_a_deleted_workload_that_ran_for_a_moment_says_for_how_long(ui: Ui) -> None:
    run(ui, "quick", "print(1)")
    ui.cluster.run("rowlock", "wait", "quick")
    ui.cluster.run("rowlock", "delete", "-y", "quick")
    ui.page.get_by_role("link", name="Deleted", exact=True).click()
    expect(ui.row("quick")).to_be_visible()
    choose_columns(ui.page, "Total runtime")
    expect(column_of(ui.page, ui.row("quick"), "Total runtime")).to_have_text(re.compile(r"^\d+(\.\d)?s$"))
