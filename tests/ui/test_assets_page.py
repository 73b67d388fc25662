"""Assets and templates: made, changed, chosen in a new training, and deleted; what the server refuses, in its own words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.ui.conftest import Ui
from tests.ui.test_admin_pages import confirm
from tests.ui.test_new_training import begin
from tests.ui.test_workloads_page import LONG, expect, run

SOURCES: dict[str, dict[str, str]] = {
    "Host path": {"Path on the nodes": "/srv", "Path in the pods": "/data"},
    "PVC": {"Path in the pods": "/data", "Size": "1Gi"},
    "Git": {"Repository": "https://example.org/code.git", "Path in the pods": "/code", "Branch": "next"},
    "ConfigMap": {"Name of the ConfigMap": "settings", "Path in the pods": "/etc/settings"},
}
"""A data source of each kind: what is typed, by the labels."""

CREDENTIALS: dict[str, dict[str, str]] = {
    "Access key": {"Access key id": "AK1", "Secret access key": "hush"},
    "Username and password": {"User": "ana", "Password": "hush"},
    "Registry of images": {"Registry": "ghcr.io", "User": "ana", "Password or token": "hush"},
    "Any secret": {"Keys and values": "token=hush"},
    "NGC API key": {"Key": "hush"},
}
"""A credential of each kind."""


def open_assets(ui: Ui, tab: str) -> Any:
    ui.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Assets").click()
    ui.page.get_by_role("tab", name=tab, exact=True).click()
    return ui.page.get_by_role("dialog")


def fill(dialog: Any, values: dict[str, str]) -> None:
    for label, value in values.items():
        dialog.get_by_label(label, exact=True).fill(value)


def projects(ui: Ui) -> list[dict[str, Any]]:
    return list(ui.cluster.api("GET", "/api/v1/org-unit/projects")["projects"])


def make_each(ui: Ui, word: str, kinds: dict[str, dict[str, str]]) -> list[str]:
    """One asset of each kind, with the form; their names, which are those of their kinds."""
    dialog, names = ui.page.get_by_role("dialog"), [f"a-{kind.split()[0].lower()}" for kind in kinds]
    for name, (kind, values) in zip(names, kinds.items(), strict=True):
        ui.page.get_by_role("button", name=f"NEW {word.upper()}").click()
        dialog.get_by_label("Kind").select_option(kind)
        fill(dialog, {f"{word} name": name, **values})
        dialog.get_by_role("button", name=f"CREATE {word.upper()}").click()
        expect(dialog).to_have_count(0)
        expect(ui.page.get_by_role("cell", name=kind, exact=True)).to_be_visible()
    return names


def delete_all(ui: Ui, names: list[str]) -> None:
    for name in names:
        ui.page.get_by_role("button", name=f"Delete {name}").click()
        confirm(ui)
        expect(ui.page.get_by_role("row", name=name)).to_have_count(0)


def kept(ui: Ui, path: str) -> dict[str, Any]:
    """By their names."""
    return {one["meta"]["name"]: one for one in ui.cluster.api("GET", f"/api/v1/{path}")["entries"]}


def test_environments_and_compute_resources_are_made_changed_and_deleted(ui: Ui) -> None:
    page, dialog = ui.page, open_assets(ui, "Environments")
    expect(page.get_by_text("No environment is kept yet")).to_be_visible()
    page.get_by_role("button", name="NEW ENVIRONMENT").click()
    fill(dialog, {"Environment name": "torch", "Image URL": "pytorch/pytorch:2", "User id": "1000"})
    dialog.get_by_label("Environment variables").press_sequentially("RATE=0.1\nMODE=a=b")
    dialog.get_by_label("Scope").select_option("project team-a")
    ui.pictures("new-asset")
    dialog.get_by_role("button", name="CREATE ENVIRONMENT").click()
    row = page.get_by_role("row", name="torch")
    expect(row).to_contain_text("pytorch/pytorch:2")
    expect(row).to_contain_text("team-a")
    page.get_by_role("button", name="Edit torch").click()
    fill(dialog, {"Environment name": "torch-2", "Image URL": "pytorch/pytorch:2.1", "Description": "for everybody"})
    dialog.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("row", name="torch-2")).to_contain_text("for everybody")
    assert kept(ui, "asset/environment")["torch-2"]["spec"] == {
        "image": "pytorch/pytorch:2.1",
        "environmentVariables": [{"name": "RATE", "value": "0.1"}, {"name": "MODE", "value": "a=b"}],
        "runAsUid": 1000,
    }
    page.get_by_role("tab", name="Compute resources").click()
    expect(page.get_by_role("row", name="small-fraction")).to_contain_text("0.1")
    expect(page.get_by_role("button", name="Delete small-fraction")).to_have_count(0)
    expect(page.get_by_role("button", name="Edit small-fraction")).to_have_count(0)
    page.get_by_role("button", name="NEW COMPUTE RESOURCE").click()
    dialog.get_by_label("GPU fractioning").select_option("memory of each device")
    fill(dialog, {"Compute resource name": "two-gigs", "Memory of each device": "2G"})
    dialog.get_by_label("Scope").select_option("the whole cluster")
    dialog.get_by_role("button", name="CREATE COMPUTE RESOURCE").click()
    expect(page.get_by_role("row", name="two-gigs")).to_contain_text("gpuMemoryRequest: 2G")
    ui.pictures("assets")
    page.get_by_role("button", name="Edit two-gigs").click()
    dialog.get_by_label("GPU fractioning").select_option("whole devices")
    dialog.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("row", name="two-gigs")).not_to_contain_text("gpuMemoryRequest")
    page.get_by_role("button", name="Delete two-gigs").click()
    confirm(ui)
    expect(page.get_by_role("row", name="two-gigs")).to_have_count(0)


def test_a_data_source_of_each_kind_is_made_changed_and_deleted(ui: Ui) -> None:
    page, dialog = ui.page, open_assets(ui, "Data sources")
    expect(page.get_by_text("No data source is kept yet")).to_be_visible()
    names = make_each(ui, "Data source", SOURCES)
    ui.pictures("data-sources")
    page.get_by_role("button", name="Edit a-host").click()
    dialog.get_by_label("Read only").uncheck()
    dialog.get_by_label("Path in the pods").fill("nowhere")
    dialog.get_by_role("button", name="SAVE").click()
    expect(dialog.get_by_role("alert")).to_contain_text("must be a directory of the container such as /data")
    dialog.get_by_label("Path in the pods").fill("/other")
    dialog.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("row", name="a-host")).to_contain_text("/other")
    spec = kept(ui, "asset/datasource")["a-host"]["spec"]
    assert spec == {"path": "/srv", "mountPath": "/other", "readOnly": False}
    delete_all(ui, names)
    expect(page.get_by_text("No data source is kept yet")).to_be_visible()


def test_a_credential_of_each_kind_is_made_used_changed_and_deleted(ui: Ui) -> None:
    page, dialog = ui.page, open_assets(ui, "Credentials")
    expect(page.get_by_text("No credential is kept yet")).to_be_visible()
    names = make_each(ui, "Credential", CREDENTIALS)
    expect(page.get_by_role("row", name="a-access")).to_contain_text("accessKeyId: AK1")
    expect(page.locator("main")).not_to_contain_text("hush")
    ui.pictures("credentials")
    page.get_by_role("button", name="Edit a-access").click()
    fill(dialog, {"Access key id": "AK2", "Secret access key": "hush again"})
    dialog.get_by_role("button", name="SAVE").click()
    expect(page.get_by_role("row", name="a-access")).to_contain_text("accessKeyId: AK2")
    (project,) = [one for one in projects(ui) if one["name"] == "default"]
    meta = {"name": "short", "scope": "project", "projectId": project["id"]}
    spec = {"accessKeyId": "AK3", "secretAccessKey": "hush"}
    ui.cluster.api("POST", "/api/v1/asset/credentials/access-key", {"meta": meta, "spec": spec})
    page.get_by_role("tab", name="Data sources").click()
    page.get_by_role("button", name="NEW DATA SOURCE").click()
    dialog.get_by_label("Scope").select_option("project default")
    dialog.get_by_label("Kind").select_option("S3 bucket")
    fill(dialog, {"Data source name": "books", "Bucket": "books", "Path in the pods": "/books"})
    credential = dialog.get_by_label("Credential with the access key")
    expect(credential.locator("option")).to_have_text(["none: it is public", "a-access", "short"])
    short = kept(ui, "asset/credentials/access-key")["short"]
    ui.cluster.api("DELETE", f"/api/v1/asset/credentials/access-key/{short['meta']['id']}")
    credential.select_option("short")
    dialog.get_by_role("button", name="CREATE DATA SOURCE").click()
    expect(dialog.get_by_role("alert")).to_contain_text("there is no credential 'short' of the kind accessKey")
    credential.select_option("a-access")
    dialog.get_by_label("Scope").select_option("project team-a")
    expect(credential.locator("option")).to_have_text([re.compile("Credentials makes one"), "a-access (not here)"])
    dialog.get_by_label("Scope").select_option("project default")
    ui.pictures("credential-of-a-source")
    dialog.get_by_role("button", name="CREATE DATA SOURCE").click()
    expect(page.get_by_role("row", name="books")).to_contain_text("a-access")
    page.get_by_role("button", name="Edit books").click()
    expect(credential).to_have_value("a-access")
    expect(dialog.get_by_label("Scope")).to_have_count(0)  # it stays where it is
    dialog.get_by_role("button", name="CANCEL").click()
    page.get_by_role("tab", name="Credentials", exact=True).click()
    delete_all(ui, names)


def test_a_kind_that_the_server_does_not_have_is_refused_in_its_words(ui: Ui) -> None:
    """Which kinds there are is for the server to say: the same page before a server that lacks one, and has another."""

    def without_git(route: Any) -> None:
        document = route.fetch().json()
        (git,) = [path for path in document["paths"] if path.endswith("/asset/datasource/git")]
        document["paths"][git.replace("git", "tape")] = document["paths"].pop(git)
        route.fulfill(body=json.dumps(document), content_type="application/json")

    ui.page.route("**/api/v1/openapi.json", without_git)
    refusal = {"code": 405, "message": "GET git is not served: there is no git here."}
    ui.page.route("**/api/v1/asset/datasource/git", lambda route: route.fulfill(status=405, body=json.dumps(refusal)))
    dialog = open_assets(ui, "Data sources")
    ui.page.get_by_role("button", name="NEW DATA SOURCE").click()
    dialog.get_by_label("Kind").select_option("Git (not here)")
    expect(dialog.get_by_role("alert")).to_contain_text("there is no git here")
    expect(dialog.get_by_role("button", name="CREATE DATA SOURCE")).to_be_disabled()
    dialog.get_by_label("Kind").select_option("Tape")
    expect(dialog.get_by_label("Repository")).to_be_visible()
    expect(dialog.get_by_role("button", name="CREATE DATA SOURCE")).to_be_enabled()
    dialog.get_by_role("button", name="CANCEL").click()


def test_a_training_mounts_the_data_sources_that_were_chosen(ui: Ui) -> None:
    body = {
        "meta": {"name": "books", "scope": "cluster"},
        "spec": {"path": str(ui.cluster.data.parent), "mountPath": "/books"},
    }
    ui.cluster.api("POST", "/api/v1/asset/datasource/host-path", body)
    page = begin(ui, "reads")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("group", name="Data sources").get_by_label("books").check()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.locator(".command code")).to_contain_text("--datasource books")
    page.get_by_role("button", name="SAVE AS TEMPLATE").click()
    expect(page.get_by_text("The template reads is kept in the project team-a.")).to_be_visible()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("reads")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="COLUMNS").click()
    page.get_by_role("checkbox", name="Data source(s)").check()
    expect(ui.row("reads")).to_contain_text("books")
    job = ui.cluster.api("GET", "/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs/reads")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/books"]
    begin(ui, "reads-too")
    page.get_by_label("Template", exact=True).select_option("reads")
    page.get_by_role("button", name="CONTINUE").click()
    books = page.get_by_role("group", name="Data sources").get_by_label("books")
    expect(books).to_be_checked()
    page.get_by_label("Template", exact=True).select_option("Start from scratch")
    expect(books).not_to_be_checked()
    open_assets(ui, "Templates")
    page.get_by_role("link", name="Edit reads").click()
    page.get_by_role("button", name="CONTINUE").click()
    expect(books).to_be_checked()
    books.uncheck()
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="SAVE TEMPLATE").click()
    expect(page.get_by_role("row", name="reads")).to_be_visible()
    assert kept(ui, "workload-templates")["reads"]["assets"] is None


def test_a_template_that_is_not_taken_any_more_says_so(ui: Ui) -> None:
    """An older version stored it; it is said before anybody fills the form."""
    page, maps = ui.page, "/api/v1/namespaces/runai-team-a/configmaps"
    projects = ui.cluster.api("GET", "/api/v1/org-unit/projects")["projects"]
    (scope,) = [one["id"] for one in projects if one["name"] == "team-a"]
    meta = {"name": "older", "scopeType": "project", "scopeId": scope}
    made = ui.cluster.api("POST", "/api/v1/workload-templates/distributed", {"meta": meta, "spec": {"image": "i"}})
    path = f"{maps}/asset-{made['meta']['id']}"
    stored = ui.cluster.api("GET", path)
    stored["data"] = {
        key: text.replace('"image":"i"', '"image":"i","gpuTopology":"x"') for key, text in stored["data"].items()
    }
    ui.cluster.api("PUT", path, stored)
    ui.cluster.until(lambda: not kept(ui, "workload-templates")["older"]["runnable"]["isRunnable"], "it is refused")
    open_assets(ui, "Templates")
    expect(page.get_by_role("row", name="older")).to_contain_text("It cannot be used as it is: ")
    expect(page.get_by_role("row", name="older")).to_contain_text("spec.gpuTopology")
    page.get_by_role("link", name="Use older").click()
    expect(page.get_by_role("alert")).to_contain_text("The template older cannot be used as it is: ")


def test_a_template_is_made_used_and_changed(ui: Ui) -> None:
    page = ui.page
    open_assets(ui, "Templates")
    expect(page.get_by_text("No template is kept yet")).to_be_visible()
    page.get_by_role("link", name="NEW TEMPLATE").click()
    page.get_by_label("Project", exact=True).select_option("team-a")
    page.get_by_label("MPI").check()
    page.get_by_label("Template name").fill("three of them")
    page.get_by_label("Description").fill("for benchmarks")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_label("Number of workers").fill("3")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_text("General: priority").click()
    page.get_by_label("Failures until the job fails").fill("2")
    page.get_by_label("Labels", exact=True).press_sequentially("team=blue")
    ui.pictures("new-template")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="SAVE TEMPLATE").click()
    row = page.get_by_role("row", name="three of them")
    expect(row).to_contain_text("for benchmarks")
    expect(row).to_contain_text("MPI")
    ui.pictures("templates")
    page.get_by_role("link", name="Workloads").click()
    begin(ui, "by-template")
    page.get_by_label("Template", exact=True).select_option("three of them")
    expect(page.get_by_label("MPI")).to_be_checked()
    expect(page.get_by_label("Training name")).to_have_value("by-template")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_label("Number of workers")).to_have_value("3")
    expect(page.get_by_label("Labels", exact=True)).to_have_value("team=blue")
    ui.choose_program("sleep 600")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("by-template")
    spec = ui.cluster.api("GET", "/apis/kubeflow.org/v1/namespaces/runai-team-a/mpijobs/by-template")["spec"]
    assert spec["runPolicy"]["backoffLimit"] == 2
    worker = spec["mpiReplicaSpecs"]["Worker"]
    assert worker["replicas"] == 3 and worker["template"]["metadata"]["labels"]["team"] == "blue"
    open_assets(ui, "Templates")
    page.get_by_role("link", name="Edit three of them").click()
    expect(page.get_by_label("Template name")).to_have_value("three of them")
    page.get_by_label("Template name").fill("four of them")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_label("Number of workers").fill("4")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="SAVE TEMPLATE").click()
    expect(page.get_by_role("row", name="four of them")).to_contain_text("numWorkers: 4")
    (template,) = kept(ui, "workload-templates").values()
    assert template["spec"]["labels"] == [{"name": "team", "value": "blue"}]
    page.get_by_role("button", name="Delete four of them").click()
    confirm(ui)
    expect(page.get_by_text("No template is kept yet")).to_be_visible()


@pytest.mark.parametrize("architecture", ["Distributed", "Standard"])
def test_a_copy_becomes_a_template_and_that_a_training(ui: Ui, architecture: str) -> None:
    """What the form has no field for stays with it all the way."""
    submit = ("--nnodes", "2", "--working-dir", "/") if architecture == "Distributed" else ()
    if submit:
        run(ui, "talks", LONG, "-p", "team-a", *submit)
    else:
        ui.cluster.run(
            "runai",
            "training",
            "submit",
            "talks",
            "-p",
            "team-a",
            "-i",
            "rowlock.dev/host",
            "--working-dir",
            "/",
            "--command",
            "--",
            "sleep 600",
        )
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    page = ui.page
    page.get_by_role("link", name="MAKE A COPY").click()
    expect(page.get_by_label("Training name")).to_have_value("talks-2")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("group", name="What it runs").get_by_label("Environment variables").press_sequentially(
        "\nRATE=0.1"
    )
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="SAVE AS TEMPLATE").click()
    expect(page.get_by_text("The template talks-2 is kept in the project team-a.")).to_be_visible()
    page.get_by_role("button", name="SAVE AS TEMPLATE").click()
    expect(page.get_by_role("alert")).to_contain_text("choose another name")
    open_assets(ui, "Templates")
    page.get_by_role("link", name="Use talks-2").click()
    page.get_by_label("Training name").fill("again")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("group", name="Compute resource").get_by_role("radio").first.check()
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("again")
    requests = {
        one["name"]: ui.cluster.api("GET", f"/api/v1/workloads/distributed/{one['id']}")["spec"]
        for one in ui.cluster.api("GET", "/api/v1/workloads")["workloads"]
    }
    assert {"name": "RATE", "value": "0.1"} in requests["again"]["environmentVariables"]
    assert requests["again"]["workingDir"] == requests["talks"]["workingDir"]
