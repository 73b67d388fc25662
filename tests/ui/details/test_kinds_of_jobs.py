"""Jobs of batch/v1, JobSets, TrainJobs and the Jobs of CronJobs: each is one row, with ranks, logs and why, and is stopped, run and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import expect

SPACE = "namespaces/runai-default"
BATCH = f"/apis/batch/v1/{SPACE}"
SAYS = "echo rank $JOB_COMPLETION_INDEX is here; sleep 600"
POD = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}


def job_spec(count: int = 2) -> dict[str, Any]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", SAYS]}
    template = {"spec": {**POD, "containers": [container]}}
    return {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": template}


def create_all(ui: Ui) -> None:
    api = ui.cluster.api
    api("POST", f"{BATCH}/jobs", {"metadata": {"name": "indexed"}, "spec": job_spec()})
    sets = f"/apis/jobset.x-k8s.io/v1alpha2/{SPACE}/jobsets"
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "pair"}}
    api("POST", sets, {**head, "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": job_spec()}}]}})
    trainer = {"numNodes": 2, "image": "rowlock.dev/host", "command": ["sh", "-c", SAYS]}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "trains"}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    api("POST", f"/apis/trainer.kubeflow.org/v1alpha1/{SPACE}/trainjobs", {**head, "spec": spec})
    spec = {"schedule": "0 0 29 2 *", "suspend": True, "jobTemplate": {"spec": job_spec(1)}}
    made = api("POST", f"{BATCH}/cronjobs", {"metadata": {"name": "nightly"}, "spec": spec})
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": made["metadata"]["uid"]}
    owners = [{**owner, "controller": True}]
    api("POST", f"{BATCH}/jobs", {"metadata": {"name": "tonight", "ownerReferences": owners}, "spec": job_spec(1)})


def test_the_kinds_of_today_are_workloads_like_others(ui: Ui) -> None:
    create_all(ui)
    page, panel = ui.page, ui.page.get_by_role("complementary")
    kinds = {"indexed": ("Job", 2), "pair": ("JobSet", 2), "trains": ("TrainJob", 2), "tonight": ("Job", 1)}
    for name, (_, ranks) in kinds.items():
        expect(ui.row(name)).to_contain_text("Running")
        expect(ui.row(name)).to_contain_text(f"{ranks}/{ranks}")
    expect(page.locator("tbody tr")).to_have_count(len(kinds))  # no Job of a set, and no set of a TrainJob
    ui.picture("kinds-list")
    for name, (kind, ranks) in kinds.items():
        ui.row(name).get_by_role("link", name=name, exact=True).click()
        panel.get_by_role("tab", name="Details").click()
        expect(panel).to_contain_text(f"rowlock describe {name} -p default")
        ui.picture(f"kinds-{name}-details")
        panel.get_by_role("tab", name="Logs").click()
        for rank in range(ranks):
            expect(panel).to_contain_text(f"rank {rank} is here")
        ui.picture(f"kinds-{name}-logs")
        assert kind in str(ui.cluster.run("rowlock", "describe", name))
    panel.get_by_role("tab", name="Details").click()
    expect(panel).to_contain_text("CronJob nightly")


@pytest.mark.parametrize("name", ["indexed", "pair", "trains", "tonight"])
def test_each_is_stopped_run_and_deleted(ui: Ui, name: str) -> None:
    create_all(ui)
    row, dialog = ui.row(name), ui.page.get_by_role("dialog")
    expect(row).to_contain_text("Running")
    row.get_by_role("checkbox").check()
    ui.page.get_by_role("button", name="STOP").click()
    dialog.get_by_role("button", name="STOP", exact=True).click()
    expect(row).to_contain_text("Stopped")
    ui.page.get_by_role("button", name="RUN", exact=True).click()
    expect(row).to_contain_text("Running")
    ui.page.get_by_role("button", name="DELETE").click()
    dialog.get_by_role("button", name="DELETE", exact=True).click()
    expect(row).to_have_count(0)
