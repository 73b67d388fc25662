"""New Workload → Training, as the quick start for distributed workloads walks it; what is wrong; the same as a command."""

from __future__ import annotations

import re
import shlex
from typing import Any

from tests.ui.conftest import Ui
from tests.ui.test_workloads_page import LONG, expect, run


def begin(ui: Ui, name: str, project: str = "team-a") -> Any:
    """The first step, up to the name."""
    page = ui.page
    page.get_by_role("button", name="New Workload").click()
    page.get_by_role("menuitem", name="Training").click()
    expect(page.get_by_role("heading", name="New training")).to_be_visible()
    page.get_by_label("Project", exact=True).select_option(project)
    page.get_by_label("Training name").fill(name)
    return page


def test_the_quick_start_walk(ui: Ui) -> None:
    """The labels and their order are the quick start's."""
    page = ui.page
    page.get_by_role("link", name="Workloads").click()
    page.get_by_role("button", name="New Workload").click()
    page.get_by_role("menuitem", name="Training").click()
    page.get_by_label("Project", exact=True).select_option("team-a")
    expect(page.get_by_text("Start from scratch")).to_have_count(1)
    page.get_by_role("group", name="Workload architecture").get_by_label("Distributed").check()
    page.get_by_label("PyTorch").check()
    page.get_by_role("group", name="Distributed training configuration").get_by_label("Workers & master").check()
    page.get_by_label("Training name").fill("train1")
    ui.pictures("new-training-1")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="NEW ENVIRONMENT").click()
    page.get_by_label("Environment name").fill("pytorch-dt")
    page.get_by_label("Image URL").fill("/kubeflow/pytorch-dist-mnist:latest")
    ui.pictures("new-environment")
    page.get_by_role("button", name="CREATE ENVIRONMENT").click()
    expect(page.get_by_role("radio", name="pytorch-dt")).to_be_checked()
    (kept,) = ui.cluster.api("GET", "/api/v1/asset/environment")["entries"]
    assert (kept["meta"]["name"], kept["meta"]["projectName"]) == ("pytorch-dt", "team-a")
    assert kept["spec"]["image"] == "/kubeflow/pytorch-dist-mnist:latest"
    page.get_by_label("Number of workers").fill("2")
    page.get_by_role("group", name="Compute resource").get_by_role("radio", name="small-fraction").check()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()
    expect(page.locator(".outcome")).to_contain_text("start")
    page.get_by_text("The same as a manifest").click()
    expect(page.get_by_label("Manifest")).to_contain_text("kind: PyTorchJob")
    page.get_by_role("button", name="JSON", exact=True).click()
    expect(page.get_by_label("Manifest")).to_contain_text('"kind": "PyTorchJob"')
    ui.pictures("new-training-3")
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("complementary")).to_contain_text("train1")
    page.get_by_role("button", name="Close").click()
    expect(ui.row("train1")).to_contain_text("/3")
    ui.row("train1").get_by_role("checkbox").check()
    page.get_by_role("button", name="Show Details").click()
    page.get_by_role("tab", name="Logs").click()
    page.locator(".tools").get_by_role("button", name="DELETE").click()
    page.get_by_role("dialog").get_by_role("button", name="DELETE", exact=True).click()
    expect(page.get_by_text("This workload is not here any more.")).to_be_visible()
    assert "train1" not in ui.cluster.run("rowlock", "list", "-p", "team-a")


def test_mistakes_are_named_before_anything_is_made(ui: Ui) -> None:
    run(ui, "taken", LONG, "-p", "team-a")
    page = begin(ui, "Bad_Name")
    page.get_by_label("Training name").press("Tab")
    expect(page.get_by_role("alert")).to_contain_text("Use 'bad-name', for example.")  # as soon as it is typed
    expect(page.get_by_label("Training name")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Training name").fill("bad-name")
    page.get_by_label("Training name").press("Tab")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_label("Training name").fill("Bad_Name")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("alert")).to_contain_text("Use 'bad-name', for example.")
    expect(page.get_by_role("button", name="NEW ENVIRONMENT")).to_have_count(0)
    page.get_by_label("Training name").fill("taken")
    expect(page.get_by_role("alert").first).to_contain_text("There is a workload taken in team-a already")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="NEW ENVIRONMENT")).to_have_count(0)
    page.get_by_label("Training name").fill("good")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose an environment")
    ui.choose_program("python -c 'print(1)'")
    page.get_by_role("button", name="NEW COMPUTE RESOURCE").click()
    page.get_by_label("Compute resource name").fill("huge")
    page.get_by_label("GPU devices per pod").fill("64")
    page.get_by_role("button", name="CREATE COMPUTE RESOURCE").click()
    expect(page.get_by_role("radio", name="huge")).to_be_checked()
    page.get_by_role("button", name="NEW COMPUTE RESOURCE").click()
    page.get_by_label("Compute resource name").fill("huge")
    page.get_by_role("button", name="CREATE COMPUTE RESOURCE").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("huge")
    page.get_by_role("button", name="CANCEL").click()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("alert")).to_contain_text("64 GPUs")
    assert "good" not in ui.cluster.run("rowlock", "list", "-p", "team-a")


