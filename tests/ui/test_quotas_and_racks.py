"""Quotas that are dragged, what a project held over time, and nodes by rack."""

from __future__ import annotations

import re

from tests.ui.conftest import Ui
from tests.ui.test_cluster_pages import open_page
from tests.ui.test_workloads_page import LONG, choose_columns, column_of, expect, run


def quota_of(ui: Ui, name: str) -> float:
    projects = ui.cluster.json("rowlock", "project", "list", "--json")
    return float(next(one["totalResources"]["gpuQuota"] for one in projects if one["name"] == name))


def test_a_quota_is_dragged_and_saved_when_it_is_applied(ui: Ui) -> None:
    ui.cluster.run("rowlock", "project", "create", "team-b", "--gpus", "0")
    # With --backoff-limit it may be started again: else it is Failed when the training operator sees its pods evicted.
    run(ui, "holds", LONG, "-p", "team-a", "-g", "1", "--nnodes", "2", "--backoff-limit", "3")
    expect(ui.row("holds")).to_contain_text("Running")
    run(ui, "wants", LONG, "-p", "team-b", "-g", "1")
    open_page(ui, "Queue")
    expect(ui.page.locator("main ol > li")).to_have_count(1)
    trial = ui.page.get_by_role("region", name="What if the quotas were others?")
    trial.get_by_role("slider", name="GPU quota of team-a").press("ArrowLeft")
    expect(trial.get_by_role("status")).to_contain_text("Nobody would start now")
    slider = trial.get_by_role("slider", name="GPU quota of team-b")
    box = slider.bounding_box()
    middle = box["height"] / 2
    # It is looked up where the slider is by then: the list above may have grown by a line.
    slider.drag_to(
        slider, source_position={"x": 10, "y": middle}, target_position={"x": box["width"] * 0.24, "y": middle}
    )
    expect(trial.get_by_role("status")).to_contain_text("Would start when others have yielded: wants (team-b)")
    expect(trial.get_by_role("status")).to_contain_text("Would have to yield: holds (team-a")
    slider.press("Home")
    slider.press("ArrowRight")
    expect(trial.get_by_text("rowlock project update team-b --gpus 1")).to_be_visible()
    expect(trial.get_by_role("status")).to_contain_text("wants (team-b)")
    assert (quota_of(ui, "team-a"), quota_of(ui, "team-b")) == (2, 0), "nothing is saved before"
    ui.pictures("quotas")
    trial.get_by_role("button", name="APPLY team-a: 1, team-b: 1").click()
    expect(trial.get_by_role("status")).to_contain_text("Saved: the quotas of team-a, team-b.")
    assert (quota_of(ui, "team-a"), quota_of(ui, "team-b")) == (1, 1)
    # What was foretold came about. The first process of a container ignores SIGTERM: on a real node it is killed after 30 s.
    expect(ui.page.get_by_role("listitem", name="holds, place 1")).to_be_visible(timeout=60_000)
    open_page(ui, "Projects")
    ui.page.get_by_role("button", name="team-b", exact=True).click()
    expect(ui.page.get_by_role("region", name="GPUs of team-b")).to_contain_text("quota 1")
    ui.pictures("projects")


def test_nodes_stand_together_by_rack(ui: Ui) -> None:
    ui.site.label_node(**{"example.com/rack": "r7", "topology.kubernetes.io/zone": "z1"})
    open_page(ui, "Nodes")
    rack = ui.page.get_by_role("region", name="rack r7")
    expect(rack).to_contain_text("1 node, 0 of 2 GPUs allocated")
    expect(rack).to_contain_text("zone z1")
    ui.pictures("racks")
    ui.page.get_by_label("Nodes together by").select_option(label="nothing")
    expect(rack).to_have_count(0)
    expect(ui.page.get_by_role("group", name="GPU ")).to_have_count(2)


def test_projects_and_departments_have_the_columns_of_run_ai(ui: Ui) -> None:
    ui.cluster.run("rowlock", "project", "create", "team-b", "--gpus", "0")
    ui.cluster.run("rowlock", "access-rule", "create", "--user", "bob", "--role", "editor", "-p", "team-a")
    run(ui, "holds", LONG, "-p", "team-a", "-g", "1")
    expect(ui.row("holds")).to_contain_text("Running")
    page = ui.page
    open_page(ui, "Projects")
    chosen = (
        "Description", "Cluster", "Node pool(s)", "Subject(s)", "GPU allocation ratio", "Avg. GPU allocation", "Avg. GPU utilization",
        "Avg. GPU memory utilization", "Allocated CPUs", "Allocated CPU memory", "CPU allocation ratio", "Node type affinity",
        "Idle limits", "Time limits", "Creation time",
    )  # fmt: skip
    choose_columns(page, *chosen)
    row = page.get_by_role("row", name="team-a")
    expect(column_of(page, row, "GPU allocation ratio")).to_have_text("50 %")
    expect(column_of(page, row, "Avg. GPU allocation")).to_have_text(re.compile(r"^\d"))
    expect(column_of(page, row, "Allocated CPUs")).to_have_text(re.compile(r"^[\d.]+$"))
    expect(column_of(page, row, "CPU allocation ratio")).to_contain_text("Its quota has no bound")
    expect(column_of(page, row, "Avg. GPU utilization")).to_contain_text("Not measured")
    expect(column_of(page, row, "Idle limits")).to_contain_text("nothing is stopped because it is idle")
    other = column_of(page, page.get_by_role("row", name="team-b"), "GPU allocation ratio")
    expect(other).to_contain_text("Nothing is promised to it")
    column_of(page, row, "Subject(s)").get_by_role("button", name="Subjects of team-a: bob").click()
    dialog = page.get_by_role("dialog", name="Subjects of team-a")
    expect(dialog.get_by_role("row", name="bob")).to_contain_text("user")
    dialog.get_by_role("button", name="Close").click()
    ui.pictures("projects-columns")
    page.get_by_label("Search projects").fill("team-b")
    expect(page.get_by_role("row", name="team-a")).to_have_count(0)
    page.get_by_role("link", name="Departments").click()
    expect(page.get_by_role("heading", name="Departments", exact=True)).to_be_visible()
    row = page.get_by_role("row", name="default")
    expect(column_of(page, row, "Project(s)")).to_have_text("3")
    expect(column_of(page, row, "Allocated GPUs")).to_contain_text("1")
    expect(column_of(page, row, "Workload(s)")).to_have_text("1 (1 running, 0 pending)")
    ui.pictures("departments")
    row.get_by_role("button", name="Edit the quota of default").click()
    page.get_by_role("dialog").get_by_label("GPU quota").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="SAVE").click()
    expect(column_of(page, row, "GPU quota")).to_have_text("2")
    row.get_by_role("button", name="1 (1 running, 0 pending)").click()
    expect(ui.row("holds")).to_be_visible()
