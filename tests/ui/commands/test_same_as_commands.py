"""What the page does, a command does: those that dialogs show make the same things."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_admin_pages import confirm
from tests.ui.test_assets_page import fill, kept, open_assets
from tests.ui.test_new_training import begin, submitted
from tests.ui.test_workloads_page import LONG, expect, run

FORMS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "environment": ("Environments", "", "asset/environment", {
        "Image URL": "pytorch/pytorch:2", "Environment variables": "RATE=a b", "Working directory": "/code", "User id": "1000",
        "Linux capabilities": "NET_ADMIN, SYS_PTRACE",
    }),
    "compute resource": ("Compute resources", "", "asset/compute", {
        "CPU cores per pod": "2", "At most so much CPU memory": "2G", "Other resources of each pod": "example.com/nic=2",
    }),
    "host path": ("Data sources", "Host path", "asset/datasource", {"Path on the nodes": "/srv", "Path in the pods": "/data"}),
    "nfs": ("Data sources", "NFS", "asset/datasource", {"NFS server": "nas", "Path on the server": "/x", "Path in the pods": "/x"}),
    "claim": ("Data sources", "PVC", "asset/datasource", {"Path in the pods": "/data", "Size": "1Gi", "Storage class": "fast"}),
    "repository": ("Data sources", "Git", "asset/datasource", {
        "Repository": "https://example.org/code.git", "Path in the pods": "/code", "Branch": "next",
    }),
    "ConfigMap": ("Data sources", "ConfigMap", "asset/datasource", {"Name of the ConfigMap": "settings", "Path in the pods": "/etc/x"}),
    "login": ("Credentials", "Username and password", "asset/credentials", {"User": "ana", "Password": "hush"}),
    "key": ("Credentials", "Access key", "asset/credentials", {"Access key id": "AK1", "Secret access key": "hush"}),
    "token": ("Credentials", "Any secret", "asset/credentials", {"Keys and values": "token=hush"}),
}  # fmt: skip
"""What is made: on which tab, of which kind, where it is kept, what is typed."""


def said(asset: Any) -> Any:
    """Its spec, without what says nothing; a credential's has the name of its Secret, which is its own."""
    spec = json.loads(json.dumps(asset["spec"]).replace("by-command", "by-form"))
    return {name: value for name, value in spec.items() if value not in (False, None)}


@pytest.mark.parametrize("what", FORMS)
def test_the_command_of_a_form_makes_the_same(ui: Ui, what: str, tmp_path: Path) -> None:
    tab, kind, path, values = FORMS[what]
    page, dialog = ui.page, open_assets(ui, tab)
    page.get_by_role("button", name=re.compile("^NEW ")).click()
    if kind:
        dialog.get_by_label("Kind").select_option(kind)
    dialog.get_by_label(" name", exact=False).first.fill("by-form")
    fill(dialog, values)
    if what in ("host path", "nfs"):
        dialog.get_by_label("Read only").uncheck()
    dialog.get_by_label("Scope").select_option("project team-a")
    command = shlex.split(dialog.locator(".command code").inner_text())
    dialog.get_by_role("button", name=re.compile("^CREATE ")).click()
    expect(dialog).to_have_count(0)
    (tmp_path / "secret").write_text("hush\n")
    swapped = {"by-form": "by-command", "FILE": str(tmp_path / "secret")}
    ui.cluster.run(*(swapped.get(word, word) for word in command))
    made = kept(ui, path)
    assert said(made["by-form"]) == said(made["by-command"]), command
    assert made["by-command"]["meta"]["projectName"] == "team-a"
    page.reload()
    page.get_by_role("button", name="Delete by-command").click()
    same = dialog.locator(".command code").inner_text()
    dialog.get_by_role("button", name="CANCEL").click()
    ui.cluster.run(*shlex.split(same))
    assert "by-command" not in kept(ui, path)
    page.get_by_role("button", name="Delete by-form").click()
    confirm(ui)
    expect(page.get_by_role("row", name="by-form")).to_have_count(0)


def test_a_master_of_another_sort_has_flags_of_its_own(ui: Ui) -> None:
    page = begin(ui, "by-form")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="half-gpu").check()
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_label("Allow different setup for the master").check()
    page.get_by_role("group", name="Compute resource of the master").get_by_role("radio", name="cpu-only").check()
    command = page.locator(".command code").inner_text()
    assert "--master-gpu-devices-request 0" in command
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("by-form")
    ui.cluster.run(*(word.replace("by-form", "by-command") for word in shlex.split(command)))
    made = [submitted(ui, name) for name in ("by-form", "by-command")]
    assert made[0] == made[1], command
    assert "nvidia.com/gpu" not in str(made[0]["Master"]), made[0]


def test_the_palette_stops_runs_and_deletes(ui: Ui) -> None:
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    keys, dialog = ui.page.keyboard, ui.page.get_by_role("dialog")
    keys.press("Control+k")
    keys.type("stop talks")
    keys.press("Enter")
    expect(dialog).to_contain_text("STOP talks?")
    expect(dialog).to_contain_text("rowlock suspend talks -p default")
    dialog.get_by_role("button", name="STOP", exact=True).click()
    expect(ui.page.get_by_role("complementary")).to_contain_text("Stopped")
    keys.press("Control+k")
    keys.type("run talks")
    keys.press("Enter")
    expect(ui.page.get_by_text("talks runs again.")).to_be_visible()
    expect(ui.page.get_by_text("rowlock resume talks -p default")).to_be_visible()
    keys.press("Control+k")
    keys.type("delete talks")
    keys.press("Enter")
    expect(dialog).to_contain_text("DELETE talks?")
    keys.press("Escape")
    expect(dialog).to_have_count(0)
    assert ui.cluster.json("rowlock", "list", "--json")


def test_one_selected_workload_is_connected_to_and_copied(ui: Ui) -> None:
    run(ui, "talks", LONG)
    run(ui, "ends", "print(1)")
    expect(ui.row("ends")).to_contain_text("Completed")
    expect(ui.row("talks")).to_contain_text("Running")
    tools = ui.page.locator(".tools")
    ui.row("ends").get_by_role("checkbox").check()
    expect(tools.get_by_role("button", name="CONNECT")).to_be_disabled()
    ui.row("talks").get_by_role("checkbox").check()
    expect(tools.get_by_role("button", name="MAKE A COPY")).to_be_disabled()
    ui.row("ends").get_by_role("checkbox").uncheck()
    tools.get_by_role("button", name="CONNECT").click()
    expect(ui.page.get_by_role("complementary").get_by_role("button", name="CONNECT")).to_be_enabled()
    tools.get_by_role("button", name="MAKE A COPY").click()
    expect(ui.page.get_by_label("Training name")).to_have_value("talks-2")
