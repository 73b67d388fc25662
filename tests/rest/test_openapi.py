"""Every route answers as its schema says, no more and no less; what no route knows is refused in Run:ai's shape."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, get_args

import pytest
from tests.rest.conftest import CLUSTER, World

from rowlock import kinds, objects
from rowlock.answers.cluster import OvertimeData, RangeMeans
from rowlock.answers.workloads import Phase
from rowlock.rest.openapi.document import SCHEMAS
from rowlock.rest.openapi.operations import OPERATIONS
from rowlock.rest.routes import ROUTES, paths_served
from rowlock.workloads.figures.overtime import FIGURES, RANGES
from rowlock.workloads.phase import V1_STATUSES

# ---------------------------------------------------------------- schemas

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,), "array": (list,),
    "null": (type(None),),
}  # fmt: skip


def mistakes(value: Any, schema: dict[str, Any], place: str = "$") -> list[str]:
    """Where a value is not as its schema says. A field that a record does not name is one, too."""
    if "$ref" in schema:
        return mistakes(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], place)
    if "anyOf" in schema:
        found = [mistakes(value, one, place) for one in schema["anyOf"]]
        return [] if [] in found else found[0]
    wanted = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    fitting = [
        one for one in wanted if isinstance(value, TYPES[one]) and (one == "boolean" or not isinstance(value, bool))
    ]
    if wanted and not fitting:
        return [f"{place}: {value!r} is no {' or '.join(wanted)}"]
    if value is None:
        return []
    found_here = [] if value in schema.get("enum", [value]) else [f"{place}: {value!r} is none of {schema['enum']}"]
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            found_here.append(f"{place}: {value!r} is no time")
    for number, item in enumerate(value if "items" in schema else ()):
        found_here += mistakes(item, schema["items"], f"{place}[{number}]")
    if known := schema.get("properties"):
        found_here += [f"{place}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        found_here += [f"{place}: nobody knows {name}" for name in value if name not in known]
        for name in known.keys() & value.keys():
            found_here += mistakes(value[name], known[name], f"{place}.{name}")
    return found_here


@pytest.mark.parametrize(
    ("value", "schema", "count"),
    [
        ({"code": 1, "message": "m", "details": ""}, {"$ref": "#/components/schemas/Error"}, 0),
        ({"code": "1", "message": "m", "more": 1}, {"$ref": "#/components/schemas/Error"}, 3),
        (True, {"type": "integer"}, 1),
        ("soon", {"type": ["string", "null"], "format": "date-time"}, 1),
        ([1, "x"], {"type": "array", "items": {"type": "integer"}}, 1),
        ("c", {"type": "string", "enum": ["a", "b"]}, 1),
    ],
)
def test_the_check_finds_mistakes(value: Any, schema: dict[str, Any], count: int) -> None:
    assert len(mistakes(value, schema)) == count


def test_a_field_that_a_switch_spells_too_has_the_type_of_its_value() -> None:
    """`--command` says that the words after `--` are one; over REST it is those words."""
    assert [SCHEMAS[name]["properties"]["command"]["type"] for name in ("DistributedSpec", "MasterSpec")] == [
        ["string", "array"]
    ] * 2


def test_the_words_of_phases_and_ranges_are_those_of_the_answers() -> None:
    assert set(get_args(Phase)) == {*V1_STATUSES, "Deleted"}
    assert list(OvertimeData.__annotations__) == list(RANGES)
    assert list(RangeMeans.__annotations__) == [*FIGURES, "updatedAt"]


# ---------------------------------------------------------------- every route

SUBMIT = {"projectId": "team-a", "clusterId": CLUSTER, "spec": {"image": "i"}}
META, TEMPLATE_META = {"name": "new", "scope": "cluster"}, {"name": "new", "scopeType": "cluster"}
IN_PROJECT = {"name": "new", "scope": "project", "projectId": "team-a"}
CREDENTIALS: dict[str, Any] = {
    "accessKey": {"accessKeyId": "i", "secretAccessKey": "s"}, "password": {"user": "u", "password": "s"},
    "dockerRegistry": {"user": "u", "password": "s", "url": "registry.test"},
    "genericSecret": {"keyValuePairs": [{"key": "k", "value": "v"}]}, "ngcApiKey": {"ngc_api_key": "k"},
}  # fmt: skip
QUOTA = [{"gpu": {"deserved": 1}, "priority": "high"}]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "a", "image": "b"}]},
}
JOB = {
    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
    "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}}},
}  # fmt: skip
BODIES: dict[str, Any] = {
    "RunMarks": {"tags": ["paper"], "note": "the first that learned", "favourite": True},
    "ManifestRequest": {"metadata": {"name": "manifest", "projectId": "team-a"}, "manifest": JOB},
    "ManifestUpdate": {"metadata": {"priority": "low"}},
    "DistributedCreationRequest": {**SUBMIT, "name": "dist"}, "StandardCreationRequest": {**SUBMIT, "name": "alone"},
    "SweepRequest": {"name": "sweep", "parameters": {"lr": "0.1,0.2"}, "workload": {**SUBMIT, "spec": {"image": "i", "command": "train {lr}"}}},
    "BatchRequest": {"ids": ["none"], "action": "delete"}, "ResourcesRequests": QUOTA,
    "ProjectRequest": {"name": "new", "resources": QUOTA}, "ProjectUpdate": {"description": "x", "resources": QUOTA},
    "DepartmentRequest": {"name": "new", "resources": QUOTA},
    "NodePoolRequest": {"name": "new", "labelKey": "rack", "labelValue": "b"}, "NodePoolUpdate": {},
    "environmentRequest": {"meta": META, "spec": {"image": "i"}}, "computeRequest": {"meta": META, "spec": {"cpuCoreRequest": 1}},
    "pvcRequest": {"meta": META, "spec": {"path": "/d", "existingPvc": True, "claimName": "d"}},
    "hostPathRequest": {"meta": META, "spec": {"path": "/d", "mountPath": "/d"}},
    "gitRequest": {"meta": META, "spec": {"repository": "r", "path": "/d"}},
    "nfsRequest": {"meta": META, "spec": {"server": "nas", "path": "/d", "mountPath": "/d"}},
    "s3Request": {"meta": META, "spec": {"bucket": "b", "path": "/d"}},
    "secret-volumeRequest": {"meta": META, "spec": {"credentialAssetId": "generic-secret", "mountPath": "/d"}},
    **{f"{kind}Request": {"meta": IN_PROJECT, "spec": spec} for kind, spec in CREDENTIALS.items()},
    **{f"{kind}Update": {"meta": {"description": "x"}, "spec": spec} for kind, spec in CREDENTIALS.items()},
    "config-mapRequest": {"meta": META, "spec": {"configMap": "c", "mountPath": "/d"}},
    "AssetUpdate": {"meta": {"name": "changed"}}, "TemplateRequest": {"meta": TEMPLATE_META, "spec": {"image": "i"}},
    "TemplateUpdate": {"meta": {"name": "changed"}, "spec": {"image": "j"}}, "ApplicationRequest": {"name": "new"},
    "PolicyRequest": {"meta": {"name": "p", "scope": "tenant"}, "policy": {"rules": {}}},
    "UserRequest": {"name": "new", "password": "long enough"}, "PasswordRequest": {"password": "long enough"},
    "OwnPasswordRequest": {"currentPassword": "long enough", "newPassword": "longer than that"},
    "AccessRuleRequest": {"subjectId": "new", "subjectType": "user", "roleId": 4, "scopeType": "cluster"},
    "Manifests": {"objects": [POD], "project": "team-a"},
    "UserCredentialRequest": {"name": "new", "type": "password", "spec": CREDENTIALS["password"]},
    "UserCredentialUpdate": {"description": "x"},
    "NotifyTest": {"projectId": "team-a", "notify": {"url": "http://127.0.0.1:9/", "on": ["failed"]}},
    "ProjectNotifyRequest": {"url": "http://127.0.0.1:9/T0-secret", "on": ["failed"]},
    "QueueMove": {"workloadId": "no-such-workload", "place": "first"},
    "QuotaTrial": {"projects": [{"id": "team-a", "gpuQuota": 2}]},
}  # fmt: skip
"""A request's schema and a request as it says."""
SPAN = "start=2026-01-02T03:04:05Z&end=2090-01-02T03:04:05Z"
QUERIES = {
    "/org-unit/projects/{id}/metrics": f"?metricType=GPU_QUOTA&{SPAN}",
    "/org-unit/departments/{id}/metrics": f"?metricType=GPU_QUOTA&{SPAN}",
    "/nodes/{id}/metrics": f"?metricType=CPU_USAGE_CORES&{SPAN}",
    "/clusters/{id}/metrics": f"?metricType=TOTAL_GPU&{SPAN}",
    "/nodepools/{pool}/metrics": f"?metricType=TOTAL_GPU&{SPAN}",
    "/projects/telemetry": "?telemetryType=GPU_QUOTA",
    "/departments/telemetry": "?telemetryType=GPU_QUOTA",
    "/workloads/telemetry": "?telemetryType=WORKLOADS_COUNT",
    "/pods/{pod}/metrics": f"?metricType=CPU_USAGE_CORES&{SPAN}",
    "/metrics": f"?metricType=POD_COUNT&{SPAN}",
    "/wait": "?timeout=0&for=Creating",
    "/telemetry": "?telemetryType=TOTAL_GPUS",
    "name-availability": "?templateName=x",
    "/drain": "?seconds=1",
}
ABSENT = {"/api/v1/scheduler/snapshot": 409, "/api/v1/scheduler/what-if": 409, "/api/v1/scheduler/quota-what-if": 409, "/api/v1/scheduler/queue/move": 409,
          "/api/v1/drain": 405, "/api/v1/drain/pods": 405,
          "/api/v1/workloads/{id}/pods/{pod}/metrics": 207, "/api/v1/nodes/{id}/metrics": 207}  # fmt: skip
