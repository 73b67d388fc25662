"""What the cluster is divided into and governed by: node pools, policies, and its id."""

from __future__ import annotations

from tests.ui.conftest import Ui
from tests.ui.test_admin_pages import confirm
from tests.ui.test_cluster_pages import open_page
from tests.ui.test_workloads_page import expect


def test_a_node_pool_is_made_of_labelled_nodes_and_taken_apart(ui: Ui) -> None:
    ui.site.label_node(**{"example.com/gpu": "big"})
    open_page(ui, "Nodes")
    page = ui.page
    page.get_by_role("link", name="Node pools, policies").click()
    pools = page.get_by_role("table", name="Node pools")
    expect(pools.get_by_role("row", name="default")).to_contain_text("Ready")
    expect(pools.get_by_role("row", name="default").get_by_role("cell").nth(6)).to_have_text("2")  # GPUs
    page.get_by_label("Name", exact=True).fill("big")
    page.get_by_label("Key of the label").fill("example.com/gpu")
    page.get_by_label("Value of the label").fill("small")
    page.get_by_role("button", name="CREATE NODE POOL").click()
    expect(page.get_by_role("alert")).to_contain_text("no node has the label example.com/gpu=small")
    page.get_by_label("Value of the label").fill("big")
    command = "kubectl label nodes -l example.com/gpu=big kai.scheduler/node-pool=big"
    expect(page.get_by_text(command)).to_be_visible()
    page.get_by_role("button", name="CREATE NODE POOL").click()
    row = pools.get_by_role("row", name="big")
    expect(row).to_contain_text("kai.scheduler/node-pool=big")
    expect(row.get_by_role("cell").nth(6)).to_have_text("2")
    submit = f"runai training submit inside -p team-a -i {ui.site.image} -g 1 --node-pools big --command -- sleep 600"
    ui.cluster.run(*submit.split())
    expect(row.get_by_role("cell").nth(8)).to_have_text("1")
    ui.pictures("node-pools")
    page.get_by_role("button", name="Delete big").click()
    expect(page.get_by_role("dialog")).to_contain_text("kai.scheduler/node-pool-")
    confirm(ui)
    expect(row).to_have_count(0)
    page.get_by_role("tab", name="Clusters").click()
    (cluster,) = ui.cluster.api("GET", "/api/v1/clusters")
    expect(page.get_by_role("table", name="Clusters")).to_contain_text(cluster["uuid"])
    ui.pictures("clusters")


def test_a_policy_is_written_shown_and_deleted(ui: Ui) -> None:
    page, keys = ui.page, ui.page.keyboard
    keys.press("Control+k")
    keys.type("policies")
    keys.press("Enter")
    expect(page.get_by_text("There is no policy")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("small")
    form = page.get_by_role("form", name="A policy")
    text = form.get_by_label("The policy, as JSON")
    text.fill("{")
    form.get_by_role("button", name="SAVE POLICY").click()
    expect(form.get_by_role("alert")).to_contain_text("This is no JSON")
    text.fill('{"rules": {"worker": {"numWorker": {"max": 1}}}}')
    form.get_by_role("button", name="SAVE POLICY").click()
    expect(form.get_by_role("alert")).to_contain_text("numWorkers")  # which is the nearest word
    text.fill('{"rules": {"worker": {"numWorkers": {"max": 1}}}}')
    form.get_by_role("button", name="SAVE POLICY").click()
    table = page.get_by_role("table", name="Policies")
    expect(table.get_by_role("row", name="small")).to_contain_text("everybody")
    page.get_by_label("Name", exact=True).fill("smaller")
    form.get_by_label("Whom it is for").select_option("project team-a")
    text.fill('{"defaults": {"worker": {"backoffLimit": 2}}}')
    form.get_by_role("button", name="SAVE POLICY").click()
    table.get_by_role("button", name="smaller", exact=True).click()
    expect(table).to_contain_text('"max": 1')  # of everybody, which counts there, too
    expect(table).to_contain_text('"backoffLimit": 2')
    ui.pictures("policies")
    page.get_by_role("button", name="CHANGE IT BELOW").click()
    text.fill('{"defaults": {"worker": {"backoffLimit": 3}}}')
    form.get_by_role("button", name="SAVE POLICY").click()
    # It is closed once it is saved, and a click before would do that.
    expect(table).not_to_contain_text('"backoffLimit": 2')
    table.get_by_role("button", name="smaller", exact=True).click()
    expect(table).to_contain_text('"backoffLimit": 3')
    for name in ("smaller", "small"):
        page.get_by_role("button", name=f"Delete {name}", exact=True).click()
        confirm(ui)
        expect(table.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.get_by_text("There is no policy")).to_be_visible()
