"""What ran: the list of runs with those that are deleted, one run whole, curves of several, attempts and the failing rank in a log."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run

LEARNS = (
    "import sys\nfor step in range(50): print(f'step={step} loss={float(sys.argv[1]) / (step + 1):.4f}', flush=True)"
)
RANK_1_FAILS = "import os, sys, time\nprint('hello from', os.environ['RANK'], flush=True)\ntime.sleep(60 * (os.environ['RANK'] == '0'))\nsys.exit(7)"
SECOND_TRY = "import os, pathlib, sys\nhere = pathlib.Path(sys.argv[1])\nprint('try', here.exists(), flush=True)\nif not here.exists(): here.touch(); sys.exit(4)"


def learn(ui: Ui, name: str, rate: str) -> None:
    ui.site.run(name, LEARNS, "-p", "team-a", argv=(rate,), waits=True)


@pytest.mark.empty_history
def test_runs_are_listed_and_drawn_when_their_workloads_are_gone(ui: Ui) -> None:
    learn(ui, "slow", "9")
    learn(ui, "fast", "2")
    ui.cluster.run("rowlock", "delete", "-y", "-p", "team-a", "slow")
    ui.page.get_by_role("link", name="Runs").click()
    table = ui.page.get_by_role("table", name="Runs")
    expect(table.get_by_role("row", name="slow")).to_contain_text("deleted")
    ui.page.get_by_label("Name of a run").fill("slo")
    expect(table.locator("tbody tr")).to_have_count(1)
    ui.page.get_by_label("Name of a run").fill("nosuch")
    expect(ui.page.get_by_text("No run matches.")).to_be_visible()
    ui.page.get_by_label("Name of a run").fill("")
    expect(table.locator("tbody tr")).to_have_count(2)
    ui.pictures("runs")
    ui.page.get_by_role("checkbox", name="Choose slow").check()
    ui.page.get_by_role("checkbox", name="Choose fast").check()
    ui.page.get_by_role("button", name="COMPARE 2").click()
    curves = ui.page.get_by_role("region", name="loss", exact=True)
    expect(curves).to_contain_text("slow 0.18")  # 9 / 50
    expect(curves).to_contain_text("fast 0.04")
    expect(curves.locator("canvas")).to_be_visible()
    asked = ui.page.get_by_role("table", name="What was asked for")
    expect(asked.locator("tbody tr")).to_have_count(1)  # the one that is deleted is asked for what it asked for
    expect(asked.locator("tr.differs td").filter(has_text=re.compile("^9$"))).to_have_count(1)
    ui.pictures("curves")
    ui.page.get_by_role("link", name="slow", exact=True).first.click()
    expect(ui.page.get_by_role("region", name="Phases")).to_contain_text("Completed")
    expect(ui.page.get_by_role("log")).to_contain_text("step=49")
    expect(ui.page.get_by_role("region", name="loss", exact=True)).to_contain_text("by step")
    expect(ui.page.get_by_role("region", name="What ran")).to_contain_text("python")
    ui.pictures("run")


def test_small_numbers_are_drawn_as_such(ui: Ui) -> None:
    """A learning rate that is rounded to two decimals is 0."""
    draws = "import sys\nfor step in range(5): print(f'step={step} lr={sys.argv[1]}', flush=True)"
    for name, rate in (("usual", "0.003"), ("tiny", "1e-05")):
        ui.site.run(name, draws, "-p", "team-a", argv=(rate,), waits=True)
    ui.page.get_by_role("link", name="Runs").click()
    for name in ("usual", "tiny"):
        ui.page.get_by_role("checkbox", name=f"Choose {name}").check()
    ui.page.get_by_role("button", name="COMPARE 2").click()
    curves = ui.page.get_by_role("region", name="lr", exact=True)
    expect(curves).to_contain_text("usual 0.003")
    expect(curves).to_contain_text("tiny 0.00001")
    told = ui.cluster.run("rowlock", "diff", "-p", "team-a", "usual", "tiny")
    assert re.search(r"lr +0\.003 +(-> +)?1e-05", told), told


def test_the_rank_that_failed_is_marked_in_the_merged_log(ui: Ui) -> None:
    run(ui, "fails", RANK_1_FAILS, "--nnodes", "2")
    expect(ui.row("fails")).to_contain_text("Failed")
    ui.row("fails").get_by_role("link", name="fails", exact=True).click()
    ui.page.get_by_role("tab", name="Logs").click()
    marked = ui.page.get_by_role("log").locator(".failing")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("[rank 1] hello from 1")
    expect(ui.page.get_by_text("rank 1, which failed first (exit code 7)")).to_be_visible()
    ui.page.get_by_role("button", name="Only rank 1").click()
    expect(ui.page.get_by_role("log")).not_to_contain_text("hello from 0")


def test_every_attempt_has_its_log(ui: Ui) -> None:
    marker = ui.cluster.data / "tried"
    ui.site.run("again", SECOND_TRY, "--backoff-limit", "2", argv=(str(marker),), waits=True)
    ui.row("again").get_by_role("link", name="again", exact=True).click()
    ui.page.get_by_role("tab", name="Logs").click()
    expect(ui.page.get_by_role("log")).to_contain_text("try True")
    ui.page.get_by_label("Attempt").select_option("1")
    expect(ui.page.get_by_role("log")).to_contain_text("try False")
    expect(ui.page.get_by_role("log")).not_to_contain_text("try True")


def test_ranks_whose_pods_are_gone_have_their_logs(ui: Ui) -> None:
    """As after a clean-pod policy: the job is there, its pods are not, and the archive has what they printed."""
    ui.site.run(
        "swept", "import os\nprint('hello from', os.environ['RANK'])", "-p", "team-a", "--nnodes", "2", waits=True
    )
    ranks: list[Any] = ui.cluster.json("rowlock", "show", "-p", "team-a", "swept", "--json")["ranks"]
    pods = "/api/v1/namespaces/runai-team-a/pods"
    (gone,) = [rank["pod"] for rank in ranks if rank["rank"] == "rank 1"]
    ui.cluster.api("DELETE", f"{pods}/{gone}")
    ui.cluster.until(lambda: gone not in str(ui.cluster.api("GET", pods)), "the pod of rank 1 is there still")
    ui.row("swept").get_by_role("link", name="swept", exact=True).click()
    ui.page.get_by_role("tab", name="Logs").click()
    choice = ui.page.get_by_label("Ranks")
    expect(choice.locator("option")).to_have_text(
        ["all, merged", f"rank 0 · {ranks[0]['pod']}", f"rank 1 · {gone} (gone)"]
    )
    choice.select_option(gone)
    log = ui.page.get_by_role("log")
    expect(log).to_contain_text("hello from 1")
    expect(log).not_to_contain_text("hello from 0")
    ui.page.get_by_label("Follow").uncheck()
    expect(log).to_contain_text("hello from 1")
    command = shlex.split(ui.page.get_by_role("tabpanel").locator(".command code").inner_text())
    assert ui.cluster.run(*command) == "hello from 1\n"


def test_a_big_log_does_not_freeze_the_page(ui: Ui) -> None:
    big = "line = 'x' * 400\nfor number in range(100_000): print(number, line)\nprint('the end')"  # 40 MB
    ui.site.run("big", big, waits=True)
    ui.row("big").get_by_role("link", name="big", exact=True).click()
    ui.page.get_by_role("tab", name="Logs").click()
    log = ui.page.get_by_role("log")
    expect(log).to_contain_text("the end")
    ui.page.get_by_role("button", name="Load 20,000 lines").click()
    expect(ui.page.get_by_role("status").filter(has_text="20000 lines")).to_be_visible()
    assert log.locator("span").count() < 200, "only what is in sight is in the document"
    ui.page.get_by_label("Search the log").fill("99997 ")
    expect(log.locator("span")).to_have_count(1)


def test_runs_on_a_phone_say_how_they_went(ui: Ui) -> None:
    run(ui, "on-a-phone", LONG)
    size = ui.page.viewport_size
    ui.page.set_viewport_size({"width": 390, "height": 800})
    ui.page.get_by_role("link", name="Runs", exact=True).click()
    phase = ui.row("on-a-phone").get_by_text("Running", exact=True)
    expect(phase).to_be_visible()
    assert phase.bounding_box()["x"] < 390
    ui.page.set_viewport_size(size)