def test_the_form_says_why_it_is_not_known_when_it_would_start(ui: Ui) -> None:
    """But for those who may not see the whole cluster, to whom the question is not theirs."""
    page = begin(ui, "blind")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="half-gpu").check()
    answers = iter([(403, "vera may not list nodes."), (503, "The scheduler rests until noon.")])

    def refuse(route: Any) -> None:
        status, message = next(answers)
        route.fulfill(status=status, json={"message": message})

    page.route("**/api/v1/scheduler/what-if", refuse)
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()
    expect(page.get_by_role("form").get_by_role("status")).to_have_count(0)
    page.get_by_role("link", name="Cancel").click()
    begin(ui, "blind")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="half-gpu").check()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("form").get_by_role("status")).to_have_text(
        "Whether it would start now is not known, and it can be made all the same: The scheduler rests until noon."
    )
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(ui.row("blind")).to_be_visible()


KEPT = "The form is as you left it; Cancel discards it."


def test_a_form_is_kept_when_the_page_is_loaded_again(ui: Ui) -> None:
    page = begin(ui, "kept")
    page.get_by_label("PyTorch").check()
    page.reload()
    expect(page.get_by_label("Training name")).to_have_value("kept")
    expect(page.get_by_text(KEPT)).to_be_visible()
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_label("Number of workers").fill("3")
    page.get_by_role("radio", name="half-gpu").check()
    page.reload()
    expect(page.get_by_label("Number of workers")).to_have_value("3")
    expect(page.get_by_role("radio", name="half-gpu")).to_be_checked()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.locator(".command code")).to_contain_text("sleep 600")
    page.reload()
    expect(page.locator(".command code")).to_contain_text("sleep 600")
    expect(page.locator(".outcome")).to_be_visible()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(ui.row("kept")).to_contain_text("/4")
    begin(ui, "other")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="New Workload").click()
    page.get_by_role("menuitem", name="Training").click()
    expect(page.get_by_label("Training name")).to_have_value("")
    expect(page.get_by_text(KEPT)).to_have_count(0)


def test_a_form_is_kept_without_what_looks_secret(ui: Ui) -> None:
    page = begin(ui, "secretive")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    variables = page.get_by_label("Environment variables")
    variables.fill("HF_TOKEN=hidden-1\nEPOCHS=3\ndb_password=hidden-2\nMY_KEY=hidden-3\nA_SECRET=hidden-4")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()
    kept = page.evaluate("JSON.stringify(sessionStorage) + JSON.stringify(localStorage)")
    assert "HF_TOKEN" in kept and "EPOCHS" in kept and "hidden" not in kept
    for _ in range(2):  # what was kept without them is kept again
        page.reload()
        expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()
        expect(page.get_by_text(KEPT)).to_contain_text(
            "type the values of HF_TOKEN, db_password, MY_KEY, A_SECRET again."
        )
    expect(variables).to_have_value("HF_TOKEN=\nEPOCHS=3\ndb_password=\nMY_KEY=\nA_SECRET=")
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(page.get_by_role("alert")).to_contain_text("type the values of HF_TOKEN, db_password")
    variables.fill("HF_TOKEN=hidden-1\nEPOCHS=3")
    expect(page.get_by_text(KEPT)).to_have_text(KEPT)
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(ui.row("secretive")).to_be_visible()
    (made,) = ui.cluster.api("GET", "/api/v1/workloads")["workloads"]
    spec = ui.cluster.api("GET", f"/api/v1/workloads/distributed/{made['id']}")["spec"]
    assert {"name": "HF_TOKEN", "value": "hidden-1"}.items() <= spec["environmentVariables"][0].items()


