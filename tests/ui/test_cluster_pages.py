"""The cluster, drawn: Overview, Nodes and Queue say what is, and where nothing is, what to do next."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import FAILS, LONG, choose_columns, column_of, expect, run


def open_page(ui: Ui, name: str) -> None:
    ui.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
    expect(ui.page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def test_the_overview_of_an_empty_cluster_teaches_the_next_command(ui: Ui) -> None:
    open_page(ui, "Overview")
    expect(ui.page.get_by_role("region", name="GPUs", exact=True)).to_contain_text("0 of 2 allocated")
    expect(ui.page.get_by_role("region", name="GPUs", exact=True)).to_contain_text(
        "How many are at work is not measured"
    )
    expect(ui.page.get_by_role("region", name="How to begin")).to_contain_text("rowlock run -d")
    open_page(ui, "Queue")
    expect(ui.page.get_by_text("Nobody waits")).to_be_visible()


def test_gpus_at_work_are_counted_where_they_are_measured(ui: Ui) -> None:
    """Simulated GPUs do no work: the server's answer, with figures of real ones."""

    def measured(route: Any) -> None:
        body = route.fetch().json()
        for card, percent in zip(body["nodes"][0]["cards"], (90, 25), strict=True):
            card["utilization"] = percent
        route.fulfill(body=json.dumps(body), content_type="application/json")

    ui.page.route("**/api/v1/scheduler/cards", measured)
    open_page(ui, "Overview")
    expect(ui.page.get_by_role("region", name="GPUs", exact=True)).to_contain_text("1.15 at work now")


def test_simulated_gpus_are_said_to_be_simulated(ui: Ui) -> None:
    note, is_simulated = "These GPUs are simulated: they do no work, and their type and memory are made up.", True

    def answer(route: Any) -> None:
        body = route.fetch().json()
        (node,) = body["nodes"]
        node |= {"gpusSimulated": is_simulated, "gpuType": "NVIDIA-H100-80GB-HBM3"}
        route.fulfill(body=json.dumps(body), content_type="application/json")

    ui.page.route("**/api/v1/scheduler/cards", answer)
    open_page(ui, "Nodes")
    expect(ui.page.get_by_text(note)).to_be_visible()
    expect(ui.page.get_by_text("NVIDIA-H100-80GB-HBM3 (simulated)")).to_be_visible()
    ui.page.get_by_role("button", name="Table").click()
    expect(ui.page.get_by_text(note)).to_be_visible()
    row = ui.page.locator("tbody tr")
    expect(column_of(ui.page, row, "GPU type")).to_contain_text("NVIDIA-H100-80GB-HBM3 (simulated)")
    is_simulated = False
    expect(ui.page.get_by_text(note)).to_have_count(0)
    expect(column_of(ui.page, row, "GPU type")).not_to_contain_text("(simulated)")


def test_the_overview_is_live_and_tells_why_something_failed(ui: Ui) -> None:
    open_page(ui, "Overview")
    run(ui, "holds", LONG, "-p", "team-a", "-g", "1")
    expect(ui.page.get_by_role("region", name="GPUs", exact=True)).to_contain_text("1 of 2 allocated")
    run(ui, "waits", LONG, "-g", "2", "--nnodes", "2")
    run(ui, "fails", FAILS)
    failures = ui.page.get_by_role("region", name="Recent failures")
    expect(failures).to_contain_text("ended with exit code 3")
    expect(ui.page.get_by_role("row", name="default")).to_contain_text("1, for 4 GPUs")
    expect(ui.page.get_by_role("row", name="default")).to_contain_text("waits")
    expect(ui.page.get_by_role("row", name="team-a")).to_contain_text("1")
    past = ui.page.get_by_role("region", name="GPUs over time")
    expect(past.get_by_role("region", name="GPUs of the cluster")).to_contain_text("all 2")
    expect(past).to_contain_text("How much of them is in use is not measured here")  # these GPUs are simulated
    ui.pictures("overview")
    failures.get_by_role("link", name="fails").click()
    expect(ui.page.get_by_role("complementary")).to_contain_text("exit code 3")


