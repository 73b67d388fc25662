"""Jobs of batch/v1, JobSets, TrainJobs and the Jobs of CronJobs: each is one row, with ranks, logs and why, and is stopped, run and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_terminal import PROMPT
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


DIVIDES = (
    "import os, time; print('begun', flush=True); os.environ['JOB_COMPLETION_INDEX'] == '1' and 1 / 0; time.sleep(600)"
)
TREES = {
    "Job": ["Job fails Failed", "Pod fails-1-"],
    "JobSet": ["JobSet fails Failed", "Job fails-node-0 Failed", "Pod fails-node-0-1-"],
    "TrainJob": ["TrainJob fails Failed", "JobSet fails Failed", "Job fails-node-0 Failed", "Pod fails-node-0-1-"],
}
"""Kind → what stands on the way from the root of its tree to the pod that failed."""


def create_failing(ui: Ui, kind: str) -> None:
    """A job of two ranks, `fails`, whose second divides by zero, so that the whole job fails at once."""
    container = {"name": "node", "image": "rowlock.dev/host", "command": ["python3", "-c", DIVIDES]}
    spec = {**job_spec(), "backoffLimit": 0, "template": {"spec": {**POD, "containers": [container]}}}
    if kind == "Job":
        ui.cluster.api("POST", f"{BATCH}/jobs", {"metadata": {"name": "fails"}, "spec": spec})
        return
    jobs: list[dict[str, Any]] = [{"name": "node", "template": {"spec": spec}}]
    if kind == "JobSet":
        head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": kind, "metadata": {"name": "fails"}}
        path = f"/apis/jobset.x-k8s.io/v1alpha2/{SPACE}/jobsets"
        ui.cluster.api("POST", path, {**head, "spec": {"replicatedJobs": jobs}})
        return
    trainer = "/apis/trainer.kubeflow.org/v1alpha1"
    jobs[0]["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    runtime = {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}}
    head = {"apiVersion": trainer.removeprefix("/apis/"), "metadata": {"name": "fails"}}
    runtimes = f"{trainer}/{SPACE}/trainingruntimes"
    ui.cluster.api("POST", runtimes, {**head, "kind": "TrainingRuntime", "spec": runtime})
    reference = {"kind": "TrainingRuntime", "name": "fails"}
    ui.cluster.api("POST", f"{trainer}/{SPACE}/trainjobs", {**head, "kind": kind, "spec": {"runtimeRef": reference}})


@pytest.mark.parametrize("kind", TREES)
def test_a_failing_one_tells_its_rank_on_every_tab(ui: Ui, kind: str) -> None:
    create_failing(ui, kind)
    page, panel, sentence = ui.page, ui.page.get_by_role("complementary"), "ZeroDivisionError"
    expect(ui.row("fails")).to_contain_text("Failed")
    expect(ui.row("fails")).to_contain_text("rank 1 (pod fails")
    expect(ui.row("fails")).to_contain_text(sentence)
    expect(page.locator("tbody tr")).to_have_count(1)
    ui.row("fails").get_by_role("link", name="fails", exact=True).click()
    expect(panel).to_contain_text(sentence)
    panel.get_by_role("tab", name="Logs").click()
    expect(panel.get_by_role("log")).to_contain_text("begun")
    expect(panel.get_by_role("log")).to_contain_text(sentence)
    panel.get_by_role("tab", name="Structure").click()
    tree = panel.get_by_role("tabpanel")
    branch = tree
    for words in TREES[kind]:
        branch = branch.get_by_role("listitem").filter(has_text=words).first
        expect(branch).to_be_visible()
    label = "batch.kubernetes.io/job-name" if kind == "Job" else "jobset.sigs.k8s.io/jobset-name"
    expect(tree).to_contain_text(f"-l {label}=fails")
    ui.picture(f"kinds-{kind}-structure")
    panel.get_by_role("tab", name="Details").click()
    expect(panel).to_contain_text("Specification")
    expect(panel.get_by_role("alert")).to_have_count(0)
    ui.picture(f"kinds-{kind}-failed-details")
    panel.get_by_role("tab", name="Pods").click()
    expect(panel.get_by_role("row").filter(has_text="rank 1")).to_contain_text("Error")
    panel.get_by_role("button", name="DELETE").click()
    page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(ui.row("fails")).to_have_count(0)
    page.get_by_role("link", name="Deleted", exact=True).click()
    expect(ui.row("fails")).to_contain_text("Failed")
    ui.picture(f"kinds-{kind}-deleted")


def test_a_terminal_is_in_the_rank_that_was_chosen(ui: Ui) -> None:
    create_all(ui)
    panel = ui.page.get_by_role("complementary")
    for name in ("indexed", "pair", "trains"):
        expect(ui.row(name)).to_contain_text("Running")
        ui.row(name).get_by_role("link", name=name, exact=True).click()
        panel.get_by_role("tab", name="Pods").click()
        panel.get_by_role("link", name="Terminal of ").nth(1).click()
        panel.get_by_role("button", name="CONNECT").click()
        screen = panel.get_by_role("group", name="Terminal").locator(".xterm-rows")
        expect(screen).to_contain_text(PROMPT)
        ui.page.keyboard.type("echo index-$JOB_COMPLETION_INDEX\n")
        expect(screen).to_contain_text("index-1")
