"""A user's own credentials: a page of them, and the command that keeps the same."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_admin_pages import confirm
from tests.ui.test_assets_page import fill, open_assets
from tests.ui.test_workloads_page import expect

KINDS: dict[str, dict[str, str]] = {
    "Username and password": {"User": "ana", "Password": "hush"},
    "Any secret": {"Keys and values": "token=hush"},
    "Registry of images": {"Registry": "ghcr.io", "User": "ana", "Password or token": "hush"},
}


def own(ui: Ui) -> dict[str, Any]:
    return {one["name"]: one for one in ui.cluster.api("GET", "/api/v1/me/credentials")["credentials"]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_of_the_form_keeps_the_same(ui: Ui, kind: str, tmp_path: Path) -> None:
    page, dialog = ui.page, open_assets(ui, "My credentials")
    expect(page.get_by_text("You keep no credential of your own yet.")).to_be_visible()
    page.get_by_role("button", name="NEW CREDENTIAL OF MINE").click()
    dialog.get_by_label("Kind").select_option(kind)
    dialog.get_by_label(" name", exact=False).first.fill("by-form")
    fill(dialog, KINDS[kind])
    expect(dialog.get_by_text("Or a Secret that is there")).to_have_count(0)
    dialog.get_by_label("Description").fill("of mine")
    command = shlex.split(dialog.locator(".command code").inner_text())
    dialog.get_by_role("button", name="CREATE CREDENTIAL OF MINE").click()
    expect(dialog).to_have_count(0)
    row = page.get_by_role("row", name="by-form")
    expect(row).to_contain_text(kind)
    expect(row).not_to_contain_text("hush")
    (tmp_path / "secret").write_text("hush\n")
    swapped = {"by-form": "by-command", "FILE": str(tmp_path / "secret")}
    ui.cluster.run(*(swapped.get(word, word) for word in command))
    made = own(ui)
    for field in ("type", "spec", "description"):
        assert made["by-form"][field] == made["by-command"][field], command


def test_one_is_renamed_and_deleted(ui: Ui) -> None:
    secret = {"name": "hub", "type": "password", "spec": {"user": "ana", "password": "hush"}}
    ui.cluster.api("POST", "/api/v1/me/credentials", secret)
    page, dialog = ui.page, open_assets(ui, "My credentials")
    page.get_by_role("button", name="Edit hub").click()
    dialog.get_by_label(" name", exact=False).first.fill("hub-2")
    expect(dialog).to_contain_text("Leave all of its values empty, and they stay.")
    dialog.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("row", name="hub-2")).to_be_visible()
    assert own(ui)["hub-2"]["spec"]["user"] == "ana"
    ui.pictures("my-credentials")
    page.get_by_role("button", name="Delete hub-2").click()
    expect(dialog).to_contain_text("runai my-credential delete hub-2")
    confirm(ui)
    expect(page.get_by_text("You keep no credential of your own yet.")).to_be_visible()
    assert own(ui) == {}