def test_a_gpu_that_is_held_is_drawn_so_whoever_chose_it(ui: Ui) -> None:
    """On a real cluster the node's kubelet chose it, and tells nobody: one of the two is idle."""
    run(ui, "whole", LONG, "-g", "1")
    expect(ui.row("whole")).to_contain_text("Running")
    open_page(ui, "Nodes")
    cards = ui.page.get_by_role("group", name="GPU")
    expect(cards).to_have_count(2)
    expect(cards.get_by_role("link", name="whole")).to_have_count(1)
    expect(cards.get_by_text("idle", exact=True)).to_have_count(1)
    ui.page.get_by_role("button", name="Table", exact=True).click()
    ui.page.get_by_role("button", name="GPU devices of").click()
    dialog = ui.page.get_by_role("dialog", name="GPU devices of")
    held = dialog.get_by_role("row").filter(has=ui.page.get_by_role("link", name="whole"))
    expect(held.get_by_role("cell").nth(1)).to_have_text("100 %")
    expect(dialog.get_by_role("row").filter(has_text="Nobody holds it.").get_by_role("cell").nth(1)).to_have_text("0 %")


def test_fractions_are_drawn_to_scale_on_their_cards(ui: Ui) -> None:
    run(ui, "quarter", LONG, "-g", "0.25", "--nnodes", "2")
    run(ui, "whole", LONG, "-g", "1")
    open_page(ui, "Nodes")
    cards = ui.page.get_by_role("group", name="GPU ")
    expect(cards).to_have_count(2)
    expect(cards.get_by_role("link", name="whole")).to_have_count(1)
    quarters = cards.get_by_role("link", name="quarter")
    expect(quarters).to_have_count(2)
    widths = [quarters.nth(index).bounding_box()["width"] for index in (0, 1)]
    whole = cards.get_by_role("link", name="whole").bounding_box()["width"]
    assert all(abs(width / whole - 0.25) < 0.02 for width in widths), (widths, whole)
    expect(ui.page.get_by_text("1.50 of 2 GPUs allocated")).to_be_visible()
    ui.pictures("nodes")
    ui.page.get_by_label("Search nodes").fill("nosuch")
    expect(ui.page.get_by_text("No node matches")).to_be_visible()
    ui.page.get_by_label("Search nodes").fill("quarter")
    cards.get_by_role("link", name="whole").click()
    expect(ui.page.get_by_role("complementary").get_by_role("cell", name="whole-master-0", exact=True)).to_be_visible()


def test_nodes_are_a_table_too_with_their_gpus_and_pods(ui: Ui) -> None:
    run(ui, "quarter", LONG, "-g", "0.25")
    expect(ui.row("quarter")).to_contain_text("Running")
    open_page(ui, "Nodes")
    ui.page.get_by_role("button", name="Table", exact=True).click()
    (node,) = ui.cluster.api("GET", "/api/v1/nodes")["items"]
    row = ui.page.get_by_role("row", name=node["metadata"]["name"])
    expect(column_of(ui.page, row, "Ready/total GPU devices")).to_have_text("2/2")
    expect(column_of(ui.page, row, "Free GPU devices")).to_have_text("1")
    expect(column_of(ui.page, row, "Allocated GPUs")).to_have_text("0.25")
    expect(column_of(ui.page, row, "CPU memory")).to_have_text(re.compile(r"^[\d.]+ [GT]iB$"))
    choose_columns(ui.page, "NVLink ids", "GPU memory", "Cluster")
    expect(column_of(ui.page, row, "NVLink ids")).to_contain_text("nvidia.com/gpu.clique")
    ui.site.label_node(**{"nvidia.com/gpu.clique": "7f3e.32766"})
    expect(column_of(ui.page, row, "NVLink ids")).to_have_text("7f3e · 32766")
    ui.pictures("nodes-table")
    row.get_by_role("button", name="GPU devices of").click()
    dialog = ui.page.get_by_role("dialog", name="GPU devices of")
    expect(dialog.get_by_role("row")).to_have_count(3)
    held = dialog.get_by_role("row").filter(has=ui.page.get_by_role("link", name="quarter"))
    expect(held.get_by_role("cell").nth(1)).to_have_text("25 %")
    expect(held.get_by_role("cell").nth(4)).to_contain_text("Not measured: it is simulated")
    free = dialog.get_by_role("row").filter(has_text="Nobody holds it.")
    expect(free.get_by_role("cell").nth(1)).to_have_text("0 %")
    ui.pictures("dialog-gpus")
    dialog.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Pods on").click()
    expect(ui.page.get_by_role("dialog").get_by_role("row", name="quarter-master-0")).to_contain_text("Running")
    ui.page.keyboard.press("Escape")
    with ui.page.expect_download() as download:
        ui.page.get_by_role("button", name="DOWNLOAD CSV").click()
    assert '"Ready/total GPU devices"' in download.value.path().read_text()
    ui.page.reload()
    expect(ui.page.get_by_role("columnheader", name="NVLink ids")).to_be_visible()  # the browser remembers it


