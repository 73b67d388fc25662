"""Sweeps in the web UI: the list, one sweep with its best run, sorted by a metric, drawn; stopped and resumed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_accessibility import AXE, judge
from tests.ui.test_workloads_page import expect

LEARNS = """
import sys
lr, optimizer = float(sys.argv[1]), sys.argv[2]
for step in range(1, 6):
    print(f"step={step} val_loss={lr + (optimizer == 'sgd') + 1 / step:.3f} accuracy={lr * step:.3f}", flush=True)
"""


def submit(ui: Ui, name: str, *words: str) -> None:
    ui.cluster.run("rowlock", "sweep", name, "-p", "team-a", *words)


def phase_of(ui: Ui, name: str) -> str:
    (sweep,) = ui.cluster.json("rowlock", "sweep", "list", "-p", "team-a", "--json")
    assert sweep["name"] == name
    return str(sweep["phase"])


@pytest.mark.timeout(240)
def test_the_runs_of_a_sweep_are_sorted_and_drawn(ui: Ui) -> None:
    page = ui.page
    page.get_by_role("link", name="Sweeps", exact=True).click()
    expect(page.get_by_text("There are no sweeps.")).to_be_visible()
    program = ui.cluster.data.parent / "learns.py"
    program.write_text(LEARNS)
    space = ("--param", "lr=0.001,0.1", "--param", "optimizer=adam,sgd")
    submit(ui, "tune", *space, "--max-parallel", "2", "--", "python", str(program), "{lr}", "{optimizer}")
    ui.cluster.run("rowlock", "sweep", "wait", "tune", "-p", "team-a", "--timeout", "200s")
    listed = page.get_by_role("table", name="Sweeps").get_by_role("row", name="tune")
    expect(listed).to_contain_text("4 of 4")
    expect(listed).to_contain_text("Completed")
    ui.pictures("sweeps")
    page.get_by_role("link", name="tune", exact=True).click()

    best = page.get_by_role("region", name="Best run")
    expect(best).to_contain_text("Best: tune-0, val_loss 0.201")
    expect(best.locator("code")).to_have_text(f"python {program} 0.001 adam")
    rows = page.get_by_role("table", name="Runs of the sweep").locator("tbody tr")
    expect(rows.locator("td:nth-child(2)")).to_have_text(["tune-0", "tune-2", "tune-1", "tune-3"])
    expect(rows.first).to_have_text(re.compile(r"tune-0\s*Completed\s*0\.001\s*adam\s*0\.201\s*0\.201"))
    picture = page.get_by_role("region", name="Parallel coordinates").get_by_role("img")
    expect(picture).to_have_attribute("aria-label", "4 of 4 runs as lines through lr, optimizer, val_loss")
    expect(picture.locator("path:not(.area)")).to_have_count(4)
    rows.first.hover()
    expect(picture.locator("path.chosen")).to_have_count(1)
    curves = page.get_by_role("region", name="Curves")
    expect(curves.get_by_role("region", name="val_loss", exact=True)).to_contain_text("tune-3 1.3")
    ui.pictures("sweep")
    if AXE.exists():
        assert judge(page) == []

    page.get_by_role("combobox", name="Metric").select_option("accuracy")
    expect(best).to_contain_text("Best: tune-2, accuracy 0.5")  # of an accuracy the highest is the best
    expect(page.get_by_role("combobox", name="Best is")).to_have_value("max")
    page.get_by_role("combobox", name="Best is").select_option("min")
    expect(best).to_contain_text("Best: tune-0, accuracy 0.001")
    page.reload()
    expect(best).to_contain_text("Best: tune-0, accuracy 0.001")  # the address has the choice

    page.get_by_label("Choose tune-1").check()
    page.get_by_label("Choose tune-2").check()
    page.get_by_role("button", name="COMPARE 2").click()
    expect(page.get_by_role("table", name="What was asked for").locator("thead")).to_contain_text("tune-2")
    page.go_back()
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("complementary")).to_contain_text("tune-0")


@pytest.mark.timeout(240)
def test_a_sweep_is_stopped_and_resumed_in_the_browser(ui: Ui, tmp_path: Path) -> None:
    page, gate = ui.page, tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.1; done; echo {{x}}"
    submit(ui, "gated", "--param", "x=1..2", "--max-parallel", "1", "--", "sh", "-c", script)
    page.get_by_role("link", name="Sweeps", exact=True).click()
    page.get_by_role("link", name="gated", exact=True).click()
    rows = page.get_by_role("table", name="Runs of the sweep").locator("tbody tr")
    expect(rows.first).to_contain_text("Running")
    page.get_by_role("button", name="STOP", exact=True).click()
    expect(page.get_by_role("button", name="RESUME", exact=True)).to_be_visible()
    assert phase_of(ui, "gated") == "Stopped"
    gate.touch()
    expect(rows.first).to_contain_text("Completed")
    expect(rows.last).to_contain_text("Waiting")
    expect(page.get_by_text("No run has printed a metric yet")).to_be_visible()
    page.get_by_role("button", name="RESUME", exact=True).click()
    expect(rows.last).to_contain_text("Completed")
    expect(page.get_by_role("button", name="RESUME", exact=True)).to_have_count(0)
    assert phase_of(ui, "gated") == "Completed"


def test_a_sweep_that_is_not_there_is_a_sentence(ui: Ui) -> None:
    ui.page.evaluate("location.hash = '#/sweeps/nothing'")
    expect(ui.page.get_by_role("alert")).to_contain_text("there is no sweep 'nothing'")
