"""The REST API over a real store: submit, list, show, stop, and what bad input is told."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.rest.conftest import CLUSTER, TOKEN, World, submission

from rowlock import kinds, objects
from rowlock.storage import bootstrap
from rowlock.submit_fields import SSH_MOUNT
from rowlock.workloads import runai_json
from rowlock.workloads.submission import PRIORITIES

W = "/api/v1/workloads"


def test_submit_answers_202_with_the_workload(world: World) -> None:
    project = world.project()
    answer = world.submit(projectId=project["id"])
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert body["name"] == body["requestedName"] == "dist-train1"
    assert (body["desiredPhase"], body["actualPhase"], body["createdBy"]) == ("Running", "Creating", "ana")
    assert (body["projectId"], body["clusterId"]) == (project["id"], CLUSTER)
    assert body["spec"]["numWorkers"] == 2
    assert world.client.get(f"{W}/distributed/{body['workloadId']}").json() == body


def test_the_job_is_made_as_run_ai_makes_it(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {role: r["replicas"] for role, r in replicas.items()} == {"Master": 1, "Worker": 2}
    template = replicas["Worker"]["template"]
    container = template["spec"]["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert container["image"] == "kubeflow/pytorch-dist-mnist:latest"
    assert container["resources"] == {"requests": {"cpu": "0.1", "memory": "100M"}}
    assert template["metadata"]["annotations"]["gpu-fraction"] == "0.1"
    assert env["JOB_UUID"] == env["RUNAI_JOB_UUID"] == identity
    assert (env["RUNAI_PROJECT"], env["JOB_NAME"], env["RUNAI_NUM_OF_GPUS"]) == ("team-a", "dist-train1", "0.1")
    assert template["metadata"]["labels"]["project"] == "team-a"
    assert template["metadata"]["labels"]["release"] == "dist-train1"


@pytest.mark.both_engines
def test_whole_gpus_are_limits(world: World) -> None:
    world.project()
    assert world.submit(compute={"gpuDevicesRequest": 1}).status_code == 202
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    template = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template")
    resources = template["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    assert "gpu-fraction" not in template["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"name": "Bad_Name"}, "name", "Use 'bad-name'"),
        ({"name": "x" * 50}, "name", "49 are allowed"),
        ({"image": ""}, "spec.image", "an image is needed"),
        ({"numWorkers": 0}, "spec.numWorkers", "no less than 1"),
        ({"numWorkers": "2"}, "spec.numWorkers", "must be a whole number"),
        ({"distributedFramework": "pytroch"}, "spec.distributedFramework", "most similar to PyTorch"),
        ({"distributedFramework": "Torch"}, "spec.distributedFramework", "most similar to PyTorch"),
        ({"distributedFramework": "tensorflow"}, "spec.distributedFramework", "most similar to TF"),
        ({"distributedFramework": "pytorch"}, "spec.distributedFramework", "most similar to PyTorch"),
        ({"distributedFramework": ""}, "spec.distributedFramework", "must be one of PyTorch, TF, MPI, XGBoost, JAX"),
        ({"cleanPodPolicy": ""}, "spec.cleanPodPolicy", "must be one of None, All, Running"),
        (
            {"compute": {"cpuCoreRequest": "0.1"}},
            "spec.compute.cpuCoreRequest",
            "must be a number, not a string ('0.1')",
        ),
        ({"compute": {"cpuCoreLimit": True}}, "spec.compute.cpuCoreLimit", "must be a number, not a boolean"),
        (
            {"compute": {"cpuCoreRequest": 1e300}},
            "spec.compute.cpuCoreRequest",
            "more CPU cores than a quantity can say",
        ),
        ({"compute": {"cpuMemoryRequest": 5}}, "spec.compute.cpuMemoryRequest", "must be a string, not a number (5)"),
        ({"compute": {"cpuMemoryLimit": ""}}, "spec.compute.cpuMemoryLimit", "is not a quantity"),
        (
            {"storage": {"emptyDirVolume": [{"path": "/a", "sizeLimit": 1000000}]}},
            "spec.storage.emptyDirVolume[0].sizeLimit",
            "must be a string, not a number",
        ),
        ({"nodePools": {}}, "spec.nodePools", "must be a list"),
        ({"security": {"capabilities": ""}}, "spec.security.capabilities", "must be a list of names"),
        ({"security": {"capabilities": ["NET_ADMN"]}}, "spec.security.capabilities", 'Did you mean "NET_ADMIN"?'),
        ({"security": {"capabilities": ["CAP_KILL"]}}, "spec.security.capabilities", 'Did you mean "KILL"?'),
        ({"security": {"capabilities": ["sys_ptrace"]}}, "spec.security.capabilities", 'Did you mean "SYS_PTRACE"?'),
        ({"security": {"capabilities": ["FLY"]}}, "spec.security.capabilities", "Linux has no capability 'FLY'."),
        ({"numWorker": 2}, "spec.numWorker", 'Did you mean "numWorkers"?'),
        ({"compute": {"gpuPortionRequest": 0}}, "spec.compute.gpuPortionRequest", "greater than 0"),
        (
            {"compute": {"gpuPortionRequest": 1.5}},
            "spec.compute.gpuPortionRequest",
            "whole GPUs with gpuDevicesRequest",
        ),
        (
            {"compute": {"gpuPortionRequest": 0.5, "gpuMemoryRequest": "1G"}},
            "spec.compute.gpuMemoryRequest",
            "not for both",
        ),
        ({"compute": {"gpuPortionRequest": 0.004}}, "spec.compute.gpuPortionRequest", "no less than 0.01"),
        ({"compute": {"gpuMemoryRequest": "10M"}}, "spec.compute.gpuMemoryRequest", "no less than 100M"),
        ({"compute": {"cpuMemoryRequest": "100Q"}}, "spec.compute.cpuMemoryRequest", "not a quantity"),
        ({"compute": {"gpuDevicesRequest": 2}}, "spec.compute.gpuDevicesRequest", "the largest node has 1"),
        ({"compute": {"cpuCoreRequest": 9}}, "spec.compute.cpuCoreRequest", "the largest node has 8 CPU cores"),
        ({"compute": {"cpuMemoryRequest": "64Gi"}}, "spec.compute.cpuMemoryRequest", "the largest node has 17.18 GB"),
        ({"compute": {"gpuMemoryRequest": "9G"}}, "spec.compute.gpuMemoryRequest", "but the largest has 100 MiB"),
        ({"nodePools": ["a100"]}, "spec.nodePools", "no node is in the node pool 'a100'; add nodes to it"),
        ({"nodePools": ["a", "b"]}, "spec.nodePools", "a workload runs in one node pool"),
        ({"nodePools": "a"}, "spec.nodePools", "must be a list"),
        ({"projectId": "team-b"}, "projectId", 'Did you mean "team-a"?'),
        ({"clusterId": "x"}, "clusterId", CLUSTER),
        ({"storage": {"pvc": [{}]}}, "spec.storage.pvc[0].claimInfo.size", "a new claim needs a size"),
        (
            {"storage": {"nfs": [{"path": "/x"}]}},
            "spec.storage.nfs[0].server",
            "must be the name or the address of the NFS server",
        ),
        ({"minReplicas": 3, "maxReplicas": 2}, "spec.maxReplicas", "no less than minReplicas"),
        ({"backoffLimit": 2**40}, "spec.backoffLimit", "must be no more than 2,147,483,647"),
        (
            {"environmentVariables": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            "spec.environmentVariables[1].name",
            "sets A a second time",
        ),
        (
            {"environmentVariables": [{"name": "A", "value": "a\0b"}]},
            "spec.environmentVariables[0].value",
            "has a NUL character",
        ),
        ({"args": ["a", "\0"]}, "spec.args", "has a NUL character"),
        ({"compute": {"gpuPortionLimit": 0.2}}, "spec.compute.gpuPortionLimit", "limits a share of a GPU, but none"),
        ({"compute": {"gpuMemoryLimit": "2G"}}, "spec.compute.gpuMemoryLimit", "with gpuMemoryRequest, or leave"),
    ],
)
def test_bad_input_names_field_rule_and_fix(world: World, body: dict[str, Any], field: str, words: str) -> None:
    world.project()
    answer = world.submit(**body)
    assert answer.status_code == 400, answer.text
    issues = {issue["field"]: issue for issue in answer.json()["complianceIssues"]}
    assert field in issues, answer.text
    assert words in issues[field]["details"]
    assert issues[field]["rule"]
    assert world.client.get(f"{W}/count").json() == {"count": 0}


def test_a_node_pool_is_a_label_of_nodes_and_jobs(world: World) -> None:
    world.project()

    async def labelled() -> None:
        for node in (await world.store.list(kinds.NODE)).items:
            label = {"metadata": {"labels": {"kai.scheduler/node-pool": "a100"}}}
            await world.store.patch(kinds.NODE, "", objects.name(node), label, type="merge")

    world.do(labelled)
    answer = world.submit()
    assert answer.status_code == 400 and "no node is in the node pool 'default'; name another pool: a100" in answer.text
    assert world.submit(nodePools=["a100"]).status_code == 202
    (body,) = world.client.get(W).json()["workloads"]
    assert body["requestedNodePools"] == ["a100"]


def test_a_switch_of_a_query_is_true_or_false(world: World) -> None:
    """`dryRun=True` would submit the job that was only to be shown."""
    world.project()
    for name in ("dryRun", "requireImages"):
        answer = world.client.post(f"{W}/distributed", params={name: "True"}, json=submission())
        assert answer.status_code == 400 and answer.json()["message"] == f"{name} must be true or false, but is 'True'."
    assert world.client.get(W).json()["workloads"] == []


def test_lists_of_words_and_groups_are_shown_as_runais_texts(world: World) -> None:
    """A submit may give lists; the published type of these fields is a string, to which Run:ai's clients hold each answer."""
    world.project()
    own = {"command": ["sh", "-c", "echo hi"], "args": [], "security": {"supplementalGroups": [7, 8]}}
    made = world.submit(**own, masterSpec={"args": ["a b"]}).json()
    shown = world.client.get(f"{W}/distributed/{made['workloadId']}").json()
    assert (shown["spec"]["command"], shown["spec"]["args"]) == ("sh -c 'echo hi'", "")
    assert (shown["spec"]["security"]["supplementalGroups"], shown["masterSpec"]["args"]) == ("7,8", "'a b'")