def test_the_queue_says_the_order_and_what_would_help(ui: Ui) -> None:
    run(ui, "holds", LONG, "-p", "team-a", "-g", "2")
    expect(ui.row("holds")).to_contain_text("Running")
    run(ui, "first", LONG, "-p", "team-a", "-g", "1", "--nnodes", "2")
    run(ui, "second", LONG, "-p", "team-a", "-g", "1", "--nnodes", "9")
    open_page(ui, "Queue")
    places = ui.page.locator("main ol > li")
    expect(places).to_have_count(2)
    expect(places.nth(0)).to_contain_text("first")
    expect(places.nth(1)).to_contain_text("9 pods, 9 GPUs")
    expect(places.nth(1)).to_contain_text("What helps")
    ui.page.get_by_role("button", name="Would second start now?").click()
    expect(places.nth(1).get_by_role("status")).to_contain_text("would wait")
    expect(places.nth(1).get_by_role("status")).to_contain_text("rowlock explain second -p team-a")
    expect(ui.page.get_by_role("button", name=re.compile("Move first"))).to_have_count(1)
    ui.page.get_by_role("button", name="Move second before first").click()
    moved = ui.page.get_by_role("listitem", name="second, place 1")
    expect(moved.get_by_text("rowlock queue move second -p team-a --before first")).to_be_visible()
    ui.page.get_by_role("button", name="Move second behind first").click()
    expect(ui.page.get_by_role("listitem", name="first, place 1")).to_be_visible()
    ui.pictures("queue")
    ui.cluster.run("rowlock", "delete", "-y", "-p", "team-a", "holds")
    expect(places).to_have_count(1)  # nobody reloads the page


def test_who_may_not_see_the_whole_cluster_sees_his_own(ui: Ui) -> None:
    """A refusal is a sentence with a way on; it is not asked again."""
    ui.site.grant("alan", "team-a")
    run(ui, "mine", LONG, "-p", "team-a", "-g", "1")
    expect(ui.row("mine")).to_contain_text("Running")
    run(ui, "hidden", LONG, "-g", "2")
    expect(ui.row("hidden")).to_contain_text("Pending")
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.site.address("alan"))
    expect(page.get_by_role("link", name="mine", exact=True)).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("region", name="GPUs", exact=True)).to_contain_text(
        "1 allocated to workloads that you may see"
    )
    page.get_by_role("link", name="Queue").click()
    expect(page.get_by_role("status").filter(has_text="waiting")).to_contain_text(
        "0 waiting; 1 more in line that you may not see"
    )
    expect(page.locator("main")).not_to_contain_text("hidden")
    page.get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot list resource")
    stranger.close()
