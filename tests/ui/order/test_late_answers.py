"""Answers come in any order, and some when nobody asks any more: what is newer stays, and what somebody does is done once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_new_training import begin
from tests.ui.test_terminal import PROMPT
from tests.ui.test_workloads_page import FAILS, LONG, expect, run


class Held:
    """Requests that are not answered before the test says so."""

    def __init__(self, page: Any, address: re.Pattern[str], is_meant: Callable[[Any], bool] = lambda _: True) -> None:
        self.routes: list[Any] = []
        self.lets_others_pass = False
        self._page = page

        def hold(route: Any) -> None:
            if is_meant(route.request) and not self.lets_others_pass:
                self.routes.append(route)
            else:
                route.continue_()

        page.route(address, hold)

    def wait(self, count: int = 1) -> None:
        """Until there are so many. The page's events are handled while it asks something of the page."""
        while len(self.routes) < count:
            self._page.evaluate("new Promise(done => setTimeout(done, 20))")

    def answer(self, body: Any) -> None:
        """All of them, with this."""
        for route in self.routes:
            route.fulfill(json=body)
        self.draw()

    def draw(self) -> None:
        """Until the page has drawn what was answered."""
        self._page.evaluate("new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 100))")


def test_an_earlier_search_does_not_write_over_a_later_one(ui: Ui) -> None:
    for name in ("ant", "bee"):
        run(ui, name, "print(1)")
        ui.cluster.run("rowlock", "wait", name)
    page = ui.page
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("link", name="ant", exact=True)).to_be_visible()
    held = Held(page, re.compile(r"/api/v1/runs\?.*name=\*ant"))
    search = page.get_by_label("Name of a run")
    search.fill("ant")
    held.wait()
    search.fill("bee")
    expect(page.get_by_role("link", name="ant", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="bee", exact=True)).to_be_visible()
    held.answer({"runs": [], "cut": "", "problem": ""})
    expect(page.get_by_role("link", name="bee", exact=True)).to_be_visible()


def test_a_page_that_comes_twice_is_shown_once(ui: Ui) -> None:
    """Something ran meanwhile, so the next page begins with what the first ended with; and SHOW MORE is pressed twice."""
    run(ui, "ant", "print(1)")
    ui.cluster.run("rowlock", "wait", "ant")
    page = ui.page
    (ant,) = ui.cluster.api("GET", "/api/v1/runs")["runs"]
    others = [{**ant, "id": f"other-{number}", "name": f"other-{number}"} for number in range(2)]
    more = {"cut": "", "problem": "", "next": 100}
    firsts: list[str] = []

    def first(route: Any) -> None:
        firsts.append(route.request.url)
        route.fulfill(json={**more, "runs": [others[0], ant]})

    page.route(re.compile(r"/api/v1/runs\?.*offset=0"), first)
    held = Held(page, re.compile(r"/api/v1/runs\?.*offset=100"))
    page.get_by_role("link", name="Runs", exact=True).click()
    for _ in range(2):
        page.get_by_role("button", name="SHOW MORE").click()
    held.wait()
    page.evaluate(
        "new Promise(done => setTimeout(done, 400))"
    )  # a list that is asked for again waits 250 ms for more letters
    assert len(held.routes) == 1
    held.answer({**more, "runs": [ant, others[1]]})
    expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["other-0", "ant", "other-1"])
    assert len(firsts) == 1


def test_the_sentence_of_one_workload_is_not_said_of_another(ui: Ui) -> None:
    run(ui, "fails", FAILS)
    run(ui, "talks", LONG)
    page, panel = ui.page, ui.page.get_by_role("complementary")
    expect(ui.row("talks")).to_contain_text("Running")
    ui.row("fails").get_by_role("link", name="fails", exact=True).click()
    expect(panel.locator(".verdict")).to_contain_text("exit code 3")
    held = Held(page, re.compile(r"/api/v1/workloads/[^/]+/why"))
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    held.wait()
    expect(panel.get_by_role("heading", name="talks")).to_be_visible()
    expect(panel.locator(".verdict")).to_have_text("Its pod runs.")


