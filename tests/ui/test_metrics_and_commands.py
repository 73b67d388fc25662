"""Figures of a workload, workloads side by side, and the command palette."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run


def test_metrics_draw_what_the_server_answers_and_nothing_else(ui: Ui) -> None:
    asked: list[str] = []
    ui.page.on("request", lambda request: asked.append(request.url))
    run(ui, "talks", LONG, "--nnodes", "2", "-g", "0.5")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    assert not [url for url in asked if "chart.js" in url], "the charts are loaded when somebody looks"
    ui.page.get_by_role("tab", name="Metrics").click()
    panel = ui.page.get_by_role("tabpanel")
    expect(panel.get_by_role("region", name="GPUs", exact=True)).to_contain_text("allocated 1")
    expect(panel.get_by_role("region", name="Pods", exact=True)).to_contain_text("running 2")
    expect(panel.get_by_role("region", name="Pods", exact=True).locator("canvas")).to_be_visible()
    assert [url for url in asked if "chart.js" in url]
    answer = ui.cluster.api(
        "GET",
        f"/api/v1/workloads/{ui.page.url.split('/')[-2]}/metrics?metricType=NVLINK_BANDWIDTH_TOTAL"
        "&start=2026-01-02T03:04:05Z&end=2090-01-02T03:04:05Z",
    )
    assert answer["measurements"][0]["values"] == []
    expect(panel).to_contain_text("Nothing is drawn of what has no figures here")
    expect(panel.get_by_role("region", name="NVLink bandwidth")).to_have_count(0)
    ui.pictures("metrics")
    panel.get_by_label("Range").select_option("since it was made")
    expect(panel.get_by_role("region", name="Pods", exact=True)).to_contain_text("running 2")
    panel.get_by_label("Pod", exact=True).select_option("talks-worker-0")
    expect(panel.get_by_role("region", name="CPU memory", exact=True)).to_contain_text("used")
    expect(panel.get_by_role("region", name="Pods", exact=True)).to_have_count(0)
    expect(panel.get_by_label("Range")).to_have_value("")  # as it was chosen


def test_figures_of_ranks_whose_pods_are_gone_are_there(ui: Ui) -> None:
    """A workload that was stopped has no pods; what they used is in the archive."""
    run(ui, "stopped", LONG, "--nnodes", "2")
    ui.row("stopped").get_by_role("link", name="stopped", exact=True).click()
    ui.page.get_by_role("tab", name="Metrics").click()
    panel = ui.page.get_by_role("tabpanel")
    ranks = panel.get_by_label("Pod", exact=True).locator("option")
    expect(ranks).to_have_text(["all pods", "rank 0 · stopped-master-0", "rank 1 · stopped-worker-0"])
    memory = panel.get_by_role("region", name="CPU memory", exact=True)
    expect(memory).to_contain_text("used")
    ui.cluster.run("rowlock", "suspend", "stopped")
    expect(ranks).to_have_text(["all pods", "rank 0 · stopped-master-0 (gone)", "rank 1 · stopped-worker-0 (gone)"])
    panel.get_by_label("Pod", exact=True).select_option("stopped-worker-0")
    panel.get_by_label("Range").select_option("since it was made")
    expect(memory).to_contain_text("used")


def test_the_legend_keeps_the_last_value_while_the_newest_sample_is_on_its_way(ui: Ui) -> None:
    """One that is long gone says nothing of now."""
    begun = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)

    def sampled(kind: str, *values: str) -> dict[str, Any]:
        """A value every five seconds."""
        times = [(begun + timedelta(seconds=5 * number)).isoformat() for number in range(len(values))]
        return {
            "type": kind,
            "labels": {},
            "values": [{"value": value, "timestamp": time} for value, time in zip(values, times, strict=True) if value],
        }

    late = [
        sampled("CPU_USAGE_CORES", *["3"] * 19, ""),
        sampled("CPU_REQUEST_CORES", *["4"] * 20),
        sampled("CPU_MEMORY_USAGE_BYTES", *["1024"] * 5, *[""] * 15),
        sampled("CPU_MEMORY_REQUEST_BYTES", *["2048"] * 20),
    ]
    ui.page.route(re.compile(r"/metrics\?"), lambda route: route.fulfill(json={"measurements": late}))
    run(ui, "talks", LONG)
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    ui.page.get_by_role("tab", name="Metrics").click()
    cores = ui.page.get_by_role("region", name="CPU cores", exact=True)
    expect(cores.locator(".key")).to_have_text(["used 3", "requested 4"])
    memory = ui.page.get_by_role("region", name="CPU memory", exact=True)
    expect(memory.locator(".key")).to_have_text(["used –", "requested 2 KiB"])


RECORDED = """(() => {
    window.drawn = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...others) {
        window.drawn.push(text);
        fillText.call(this, text, ...others);
    };
})()"""


def test_the_marks_of_what_is_counted_are_whole(ui: Ui) -> None:
    """But where there is less than one, the marks are parts of it."""
    held = {"all": ["5", "5"], "allocated": ["0", "2.5"]}

    def answer(route: Any) -> None:
        kinds = {"TOTAL_GPU": held["all"], "ALLOCATED_GPU": held["allocated"]}
        times = [(datetime.now(UTC) - timedelta(seconds=60 - 30 * number)).isoformat() for number in range(2)]
        made = [
            {"type": kind, "labels": {}, "values": [{"value": value, "timestamp": time} for value, time in zip(values, times, strict=True)]}
            for kind, values in kinds.items()
        ]  # fmt: skip
        route.fulfill(json={"measurements": made})

    page = ui.page
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_be_visible()
    page.add_init_script(RECORDED)
    page.route(re.compile(r"/clusters/[^/]+/metrics\?"), answer)
    page.get_by_role("link", name="Overview").click()
    for most, marks in (("4", {"0", "4"}), ("3", {"0", "2"}), ("0.50", {"0", "0.50"})):
        held.update(all=[most] * 2, allocated=["0", str(float(most) / 2)])
        page.reload()
        expect(page.get_by_role("region", name="GPUs of the cluster", exact=True)).to_contain_text(f"all {most}")
        page.wait_for_function("window.drawn.includes('0')")
        drawn = {text for text in page.evaluate("window.drawn") if ":" not in text}
        assert drawn == marks, most


def test_everything_is_reached_with_the_keyboard(ui: Ui) -> None:
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    keys, palette = ui.page.keyboard, ui.page.get_by_role("dialog", name="Commands")
    keys.press("Control+k")
    expect(palette.get_by_role("option", name="Overview")).to_have_attribute("aria-selected", "true")
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    keys.press("Enter")
    expect(ui.page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    keys.press("Control+k")
    keys.type("logs tal")
    expect(palette.get_by_role("option")).to_have_count(1)
    ui.pictures("palette")
    keys.press("Enter")
    expect(ui.page.get_by_role("log")).to_contain_text("step 1")
    keys.press("Control+k")
    keys.type("colours dark")
    keys.press("Enter")
    expect(ui.page.locator("html")).to_have_attribute("data-theme", "dark")
    keys.press("Control+k")
    keys.type("nosuch")
    expect(palette.get_by_text("Nothing has that name.")).to_be_visible()
    keys.press("Enter")
    expect(palette).to_be_visible()
    keys.press("Escape")
    expect(palette).to_have_count(0)
    expect(ui.page.get_by_role("log")).to_be_visible()  # Escape closed the palette alone


def test_workloads_are_compared_and_what_differs_is_marked(ui: Ui) -> None:
    run(ui, "narrow", "print(1)")
    run(ui, "wide", "print(1)", "--nnodes", "2", "-e", "LEARNING_RATE=0.1")
    for name in ("narrow", "wide"):
        expect(ui.row(name)).to_contain_text("Completed")
        ui.row(name).get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="COMPARE").click()
    asked = ui.page.get_by_role("table", name="What was asked for")
    row = asked.get_by_role("row", name="LEARNING_RATE").first
    expect(row.get_by_role("cell")).to_have_text(["–", "0.1"])
    became = ui.page.get_by_role("table", name="What became of it")
    expect(became.get_by_role("row", name="Status")).not_to_contain_class("differs")
    expect(became.get_by_role("row", name="Why")).not_to_contain_class("differs")  # but for their names
    expect(became.get_by_role("row", name="Running/requested pods")).to_contain_class("differs")
    expect(became.get_by_role("row", name="Running/requested pods").get_by_role("cell")).to_have_text(["0/1", "0/2"])
    expect(ui.page.get_by_text("rowlock diff narrow wide -p default")).to_be_visible()
    ui.pictures("compare")
    ui.page.reload()
    expect(row.get_by_role("cell")).to_have_text(["–", "0.1"])  # the address is all that it takes
    ui.page.get_by_role("link", name="narrow", exact=True).first.click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_label("Compare with").select_option("wide")
    panel.get_by_role("button", name="COMPARE").click()
    expect(row.get_by_role("cell")).to_have_text(["–", "0.1"])
