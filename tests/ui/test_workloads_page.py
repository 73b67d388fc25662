"""The Workloads page: it is live, finds, sorts and filters, shows what happened, and acts."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from tests.ui.conftest import Ui

LONG = "import time\nfor i in range(9999): print('step', i, flush=True); time.sleep(0.1)"
FAILS = "import os, sys, time\nprint('hello from', os.environ['RANK'], flush=True)\ntime.sleep(0.2)\nsys.exit(3)"


def run(ui: Ui, name: str, program: str, *flags: str) -> None:
    ui.site.run(name, program, *flags)


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(locator)


def test_an_empty_cluster_says_how_to_begin(ui: Ui) -> None:
    expect(ui.page.get_by_text("No workloads yet")).to_be_visible()
    expect(ui.page.get_by_text("rowlock run -d")).to_be_visible()
    ui.pictures("empty")


def test_the_address_leaves_no_code_behind(ui: Ui) -> None:
    assert "code" not in ui.page.url
    ui.page.reload()
    expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in ui.context.cookies()}
    (name,) = cookies
    assert re.fullmatch(r"rowlock-\d+", name)
    assert cookies[name]["httpOnly"] and cookies[name]["sameSite"] == "Strict"
    assert ui.page.evaluate("document.cookie") == ""


def test_a_workload_appears_and_says_why_it_stands_there(ui: Ui) -> None:
    """Nobody reloads the page."""
    run(ui, "talks", LONG, "--nnodes", "2")
    expect(ui.row("talks")).to_contain_text("All 2 pods run.")
    expect(ui.row("talks")).to_contain_text("2/2")
    run(ui, "waits", LONG, "-g", "2", "--nnodes", "3")
    expect(ui.row("waits")).to_contain_text("Pending")
    expect(ui.row("waits")).to_contain_text("GPU")
    run(ui, "fails", FAILS)
    expect(ui.row("fails")).to_contain_text("Failed")
    expect(ui.row("fails")).to_contain_text("ended with exit code 3")
    ui.pictures("workloads")
    ui.page.set_viewport_size({"width": 390, "height": 800})
    for name in ("talks", "waits", "fails"):
        expect(ui.row(name).locator(".why")).to_be_in_viewport(ratio=1)


def test_search_filters_sort_and_columns(ui: Ui) -> None:
    for name in ("bee", "ant", "cat"):
        run(ui, name, "print(1)")
    names = ui.page.locator("tbody tr td:nth-child(2)")
    expect(names).to_have_count(3)
    ui.page.get_by_role("button", name="Workload", exact=True).click()
    expect(names).to_have_text(["ant", "bee", "cat"])
    ui.page.get_by_role("button", name="Workload ↑").or_(
        ui.page.get_by_role("button", name="Workload", exact=True)
    ).click()
    expect(names).to_have_text(["cat", "bee", "ant"])
    ui.page.keyboard.press("/")
    ui.page.keyboard.type("be")
    expect(names).to_have_text(["bee"])
    ui.page.keyboard.press("Control+A")
    ui.page.keyboard.type("nosuch")
    ui.page.get_by_role("button", name="CLEAR SEARCH AND FILTERS").click()
    ui.cluster.run("rowlock", "wait", "ant")
    ui.page.get_by_role("button", name="ADD FILTER").click()
    ui.page.get_by_label("Column", exact=True).select_option("Project")
    ui.page.get_by_role("group", name="Add a filter").get_by_role("button", name="default").click()
    expect(ui.page.get_by_role("button", name="Remove the filter Project default")).to_be_visible()
    expect(names).to_have_count(3)
    ui.page.get_by_role("button", name="COLUMNS").click()
    ui.page.get_by_role("checkbox", name="Framework").check()
    ui.page.get_by_role("checkbox", name="CPU compute allocation").check()
    ui.page.keyboard.press("Escape")
    expect(ui.page.get_by_role("columnheader", name="Framework")).to_be_visible()
    ui.page.reload()
    expect(ui.page.get_by_role("columnheader", name="Framework")).to_be_visible()
    expect(names).to_have_count(3)
    with ui.page.expect_download() as download:
        ui.page.get_by_role("button", name="DOWNLOAD CSV").click()
    text = download.value.path().read_text()
    assert text.startswith('"Workload","Type","Status"') and text.count("\n") == 4


def test_a_spreadsheet_computes_nothing_of_a_download(ui: Ui) -> None:
    """Also one that separates cells with semicolons, for which the quotes are in the middle of a cell."""
    container = {"name": "pytorch", "image": "=1+1;=2+2\n=3+3"}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": replica}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "sums"}, "spec": spec}
    ui.cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs", job)
    expect(ui.row("sums")).to_be_visible()
    choose_columns(ui.page, "Image")
    with ui.page.expect_download() as download:
        ui.page.get_by_role("button", name="DOWNLOAD CSV").click()
    text = download.value.path().read_text()
    assert "1+1" in text and not re.search(r'(^|[",;\n])[=+@]', text), text


def choose_columns(page: Any, *names: str) -> None:
    """Check these in the column chooser, and close it."""
    page.get_by_role("button", name="COLUMNS").click()
    for name in names:
        page.get_by_role("checkbox", name=name, exact=True).check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("columnheader", name=names[-1], exact=True)).to_be_visible()


def column_of(page: Any, row: Any, title: str) -> Any:
    """The cell of a row below a title, once the table is there: a page has its heading first."""
    expect(page.get_by_role("columnheader", name=title, exact=True)).to_be_visible()
    titles = page.get_by_role("columnheader").all_inner_texts()
    (number,) = (number for number, text in enumerate(titles) if text.rstrip(" ↓↑") == title)
    return row.get_by_role("cell").nth(number)


def test_columns_of_run_ai_have_values_or_say_why_not(ui: Ui) -> None:
    run(ui, "talks", LONG, "-g", "0.5")
    run(ui, "held", LONG, "--nnodes", "2")
    expect(ui.row("talks")).to_contain_text("Running")
    page = ui.page
    choose_columns(
        page, "Total pending time", "Total runtime", "Guaranteed time left", "Requested runs", "AI application",
        "Connection(s)", "Idle GPU devices", "Workload architecture", "CPU memory request", "Data source(s)",
    )  # fmt: skip
    talks, held = ui.row("talks"), ui.row("held")
    expect(column_of(page, talks, "Total pending time")).to_have_text(re.compile(r"\d+s"))
    expect(column_of(page, talks, "Total runtime")).to_have_text(re.compile(r"\d+[sm]"))
    expect(column_of(page, talks, "Requested runs")).to_have_text("1")
    expect(column_of(page, talks, "Workload architecture")).to_have_text("Standard")
    expect(column_of(page, held, "Workload architecture")).to_have_text("Distributed")
    for row, title, why in (
        (held, "Requested runs", "A distributed workload runs once"),
        (talks, "Idle GPU devices", "its GPUs are simulated"),
        (held, "Idle GPU devices", "It holds no GPU."),
        (talks, "Guaranteed time left", "sets no minimum runtime"),
        (talks, "Connection(s)", "Its pods name no port."),
        (talks, "AI application", "It names none"),
        (talks, "Data source(s)", "without a data source"),
    ):
        cell = column_of(page, row, title)
        expect(cell).to_contain_text("–")
        expect(cell).to_contain_text(why)  # for whoever listens; for whoever points, it is the title
        expect(cell.locator("[title]")).to_have_attribute("title", re.compile(re.escape(why)))
    with page.expect_download() as download:
        page.get_by_role("button", name="DOWNLOAD CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert '"Requested runs"' in lines[0] and '"Idle GPU devices"' in lines[0]
    assert "–" not in download.value.path().read_text(), "a spreadsheet has no use for a dash"
    page.get_by_role("button", name="Requested runs").click()
    expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["held", "talks"])
    page.get_by_role("button", name="ADD FILTER").click()
    page.get_by_label("Column", exact=True).select_option("Workload architecture")
    page.get_by_role("group", name="Add a filter").get_by_role("button", name="Standard").click()
    expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["talks"])
    ui.pictures("columns")
    page.set_viewport_size({"width": 390, "height": 800})
    expect(ui.row("talks").get_by_text("simulated")).to_be_attached()  # what was chosen has a line of its own there
    expect(column_of_phone(ui.row("talks"), "Requested runs")).to_have_text("1")


def column_of_phone(row: Any, title: str) -> Any:
    return row.locator(f'td[data-title="{title}"]')


def test_pods_connections_and_data_sources_open_in_dialogs(ui: Ui) -> None:
    spec: dict[str, Any] = {
        "meta": {"name": "scratch", "scope": "project", "projectId": "team-a"},
        "spec": {"path": "/tmp", "mountPath": "/scratch"},
    }
    made = ui.cluster.api("POST", "/api/v1/asset/datasource/host-path", spec)
    body = {
        "name": "serves", "projectId": "team-a", "assets": {"datasources": [{"id": made["meta"]["id"], "kind": "hostPath"}]},
        "spec": {"command": shlex.join(ui.site.command("import time; time.sleep(600)")), "numWorkers": 1, "distributedFramework": "PyTorch",
                 "image": ui.site.image, "compute": {"gpuDevicesRequest": 1}, "ports": [{"container": 6006}]},
    }  # fmt: skip
    ui.cluster.api("POST", "/api/v1/workloads/distributed", body)
    row, page = ui.row("serves"), ui.page
    expect(row).to_contain_text("2/2")
    row.get_by_role("button", name="Pods of serves: 2/2").click()
    dialog = page.get_by_role("dialog", name="Pods of serves")
    titles = [
        "Pod",
        "Status",
        "Logs",
        "Terminal",
        "Node",
        "Node pool",
        "Image",
        "GPU compute allocation",
        "GPU memory allocation",
    ]
    expect(dialog.get_by_role("columnheader")).to_have_text(titles)  # the pods are asked for when it opens
    master = dialog.get_by_role("row", name="serves-master-0")
    expect(master).to_contain_text("Running")
    expect(master).to_contain_text("default")
    expect(master.get_by_role("cell").nth(7)).to_have_text("1")
    ui.pictures("dialog-pods")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    choose_columns(page, "Connection(s)", "Data source(s)")
    row.get_by_role("button", name="Connections of serves").click()
    dialog = page.get_by_role("dialog", name="Connections of serves")
    expect(dialog.get_by_role("row", name="6006")).to_contain_text("127.0.0.1:6006")
    expect(dialog).to_contain_text("rowlock port-forward serves 6006:6006 -p team-a")
    dialog.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Data sources of serves: scratch").click()
    dialog = page.get_by_role("dialog", name="Data sources of serves")
    expect(dialog.get_by_role("row", name="scratch")).to_contain_text("hostPath")
    dialog.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Pods of serves: 2/2").click()
    page.get_by_role("link", name="Logs of serves-worker-0").click()
    expect(page.get_by_role("complementary").get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.empty_history
def test_deleted_workloads_have_a_tab(ui: Ui) -> None:
    run(ui, "fails", FAILS)
    expect(ui.row("fails")).to_contain_text("Failed")
    ui.cluster.run("rowlock", "delete", "-y", "fails")
    expect(ui.page.get_by_text("No workloads yet")).to_be_visible()
    ui.page.get_by_role("link", name="Deleted", exact=True).click()
    row = ui.row("fails")
    expect(row).to_contain_text("Failed")
    expect(row).to_contain_text("exit code 3")
    ui.pictures("deleted")
    row.get_by_role("link", name="fails", exact=True).click()
    expect(ui.page.get_by_role("log")).to_contain_text("hello from 0")
    ui.page.go_back()
    choose_columns(ui.page, "Running/requested pods")
    ui.row("fails").get_by_role("button", name="Pods of fails").click()
    expect(ui.page.get_by_role("dialog").get_by_role("row", name="fails-master-0")).to_contain_text("It is gone.")
    ui.page.keyboard.press("Escape")
    ui.page.get_by_role("link", name="Active", exact=True).click()
    expect(ui.page.get_by_text("No workloads yet")).to_be_visible()


def test_the_details_begin_with_what_happened(ui: Ui) -> None:
    run(ui, "fails", FAILS)
    ui.row("fails").get_by_role("link", name="fails", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    expect(panel.locator(".verdict")).to_contain_text("rank 0 (pod fails-master-0")
    expect(panel).to_contain_text(ui.site.failure_event)
    ui.pictures("details-history")
    panel.get_by_role("tab", name="Logs").click()
    expect(panel.get_by_role("log")).to_contain_text("[rank 0] hello from 0")
    expect(panel).to_contain_text("the log ends here")
    panel.get_by_role("tab", name="Pods").click()
    expect(panel.get_by_role("cell", name="fails-master-0", exact=True)).to_be_visible()
    ui.pictures("details-pods")
    panel.get_by_role("link", name="Logs of fails-master-0").click()
    expect(panel.get_by_role("log")).to_contain_text("hello from 0")
    panel.get_by_role("tab", name="Details").click()
    expect(panel).to_contain_text("rowlock why fails -p default")
    expect(panel.locator("pre")).to_contain_text("distributedFramework")
    ui.pictures("details-details")
    ui.page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_a_log_is_followed_and_searched(ui: Ui) -> None:
    run(ui, "talks", LONG, "--nnodes", "2")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_role("tab", name="Logs").click()
    log = panel.get_by_role("log")
    expect(log).to_contain_text("[rank 1] step 1")
    expect(log).to_contain_text("step 12")  # it goes on
    panel.get_by_label("Ranks").select_option("talks-worker-0")
    expect(log).to_contain_text("step 1")
    expect(log).not_to_contain_text("[rank")
    panel.get_by_label("Search the log").fill("step 7")
    expect(log).not_to_contain_text("step 1")
    ui.pictures("logs")


def test_what_a_program_prints_is_shown_and_not_obeyed(ui: Ui) -> None:
    """Its bytes are an enemy's: no markup, no colours, no line of any length."""
    run(
        ui,
        "hostile",
        r"print('<img src=x onerror=alert(1)>\x1b[31mred\x1b[0m'); print('x' * 100000); print('1%\r50%\r100%')",
    )
    ui.row("hostile").get_by_role("link", name="hostile", exact=True).click()
    ui.page.get_by_role("tab", name="Logs").click()
    log = ui.page.get_by_role("log")
    expect(log).to_contain_text("<img src=x onerror=alert(1)>red")
    expect(log).to_contain_text("x … (cut")
    expect(log).to_contain_text("[rank 0] 100%")
    expect(log.locator("img")).to_have_count(0)


