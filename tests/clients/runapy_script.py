"""What Run:ai's own client does from login to delete, in every version of it: a script of its own, for one process has one version.

    python runapy_script.py URL CLIENT_ID SECRET CA_FILE PROJECT_ID CLUSTER_ID NAME PORTION

Prints `N of N` checks, or fails at the first. The models are the published contract: every answer goes through one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

models: Any = import_module("runai.models")
api: Any = import_module("runai.api")
ApiClient: Any = import_module("runai.api_client").ApiClient
Configuration: Any = import_module("runai.configuration").Configuration
ConflictException: Any = import_module("runai.exceptions").ConflictException

checks: list[str] = []
IMAGE = "/kubeflow/pytorch-dist-mnist:latest"


def check(holds: object, what: str) -> None:
    assert holds, what
    checks.append(what)


def read_as(names: str, body: dict[str, Any]) -> Any:
    """The body as the first of these models that the version has reads it."""
    model = next(getattr(models, name) for name in names.split() if hasattr(models, name))
    return model.from_dict(body)


def request_of(name: str, project: str, cluster: str, portion: float) -> Any:
    compute_type = models.DistributedSpecSpec.model_fields["compute"].annotation.__args__[0]
    compute = compute_type(
        gpu_devices_request=1, gpu_request_type="portion", gpu_portion_request=portion, cpu_core_request=0.1,
        cpu_memory_request="100M",
    )  # fmt: skip
    spec = models.DistributedSpecSpec(image=IMAGE, num_workers=2, distributed_framework="PyTorch", compute=compute)
    return models.DistributedCreationRequest(name=name, project_id=project, cluster_id=cluster, spec=spec)


def refuses(model: Any, **values: Any) -> bool:
    try:
        model(**values)
    except ValueError:
        return True
    return False


def walk(client: Any, project: str, cluster: str, name: str, portion: float) -> None:
    distributed, workloads, pods = api.DistributedApi(client), api.WorkloadsApi(client), api.PodsApi(client)
    clusters = api.ClustersApi(client).get_clusters().data
    check([read_as("DisplayedCluster", one).uuid for one in clusters] == [cluster], "clusters are a bare array")
    found = api.ProjectsApi(client).get_projects().data["projects"]
    check(project in [one["id"] for one in found], "projects")
    made = distributed.create_distributed(request_of(name, project, cluster, portion))
    check(made.status_code == 202, "a submit is accepted")
    body, identity = made.data, made.data["workloadId"]
    check(read_as("DistributedWorkload", body) is not None, "the submit's answer")
    check((body["desiredPhase"], body["requestedName"], body["projectId"]) == ("Running", name, project), "its fields")
    check(body["spec"]["compute"]["gpuPortionRequest"] == portion, "its specification")
    listed = workloads.get_workloads(filter_by=[f"name=={name}", f"projectId=={project}"]).data["workloads"]
    check([one["id"] for one in listed] == [identity], "the list, filtered twice")
    check(read_as("Workload", listed[0]).name == name, "a workload of the list")
    check(
        workloads.count_workloads(filter_by=[f"name=={name}", f"projectId=={project}"]).data == {"count": 1},
        "the count",
    )
    check(read_as("WorkloadDetailed Workload", workloads.get_workload(identity).data).id == identity, "one workload")
    check(distributed.get_distributed(identity).data["workloadId"] == identity, "one distributed workload")
    for pod in pods.get_workload_pods(identity).data["pods"]:
        read_as("Pod1", pod)
    check(True, "pods")
    check(pods.count_pods(filter_by=[f"workloadId=={identity}"]).data["count"] in range(4), "the count of pods")
    events = api.EventsApi(client)
    for event in events.get_workload_events(identity).data["events"]:
        read_as("Event2 Event1", event)
    check(True, "events")
    for record in events.get_workload_history(identity).data["records"]:
        read_as("HistoryRecord", record)
    check(True, "history")
    day = {"start": "2020-01-02T03:04:05Z", "end": "2090-01-02T03:04:05Z"}
    figures = workloads.get_workload_metrics(identity, metric_type=["POD_COUNT", "GPU_ALLOCATION"], **day)
    check(len(read_as("MetricsResponse", figures.data).measurements) == 2, "metrics")
    nodes = api.NodesApi(client).get_nodes(cluster).data["nodes"]
    check(all(read_as("Node", one).name for one in nodes), "nodes of the cluster")
    check(api.ProjectsApi(client).get_project(project).data["id"] == project, "one project")
    departments = api.DepartmentsApi(client).get_departments().data["departments"]
    check("default" in [one["name"] for one in departments], "departments")
    try:
        distributed.create_distributed(request_of(name, project, cluster, portion))
        check(False, "a taken name is refused")
    except ConflictException as refusal:
        check(refusal.status == 409, "a taken name is a conflict")
    spec = models.DistributedSpecSpec
    check(refuses(spec, image=IMAGE, num_workers="2"), "the client refuses a text for a number")
    check(refuses(spec, image=IMAGE, distributed_framework="pytorch"), "and a framework in lower case")
    check(refuses(models.DistributedCreationRequest, name="", project_id=project, cluster_id=cluster), "and no name")
    check(
        refuses(models.DistributedCreationRequest, name="x", project_id=1, cluster_id=cluster), "and a number for an id"
    )
    if hasattr(distributed, "suspend_distributed"):
        check(distributed.suspend_distributed(identity).status_code == 202, "suspend")
        check(distributed.resume_distributed(identity).status_code == 202, "resume")
    else:  # as a script of that time does it
        for verb in ("suspend", "resume"):
            path = f"/api/v1/workloads/distributed/{identity}/{verb}"
            check(client.call_api(resource_path=path, method="POST").status_code == 202, verb)
    check(distributed.delete_distributed(identity).status_code == 202, "delete")


def main() -> None:
    url, client_id, secret, authority, project, cluster, name, portion = sys.argv[1:]
    settings = Configuration(
        client_id=client_id, client_secret=secret, runai_base_url=url, ssl_ca_cert=authority, retry_max_retries=0
    )
    with ApiClient(settings) as client:
        walk(client, project, cluster, name, float(portion))
    print(f"{len(checks)} of {len(checks)}")


if __name__ == "__main__":
    main()