def test_a_form_is_not_kept_for_who_signs_in_next(ui: Ui) -> None:
    page = begin(ui, "private")
    kept = "sessionStorage.getItem('rowlock.draft')"
    ui.cluster.until(lambda: page.evaluate(kept) is not None, "nothing is kept of the form")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.wait_for_function(f"{kept} === null")  # the page is loaded again meanwhile


def test_a_grace_period_of_hours_is_refused_and_every_refusal_is_seen(ui: Ui) -> None:
    page = begin(ui, "lingers")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="half-gpu").check()
    general, retries = page.get_by_text("General: priority, retries"), page.get_by_label("Failures until the job fails")
    general.click()
    retries.fill("1000")
    general.click()
    expect(retries).to_be_hidden()
    page.get_by_role("button", name="CONTINUE").click()
    expect(retries).to_be_focused()  # the browser says there what is wrong
    retries.fill("")
    grace = page.get_by_label("Grace period, in seconds")
    grace.fill("100000")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("alert")).to_have_text(
        "terminationGracePeriodSeconds: must be no more than 300, but is 100000. For more, submit with --termination-grace-period."
    )
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_have_count(0)
    grace.fill("300")
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.get_by_role("button", name="CREATE TRAINING")).to_be_visible()


def test_the_command_does_what_the_form_does(ui: Ui) -> None:
    page = begin(ui, "by-form")
    page.get_by_role("group", name="Distributed training configuration").get_by_label("Workers only").check()
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600", "/tmp")
    page.get_by_role("radio", name="half-gpu").check()
    page.get_by_role("button", name="CONTINUE").click()
    command = page.locator(".command code").inner_text()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(ui.row("by-form")).to_contain_text("All 2 pods run.")
    ui.cluster.run(*(word.replace("by-form", "by-command") for word in shlex.split(command)))
    made = [submitted(ui, name) for name in ("by-form", "by-command")]
    assert {parts["workingDir"] for _, _, parts, _ in made[0].values()} == {"/tmp"}
    assert made[0] == made[1], command


def submitted(ui: Ui, name: str) -> Any:
    """What the job asks for, whoever asked. (Where nothing is said, each face has its own defaults, as Run:ai's have.)"""
    path = f"/apis/kubeflow.org/v1/namespaces/runai-team-a/pytorchjobs/{name}"
    replicas = ui.cluster.api("GET", path)["spec"]["pytorchReplicaSpecs"]
    asked = {}
    for role, replica in replicas.items():
        (container,) = replica["template"]["spec"]["containers"]
        annotations = replica["template"]["metadata"].get("annotations", {})
        program = [*container.get("command", []), *container.get("args", [])]
        parts = {field: container.get(field) for field in ("image", "resources", "workingDir")}
        asked[role] = (replica["replicas"], program, parts, {k: v for k, v in annotations.items() if "gpu" in k})
    return asked


def test_a_copy_begins_with_what_the_original_asked_for(ui: Ui) -> None:
    run(ui, "talks", LONG, "-p", "team-a", "--nnodes", "2")
    ui.row("talks").get_by_role("link", name="talks", exact=True).click()
    ui.page.get_by_role("link", name="MAKE A COPY").click()
    expect(ui.page.get_by_label("Training name")).to_have_value("talks-2")
    ui.page.get_by_role("button", name="CONTINUE").click()
    expect(ui.page.get_by_role("group", name="Environment").get_by_role("radio", name="as-talks")).to_be_checked()
    ui.page.get_by_role("button", name="CONTINUE").click()
    ui.page.get_by_role("button", name="CREATE TRAINING").click()
    ui.page.get_by_role("tab", name="Logs").click()
    expect(ui.page.get_by_role("log")).to_contain_text("[rank 1] step 1")


def test_a_standard_training_is_one_pod(ui: Ui) -> None:
    page = begin(ui, "single", "default")
    page.get_by_role("group", name="Workload architecture").get_by_label("Standard").check()
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CREATE TRAINING").click()
    expect(ui.row("single")).to_contain_text("Its pod runs.")
    expect(ui.row("single")).to_contain_text("Training")


