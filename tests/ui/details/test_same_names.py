"""Names come twice: in two projects, on one card. Each is shown."""

from __future__ import annotations

import json
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_cluster_pages import open_page
from tests.ui.test_workloads_page import LONG, expect, run


def test_pods_of_one_name_share_a_card(ui: Ui) -> None:
    def shared(route: Any) -> None:
        body = route.fetch().json()
        holder = {"pod": "train-worker-0", "workloadId": "", "workloadName": "", "leaving": False, "share": 0.5}
        body["nodes"][0]["cards"][0]["holders"] = [
            {**holder, "namespace": name, "projectName": name} for name in ("blue", "green")
        ]
        route.fulfill(body=json.dumps(body), content_type="application/json")

    ui.page.route("**/api/v1/scheduler/cards", shared)
    open_page(ui, "Nodes")
    card = ui.page.get_by_role("group", name="GPU 0 of")
    expect(card.get_by_text("train-worker-0")).to_have_count(2)


def test_two_workloads_of_one_name_are_refused_in_the_same_words(ui: Ui) -> None:
    for project in ("team-a", "default"):
        run(ui, "twin", LONG, "-p", project)
    page = ui.page
    expect(page.locator("tbody tr")).to_have_count(2)
    page.route(
        "**/api/v1/workloads/distributed/*",
        lambda route: route.fulfill(status=403, json={"message": "You may not."}),
    )
    page.get_by_role("checkbox", name="Select all").check()
    page.get_by_role("button", name="DELETE").click()
    page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(page.get_by_text("twin: You may not.")).to_have_count(2)