def test_a_mistake_is_told_once(world: World) -> None:
    """Also where several read the field, and where a wrong value leaves none."""
    world.project()
    name = {"name": 5}
    image = {"image": 5}
    mounts = {"storage": {"nfs": [{"server": "a", "path": "/x"}] * 2}}
    code = {"code": {"typo": 1}}
    for change in (name, {"spec": image}, {"spec": {**submission()["spec"], **mounts}}, code):
        answer = world.client.post(f"{W}/distributed", json={**submission(), **change})
        fields = [issue["field"] for issue in answer.json()["complianceIssues"]]
        assert answer.status_code == 400 and len(fields) == len(set(fields)), answer.text


def test_more_than_the_limit_is_refused_at_submit(world: World) -> None:
    """Of the project or of a queue above it; what an elastic job needs at least counts."""
    world.project()

    def limited(name: str, resources: dict[str, Any]) -> None:
        async def patch() -> None:
            body = {"spec": {"resources": resources}}
            await world.store.patch(kinds.QUEUE, "", name, body, type="merge")

        world.do(patch)

    limited("team-a", {"gpu": {"limit": 2}})
    whole = {"gpuDevicesRequest": 1}
    answer = world.submit(compute=whole)
    assert answer.status_code == 400 and "queue team-a may never hold more than 2 GPUs" in answer.text
    assert answer.json()["complianceIssues"][0]["field"] == "spec.compute.gpuDevicesRequest"
    assert world.submit(compute=whole, minReplicas=2, maxReplicas=3, name="elastic").status_code == 202
    assert world.submit(name="shares").status_code == 202
    limited("department-default", {"cpu": {"limit": 200}})
    answer = world.submit(name="cpus", compute={"cpuCoreRequest": 0.1})
    assert (
        answer.status_code == 400 and "queue department-default may never hold more than 0.2 CPU cores" in answer.text
    )