def test_a_workspace_is_one_pod_that_is_not_preempted(ui: Ui) -> None:
    page = ui.page
    page.get_by_role("button", name="New Workload").click()
    page.get_by_role("menuitem", name="Workspace").click()
    expect(page.get_by_role("heading", name="New workspace")).to_be_visible()
    expect(page.get_by_role("group", name="Workload architecture")).to_have_count(0)
    page.get_by_label("Project", exact=True).select_option("team-a")
    page.get_by_label("Workspace name").fill("desk")
    page.get_by_role("button", name="CONTINUE").click()
    ui.choose_program("sleep 600")
    page.get_by_role("radio", name="cpu-only").check()
    page.get_by_role("button", name="CONTINUE").click()
    expect(page.locator(".command code")).to_contain_text("runai workspace submit desk -p team-a")
    page.get_by_role("button", name="SAVE AS TEMPLATE").click()
    expect(page.get_by_text("The template desk is kept in the project team-a.")).to_be_visible()
    ui.pictures("new-workspace")
    page.get_by_role("button", name="CREATE WORKSPACE").click()
    expect(ui.row("desk")).to_contain_text("Its pod runs.")
    expect(ui.row("desk")).to_contain_text("Workspace")
    (made,) = ui.cluster.api("GET", "/api/v1/workloads")["workloads"]
    assert (made["preemptible"], made["priorityClassName"]) == (False, "high")
    page.get_by_role("link", name="Assets").click()
    page.get_by_role("tab", name="Templates").click()
    page.get_by_role("link", name="Use desk").click()
    expect(page.get_by_role("heading", name="New workspace")).to_be_visible()
    page.get_by_label("Workspace name").fill("desk-2")
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CONTINUE").click()
    page.get_by_role("button", name="CREATE WORKSPACE").click()
    expect(ui.row("desk-2")).to_contain_text("Workspace")


def test_a_copy_of_every_framework_asks_for_the_same(ui: Ui) -> None:
    """What the form shows and what it has no field for: the copy's request is the original's, but for the name."""
    (project,) = [
        one for one in ui.cluster.api("GET", "/api/v1/org-unit/projects")["projects"] if one["name"] == "team-a"
    ]
    program = {
        "image": ui.site.image,
        "command": "sleep 600",
        "environmentVariables": [{"name": "A", "value": "b c"}],
        "compute": {"cpuCoreRequest": 0.1, "cpuMemoryLimit": "1Gi"},
        "backoffLimit": 3,
        "labels": [{"name": "team", "value": "blue"}],
        "tolerations": [{"name": "any", "operator": "Exists", "effect": "NoSchedule"}],
    }
    own: dict[str, dict[str, Any]] = {
        "pytorch": {"distributedFramework": "PyTorch", "numWorkers": 2},
        "one": {"distributedFramework": "PyTorch", "noWorkers": True},
        "tf": {"distributedFramework": "TF", "numWorkers": 1, "noMaster": True},
        "mpi": {"distributedFramework": "MPI", "numWorkers": 1, "slotsPerWorker": 2},
        "xgboost": {"distributedFramework": "XGBoost", "numWorkers": 1},
        "jax": {"distributedFramework": "JAX", "numWorkers": 2},
        "standard": {},
        "workspace": {},
    }
    for name, fields in own.items():
        path = f"/api/v1/workloads/{'distributed' if fields else 'workspaces' if name == 'workspace' else 'trainings'}"
        body = {
            "name": f"of-{name}",
            "projectId": project["id"],
            "clusterId": project["clusterId"],
            "spec": program | fields,
        }
        made = ui.cluster.api("POST", path, body)
        expect(ui.row(f"of-{name}")).to_be_visible()
        ui.page.goto(ui.page.url.partition("#")[0] + f"#/new/training/{made['workloadId']}")
        expect(ui.page.get_by_label(re.compile("^(Training|Workspace) name"))).to_have_value(f"of-{name}-2")
        ui.page.get_by_role("button", name="CONTINUE").click()
        expect(ui.page.get_by_role("radio", name=f"as-of-{name}").first).to_be_checked()
        ui.page.get_by_role("button", name="CONTINUE").click()
        ui.page.get_by_role("button", name="CREATE WORKSPACE" if name == "workspace" else "CREATE TRAINING").click()
        expect(ui.page.get_by_role("complementary")).to_contain_text(f"of-{name}-2")
        copy = ui.page.url.split("/")[-2]
        asked = ui.cluster.api("GET", f"/api/v1/workloads/distributed/{copy}")["spec"]
        assert asked == made["spec"], name
        ui.page.goto(ui.page.url.partition("#")[0] + "#/workloads")