"""What a server without a scheduler, or with a cluster that is somebody else's, has not; 207: nobody measures pods."""


ORDER = ["GET", "POST", "PUT", "PATCH", "DELETE"]
ROWS = sorted(OPERATIONS.items(), key=lambda row: (ORDER.index(row[0][0]), -row[0][1].count("/")))
"""Nothing is deleted before everybody has looked at it."""


class Filled:
    """A world with one of everything; `ids` has what `{id}` stands for below a path."""

    def __init__(self, world: World) -> None:
        self.world, self.ids = world, {"/api/v1/clusters": CLUSTER}
        for name in ("kube-public", "kube-system"):
            world.create(kinds.NAMESPACE, {"metadata": {"name": name}})
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "r",
            "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        for name, labels in (("node-9", {"kai.scheduler/node-pool": "a100"}), ("node-8", {"rack": "b"})):
            status = {"conditions": [ready], "allocatable": {"nvidia.com/gpu": "1"}}
            spec = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
            world.create(kinds.NODE, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})
        self.ids |= {"/api/v1/node-pools": "a100", "/api/v1/nodes": "node-9"}
        world.project()
        self.ids["/api/v1/org-unit/projects"] = empty = world.project("empty")["id"]
        address = f"/api/v1/org-unit/projects/{empty}/notify"
        assert world.client.put(address, json=BODIES["ProjectNotifyRequest"]).status_code == 200
        assert world.client.post("/api/v1/users", json={"name": "ana", "password": "long enough"}).status_code == 201
        rule = {
            "subjectId": "ana",
            "subjectType": "user",
            "roleName": "editor",
            "scopeType": "project",
            "scopeId": "team-a",
        }
        made_rule = world.client.post("/api/v1/authorization/access-rules", json=rule)
        self.ids |= {
            "/api/v1/authorization/access-rules": str(made_rule.json()["id"]),
            "/api/v1/authorization/roles": "4",
        }
        creations = [
            (p, o) for (m, p), o in OPERATIONS.items() if m == "POST" and f"{p}/{{id}}" in {q for _, q in OPERATIONS}
        ]
        for path, operation in creations:
            if path not in self.ids:
                body = {**BODIES[operation.body]}
                own = path.rpartition("/")[2] if "credentials" in path else "made"
                place = next((word for word in ("meta", "metadata") if word in body), "")
                body |= {place: {**body[place], "name": own}} if place else {"name": f"made-{len(self.ids)}"}
                answer = world.client.post(path, json=body)
                assert answer.status_code == operation.code, (path, answer.text)
                made = answer.json()
                self.ids[path] = made.get(place or "meta", made).get("id") or made["workloadId"]
        for (method, path), operation in OPERATIONS.items():
            if method == "PUT" and operation.body == "PolicyRequest":
                assert world.client.put(path, json=BODIES["PolicyRequest"]).status_code == 200, path
        self.ids["/api/v1/workloads"] = self.ids["/api/v1/workloads/distributed"]
        self.ids["/api/v1/usage"] = self.ids["/api/v1/workloads"]
        self.ids["/api/v1/runs"] = self.ids["/api/v1/workloads"]
        self.ids["/api/v1/workload-templates"] = self.ids["/api/v1/workload-templates/distributed"]
        self._make_pod()

    def _make_pod(self) -> None:
        """A pod of the distributed workload, that runs and has said something, and an event about it."""
        (job,) = [
            one
            for one in self.world.store.view.all(kinds.PYTORCHJOB)
            if objects.labels(one)["rowlock.dev/workload-id"] == self.ids["/api/v1/workloads"]
        ]
        owner = {**objects.owner_reference(job), "controller": True}
        labels = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
        meta = {"name": "pod-1", "namespace": "runai-team-a", "ownerReferences": [owner], "labels": labels}
        spec = {"nodeName": "node-1", "containers": [{"name": "pytorch", "image": "i"}], "tolerations": [{"key": "k"}]}
        self.world.create(kinds.POD, {"metadata": meta, "spec": spec})
        state = {
            "name": "pytorch",
            "image": "i",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
        }
        self.world.patch(
            kinds.POD, "runai-team-a", "pod-1", {"status": {"phase": "Running", "containerStatuses": [state]}}, "status"
        )
        self.world.logs["pod-1"] = [b"2026-01-02T03:04:05.000000000Z hello\n"]
        about = {"kind": "PyTorchJob", "name": objects.name(job), "namespace": "runai-team-a", "uid": objects.uid(job)}
        event = {
            "metadata": {"name": "e", "namespace": "runai-team-a"},
            "involvedObject": about,
            "reason": "R",
            "message": "m",
        }
        self.world.create(kinds.EVENT, {**event, "type": "Warning", "lastTimestamp": "2026-01-02T03:04:05Z"})

    def address(self, path: str) -> str:
        path = path.replace("projects/{id}/pods", "projects/team-a/pods")  # that of the pod
        found = re.match(r"(.*?)/\{id\}", path)
        filled = (
            path.replace("{id}", self.ids[found[1]] if found else "")
            .replace("{pod}", "pod-1")
            .replace("{pool}", "a100")
        )
        return paths_served(filled)[-1] + next((q for ending, q in QUERIES.items() if path.endswith(ending)), "")


