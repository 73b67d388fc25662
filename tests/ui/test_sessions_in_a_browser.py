"""Sessions, tabs, and a server that goes away under an open page."""

from __future__ import annotations

from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run


def test_without_a_session_the_page_says_how_to_get_one(ui: Ui) -> None:
    ui.context.clear_cookies()
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.page.url)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_text("rowlock ui", exact=True)).to_be_visible()
    url = ui.site.address()
    page.goto(url)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    again = ui.page.context.browser.new_context()
    other = again.new_page()
    other.goto(url)
    expect(other.get_by_role("alert")).to_contain_text("each works once")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    stranger.close()
    again.close()


def test_users_of_a_real_cluster_sign_in_with_its_tokens(ui: Ui) -> None:
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.page.url.partition("#")[0])
    expect(page.get_by_text("rowlock ui", exact=True)).to_be_visible()
    field = page.get_by_label("Token of the cluster")
    token = ui.site.token("alan")
    expect(field).to_have_count(1 if token else 0)
    if token:
        field.fill("guessed")
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("The cluster does not know this token")
        field.fill(token)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_text(ui.site.full_name("alan"), exact=True)).to_be_visible()
        expect(page.get_by_text("No workloads yet")).to_be_visible()
    stranger.close()


def test_ten_tabs_share_one_stream(ui: Ui) -> None:
    """A browser opens six connections to one server: a stream for each tab would stop the seventh."""
    tabs = [ui.open_page() for _ in range(10)]
    for tab in tabs:
        tab.goto(ui.page.url)
    run(ui, "talks", LONG)
    for tab in tabs:
        expect(tab.locator("tbody tr")).to_contain_text("Its pod runs.")
    tabs[9].get_by_role("link", name="talks", exact=True).click()
    expect(tabs[9].get_by_role("complementary").locator(".verdict")).not_to_be_empty()


def test_a_page_outlives_a_restart_of_its_server(ui: Ui) -> None:
    run(ui, "before", "print(1)")
    expect(ui.row("before")).to_be_visible()
    ui.site.stop_server()
    expect(ui.page.get_by_text("Reconnecting…")).to_be_visible()
    expect(ui.row("before")).to_be_visible()  # as it was, and it says so
    ui.pictures("reconnecting")
    ui.site.start_server()
    expect(ui.page.get_by_text("Live", exact=True)).to_be_visible()
    run(ui, "after", "print(1)")
    expect(ui.row("after")).to_be_visible()


def test_a_user_sees_and_does_what_he_may(ui: Ui) -> None:
    run(ui, "secret", LONG)
    run(ui, "shared", LONG, "-p", "team-a")
    ui.site.grant("alan", "team-a")
    stranger = ui.page.context.browser.new_context()
    page = stranger.new_page()
    page.goto(ui.site.address("alan"))
    expect(page.get_by_text(ui.site.full_name("alan"), exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="shared", exact=True)).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("checkbox", name="Select shared").check()
    page.get_by_role("button", name="DELETE").click()
    page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(page.get_by_text("shared: You do not have sufficient permissions")).to_be_visible()
    expect(page.get_by_role("link", name="shared", exact=True)).to_be_visible()
    ui.site.revoke("alan", "team-a")
    run(ui, "another", LONG)
    expect(page.get_by_text("No workloads yet")).to_be_visible(timeout=30_000)
    stranger.close()


def test_what_the_server_says_beside_its_answers_is_shown_while_it_says_so(ui: Ui) -> None:
    """As it does where a real cluster has been silent for a while: what one sees is old."""
    old = 'the cluster has not answered for "12 s"; what you see is from before'

    def answer(route: Any) -> None:
        got = route.fetch()
        warning = old.replace('"', '\\"')
        route.fulfill(response=got, headers={**got.headers, "warning": f'299 - "{warning}"'})

    ui.page.route("**/api/v1/ui/session", answer)
    ui.page.reload()
    notice = ui.page.get_by_role("status").filter(has_text="from before")
    expect(notice).to_have_text(old)
    ui.page.unroute("**/api/v1/ui/session", answer)
    expect(notice).to_have_count(0)