def test_every_priority_a_submit_may_name_is_a_class_of_a_new_cluster() -> None:
    """Else the scheduler would take the job for `train`, whatever the list says."""
    assert {n: bootstrap.PRIORITY_CLASSES.get(n) for n in PRIORITIES} == PRIORITIES
    for name, priority in (("high", "high"), ("build", "build"), ("low", "")):
        labels = {"priorityClassName": priority} if priority else {}
        assert runai_json.is_preemptible({"metadata": {"labels": labels}}) is (name == "low")


def test_not_a_number_is_not_json(world: World) -> None:
    world.project()
    answer = world.client.post(f"{W}/distributed", content=b'{"spec":{"compute":{"gpuPortionRequest":NaN}}}')
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["message"]


@pytest.mark.both_engines
def test_what_runapy_always_sends_is_accepted(world: World) -> None:
    world.project()
    answer = world.submit(useGivenNameAsPrefix=False, slotsPerWorker=1, sshAuthMountPath=SSH_MOUNT)
    assert answer.status_code == 202, answer.text


def test_a_gpu_where_none_is(world: World) -> None:
    world.project()
    world.do(lambda: world.store.delete(kinds.NODE, "", "node-1"))
    world.create(kinds.NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu"}, "status": {}})
    answer = world.submit(compute={"gpuDevicesRequest": 1})
    assert answer.status_code == 400
    assert "rowlock up" in answer.json()["message"] and "--simulated-gpus" in answer.json()["message"]


@pytest.mark.both_engines
def test_a_taken_name_is_a_conflict_for_every_framework(world: World) -> None:
    world.project()
    assert world.submit().status_code == 202
    for framework in ("PyTorch", "TF"):
        answer = world.submit(distributedFramework=framework)
        assert answer.status_code == 409
        assert answer.json()["message"].startswith("the job dist-train1 already exists, please delete it first")


@pytest.mark.both_engines
def test_a_prefix_gets_a_suffix(world: World) -> None:
    world.project()
    body = world.submit(useGivenNameAsPrefix=True).json()
    assert body["name"].startswith("dist-train1-") and len(body["name"]) == len("dist-train1-") + 12
    assert body["requestedName"] == "dist-train1"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", f"{W}/distributed", "POST"),
        ("PUT", f"{W}/distributed/", "POST"),
        ("DELETE", f"/runai{W}/batch", "POST"),
        ("PUT", W, "GET"),
        ("PATCH", f"{W}/distributed/x", "DELETE, GET"),
        ("GET", "/api/v1/token", "POST"),
        ("OPTIONS", W, "GET"),
        ("OPTIONS", "/runai/api/v1/nodes", "GET"),
        ("BREW", f"{W}/x/logs", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_know(world: World, method: str, path: str, allowed: str) -> None:
    """Also where the word could be an id: there is no workload that is called `distributed`."""
    answer = world.client.request(method, path)
    assert (answer.status_code, answer.headers.get("allow")) == (405, allowed), answer.text
    assert answer.json() == {
        "code": 405,
        "message": f"{path.rstrip('/')} knows no {method}; it knows {allowed}",
        "details": "MethodNotAllowed",
    }


@pytest.mark.parametrize(
    "path", ["/runai/api/v1/nosuch", "/api/v1/workload/x", "/api/v2/nosuch", "/api/v1/workloads/a/b/c"]
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_path_that_nobody_knows_is_refused_in_this_apis_words(world: World, method: str, path: str) -> None:
    answer = world.client.request(method, path)
    body = answer.json()
    assert (answer.status_code, body["code"], body["details"]) == (404, 404, "NotFound")
    assert body["message"].startswith(f"there is no {method} {path} in this API.")


@pytest.mark.parametrize(
    "path",
    ["/api/v1", "/api/v1/", "/api/v1/pods", "/api/v1/podtemplates/x", "/api/v1/nodes/a/proxy", "/api/v1/colours"],
)
def test_what_is_kubernetes_passes_by(world: World, path: str) -> None:
    answer = world.client.get(path)
    assert (answer.status_code, answer.text) == (404, "Not Found"), "the routes behind these would answer"


def test_times_are_compared_as_times(world: World) -> None:
    """Those of rows are in UTC; a bound may be in any zone, or a date. What is absent is asked for with an empty value."""
    world.project()
    made = world.submit().json()["createdAt"]
    zone = timezone(timedelta(hours=9))
    here = datetime.fromisoformat(made).astimezone(zone)
    later = here + timedelta(seconds=5)

    def count(condition: str) -> int:
        found: int = world.client.get(f"{W}/count", params={"filterBy": condition}).json()["count"]
        return found

    assert count(f"createdAt>={here.isoformat()},createdAt<={later.isoformat()}") == 1
    assert count(f"createdAt>={later.isoformat()}") == 0
    assert count(f"createdAt>={made[:10]},completedAt==") == 1
    assert count("completedAt!=") == 0


@pytest.mark.both_engines
def test_list_filter_sort_and_page(world: World) -> None:
    world.project()
    for n in range(3):
        assert world.submit(name=f"job-{n}").status_code == 202
    get = world.client.get
    first = get(W, params={"limit": 2, "sortBy": "name"}).json()
    assert [w["name"] for w in first["workloads"]] == ["job-0", "job-1"]
    assert first["next"] == 2
    rest = get(W, params={"limit": 2, "offset": 2, "sortBy": "name"}).json()
    assert [w["name"] for w in rest["workloads"]] == ["job-2"] and "next" not in rest
    named = get(W, params={"filterBy": "name==job-1,phase!=Completed"}).json()["workloads"]
    assert [w["name"] for w in named] == ["job-1"]
    assert get(f"{W}/count", params={"filterBy": "phase==Completed"}).json() == {"count": 0}
    assert [w["name"] for w in get(W, params={"search": "B-2"}).json()["workloads"]] == ["job-2"]


def test_filters_know_the_words_that_jobs_and_the_cluster_bring(world: World) -> None:
    world.project()
    assert world.submit(priorityClass="high").status_code == 202
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    labels = {"rowlock.dev/category": "Play", "priorityClassName": "own"}
    world.create(
        kinds.PYTORCHJOB,
        {"metadata": {"name": "own", "namespace": "runai-team-a", "labels": labels}, "spec": job["spec"]},
    )
    world.create(kinds.PRIORITY_CLASS, {"metadata": {"name": "rush"}, "value": 7})
    world.until(lambda: len(world.rest.cache.rows()) == 2)

    def names(condition: str) -> list[str]:
        answer = world.client.get(W, params={"filterBy": condition})
        assert answer.status_code == 200, answer.text
        return [w["name"] for w in answer.json()["workloads"]]

    assert names("category==Play") == names("priorityClassName==own") == ["own"]
    assert names("category==Train") == names("category!=Play") == ["dist-train1"]
    assert names("category==Build") == names("priorityClassName==rush") == names("priorityClassName==low") == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"filterby": "name==x"}, 'Did you mean "filterBy"?'),
        ({"filterBy": "nam==x"}, 'Did you mean "name"?'),
        ({"filterBy": "name~x"}, "FIELD OPERATOR VALUE"),
        ({"filterBy": "phase==Runing"}, 'Did you mean "Running"?'),
        ({"filterBy": "phase!=running"}, 'Did you mean "Running"?'),
        ({"filterBy": "phase=="}, "phase is never ''"),
        ({"filterBy": "type==Distributd"}, 'Did you mean "Distributed"?'),
        ({"filterBy": "distributedFramework==pytorch"}, 'Did you mean "PyTorch"?'),
        ({"filterBy": "createdAt>=xyz"}, "is a time such as 2026-01-31"),
        ({"filterBy": "completedAt<="}, "is a time such as 2026-01-31"),
        ({"filterBy": "priority==high"}, "'high' is not a number"),
        ({"filterBy": "allocatedGPU<=x"}, "'x' is not a number"),
        ({"filterBy": "category==Trian"}, 'Did you mean "Train"?'),
        ({"filterBy": "category!="}, "It is one of Build, Train, or what a job brings itself"),
        ({"filterBy": "category==Trian", "deleted": "true"}, 'Did you mean "Train"?'),
        ({"filterBy": "priorityClassName==hgih"}, 'Did you mean "high"?'),
        ({"filterBy": "priorityClassName==../nodes"}, "is '../nodes' for no workload"),
        ({"limit": "501"}, "between 1 and 500"),
        ({"sortBy": "fase"}, "there is no field 'fase'"),
    ],
)
def test_bad_queries(world: World, query: dict[str, str], words: str) -> None:
    answer = world.client.get(W, params=query)
    assert answer.status_code == 400
    assert words in answer.json()["message"]


