"""A form whose answer is lost is sent again, and there is one workload; one that was left while it was sent breaks nothing."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.order.test_late_answers import Held
from tests.ui.test_new_training import begin
from tests.ui.test_workloads_page import expect

CREATE = re.compile(r"/api/v1/workloads/distributed$")


def fill_in(ui: Ui, name: str) -> Any:
    """Up to the last button."""
    page = begin(ui, name)
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("button", name="CONTINUE").click()
    return page


def test_a_training_whose_answer_is_lost_is_sent_again_and_there_is_one(ui: Ui) -> None:
    page, keys = fill_in(ui, "once"), list[str]()

    def lose(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) > 1:
            route.continue_()
            return
        assert route.fetch().status == 202  # it is made, and nobody hears of it
        route.abort()

    page.route(CREATE, lose)
    create = page.get_by_role("button", name="CREATE TRAINING")
    create.click()
    expect(page.get_by_role("alert")).to_contain_text("there will be one")
    ui.cluster.until(lambda: "once" in ui.cluster.run("rowlock", "list", "-p", "team-a"), "the first try made it")
    create.click()
    expect(page.get_by_role("complementary").get_by_role("heading", name="once", exact=True)).to_be_visible()
    assert len(keys) == 2 and keys[0] == keys[1] and len(keys[0]) >= 32
    (made,) = ui.cluster.api("GET", "/api/v1/workloads")["workloads"]
    assert made["name"] == "once" and made["id"] in page.url


def test_another_form_is_another_submit(ui: Ui) -> None:
    page = fill_in(ui, "changed")
    held = Held(page, CREATE)
    create = page.get_by_role("button", name="CREATE TRAINING")
    for workers in (2, 2, 3):
        page.get_by_label("Number of workers").fill(str(workers))
        before = len(held.routes)
        create.click()
        held.wait(before + 1)
        held.routes[-1].fulfill(status=504, json={"message": "The cluster does not answer."})
        expect(create).to_be_enabled()
        expect(page.get_by_role("alert")).to_contain_text("The cluster does not answer. Nobody knows")
    first, again, other = (route.request.headers["idempotency-key"] for route in held.routes)
    assert first == again != other


def test_a_dialog_that_is_left_while_it_is_sent_breaks_nothing(ui: Ui) -> None:
    """What a page complains of, the fixture reports."""
    page = ui.page
    page.get_by_role("link", name="Assets", exact=True).click()
    page.get_by_role("button", name="NEW ENVIRONMENT").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Environment name").fill("left")
    dialog.get_by_label("Image URL").fill("image")
    held = Held(page, re.compile(r"/api/v1/asset/environment$"), lambda request: request.method == "POST")
    dialog.get_by_label("Image URL").press("Enter")
    held.wait()
    dialog.get_by_role("button", name="CANCEL").click()
    expect(dialog).to_have_count(0)
    held.routes[0].continue_()
    expect(page.get_by_role("row", name="left")).to_be_visible()  # it was made all the same, and the list says so
    held.draw()
