"""The parts of one workload, as Run:ai's page has them: containers, events that are searched, the tree of its objects, its pods."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_terminal import PROMPT
from tests.ui.test_workloads_page import FAILS, LONG, expect, run


def container(name: str, image: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", "while :; do echo $WHO works; sleep 0.1; done"],
        "env": [{"name": "WHO", "value": name}],
    }


def make_pair(ui: Ui) -> Any:
    """A job of one pod with two containers, as kubectl would make it, and the page beside it."""
    pod = {"containers": [container(name, ui.site.image) for name in ("pytorch", "side")], **ui.site.placed}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "pair"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": pod}}}},
    }
    ui.cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs", job)
    expect(ui.row("pair")).to_contain_text("Running")
    ui.row("pair").get_by_role("link", name="pair", exact=True).click()
    return ui.page.get_by_role("complementary")


def test_each_container_has_its_log_and_its_terminal(ui: Ui) -> None:
    panel = make_pair(ui)
    panel.get_by_role("tab", name="Logs").click()
    log = panel.get_by_role("log")
    expect(panel.get_by_label("Container")).to_have_count(0)  # of all ranks, merged
    panel.get_by_label("Ranks").select_option("pair-master-0")
    expect(log).to_contain_text("pytorch works")
    expect(panel.get_by_text("kubectl logs -f -n runai-team-a pair-master-0 -c pytorch")).to_be_visible()
    panel.get_by_label("Container").select_option("side")
    expect(log).to_contain_text("side works")
    expect(panel.get_by_text("kubectl logs -f -n runai-team-a pair-master-0 -c side")).to_be_visible()
    expect(log).not_to_contain_text("pytorch works")
    with ui.page.expect_download() as download:
        panel.get_by_role("button", name="DOWNLOAD").click()
    name = download.value.suggested_filename
    assert re.fullmatch(r"pair_pair-master-0_side_[0-9T-]+\.log", name), name
    assert "side works" in download.value.path().read_text()
    panel.get_by_role("tab", name="Terminal").click()
    panel.get_by_label("Container").select_option("side")
    expect(panel.get_by_text("rowlock exec -it -p team-a --pod pair-master-0 -c side pair -- bash")).to_be_visible()
    panel.get_by_role("button", name="CONNECT").click()
    screen = panel.get_by_role("group", name="Terminal").locator(".xterm-rows")
    expect(screen).to_contain_text(PROMPT)
    ui.page.keyboard.type("echo who-$WHO\n")
    expect(screen).to_contain_text("who-side")


def test_a_log_that_is_not_followed_is_read_again(ui: Ui) -> None:
    run(ui, "talks", LONG)
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_role("tab", name="Logs").click()
    log = panel.get_by_role("log")
    expect(log).to_contain_text("step 1")
    panel.get_by_label("Follow").uncheck()
    expect(panel).to_contain_text("the log ends here")
    lines = panel.get_by_role("status").filter(has_text="the log ends here").inner_text()  # not all are in sight
    later = f"step {int(lines.split()[0]) + 5}"
    ui.cluster.until(lambda: f"{later}\n" in ui.cluster.run("rowlock", "logs", "talks"), "the program goes on")
    panel.get_by_label("Search the log").fill(later)
    expect(log).not_to_contain_text("step")
    panel.get_by_role("button", name="REFRESH").click()
    expect(log).to_contain_text(later)


def test_who_follows_a_log_is_told_that_the_server_has_gone(ui: Ui) -> None:
    run(ui, "talks", LONG)
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_role("tab", name="Logs").click()
    expect(panel.get_by_role("log")).to_contain_text("step 1")
    ui.site.stop_server(keeps_jobs=True)
    told = panel.get_by_role("alert").filter(has_text="The log breaks off here: the server has stopped")
    expect(told).to_be_visible()
    expect(panel).not_to_contain_text("the log ends here")
    ui.site.start_server()
    told.get_by_role("button", name="READ AGAIN").click()
    expect(told).to_have_count(0)
    expect(panel.get_by_role("status").filter(has_text="following")).to_be_visible()


def test_the_tree_of_its_objects_and_its_pods(ui: Ui) -> None:
    panel = make_pair(ui)
    panel.get_by_role("tab", name="Structure").click()
    tree = panel.get_by_role("tabpanel")
    expect(tree.get_by_role("listitem").first).to_contain_text("PyTorchJob pair Running")
    pod = tree.get_by_role("listitem").filter(has_text=re.compile(r"^\s*Pod pair-master-0"))
    expect(pod.get_by_role("listitem")).to_have_text(
        [re.compile(r"Container pytorch\s+Running"), re.compile(r"Container side\s+Running")]
    )
    ui.pictures("structure")
    tree.get_by_role("link", name="Logs of pair-master-0").click()
    expect(panel.get_by_role("log")).to_contain_text("works")
    panel.get_by_role("tab", name="Pods").click()
    titles = panel.get_by_role("columnheader")
    expect(titles).to_have_text(
        ["Pod", "Rank", "Status", "Logs", "Terminal", "Node", "Node pool", "Image", "GPU compute allocation", "GPU memory allocation"]
    )  # fmt: skip
    expect(panel.get_by_role("row", name="pair-master-0")).to_contain_text(f"{ui.site.image}, {ui.site.image}")
    expect(panel.get_by_role("row", name="pair-master-0")).to_contain_text("default")


def test_pods_beside_the_list_need_no_scrolling_sideways(ui: Ui) -> None:
    name = "a-training-with-a-name-that-is-long-and-longer"
    run(ui, name, LONG, "--nnodes", "2")
    ui.row(name).get_by_role("link", name=name, exact=True).click()
    ui.page.get_by_role("tab", name="Pods").click()
    pods = ui.page.get_by_role("region", name="Pods", exact=True)
    expect(pods.get_by_role("link", name=f"Terminal of {name}-worker-0")).to_be_visible()
    for width in (1280, 1920, 1000, 768, 390):
        ui.page.set_viewport_size({"width": width, "height": 800})
        expect(pods.get_by_text("default").first).to_be_visible()
        assert pods.evaluate("box => box.scrollWidth <= box.clientWidth"), width
        ui.picture(f"pods-{width}")


def test_events_are_filtered_and_searched(ui: Ui) -> None:
    run(ui, "fails", FAILS)
    expect(ui.row("fails")).to_contain_text("Failed")
    ui.row("fails").get_by_role("link", name="fails", exact=True).click()
    panel = ui.page.get_by_role("tabpanel")
    panel.get_by_label("Show").select_option("phases")
    expect(panel).to_contain_text("Failed")
    expect(panel).not_to_contain_text(ui.site.failure_event)
    panel.get_by_label("Show").select_option("events")
    expect(panel).to_contain_text(ui.site.failure_event)
    panel.get_by_label("Search phases and events").fill(f"{ui.site.failure_event.lower()} EXIT")
    expect(panel.get_by_role("listitem")).to_have_count(1)
    panel.get_by_label("Search phases and events").fill("nosuch")
    expect(panel).to_contain_text("Nothing of that kind, or with these words, was recorded.")
