"""Run:ai's own Python client, unmodified: an application logs in, submits, lists, suspends and deletes.

The client checks no answers itself; its models are the published contract, and every answer here goes through one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.runapy_platform import IMAGE, Platform, embedded_platform, real_platform
from tests.conftest import ENGINES
from tests.waiting import until

pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")
runai = pytest.importorskip("runai", reason="Run:ai's Python client (runapy) is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(params=ENGINES)
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    """Over the embedded cluster, or over a real one, where the application is a service account."""
    if request.param == "real":
        with real_platform(request.getfixturevalue("real_engine")) as made:
            yield made
    else:
        with embedded_platform(request.getfixturevalue("site")) as made:
            yield made


def test_a_distributed_training_from_submit_to_delete(platform: Platform) -> None:
    models = runai.models
    made = platform.submit("dist-train1")
    assert made.status_code == 202
    identity = made.data["workloadId"]
    assert models.DistributedWorkload.from_dict(made.data).desired_phase == "Running"
    distributed, workloads = platform.api("DistributedApi"), platform.api("WorkloadsApi")
    listed = workloads.get_workloads(filter_by=["name==dist-train1", f"projectId=={platform.project['id']}"])
    (one,) = listed.data["workloads"]
    assert models.Workload.from_dict(one).id == identity
    assert workloads.count_workloads(filter_by=[f"projectId=={platform.project['id']}"]).data == {"count": 1}
    assert models.WorkloadDetailed.from_dict(workloads.get_workload(identity).data).name == "dist-train1"
    assert models.DistributedWorkload.from_dict(distributed.get_distributed(identity).data).workload_id == identity
    assert distributed.suspend_distributed(identity).status_code == 202
    assert distributed.get_distributed(identity).data["desiredPhase"] == "Stopped"
    assert distributed.resume_distributed(identity).status_code == 202
    for event in platform.api("EventsApi").get_workload_events(identity).data["events"]:
        models.Event2.from_dict(event)
    day = {"start": "2020-01-02T03:04:05Z", "end": "2090-01-02T03:04:05Z"}
    figures = workloads.get_workload_metrics(identity, metric_type=["POD_COUNT", "GPU_ALLOCATION"], **day)
    assert len(models.MetricsResponse.from_dict(figures.data).measurements) == 2
    for record in platform.api("EventsApi").get_workload_history(identity).data["records"]:
        models.HistoryRecord.from_dict(record)
    assert distributed.delete_distributed(identity).status_code == 202


def test_a_taken_name_is_a_conflict_that_the_client_raises_once(platform: Platform) -> None:
    assert platform.submit("twice").status_code == 202
    with pytest.raises(runai.exceptions.ConflictException) as refused:
        platform.submit("twice")
    assert "already exists" in str(refused.value)


def test_the_pods_of_a_workload(platform: Platform) -> None:
    identity = platform.submit("with-pods").data["workloadId"]
    found: list[dict[str, Any]] = []
    everywhere: list[dict[str, Any]] = []

    def told_alike() -> bool:
        # on a real cluster the scheduler writes why a pod waits, perhaps between the two answers
        found[:] = platform.api("PodsApi").get_workload_pods(identity).data["pods"]
        listed = platform.api("PodsApi").list_pods(filter_by=[f"workloadId=={identity}"], verbosity="full")
        everywhere[:] = listed.data["pods"]
        return len(found) == 3 and everywhere == found

    until(told_alike, lambda: f"three pods, alike in both answers: {found} {everywhere}", every=0.05)
    for pod in found:
        assert runai.models.Pod1.from_dict(pod).workload_id == identity
    assert platform.api("PodsApi").count_pods(filter_by=[f"workloadId=={identity}"]).data == {"count": 3}


def test_trainings_and_workspaces(platform: Platform) -> None:
    models = runai.models
    common = {"project_id": platform.project["id"], "cluster_id": platform.cluster}
    training = models.TrainingCreationRequest(name="alone", spec=models.TrainingSpecSpec(image=IMAGE), **common)
    workspace = models.WorkspaceCreationRequest(name="desk", spec=models.WorkspaceSpecSpec(image=IMAGE), **common)
    trainings, workspaces = platform.api("TrainingsApi"), platform.api("WorkspacesApi")
    one, other = trainings.create_training1(training), workspaces.create_workspace1(workspace)
    assert (one.status_code, other.status_code) == (202, 202)
    models.Training1.from_dict(trainings.get_training(one.data["workloadId"]).data)
    models.Workspace1.from_dict(workspaces.get_workspace(other.data["workloadId"]).data)
    assert trainings.suspend_training(one.data["workloadId"]).status_code == 202
    assert trainings.resume_training(one.data["workloadId"]).status_code == 202
    batch = models.WorkloadBatch(ids=[one.data["workloadId"], other.data["workloadId"]], action="delete")
    answer = platform.api("WorkloadsBatchApi").batch_workloads(batch)
    assert models.BatchResponse.from_dict(answer.data).failed == []


def test_the_dictionaries(platform: Platform) -> None:
    models, properties = runai.models, platform.api("WorkloadPropertiesApi")
    for entry in properties.list_workload_types().data["types"]:
        models.WorkloadTypeConfig.from_dict(entry)
    for entry in properties.get_workload_priorities().data["priorities"]:
        models.WorkloadPriority.from_dict(entry)
    for entry in properties.list_categories().data["categories"]:
        models.WorkloadCategory.from_dict(entry)


def test_projects_clusters_and_nodes(platform: Platform) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    platform.core.create_node({"metadata": {"name": name}})
    projects = platform.api("ProjectsApi").get_projects(filter_by=[f"name=={platform.project['name']}"])
    assert [p["id"] for p in projects.data["projects"]] == [platform.project["id"]]
    assert [c["uuid"] for c in platform.api("ClustersApi").get_clusters().data] == [platform.cluster]
    tenant_nodes = platform.api("NodesApi").get_tenant_nodes
    until(
        lambda: tenant_nodes(filter_by=[f"name=={name}"]).data["nodes"],
        "the platform shows the cluster's new node",
        every=0.1,
    )
    nodes = tenant_nodes(filter_by=[f"name=={name}"]).data["nodes"]
    assert [runai.models.Node.from_dict(node).name for node in nodes] == [name]
    same = platform.api("NodesApi").get_nodes(platform.cluster, node_name=name).data["nodes"]
    # a real cluster taints a new node, and takes the taint off, between the two answers
    assert [(one["id"], one.keys()) for one in same] == [(one["id"], one.keys()) for one in nodes]
    assert platform.api("NodesApi").count_tenant_nodes(filter_by=[f"name=={name}"]).data == {"count": 1}


def test_assets_and_templates(platform: Platform) -> None:
    models, project = runai.models, int(platform.project["id"])
    meta = models.AssetCreationRequest(name="small", scope="project", project_id=project)
    environments, computes = platform.api("EnvironmentApi"), platform.api("ComputeApi")
    environment = environments.create_environment_asset(
        models.EnvironmentCreationRequest(meta=meta, spec=models.EnvironmentAssetSpec(image=IMAGE))
    )
    assert environment.status_code == 202
    compute = computes.create_compute_asset(
        models.ComputeCreationRequest(meta=meta, spec=models.ComputeAssetSpec(cpu_core_request=0.5))
    )
    for entry in environments.list_environment_assets(name="small", project_id=project).data["entries"]:
        models.EnvironmentAsset.from_dict(entry)
    for entry in computes.list_compute_assets().data["entries"]:
        models.ComputeAsset.from_dict(entry)
    one = environments.get_environment_asset_by_id(environment.data["meta"]["id"])
    assert models.EnvironmentAsset.from_dict(one.data).spec.image == IMAGE
    claim = models.PVCAssetSpec(path="/data", existing_pvc=True, claim_name="data")
    made = platform.api("PVCApi").create_pvc_asset(models.PVCCreationRequest(meta=meta, spec=claim))
    models.PVCAsset.from_dict(made.data)
    for entry in platform.api("DatasourcesApi").list_datasource_assets().data["entries"]:
        models.DatasourceListResponseEntry.from_dict(entry)
    templates = platform.api("WorkloadTemplatesApi")
    template = templates.create_distributed_template(
        models.DistributedTemplateCreationRequest(
            meta=models.TemplateCreationMetaFields(name="ddp", scope_type="project", scope_id=str(project)),
            spec=models.DistributedTemplateSpec(image=IMAGE, num_workers=1, distributed_framework="PyTorch"),
        )
    )
    identity = template.data["meta"]["id"]
    models.DistributedTemplate.from_dict(templates.get_distributed_template(identity).data)
    models.TemplatesListResponse.from_dict(templates.list_templates1().data)
    request = models.DistributedCreationRequest(
        name="from-template", project_id=str(project), cluster_id=platform.cluster, template_id=identity
    )
    assert platform.api("DistributedApi").create_distributed(request).data["spec"]["image"] == IMAGE
    assert templates.delete_distributed_template(identity).status_code == 202
    assert computes.delete_compute_asset_by_id(compute.data["meta"]["id"]).status_code == 202


def test_node_pools(platform: Platform) -> None:
    models, pools = runai.models, platform.api("NodePoolsApi")
    name = f"pool-{uuid.uuid4().hex[:8]}"
    platform.core.create_node({"metadata": {"name": f"node-{name}", "labels": {"rack": name}}})
    fields = models.NodepoolCreateFields(name=name, label_key="rack", label_value=name, cluster_id=platform.cluster)
    assert pools.create_nodepool(fields).status_code == 201
    assert models.Nodepool.from_dict(pools.get_nodepool(name).data).name == name
    assert [pool["name"] for pool in pools.get_nodepools(filter_by=[f"name=={name}"]).data["nodepools"]] == [name]
    assert pools.count_nodepools(filter_by=[f"name=={name}"]).data == {"count": 1}
    assert pools.delete_nodepool(name).status_code == 202


def test_departments(platform: Platform) -> None:
    models, departments = runai.models, platform.api("DepartmentsApi")
    name = f"lab-{uuid.uuid4().hex[:8]}"
    bounds = models.ResourcesNullable(gpu=models.NonNullResource(deserved=2), cpu=models.Resource(deserved=1000))
    made = departments.create_department(
        models.DepartmentCreationRequest(name=name, cluster_id=platform.cluster, resources=[bounds])
    )
    assert made.status_code == 201
    one = models.DepartmentForList.from_dict(departments.get_department(made.data["id"]).data)
    assert (one.name, one.total_resources.gpu_quota) == (name, 2)
    projects = platform.api("ProjectsApi")
    request = models.ProjectCreationRequest(
        name=f"in-{name}", cluster_id=platform.cluster, parent_id=made.data["id"], resources=[bounds]
    )
    inside = projects.create_project(request)
    assert inside.status_code == 201
    less = models.ResourcesNullable(gpu=models.NonNullResource(deserved=1))
    update = models.ProjectUpdateRequest(description="changed", resources=[less])
    assert projects.update_project(inside.data["id"], update).data["description"] == "changed"
    projects.patch_project_resources(inside.data["id"], [models.ResourcesNullable(cpu=models.Resource(deserved=2000))])
    (pool,) = projects.get_project(inside.data["id"]).data["resources"]
    assert (pool["gpu"]["deserved"], pool["cpu"]["deserved"]) == (1, 2000)
    for entry in departments.get_departments(filter_by=[f"name=={name}"]).data["departments"]:
        assert [child.name for child in models.DepartmentForList.from_dict(entry).children] == [f"in-{name}"]
    assert projects.delete_project(inside.data["id"]).status_code == 202
    assert departments.delete_department(made.data["id"]).status_code == 202


def test_users_roles_and_access_rules(platform: Platform) -> None:
    models = runai.models
    users, rules, roles = platform.api("UsersApi"), platform.api("AccessRulesApi"), platform.api("RolesApi")
    made = users.create_user(models.UserCreationRequest1(email=f"{uuid.uuid4().hex[:8]}@lab.example"))
    account = models.UserPostResponse.from_dict(made.data)
    assert len(account.temp_password) >= 20
    assert account.username in [models.User2.from_dict(one).username for one in users.get_users().data]
    (viewer,) = [role for role in map(models.RoleV1.from_dict, roles.get_roles_v1().data) if role.name == "viewer"]
    request = models.AccessRuleCreationFields(
        subject_id=account.username,
        subject_type="user",
        role_id=viewer.id,
        scope_id=platform.project["id"],
        scope_type="project",
    )
    rule = models.AccessRule.from_dict(rules.create_access_rule(request).data)
    listed = models.GetAccessRules200Response.from_dict(rules.get_access_rules(subject_ids=account.username).data)
    assert [(one.id, one.role_name, one.scope_name) for one in listed.access_rules] == [
        (rule.id, "viewer", platform.project["name"])
    ]
    models.MeAccessRulesResponse.from_dict(platform.api("MeApi").get_me_access_rules().data)
    assert rules.delete_access_rule(rule.id).status_code == 202
    assert (
        models.UserPostResponse.from_dict(users.reset_user_password(account.id).data).temp_password
        != account.temp_password
    )
    assert users.delete_user_by_id(account.id).status_code == 202


OLD_CLIENT = Path(__file__).resolve().parents[2] / ".runapy-1.218.0"
"""Where `make .runapy-1.218.0` puts the older version: one process, and one environment, has one of them."""


@pytest.mark.parametrize("version", ["1.224.0", "1.218.0"])
def test_every_version_walks_from_login_to_delete(platform: Platform, version: str) -> None:
    if version == "1.218.0" and not OLD_CLIENT.is_dir():
        pytest.skip("runapy 1.218.0 is not installed beside the newer one (make .runapy-1.218.0)")
    room = {"cpu": "8", "memory": "16Gi", "pods": "100", "nvidia.com/gpu": "1"}  # other tests make nodes without
    node = {"metadata": {"name": f"gpu-{uuid.uuid4().hex[:8]}"}, "status": {"capacity": room, "allocatable": room}}
    platform.core.create_node(node)
    settings = platform.client.configuration
    arguments = [
        settings.runai_base_url, settings.client_id, settings.client_secret, settings.ssl_ca_cert,
        platform.project["id"], platform.cluster, f"walk-{uuid.uuid4().hex[:8]}", str(platform.portion),
    ]  # fmt: skip
    script = Path(__file__).with_name("runapy_script.py")
    before = {"PYTHONPATH": str(OLD_CLIENT)} if version == "1.218.0" else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *arguments],
        capture_output=True, text=True, timeout=200, env={**os.environ, **before},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "27 of 27\n", done.stdout + done.stderr


def test_credentials_and_the_data_sources_that_use_them(platform: Platform) -> None:
    """As the client sends and reads them; what is secret is in no answer."""
    models, credentials, project = runai.models, platform.api("CredentialsApi"), int(platform.project["id"])

    def meta(word: str) -> Any:
        return models.AssetCreationRequest(name=f"{word}-{uuid.uuid4().hex[:8]}", scope="project", project_id=project)

    spec = models.AccessKeyCreationSpec(access_key_id="AKIA", secret_access_key="hidden-word")
    key = credentials.create_access_key(models.AccessKeyCreationRequest(meta=meta("key"), spec=spec))
    identity = key.data["meta"]["id"]
    assert key.status_code == 202 and "hidden-word" not in str(key.data)
    assert models.AccessKey.from_dict(credentials.get_access_key_by_id(identity).data).spec.access_key_id == "AKIA"
    login = models.PasswordCreationSpec(user="ana", password="hidden-word")
    assert credentials.create_password(models.PasswordCreationRequest(meta=meta("login"), spec=login)).data
    spec = models.NgcApiKeyCreationSpec(ngc_api_key="hidden-word")
    ngc = credentials.create_ngc_api_key(models.NgcApiKeyCreationRequest(meta=meta("ngc"), spec=spec))
    assert models.NgcApiKey.from_dict(ngc.data).meta.name.startswith("ngc-") and "hidden-word" not in str(ngc.data)
    assert credentials.delete_ngc_api_key(ngc.data["meta"]["id"]).status_code == 202
    bucket = models.S3AssetSpec(bucket="sets", path="/sets", access_key_asset_id=identity)
    made = platform.api("S3Api").create_s3_asset(models.S3CreationRequest(meta=meta("s3"), spec=bucket))
    assert models.S3Asset.from_dict(made.data).spec.access_key_asset_id == identity
    export = models.NFSAssetSpec(server="nas", path="/export", mount_path="/data")
    nfs = platform.api("NFSApi").create_nfs_asset(models.NFSCreationRequest(meta=meta("nfs"), spec=export))
    assert models.NFSAsset.from_dict(nfs.data).spec.mount_path == "/data"
    listed = [
        models.CredentialsListResponseEntry.from_dict(one)
        for one in credentials.list_credentials_assets().data["entries"]
    ]
    assert {"accessKey", "password"} <= {one.meta.kind.value for one in listed if one is not None}
    sources = platform.api("DatasourcesApi").list_datasource_assets().data["entries"]
    assert {"s3", "nfs"} <= {one["meta"]["kind"] for one in sources}
    assert platform.api("S3Api").delete_s3_asset_by_id(made.data["meta"]["id"]).status_code == 202
    assert credentials.delete_access_key(identity).status_code == 202


def test_workloads_that_are_manifests(platform: Platform) -> None:
    models, workloads = runai.models, platform.api("WorkloadsV2Api")
    name = f"manifest-{uuid.uuid4().hex[:8]}"
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": IMAGE}]}}}
    manifest = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "any"},
        "spec": {"pytorchReplicaSpecs": {"Master": role}},
    }  # fmt: skip
    meta = models.WorkloadV2MetadataCreateParams(
        name=name, project_id=platform.project["id"], cluster_id=platform.cluster, priority="high"
    )
    made = workloads.create_workload_v2(models.WorkloadV2CreateRequest(metadata=meta, manifest=manifest))
    assert made.status_code == 202
    one = models.WorkloadV2.from_dict(made.data)
    assert (one.metadata.name, one.metadata.priority, one.raw_manifest) == (name, "high", manifest)
    shown = models.WorkloadV2GetResponse.from_dict(workloads.get_workload_v2_by_id(one.metadata.id).data)
    assert shown.sync_info.status.value == "Synced" and shown.workload.workload_manifest["metadata"]["name"] == name
    change = models.WorkloadV2UpdateRequest(metadata=models.WorkloadV2MetadataUpdateParams(priority="low"))
    changed = workloads.update_workload_v2(one.metadata.id, change)
    assert changed.data["metadata"]["priority"] == "low"
    for broken in ({**manifest, "spec": {"pytorchReplicaSpecs": {"Master": 1}}}, {**manifest, "spce": {}}):
        meta = models.WorkloadV2MetadataCreateParams(
            name=f"{name}-x", project_id=platform.project["id"], cluster_id=platform.cluster
        )
        with pytest.raises(runai.exceptions.ApiException) as refusal:
            workloads.create_workload_v2(models.WorkloadV2CreateRequest(metadata=meta, manifest=broken))
        assert refusal.value.status in (400, 422), refusal.value
    assert workloads.delete_workload_v2(one.metadata.id).status_code == 202