def test_stop_run_and_delete(ui: Ui) -> None:
    run(ui, "talks", LONG)
    row = ui.row("talks")
    expect(row).to_contain_text("Running")
    row.get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="STOP").click()
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text("rowlock suspend talks -p default")
    dialog.get_by_role("button", name="CANCEL").click()
    expect(row).to_contain_text("Running")
    ui.page.get_by_role("button", name="STOP").click()
    dialog.get_by_role("button", name="STOP", exact=True).click()
    expect(row).to_contain_text("Stopped")
    expect(row).to_contain_text("It is suspended")
    ui.page.get_by_role("button", name="RUN", exact=True).click()
    expect(ui.page.get_by_text("rowlock resume talks -p default")).to_be_visible()
    expect(row).to_contain_text("Running")
    ui.page.get_by_role("button", name="SHOW DETAILS").click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_role("button", name="DELETE").click()
    ui.pictures("delete")
    ui.page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(ui.page.get_by_text("No workloads yet")).to_be_visible()
    assert ui.cluster.json("rowlock", "list", "--json") == []


def test_many_are_deleted_at_once(ui: Ui) -> None:
    for name in ("one", "two", "three"):
        run(ui, name, "print(1)")
    expect(ui.page.locator("tbody tr")).to_have_count(3)
    ui.page.get_by_role("checkbox", name="Select all").check()
    ui.page.get_by_role("button", name="DELETE").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(ui.page.get_by_text("3 workloads are deleted.")).to_be_visible()
    expect(ui.page.get_by_text("No workloads yet")).to_be_visible()