def test_every_route_answers_as_its_schema_says(world: World) -> None:
    assert {(method, path) for method, path, _, _ in ROUTES} == set(OPERATIONS)
    filled = Filled(world)
    said: list[str] = []
    for (method, path), operation in ROWS:
        if path.endswith("/suspend") or path.endswith("/resume"):
            assert operation.answer == "Accepted"
        body = BODIES[operation.body] if operation.body else None
        if isinstance(body, dict) and "name" in body:
            body = {**body, "name": f"new-{path.count('s')}{len(path)}"}
        elif isinstance(body, dict) and method == "POST" and "credentials" in path:
            body = {**body, "meta": {**body["meta"], "name": f"new-{path.rpartition('/')[2]}"}}
        answer = world.client.request(method, filled.address(path), json=body)
        expected = ABSENT.get(path, operation.code)
        assert answer.status_code == expected, (method, path, answer.text)
        if expected >= 400:
            said += [f"{method} {path} {one}" for one in mistakes(answer.json(), SCHEMAS["Error"])]
        elif not operation.answer:
            assert answer.content == b"", path
        elif operation.answer == "text":
            assert "hello" in answer.text, path
        else:
            said += [f"{method} {path} {one}" for one in mistakes(answer.json(), SCHEMAS[operation.answer])]
    assert said == []


