"""Users, access rules and applications: made and deleted by admins, refused to others in a sentence."""

from __future__ import annotations

import shlex

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import expect


def confirm(ui: Ui) -> None:
    ui.page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()


def test_users_and_their_access_rules_are_made_and_taken_back(ui: Ui) -> None:
    page = ui.page
    page.get_by_role("link", name="Access").click()
    page.get_by_label("New user").fill("ana")
    page.get_by_role("button", name="CREATE USER").click()
    expect(page.get_by_text("The password of ana, told once")).to_be_visible()
    password = page.get_by_role("status").locator("code").inner_text()
    assert len(password) >= 16
    page.get_by_label("New user").fill("ana")
    page.get_by_role("button", name="CREATE USER").click()
    expect(page.get_by_role("alert")).to_contain_text("ana")
    ui.pictures("users")
    page.get_by_role("tab", name="Access rules").click()
    expect(page.get_by_text(password)).to_have_count(0)
    page.get_by_label("Name of the subject").fill("ana")
    page.get_by_label("Role", exact=True).select_option("editor")
    page.get_by_label("Project of the rule").select_option("team-a")
    command = "rowlock access-rule create --user ana --role editor -p team-a"
    expect(page.get_by_text(command)).to_be_visible()
    page.get_by_role("button", name="CREATE RULE").click()
    expect(page.get_by_role("row", name="ana")).to_contain_text("editor")
    expect(page.get_by_role("row", name="ana")).to_contain_text("team-a")
    assert "ana" in ui.cluster.run("rowlock", "access-rule", "list")
    ui.pictures("access-rules")
    page.get_by_role("button", name="Delete the rule of ana").click()
    same = page.get_by_role("dialog").locator("code").inner_text()
    confirm(ui)
    expect(page.get_by_text("There is no access rule")).to_be_visible()
    assert same.startswith("rowlock access-rule delete ")
    ui.cluster.run(*shlex.split(command))
    page.get_by_role("tab", name="Roles").click()
    page.get_by_role("tab", name="Access rules").click()
    expect(page.get_by_role("row", name="ana")).to_contain_text("editor")  # the command does what the page does
    page.get_by_role("button", name="Delete the rule of ana").click()
    ui.cluster.run(*shlex.split(page.get_by_role("dialog").locator("code").inner_text()))
    page.get_by_role("button", name="CANCEL").click()
    page.get_by_role("tab", name="Roles").click()
    expect(page.get_by_role("row", name="system-admin")).to_contain_text("cluster-admin")
    ui.pictures("roles")
    page.get_by_role("tab", name="Applications").click()
    page.get_by_label("New application").fill("ci")
    page.get_by_role("button", name="CREATE APPLICATION").click()
    expect(page.get_by_text("The client secret of ci, told once")).to_be_visible()
    ui.pictures("applications")
    page.get_by_role("button", name="Delete ci").click()
    confirm(ui)
    expect(page.get_by_text("No program logs in here")).to_be_visible()
    page.get_by_role("tab", name="Users").click()
    page.get_by_role("button", name="New password of ana").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("rowlock user passwd ana")
    dialog.get_by_role("button", name="NEW PASSWORD").click()
    expect(page.get_by_text("The new password of ana, told once")).to_be_visible()
    page.get_by_role("button", name="Delete ana").click()
    expect(page.get_by_role("dialog")).to_contain_text("rowlock user delete ana")
    confirm(ui)
    expect(page.get_by_text("Nobody has a password here yet")).to_be_visible()


def test_who_is_no_admin_is_told_so(ui: Ui) -> None:
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.site.address("vera"))
    page.get_by_role("link", name="Access").click()
    expect(page.get_by_role("alert")).to_contain_text("Users and their rights are for admins")
    stranger.close()