def test_a_look_of_before_a_change_does_not_undo_it(ui: Ui) -> None:
    page = ui.page
    held = Held(page, re.compile(r"/api/v1/org-unit/projects\?"))
    page.get_by_role("link", name="Projects", exact=True).click()
    held.wait()
    before = held.routes[0].fetch().json()
    held.lets_others_pass = True
    row = page.get_by_role("row", name="team-a")
    expect(row.get_by_role("cell").nth(3)).to_have_text("2")
    row.get_by_role("button", name="Edit the quota of team-a").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("GPU quota").fill("1")
    dialog.get_by_role("button", name="SAVE").click()
    expect(dialog).to_have_count(0)
    expect(row.get_by_role("cell").nth(3)).to_have_text("1")
    late, held.routes = held.routes, []
    held.lets_others_pass = False  # no newer look helps
    for route in late:
        route.fulfill(json=before)
    held.draw()
    expect(row.get_by_role("cell").nth(3)).to_have_text("1")


def test_who_has_left_a_form_is_not_taken_back(ui: Ui) -> None:
    page = begin(ui, "goes-on")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("true")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("button", name="CONTINUE").click()
    is_create = lambda request: request.method == "POST"  # noqa: E731
    held = Held(page, re.compile(r"/api/v1/workloads/distributed$"), is_create)
    page.get_by_role("button", name="CREATE TRAINING").click()
    held.wait()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_disabled()
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    held.answer({"workloadId": "00000000-0000-4000-9000-000000000000"})
    assert page.url.endswith("#/runs")


def test_a_form_that_is_sent_twice_makes_one(ui: Ui) -> None:
    page = ui.page
    page.get_by_role("link", name="Assets", exact=True).click()
    page.get_by_role("button", name="NEW ENVIRONMENT").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Environment name").fill("once")
    dialog.get_by_label("Image URL").fill("image")
    held = Held(page, re.compile(r"/api/v1/asset/environment$"), lambda request: request.method == "POST")
    dialog.get_by_label("Image URL").press("Enter")
    dialog.get_by_label("Image URL").press("Enter")
    held.wait()
    expect(dialog.get_by_role("button", name="CREATE ENVIRONMENT")).to_be_disabled()
    assert len(held.routes) == 1