def test_no_route_ignores_a_parameter(world: World) -> None:
    """An unknown parameter is refused by every route; those that it knows are in the document."""
    filled = Filled(world)
    for (method, path), operation in ROWS:
        address = filled.address(path).partition("?")[0]
        answer = world.client.request(method, f"{address}?nosuch=1", json=BODIES.get(operation.body))
        assert answer.status_code == 400 and "'nosuch'" in answer.json()["message"], (method, path, answer.text)
        assert mistakes(answer.json(), SCHEMAS["Error"]) == []
        for name in operation.query:
            answer = world.client.request(method, f"{address}?{name}=", json=BODIES.get(operation.body))
            assert "no query parameter" not in answer.text, (method, path, name, answer.text)


@pytest.mark.parametrize("body", [[], "x", 1, None, {"nosuch": 1}])
def test_no_route_takes_a_body_that_is_none(world: World, body: Any) -> None:
    """A body of another type, or with a field that nobody knows, is refused in Run:ai's shape; nothing breaks."""
    filled = Filled(world)
    for (method, path), operation in OPERATIONS.items():
        if not operation.body:
            continue
        answer = world.client.request(method, filled.address(path), json=body)
        assert answer.status_code in (400, ABSENT.get(path)), (method, path, body, answer.text)
        assert mistakes(answer.json(), SCHEMAS["Error"]) == [], (method, path, body)


def test_the_document(world: World) -> None:
    document = world.client.get("/api/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0" and document["servers"] == [{"url": "/runai"}]
    listed = document["paths"]["/api/v1/workloads"]["get"]
    assert (
        listed["x-kubernetes-right"] == "list the job's kind"
        and listed["summary"] == "Run:ai's list, filtered, sorted and paged"
    )
    spec = document["components"]["schemas"]["DistributedSpec"]["properties"]
    assert (
        spec["numWorkers"]["type"] == "integer"
        and spec["compute"]["properties"]["gpuPortionRequest"]["type"] == "number"
    )
    assert "dataVolume" not in spec["storage"]["properties"], "what is refused is not offered"
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', world.client.get("/api/v1/openapi.json").text))
    assert references <= set(document["components"]["schemas"])
    assert all(one["responses"] for path in document["paths"].values() for one in path.values())
    silent = [name for name, path in document["paths"].items() for one in path.values() if not one.get("summary")]
    assert silent == ["/api/v1/token"]
