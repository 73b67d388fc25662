"""What no command does is shown as a request of the REST API, which does the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_assets_page import kept, open_assets
from tests.ui.test_new_training import begin
from tests.ui.test_workloads_page import expect

SETUP = Path(__file__).resolve().parents[3] / "examples" / "rest" / "env.sh"


def projects(ui: Ui) -> dict[str, str]:
    """Name → id."""
    return {one["name"]: one["id"] for one in ui.cluster.api("GET", "/api/v1/org-unit/projects")["projects"]}


def send(ui: Ui, command: str) -> Any:
    """With the variables that the docs set."""
    script = f'. "{SETUP}"; {command} --fail-with-body'
    done = subprocess.run(["bash", "-c", script], env={**os.environ, **ui.cluster.env}, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_an_asset_that_is_changed(ui: Ui) -> None:
    project = projects(ui)["team-a"]
    meta = {"name": "torch", "scope": "project", "projectId": project}
    ui.cluster.api("POST", "/api/v1/asset/environment", {"meta": meta, "spec": {"image": "old"}})
    page, dialog = ui.page, open_assets(ui, "Environments")
    page.get_by_role("button", name="Edit torch").click()
    dialog.get_by_label("Image URL").fill("it's new")
    command = dialog.locator(".command code").inner_text()
    dialog.get_by_role("button", name="CANCEL").click()
    send(ui, command)
    assert kept(ui, "asset/environment")["torch"]["spec"]["image"] == "it's new"


def test_the_quota_of_a_department(ui: Ui) -> None:
    page, dialog = ui.page, ui.page.get_by_role("dialog")
    page.get_by_role("link", name="Projects", exact=True).click()
    page.get_by_role("link", name="Departments", exact=True).click()
    page.get_by_role("button", name="Edit the quota of default").click()
    dialog.get_by_label("GPU quota").fill("3")
    command = dialog.locator(".command code").inner_text()
    dialog.get_by_role("button", name="CANCEL").click()
    send(ui, command)
    row = page.get_by_role("row", name="default")
    expect(row.get_by_role("cell", name="3", exact=True)).to_be_visible()


def test_a_policy_is_written_and_deleted(ui: Ui) -> None:
    page = ui.page
    page.goto(page.url.partition("#")[0] + "#/cluster/policies")
    form = page.get_by_role("form", name="A policy")
    form.get_by_label("Name", exact=True).fill("small")
    send(ui, form.locator(".command code").inner_text())
    page.reload()
    expect(page.get_by_role("button", name="small", exact=True)).to_be_visible()
    page.get_by_role("button", name="Delete small").click()
    command = page.get_by_role("dialog").locator(".command code").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="CANCEL").click()
    send(ui, command)
    assert ui.cluster.api("GET", "/api/v2/policy")["policies"] == []


def test_where_pods_may_run_and_what_the_master_mounts(ui: Ui) -> None:
    project = projects(ui)["team-a"]
    meta = {"name": "scratch", "scope": "project", "projectId": project}
    ui.cluster.api(
        "POST", "/api/v1/asset/datasource/host-path", {"meta": meta, "spec": {"path": "/tmp", "mountPath": "/scratch"}}
    )
    page = begin(ui, "placed")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("checkbox", name="scratch").check()
    page.get_by_text("General: priority").click()
    page.get_by_label("Only nodes with these labels").fill(
        "kubernetes.io/hostname\n!example.com/old\nexample.com/kind!=slow"
    )
    page.get_by_label("Taints of nodes that it tolerates").fill("example.com/gpu=a100:NoSchedule\nexample.com/spot")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_label("Allow different setup for the master").check()
    page.get_by_label("The master mounts the data sources, too").uncheck()
    expect(page.get_by_text("No flags of a command say all of this")).to_be_visible()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("placed")

    def placed() -> dict[str, Any]:
        pods = ui.cluster.api("GET", "/api/v1/namespaces/runai-team-a/pods")["items"]
        return {pod["metadata"]["name"]: pod["spec"] for pod in pods}

    ui.cluster.until(lambda: len(placed()) == 3, "three pods")
    pods = placed()
    mounts = {
        name: [one["mountPath"] for one in pod["containers"][0].get("volumeMounts", [])] for name, pod in pods.items()
    }
    assert "/scratch" in mounts["placed-worker-0"]
    assert "/scratch" not in mounts["placed-master-0"]
    for pod in pods.values():
        tolerated = [one for one in pod["tolerations"] if one["key"].startswith("example.com")]
        assert tolerated == [
            {"key": "example.com/gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"},
            {"key": "example.com/spot", "operator": "Exists"},
        ]
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [(one["key"], one["operator"], one.get("values")) for one in term["matchExpressions"]][-3:] == [
            ("kubernetes.io/hostname", "Exists", None), ("example.com/old", "DoesNotExist", None), ("example.com/kind", "NotIn", ["slow"]),
        ]  # fmt: skip
    page.get_by_role("complementary").get_by_role("link", name="MAKE A COPY").click()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_label("Only nodes with these labels")).to_have_value(
        "kubernetes.io/hostname\n!example.com/old\nexample.com/kind!=slow"
    )
    expect(page.get_by_label("Taints of nodes that it tolerates")).to_have_value(
        "example.com/gpu=a100:NoSchedule\nexample.com/spot"
    )
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_label("Allow different setup for the master")).to_be_checked()