@pytest.mark.both_engines
def test_suspend_resume_delete(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    one = f"{W}/distributed/{identity}"
    assert world.client.post(f"{one}/suspend").status_code == 202
    assert world.client.get(one).json()["desiredPhase"] == "Stopped"
    world.until(lambda: world.client.get(f"{W}/{identity}").json()["phase"] == "Stopped")
    assert world.client.post(f"{one}/resume").json() == {"code": 202, "message": "Request has been accepted."}
    assert world.client.get(one).json()["desiredPhase"] == "Running"
    assert world.client.delete(one).status_code == 202
    gone = world.client.get(one)
    assert gone.status_code == 404 and gone.json()["code"] == 404
    assert world.submit().status_code == 202, "a deleted name is free again"


def test_a_forced_delete_does_not_wait_for_pods(world: World) -> None:
    world.project()
    one = f"{W}/distributed/{world.submit().json()['workloadId']}"
    job = world.store.view.get(kinds.PYTORCHJOB, "runai-team-a", "dist-train1")
    assert job is not None
    owner = {**objects.owner_reference(job), "controller": True}
    meta = {"name": "p", "namespace": "runai-team-a", "ownerReferences": [owner]}
    world.create(
        kinds.POD, {"metadata": meta, "spec": {"nodeName": "node-1", "containers": [{"name": "a", "image": "b"}]}}
    )
    world.until(lambda: bool(world.client.get(f"{W}/{one[-36:]}/pods").json()["pods"]))
    refused = world.client.delete(one, params={"force": "yes"})
    assert (refused.status_code, refused.json()["message"]) == (400, "force must be true or false, but is 'yes'.")
    assert world.client.get(one).status_code == 200
    assert world.client.delete(one, params={"force": "true"}).status_code == 202
    assert world.store.view.get(kinds.POD, "runai-team-a", "p") is None


def test_wait_answers_when_the_phase_comes(world: World) -> None:
    world.project()
    identity = world.submit().json()["workloadId"]
    body = world.client.get(f"{W}/{identity}/wait", params={"for": "Creating"}).json()
    assert (body["phase"], body["reachedPhase"]) == ("Creating", "Creating")
    late = world.client.get(f"{W}/{identity}/wait", params={"for": "Completed", "timeout": "0"}).json()
    assert (late["phase"], late["reachedPhase"]) == ("Creating", None)
    odd = {
        "for=X": "is no phase; there are Completed",
        "timeout=nan": "must be a number",
        "timeout=inf": "must be a number",
    }
    for query, said in odd.items():
        refusal = world.client.get(f"{W}/{identity}/wait?{query}")
        assert refusal.status_code == 400 and said in refusal.text, (query, refusal.text)


@pytest.mark.both_engines
def test_projects(world: World) -> None:
    made = world.project("project_name", 2)
    assert made["status"]["namespace"] == "runai-project-name"
    assert made["totalResources"]["gpuQuota"] == 2
    listed = world.client.get("/api/v1/org-unit/projects", params={"filterBy": "name==project_name"}).json()
    assert [p["id"] for p in listed["projects"]] == [made["id"]] and made["id"].isdigit()
    again = world.client.post("/api/v1/org-unit/projects", json={"name": "project_name"})
    assert again.status_code == 409
    clash = world.client.post("/api/v1/org-unit/projects", json={"name": "project-name"})
    assert clash.status_code == 409 and "already has the namespace" in clash.json()["message"]
    changed = world.client.put(
        f"/api/v1/org-unit/projects/{made['id']}", json={"resources": [{"gpu": {"deserved": 5}}]}
    )
    assert changed.json()["totalResources"]["gpuQuota"] == 5
    world.submit(projectId="project_name")
    busy = world.client.delete(f"/api/v1/org-unit/projects/{made['id']}")
    assert busy.status_code == 409 and "dist-train1" in busy.json()["message"]


@pytest.mark.parametrize("how", ["put", "put quota", "patch"])
def test_a_project_without_its_queue_gets_it_anew(world: World, how: str) -> None:
    made = world.project("Team.A", 2)
    url, queue = f"/api/v1/org-unit/projects/{made['id']}", "team-a"

    async def delete_queue() -> None:
        await world.store.delete(kinds.QUEUE, "", queue)

    world.do(delete_queue)
    while world.client.get(url).json()["status"]["phase"] != "NotReady":
        pass
    refused = world.client.put(url, json={"parentId": "nowhere"})
    assert refused.status_code == 400 and "there is no department 'nowhere'" in refused.text
    resources = [{"nodePool": {"id": "default"}, "gpu": {"deserved": 5}}]
    if how == "patch":
        answer = world.client.patch(f"{url}/resources", json=resources)
    else:
        answer = world.client.put(url, json={"resources": resources} if how == "put quota" else {"description": "d"})
    assert answer.status_code == 200, answer.text
    quota = -1 if how == "put" else 5
    assert (answer.json()["status"]["phase"], answer.json()["totalResources"]["gpuQuota"]) == ("Ready", quota)
    again = world.store.view.get(kinds.QUEUE, "", queue)
    assert again is not None and again["spec"]["parentQueue"] == "department-default"


@pytest.mark.both_engines
def test_a_project_keeps_its_description_and_weight(world: World) -> None:
    made = world.project()
    body = {"description": "for tests", "resources": [{"gpu": {"deserved": 1, "overQuotaWeight": 2}}]}
    changed = world.client.put(f"/api/v1/org-unit/projects/{made['id']}", json=body).json()
    assert (changed["description"], changed["resources"][0]["gpu"]["overQuotaWeight"]) == ("for tests", 2)
    assert world.client.get(f"/api/v1/org-unit/projects/{made['id']}").json()["description"] == "for tests"


@pytest.mark.both_engines
def test_clusters_is_a_bare_array(world: World) -> None:
    (cluster,) = world.client.get("/api/v1/clusters").json()
    assert cluster["uuid"] == world.cluster


def test_the_token_is_asked_for(locked: World) -> None:
    assert locked.client.get(W).status_code == 401
    assert locked.client.get(W, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert locked.client.get(W, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    answer = locked.client.post("/api/v1/token", json={"grantType": "app_token", "AppId": None, "AppSecret": None})
    assert answer.status_code == 400 and "Bearer" in answer.json()["message"]


def test_unknown_paths_and_ids(world: World) -> None:
    assert world.client.get(f"{W}/nothing").status_code == 404
    assert world.client.get("/api/v1/workloads/x/y/z").json()["code"] == 404
    for path, meant in (("workload", "workloads"), ("projects", "org-unit/projects"), ("cluster/x", "clusters")):
        said = world.client.get(f"/api/v1/{path}").json()
        assert said["code"] == 404 and f'Did you mean "/api/v1/{meant}"?' in said["message"], said


def test_a_submission_of_the_fixture_is_the_seeds() -> None:
    assert submission()["spec"]["compute"]["gpuPortionRequest"] == 0.1


def test_a_query_parameter_that_is_given_twice_is_refused(world: World) -> None:
    """Which one is meant? Filters alone may come one by one."""
    refused = world.client.get("/api/v1/workloads?limit=1&limit=2")
    assert refused.status_code == 400 and "limit" in refused.json()["message"] and "once" in refused.json()["message"]
    project = world.project()["id"]
    for name in ("one", "two"):
        assert world.submit(projectId=project, name=name).status_code == 202
    found = world.client.get("/api/v1/workloads?filterBy=name=@o&filterBy=name!=two").json()["workloads"]
    assert [one["name"] for one in found] == ["one"]


def test_an_application_with_unknown_fields_is_refused(world: World) -> None:
    refused = world.client.post("/api/v1/applications", json={"name": "ci", "rolez": []})
    assert refused.status_code == 400 and "rolez" in refused.json()["message"]
    assert world.client.post("/api/v1/applications", json={"name": 7}).json()["message"].count("name") == 1