def test_projects_show_their_quota_and_lead_to_their_workloads(ui: Ui) -> None:
    run(ui, "uses", LONG, "-p", "team-a", "-g", "1")
    run(ui, "other", LONG)
    expect(ui.row("uses")).to_contain_text("Running")
    ui.page.get_by_role("link", name="Projects").click()
    row = ui.page.get_by_role("row", name="team-a")
    expect(row.get_by_role("cell").nth(3)).to_have_text("2")
    expect(row.get_by_role("cell").nth(4)).to_have_text("1")  # its fair share of what it asks for
    expect(row.get_by_role("cell").nth(5)).to_contain_text("1")
    expect(row.get_by_role("cell").nth(7)).to_have_text("1 (1 running, 0 pending)")
    row.get_by_role("button", name="1 (1 running, 0 pending)").click()
    expect(ui.page.locator("tbody tr")).to_have_count(1)
    expect(ui.row("uses")).to_be_visible()


def test_a_quota_is_edited_by_whom_may_do_it(ui: Ui) -> None:
    ui.page.get_by_role("link", name="Projects").click()
    row = ui.page.get_by_role("row", name="team-a")
    row.get_by_role("button", name="Edit the quota of team-a").click()
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text("rowlock project update team-a --gpus 2")
    dialog.get_by_label("GPU quota").fill("1")
    expect(dialog).to_contain_text("rowlock project update team-a --gpus 1")
    ui.pictures("quota")
    dialog.get_by_label("At most, over quota too").fill("0.5")
    dialog.get_by_role("button", name="SAVE").click()
    expect(dialog.get_by_role("alert")).to_contain_text("must be no less than deserved")
    dialog.get_by_label("At most, over quota too").fill("4")
    dialog.get_by_label("Over-quota weight").fill("2")
    command = "rowlock project update team-a --gpus 1 --gpu-limit 4 --gpu-over-quota-weight 2"
    expect(dialog).to_contain_text(command)
    ui.cluster.run(*command.split())
    (project,) = [one for one in ui.cluster.json("rowlock", "project", "list", "--json") if one["name"] == "team-a"]
    bounds = project["resources"][0]["gpu"]
    assert (bounds["deserved"], bounds["limit"], bounds["overQuotaWeight"]) == (1, 4, 2)
    dialog.get_by_label("At most, over quota too").fill("")
    dialog.get_by_role("button", name="SAVE").click()
    expect(dialog).to_have_count(0)
    expect(row.get_by_role("cell").nth(3)).to_have_text("1")
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.site.address("vera"))
    page.get_by_role("link", name="Projects").click()
    page.get_by_role("button", name="Edit the quota of team-a").click()
    page.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("You do not have sufficient permissions")
    stranger.close()
