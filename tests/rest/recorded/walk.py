"""What is asked for the recording: every kind of workload in every state, then every route, then what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.rest.conftest import CLUSTER, node
from tests.rest.recorded.busy_world import NAMESPACE, BusyWorld
from tests.rest.test_openapi import BODIES, ORDER, QUERIES

from rowlock import kinds, objects
from rowlock.rest.openapi.operations import OPERATIONS, Operation
from rowlock.rest.routes import paths_served
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSample

Ask = tuple[str, str, Any]
"""A request: method, path with its query, body."""
_WORKLOADS = "/api/v1/workloads"
SMALL = {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}
FULL_SPEC: dict[str, Any] = {
    "image": "trainer:1", "command": "python train.py", "args": "--epochs 3 'two words'", "workingDir": "/work",
    "environmentVariables": [{"name": "LR", "value": "0.1"}, {"name": "KEY", "secret": {"name": "s", "key": "k"}}],
    "annotations": [{"name": "team", "value": "vision"}], "labels": [{"name": "stage", "value": "try"}],
    "ports": [{"container": 8080}], "compute": {**SMALL, "cpuCoreLimit": 1, "cpuMemoryLimit": "1G", "largeShmRequest": True},
    "storage": {
        "pvc": [{"existingPvc": False, "claimName": "data", "path": "/data", "claimInfo": {"size": "1G", "accessModes": {"readWriteOnce": True}}}],
        "git": [{"repository": "https://example.test/code.git", "path": "/code", "branch": "main"}],
        "emptyDirVolume": [{"path": "/scratch", "sizeLimit": "1G"}],
    },
    "tolerations": [{"operator": "Exists", "key": "gpu"}], "security": {"runAsUid": 1000, "runAsGid": 1000, "supplementalGroups": "5,6"},
    "backoffLimit": 2, "priorityClass": "high", "preemptibility": "preemptible", "nodePools": ["default"],
    "autoDeletionTimeAfterCompletionSeconds": 3600,
}  # fmt: skip
BATCH_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1", "kind": "Job",
    "spec": {"parallelism": 2, "completions": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "command": ["true"]}]}}},
}  # fmt: skip
JOB_SET: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "spec": {"replicatedJobs": [{"name": "worker", "replicas": 2, "template": {"spec": BATCH_JOB["spec"]}}]},
}  # fmt: skip
OWN_JOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
    "spec": {"pytorchReplicaSpecs": {
        "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "own:2", "command": ["python", "a b.py"]}]}}}}},
}  # fmt: skip
LINES = [
    "2026-01-02T03:04:05.000000001Z step 1 loss 2.5",
    "2026-01-02T03:04:06.000000001Z \x1b[32mgreen\x1b[0m  50%|#####     |\r 100%|##########|",
    '2026-01-02T03:04:07.000000001Z a line with � and ü, and <tags> & "quotes"',
    "2026-01-02T03:04:08.000000001Z step 2 loss 1.25",
]


class Recording:
    """The world as the requests find it; `ids` has what `{id}` stands for below a path."""

    def __init__(self, world: BusyWorld) -> None:
        self.world, self.names = world, dict[str, str]()
        self.ids = {"/api/v1/clusters": CLUSTER, "/api/v1/node-pools": "a100", "/api/v1/nodes": "node-1", "/api/v1/authorization/roles": "4"}  # fmt: skip
        self._fill_cluster()
        self._make_assets()
        self._run_workloads()
        for row in ("distributed", "trainings", "workspaces"):
            self.ids[f"{_WORKLOADS}/{row}"] = self.names[
                {"distributed": "done", "trainings": "alone", "workspaces": "desk"}[row]
            ]
        self.ids |= {
            _WORKLOADS: self.names["running"],
            "/api/v1/usage": self.names["running"],
            "/api/v1/runs": self.names["done"],
        }
        self.ids["/api/v1/workload-templates"] = self.ids["/api/v1/workload-templates/distributed"]
        self.ids["/api/v2/workloads"] = self.names["manifest"]
        self.ids["/api/v1/sweeps"] = world.made("/api/v1/sweeps", BODIES["SweepRequest"])["id"]
        address = f"/api/v1/org-unit/projects/{self.ids['/api/v1/org-unit/projects']}/notify"
        assert world.ask("PUT", address, BODIES["ProjectNotifyRequest"]).status_code == 200

    def _fill_cluster(self) -> None:
        world = self.world
        for name, gpus, labels in (("node-1", 4, {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40000"}),
                                   ("node-2", 0, {"kai.scheduler/node-pool": "a100"})):  # fmt: skip
            made = node(name, gpus)
            made["metadata"]["labels"] = labels
            world.create(kinds.NODE, made)
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "m",
                "lastTransitionTime": objects.timestamp(world.now),
            }
            address = {"type": "InternalIP", "address": "10.0.0.1"}
            world.set_status(kinds.NODE, "", name, {**made["status"], "conditions": [ready], "addresses": [address]})
        world.made("/api/v1/org-unit/departments", {"name": "research", "resources": [{"gpu": {"deserved": 3}}]})
        for name, gpus in (("team-a", 3), ("team-b", 1), ("empty", 0)):
            body = {
                "name": name,
                "parentId": "research",
                "description": "d",
                "resources": [{"gpu": {"deserved": gpus}, "cpu": {"deserved": 4000}}],
            }
            self.ids["/api/v1/org-unit/projects"] = world.made("/api/v1/org-unit/projects", body)["id"]
        self.ids["/api/v1/org-unit/departments"] = "research"
        world.made("/api/v1/users", {"name": "ana", "password": "long enough"})
        self.ids["/api/v1/users"] = "ana"
        rule = {
            "subjectId": "ana",
            "subjectType": "user",
            "roleName": "editor",
            "scopeType": "project",
            "scopeId": "team-a",
        }
        self.ids["/api/v1/authorization/access-rules"] = str(
            world.made("/api/v1/authorization/access-rules", rule)["id"]
        )
        world.settle(10)

    def _make_assets(self) -> None:
        """One of each kind that is made with a POST and shown by its id, except for workloads and sweeps."""
        shown = {path for _, path in OPERATIONS}
        for (method, path), operation in OPERATIONS.items():
            if (
                method != "POST"
                or f"{path}/{{id}}" not in shown
                or path in self.ids
                or "workloads" in path
                or "sweeps" in path
            ):
                continue
            body = {**BODIES[operation.body]}
            place = next((word for word in ("meta", "metadata") if word in body), "")
            own = path.rpartition("/")[2]
            body |= {place: {**body[place], "name": own}} if place else {"name": own}
            made = self.world.made(path, body)
            self.ids[path] = str(made.get(place or "meta", made).get("id"))
        for (method, path), operation in OPERATIONS.items():
            if method == "PUT" and operation.body == "PolicyRequest":
                assert self.world.ask("PUT", path, BODIES["PolicyRequest"]).status_code == 200, path

    # ------------------------------------------------------------ workloads

    def _submit(self, name: str, word: str = "distributed", spec: dict[str, Any] | None = None, **top: Any) -> str:
        sizes = {"numWorkers": 2} if word == "distributed" else {}
        body = {
            "name": name,
            "projectId": "team-a",
            "clusterId": CLUSTER,
            "spec": {"image": "i", "compute": SMALL, **sizes, **(spec or {})},
            **top,
        }
        self.names[name] = self.world.made(f"{_WORKLOADS}/{word}", body)["workloadId"]
        self.world.settle(10)
        return self.names[name]

    def _run_workloads(self) -> None:
        world, gpu = self.world, {"compute": {**SMALL, "gpuDevicesRequest": 1}}
        self._submit("gone", spec={"numWorkers": 1})
        world.run("gone")
        world.end("gone")
        self._write_logs("gone")
        self._submit("done", spec=FULL_SPEC, masterSpec={"image": "chief:1"})
        world.run("done")
        world.end("done")
        self._submit("crashed", spec={"restartPolicy": "Never"})
        world.run("crashed")
        world.end("crashed", code=1, pods=2)
        self._submit("stopped", spec=gpu)
        world.run("stopped")
        world.ask("POST", f"{_WORKLOADS}/distributed/{self.names['stopped']}/suspend?by=runai%20suspend")
        world.settle(10)
        world.reap("stopped")
        self._submit("running", spec=gpu)
        world.run("running")
        self._submit("queued", spec={"numWorkers": 3, "compute": {**SMALL, "gpuDevicesRequest": 1}})
        self._submit("elastic", spec={"minReplicas": 1, "maxReplicas": 2, "numWorkers": 2})
        for framework, more in (("TF", {}), ("MPI", {"slotsPerWorker": 2}), ("XGBoost", {}), ("JAX", {})):
            self._submit(framework.lower(), spec={"distributedFramework": framework, **more})
            world.run(framework.lower())
        self._submit(
            "share",
            spec={
                "numWorkers": 1,
                "compute": {**SMALL, "gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5},
            },
        )
        self._submit("alone", "trainings")
        world.run("alone")
        self._submit("desk", "workspaces")
        self._make_manifests()
        self._submit("leaving", spec={"numWorkers": 1})
        world.run("leaving")
        for name in ("gone", "leaving"):
            assert world.ask("DELETE", f"{_WORKLOADS}/distributed/{self.names[name]}").status_code == 202
        world.settle(10)
        for job in ("crashed", "running"):
            self._write_logs(job)
        for pod in world.pods_of("running"):
            sample = UsageSample(0.5, 1e6, 10.0, 20.0, gpu_utilization=50.0, gpu_memory_bytes=1e9)
            world.usage[objects.uid(pod)] = LatestUsage(
                world.now, sample, world.now - 90, 5.0, 1.0, 2.0, 3.0, 4.0, {"GPU-1": (50.0, 1e9)}
            )
        world.look()
        world.settle(60)
        world.look()

    def _make_manifests(self) -> None:
        world = self.world
        manifest = {key: value for key, value in OWN_JOB.items() if key != "metadata"}
        body = {"metadata": {"name": "manifest", "projectId": "team-a", "priority": "low"}, "manifest": manifest}
        self.names["manifest"] = world.made("/api/v2/workloads", body)["metadata"]["id"]
        world.settle(10)
        for name, job in (("by-kubectl", OWN_JOB), ("batch", BATCH_JOB), ("set", JOB_SET)):
            made = world.create(kinds.by_object(job), {**job, "metadata": {"name": name, "namespace": NAMESPACE}})
            self.names[name] = objects.uid(made)
            world.settle(10)
        world.run("batch")

    def _write_logs(self, job: str) -> None:
        for pod in self.world.pods_of(job):
            self.world.logs[objects.name(pod)] = [f"{line}\n".encode() for line in LINES]

    # ------------------------------------------------------------ requests

    def address(self, path: str) -> str:
        collection = path.partition("/{id}")[0]
        filled = (
            path.replace("{id}", self.ids.get(collection, ""))
            .replace("{pod}", "running-master-0")
            .replace("{pool}", "a100")
        )
        return paths_served(filled)[-1] + next(
            (query for ending, query in QUERIES.items() if path.endswith(ending)), ""
        )

    def asks(self) -> Iterator[Ask]:
        """Every request, in order: reads, reads that are refused, then writes."""
        rows = sorted(OPERATIONS.items(), key=lambda row: (ORDER.index(row[0][0]), -row[0][1].count("/")))
        reads = [(path, row) for (method, path), row in rows if method == "GET"]
        yield from (("GET", self.address(path), None) for path, _ in reads)
        yield from self._workload_reads()
        yield from self._list_reads(reads)
        for path, _ in reads:
            yield "GET", self.address(path).partition("?")[0] + "?nosuch=1", None
            if "{" in path:
                yield (
                    "GET",
                    paths_served(path.replace("{id}", "absent").replace("{pod}", "absent").replace("{pool}", "absent"))[
                        -1
                    ],
                    None,
                )
        yield from self._submits()
        for (method, path), row in rows:
            if method != "GET":
                yield from self._writes(method, path, row)

    def _workload_reads(self) -> Iterator[Ask]:
        for identity in self.names.values():
            for part in ("", "/pods", "/events", "/history", "/structure", "/explain", "/what-if", "/why", "/logs", "/logs?timestamps=true",
                         "/wait?timeout=0", "/wait?timeout=0&for=Running,Degraded"):  # fmt: skip
                yield "GET", f"{_WORKLOADS}/{identity}{part}", None
            for path in (
                f"{_WORKLOADS}/distributed",
                f"{_WORKLOADS}/trainings",
                f"{_WORKLOADS}/workspaces",
                "/api/v2/workloads",
                "/api/v1/runs",
            ):
                yield "GET", f"{path}/{identity}", None
        running = f"{_WORKLOADS}/{self.names['running']}"
        for query in (
            "tail=1",
            "tail=2&prefix=false",
            "sinceTime=2026-01-02T03:04:07Z",
            "limitBytes=20",
            "previous=true",
            "attempt=1",
            "tail=x",
            "follow=maybe",
        ):
            yield "GET", f"{running}/logs?{query}", None
            yield "GET", f"{running}/pods/running-worker-0/logs?{query}", None
        for pod in ("rank-0", "rank-1", "rank-9", "running-worker-1"):
            yield "GET", f"{running}/pods/{pod}/logs", None

    def _list_reads(self, reads: list[tuple[str, Operation]]) -> Iterator[Ask]:
        for query in ("filterBy=name==running", "filterBy=phase==Failed", "filterBy=phase!=Failed,projectName==team-a", "filterBy=nosuch==1", "filterBy=name",
                      "filterBy=phase==Nosuch", "sortBy=name&sortOrder=desc", "sortBy=nosuch", "search=UNN", "deleted=true", "sortBy=createdAt&limit=2&offset=1"):  # fmt: skip
            yield "GET", f"{_WORKLOADS}?{query}", None
            yield "GET", f"{_WORKLOADS}/pods?{query}", None
        for path, row in reads:
            if "{" not in path and {"offset", "limit"} <= set(row.query):
                for query in (
                    "limit=1",
                    "limit=1&offset=1",
                    "offset=x",
                    "limit=-1",
                    "search=a",
                    "sortBy=name",
                    "filterBy=name==a",
                ):
                    yield "GET", f"{self.address(path).partition('?')[0]}?{query}", None
        for metric in ("GPU_ALLOCATION", "CPU_REQUEST_CORES", "POD_COUNT", "RUNNING_POD_COUNT", "NOSUCH"):
            yield (
                "GET",
                f"{_WORKLOADS}/{self.names['running']}/metrics?metricType={metric}&start=2026-01-02T03:04:05Z&end=2026-01-02T04:04:05Z&numberOfSamples=3",
                None,
            )

    def _submits(self) -> Iterator[Ask]:
        """Submits that are shown, and those that are refused."""
        top = {"projectId": "team-a", "clusterId": CLUSTER}
        for framework in ("PyTorch", "TF", "MPI", "XGBoost", "JAX"):
            body = {"name": "shown", **top, "spec": {"image": "i", "numWorkers": 2, "distributedFramework": framework}}
            yield "POST", f"{_WORKLOADS}/distributed?dryRun=true", body
        yield (
            "POST",
            f"{_WORKLOADS}/distributed?dryRun=true",
            {"name": "shown", **top, "spec": {**FULL_SPEC, "numWorkers": 1}},
        )
        for spec in ({}, {"image": "i", "numWorkers": -1}, {"image": "i", "numWorkers": 100_000}, {"image": "i", "nosuch": 1}, {"image": "i", "numWorker": 1},
                     {"image": "i", "compute": {"gpuDevicesRequest": 9}}, {"image": "i", "compute": {"gpuPortionRequest": 2}}, {"image": "i", "imagePullPolicy": "Maybe"},
                     {"image": "i", "environmentVariables": [{"name": "a b", "value": "c"}]}, {"image": "i", "labels": [{"name": "a/b/c", "value": ""}]},
                     {"image": "i", "storage": {"dataVolume": []}}, {"image": "i", "terminateAfterPreemption": True}, {"image": 1}):  # fmt: skip
            yield "POST", f"{_WORKLOADS}/distributed", {"name": "refused", **top, "spec": spec}
        for changed in (
            {"name": "running"},
            {"name": "Not A Name"},
            {"projectId": "absent"},
            {"clusterId": "absent"},
            {"projectId": ""},
            {"nosuch": 1},
        ):
            yield "POST", f"{_WORKLOADS}/distributed", {"name": "refused", **top, "spec": {"image": "i"}, **changed}
        yield "POST", f"{_WORKLOADS}/distributed?dryRun=maybe", {"name": "refused", **top, "spec": {"image": "i"}}
        yield (
            "POST",
            f"{_WORKLOADS}/distributed",
            {"name": "prefix", "useGivenNameAsPrefix": True, **top, "spec": {"image": "i"}},
        )

    def _writes(self, method: str, path: str, row: Operation) -> Iterator[Ask]:
        address, body = self.address(path), BODIES[row.body] if row.body else None
        if isinstance(body, dict) and "name" in body:
            body = {**body, "name": f"new-{path.count('s')}{len(path)}"}
        elif isinstance(body, dict) and method == "POST" and "credentials" in path:
            body = {**body, "meta": {**body["meta"], "name": f"new-{path.rpartition('/')[2]}"}}
        if row.body:
            yield method, address, []
            yield method, address, {"nosuch": 1}
        yield method, address.partition("?")[0] + "?nosuch=1", body
        if "{id}" in path:
            yield method, paths_served(path.replace("{id}", "absent"))[-1], body
        yield method, address, body
        if method in ("POST", "DELETE"):
            yield method, address, body