def test_a_tab_that_was_left_says_nothing_on_another(ui: Ui) -> None:
    page = ui.page
    held = Held(page, re.compile(r"/api/v1/users$"))
    page.get_by_role("link", name="Access", exact=True).click()
    held.wait()
    page.get_by_role("tab", name="Applications").click()
    expect(page.get_by_role("button", name="CREATE APPLICATION")).to_be_visible()
    held.routes[0].fulfill(status=500, json={"message": "users are away"})
    page.get_by_role("tab", name="Roles").click()
    expect(page.get_by_role("table", name="Roles")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_shell_that_was_left_while_it_was_loaded_is_not_opened(ui: Ui) -> None:
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    page, panel = ui.page, ui.page.get_by_role("complementary")
    sockets: list[Any] = []
    page.on("websocket", lambda socket: sockets.append(socket))
    held = Held(page, re.compile(r"/assets/xterm\.js"))
    panel.get_by_role("tab", name="Terminal").click()
    panel.get_by_role("button", name="CONNECT").click()
    held.wait()
    panel.get_by_role("button", name="DISCONNECT").click()
    for route in held.routes:
        route.continue_()
    held.draw()
    expect(panel.get_by_text("You left the shell.")).to_be_visible()
    assert not sockets


def test_a_double_click_opens_a_shell_and_does_not_leave_it(ui: Ui) -> None:
    """DISCONNECT comes where CONNECT was."""
    run(ui, "talks", LONG)
    expect(ui.row("talks")).to_contain_text("Running")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    panel = ui.page.get_by_role("complementary")
    panel.get_by_role("tab", name="Terminal").click()
    panel.get_by_role("button", name="CONNECT").dblclick()
    expect(panel.get_by_role("group", name="Terminal").locator(".xterm-rows")).to_contain_text(PROMPT)
    expect(panel.get_by_text("You left the shell.")).to_have_count(0)
    panel.get_by_role("button", name="DISCONNECT").click()
    expect(panel.get_by_text("You left the shell.")).to_be_visible()


def test_more_of_an_earlier_list_is_no_part_of_a_later_one(ui: Ui) -> None:
    """SHOW MORE is pressed while what was searched for is on its way."""
    run(ui, "ant", "print(1)")
    ui.cluster.run("rowlock", "wait", "ant")
    page = ui.page
    (ant,) = ui.cluster.api("GET", "/api/v1/runs")["runs"]
    found = {"cut": "", "problem": "", "runs": [{**ant, "id": "bee", "name": "bee"}]}
    page.route(
        re.compile(r"/api/v1/runs\?(?!.*name=)"),
        lambda route: route.fulfill(json={**found, "runs": [ant], "next": 100}),
    )
    held = Held(page, re.compile(r"/api/v1/runs\?.*name=\*bee"))
    page.get_by_role("link", name="Runs", exact=True).click()
    more = page.get_by_role("button", name="SHOW MORE")
    expect(more).to_be_visible()
    page.get_by_label("Name of a run").fill("bee")
    held.wait()
    more.click()
    held.draw()
    assert len(held.routes) == 1
    held.answer(found)
    expect(page.locator("tbody tr td:nth-child(2)")).to_have_text(["bee"])


def test_a_pool_that_is_made_late_does_not_take_the_answer_of_another_tab(ui: Ui) -> None:
    page = ui.page
    page.goto(page.url.partition("#")[0] + "#/cluster/pools")
    page.get_by_label("Name", exact=True).fill("big")
    page.get_by_label("Key of the label").fill("example.com/gpu")
    page.get_by_label("Value of the label").fill("big")
    made = Held(page, re.compile(r"/api/v1/node-pools$"), lambda request: request.method == "POST")
    clusters = Held(page, re.compile(r"/api/v1/clusters$"))
    page.get_by_role("button", name="CREATE NODE POOL").click()
    made.wait()
    page.get_by_role("tab", name="Clusters").click()
    clusters.wait()
    made.answer({})
    for route in clusters.routes:
        route.continue_()
    (cluster,) = ui.cluster.api("GET", "/api/v1/clusters")
    expect(page.get_by_role("table", name="Clusters")).to_contain_text(cluster["uuid"])


def test_assets_are_asked_for_once(ui: Ui) -> None:
    page, asked = ui.page, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("link", name="Assets", exact=True).click()
    expect(page.get_by_text("No environment is kept yet")).to_be_visible()
    expect(page.get_by_role("button", name="NEW ENVIRONMENT")).to_be_enabled()
    page.evaluate("new Promise(done => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 100))")
    assert len([url for url in asked if url.endswith("/asset/environment")]) == 1


def test_a_run_is_not_shown_under_the_address_of_another(ui: Ui) -> None:
    for name in ("ant", "bee"):
        run(ui, name, "print(1)")
        ui.cluster.run("rowlock", "wait", name)
    page = ui.page
    ids = {one["name"]: one["id"] for one in ui.cluster.api("GET", "/api/v1/runs")["runs"]}
    here = page.url.partition("#")[0]
    page.goto(f"{here}#/runs/{ids['ant']}")
    expect(page.get_by_role("heading", name="ant", exact=True)).to_be_visible()
    held = Held(page, re.compile(f"/api/v1/runs/{ids['bee']}$"))
    page.goto(f"{here}#/runs/{ids['bee']}")
    held.wait()
    expect(page.get_by_role("heading", name="ant", exact=True)).to_have_count(0)
    held.lets_others_pass = True
    for route in held.routes:
        route.continue_()
    expect(page.get_by_role("heading", name="bee", exact=True)).to_be_visible()
