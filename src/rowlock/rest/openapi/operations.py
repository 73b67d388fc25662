"""The request and answer of each route: `(method, path)` → query parameters, body, answer, status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rowlock.workloads.assets.asset_kinds import ASSET_KINDS
from rowlock.workloads.assets.credentials import CREDENTIAL_KINDS

LIST = ("filterBy", "sortBy", "sortOrder", "search", "offset", "limit")
_LOGS = (
    "follow",
    "tail",
    "tailLines",
    "since",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "previous",
    "container",
    "limitBytes",
    "prefix",
    "attempt",
)
_RULE_FILTERS = ("subjectType", "subjectIdFilter", "subjectIds", "lastUpdated", "includeDeleted", "clusterId", "scopeType",
                 "scopeId", "roleId")  # fmt: skip
_ASSET_FILTERS = ("name", "scope", "projectId", "departmentId", "clusterId", "complyToProject")
_TELEMETRY = ("telemetryType", "clusterId", "nodepoolName", "groupBy")
_SAMPLES = ("metricType", "start", "end", "numberOfSamples")


class Operation(NamedTuple):
    """Request and answer of a route. `answer` and `body` are names of schemas; "text" means a stream of lines, "" an empty
    one."""

    answer: str
    code: int = 200
    body: str = ""
    query: tuple[str, ...] = ()


def _workload_operations() -> Iterator[tuple[str, str, Operation]]:
    base = "workloads"
    for word, request, answer in (
        ("distributed", "DistributedCreationRequest", "DistributedWorkload"),
        ("trainings", "StandardCreationRequest", "StandardWorkload"),
        ("workspaces", "StandardCreationRequest", "StandardWorkload"),
    ):
        yield "POST", f"{base}/{word}", Operation(answer, 202, request, ("dryRun",))
        yield "GET", f"{base}/{word}/{{id}}", Operation(answer)
        yield "DELETE", f"{base}/{word}/{{id}}", Operation("Accepted", 202, query=("force", "by"))
        yield "POST", f"{base}/{word}/{{id}}/suspend", Operation("Accepted", 202, query=("by",))
        yield "POST", f"{base}/{word}/{{id}}/resume", Operation("Accepted", 202)
    yield "POST", f"{base}/batch", Operation("Batch", 200, "BatchRequest")
    for word in ("pods", "pods/count"):
        query = (*LIST, "deleted", "verbosity", "completed")
        yield "GET", f"{base}/{word}", Operation("Count" if "count" in word else "Pods", query=query)
    yield "GET", base, Operation("Workloads", query=(*LIST, "deleted"))
    yield "GET", f"{base}/count", Operation("Count", query=(*LIST, "deleted"))
    yield "GET", f"{base}/telemetry", Operation("Telemetry", query=(*_TELEMETRY, "departmentId", "filterByPhases"))
    of_one: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("", "WorkloadDetailed", ()), ("/pods", "Pods", (*LIST, "deleted")), ("/events", "Events", LIST),
        ("/history", "History", LIST), ("/metrics", "Metrics", _SAMPLES), ("/pods/{pod}/metrics", "Metrics", _SAMPLES), ("/structure", "Structure", ()),
        ("/explain", "Explanation", ()), ("/what-if", "WhatIf", ()), ("/why", "Diagnosis", ()),
        ("/wait", "AwaitedWorkload", ("for", "timeout")), ("/logs", "text", _LOGS), ("/pods/{pod}/logs", "text", (*_LOGS, "localRank")),
    )  # fmt: skip
    for word, answer, parameters in of_one:
        yield "GET", f"{base}/{{id}}{word}", Operation(answer, query=parameters)
    yield "GET", "usage", Operation("Usage", query=("project",))
    yield "GET", "usage/{id}", Operation("WorkloadUsage")
    yield "GET", "hours", Operation("UsageHours", query=("by", "since", "project", "limit"))
    yield (
        "GET",
        "runs",
        Operation("Runs", query=("project", "name", "phase", "since", "tag", "search", "favourite", "limit", "offset")),
    )
    yield "GET", "runs/{id}", Operation("Run")
    yield "PATCH", "runs/{id}", Operation("RunHeader", 200, "RunMarks")
    yield "GET", "runs/{id}/curves", Operation("Curves", query=("rank", "points"))
    yield "GET", "runs/{id}/event-files", Operation("EventFiles")


def _sweep_operations() -> Iterator[tuple[str, str, Operation]]:
    yield "GET", "sweeps", Operation("Sweeps", query=("project", "name"))
    yield "POST", "sweeps", Operation("Sweep", 202, "SweepRequest", ("dryRun",))
    yield "GET", "sweeps/{id}", Operation("SweepDetailed", query=("metric", "order"))
    yield "DELETE", "sweeps/{id}", Operation("Accepted", 202)
    yield "POST", "sweeps/{id}/stop", Operation("Accepted", 202, query=("now",))
    yield "POST", "sweeps/{id}/resume", Operation("Accepted", 202)


def _organisation_operations() -> Iterator[tuple[str, str, Operation]]:
    for word, name, more in (
        ("org-unit/projects", "Project", ("verbosity", "memoryUnitMb")), ("org-unit/departments", "Department", ("verbosity",)),
    ):  # fmt: skip
        query = (*LIST, *more)
        yield "GET", word, Operation(f"{name}s", query=query)
        yield "POST", word, Operation(name, 201, f"{name}Request")
        yield "GET", f"{word}/count", Operation("Count", query=query)
        yield "GET", f"{word}/telemetry", Operation("Telemetry", query=(*_TELEMETRY, "nodepoolId", "departmentId"))
        yield "GET", f"{word}/{{id}}/metrics", Operation("Metrics", query=(*_SAMPLES, "nodepoolName"))
        yield "GET", f"{word}/{{id}}", Operation(name)
        yield "PUT", f"{word}/{{id}}", Operation(name, body="ProjectUpdate")
        yield "DELETE", f"{word}/{{id}}", Operation("Accepted", 202)
        for method in ("PUT", "PATCH"):
            yield method, f"{word}/{{id}}/resources", Operation(name, body="ResourcesRequests")
    yield "GET", "org-unit/projects/{id}/pods/{pod}/explain", Operation("PodExplanation")
    yield "GET", "org-unit/projects/{id}/notify", Operation("ProjectNotify")
    yield "PUT", "org-unit/projects/{id}/notify", Operation("ProjectNotify", body="ProjectNotifyRequest")
    yield "DELETE", "org-unit/projects/{id}/notify", Operation("ProjectNotify")
    yield "POST", "org-unit/projects/{id}/notify/test", Operation("NotifyTrial")
    yield "GET", "org-unit/priorities", Operation("Ranks")
    yield "POST", "applications", Operation("NewApplication", 201, "ApplicationRequest")
    yield "GET", "applications", Operation("Applications")
    yield "DELETE", "applications/{id}", Operation("Accepted", 202)


def _account_operations() -> Iterator[tuple[str, str, Operation]]:
    yield "GET", "users", Operation("Users", query=(*LIST, "filter"))
    yield "POST", "users", Operation("User", 201, "UserRequest")
    yield "GET", "users/count", Operation("Count", query=LIST)
    yield "GET", "users/{id}", Operation("User")
    yield "DELETE", "users/{id}", Operation("Accepted", 202)
    yield "POST", "users/{id}/password", Operation("User")
    yield "PUT", "users/{id}/password", Operation("User", body="PasswordRequest")
    yield "POST", "users/{id}/logout", Operation("Accepted", 202)
    yield "GET", "me", Operation("Me")
    yield "POST", "me/password", Operation("Accepted", 202, "OwnPasswordRequest")
    own = "me/credentials"
    yield "GET", own, Operation("UserCredentials", query=("type",))
    yield "POST", own, Operation("UserCredential", 202, "UserCredentialRequest")
    yield "GET", f"{own}/{{id}}", Operation("UserCredential")
    yield "PUT", f"{own}/{{id}}", Operation("UserCredential", 202, "UserCredentialUpdate")
    yield "DELETE", f"{own}/{{id}}", Operation("Accepted", 202)
    yield "GET", "authorization/roles", Operation("Roles")
    yield "GET", "authorization/roles/{id}", Operation("Role")
    yield "GET", "authorization/me/access-rules", Operation("MyAccessRules", query=(*LIST, *_RULE_FILTERS))
    yield "GET", "authorization/me/access-rules/count", Operation("Count", query=(*LIST, *_RULE_FILTERS))
    yield "GET", "authorization/access-rules", Operation("AccessRules", query=(*LIST, *_RULE_FILTERS))
    yield "POST", "authorization/access-rules", Operation("AccessRule", 201, "AccessRuleRequest")
    yield "GET", "authorization/access-rules/count", Operation("Count", query=(*LIST, *_RULE_FILTERS))
    yield "GET", "authorization/access-rules/{id}", Operation("AccessRule")
    yield "DELETE", "authorization/access-rules/{id}", Operation("Accepted", 202)


def _inventory_operations() -> Iterator[tuple[str, str, Operation]]:
    cluster_query = ("verbosity", "includeRequestedForDelete")
    yield "GET", "clusters", Operation("Clusters", query=cluster_query)
    yield "GET", "clusters/{id}", Operation("Cluster", query=cluster_query)
    yield "GET", "clusters/{id}/nodes", Operation("Nodes", query=(*LIST, "nodeName"))
    yield "GET", "clusters/{id}/nodes/count", Operation("Count", query=LIST)
    yield "GET", "nodes", Operation("Nodes", query=LIST)
    yield "GET", "nodes/count", Operation("Count", query=LIST)
    yield "GET", "nodes/telemetry", Operation("Telemetry", query=_TELEMETRY)
    yield "GET", "nodes/{id}/metrics", Operation("Metrics", query=_SAMPLES)
    yield "GET", "clusters/{id}/metrics", Operation("Metrics", query=(*_SAMPLES, "groupBy", "nodepoolName"))
    yield "GET", "clusters/{id}/nodepools/{pool}/metrics", Operation("Metrics", query=_SAMPLES)
    yield "GET", "node-pools", Operation("NodePools", query=LIST)
    yield "POST", "node-pools", Operation("NodePool", 201, "NodePoolRequest")
    yield "GET", "node-pools/count", Operation("Count", query=LIST)
    yield "GET", "node-pools/{id}", Operation("NodePool")
    for method in ("PUT", "PATCH"):
        yield method, "node-pools/{id}", Operation("NodePool", body="NodePoolUpdate")
    yield "DELETE", "node-pools/{id}", Operation("Accepted", 202)
    yield "GET", "scheduler/snapshot", Operation("Snapshot")
    yield "POST", "scheduler/what-if", Operation("Outcomes", body="Manifests")
    yield "POST", "notify/test", Operation("NotifyTrial", body="NotifyTest")
    yield "POST", "scheduler/quota-what-if", Operation("QuotaOutcome", body="QuotaTrial")
    yield "GET", "scheduler/cards", Operation("Cards")
    yield "GET", "scheduler/nodes", Operation("Allocations")
    yield "GET", "scheduler/queue", Operation("WaitingOrder")
    yield "POST", "scheduler/queue/move", Operation("MovedGang", body="QueueMove")
    yield "POST", "check", Operation("CheckResults", body="Manifests")
    yield "GET", "drain/pods", Operation("EndingPods")
    yield "POST", "drain", Operation("Accepted", 202, query=("seconds",))
    for word, answer in (
        ("workload-priorities", "Priorities"),
        ("workload-types", "WorkloadTypes"),
        ("workload-categories", "Categories"),
    ):
        yield "GET", word, Operation(answer)
    yield "GET", "openapi.json", Operation("OpenAPI")


def _asset_operations() -> Iterator[tuple[str, str, Operation]]:
    yield "GET", "asset/credentials", Operation("CredentialsOfAllKinds", query=_ASSET_FILTERS)
    for credential in CREDENTIAL_KINDS:
        path, word = f"asset/credentials/{credential.path}", credential.kind
        yield "GET", path, Operation(f"{word}Credentials", query=_ASSET_FILTERS)
        yield "POST", path, Operation(f"{word}Credential", 202, f"{word}Request")
        yield "GET", f"{path}/{{id}}", Operation(f"{word}Credential")
        yield "PUT", f"{path}/{{id}}", Operation(f"{word}Credential", 202, f"{word}Update")
        yield "DELETE", f"{path}/{{id}}", Operation("Accepted", 202)
    yield "GET", "asset/datasource", Operation("Assets", query=_ASSET_FILTERS)
    for row in ASSET_KINDS:
        path = f"asset/{row.path}"
        yield "GET", path, Operation("Assets", query=_ASSET_FILTERS)
        yield "POST", path, Operation("Asset", 202, f"{row.kind}Request")
        yield "GET", f"{path}/{{id}}", Operation("Asset")
        yield "PUT", f"{path}/{{id}}", Operation("Asset", 202, "AssetUpdate")
        yield "DELETE", f"{path}/{{id}}", Operation("Accepted", 202)
    base = "workload-templates"
    yield "GET", base, Operation("Templates", query=LIST)
    yield "GET", f"{base}/count", Operation("Count", query=LIST)
    yield "GET", f"{base}/name-availability", Operation("Availability", query=("templateName", "scopeType", "scopeId"))
    yield "GET", f"{base}/{{id}}", Operation("Template")
    for word in ("distributed", "trainings", "workspaces"):
        yield "GET", f"{base}/{word}", Operation("Templates", query=LIST)
        yield "POST", f"{base}/{word}", Operation("Template", 202, "TemplateRequest")
        yield "GET", f"{base}/{word}/{{id}}", Operation("Template")
        for method in ("PUT", "PATCH"):
            yield method, f"{base}/{word}/{{id}}", Operation("Template", 202, "TemplateUpdate")
        yield "DELETE", f"{base}/{word}/{{id}}", Operation("Accepted", 202)


def _manifest_operations() -> Iterator[tuple[str, str, Operation]]:
    yield "POST", "v2/workloads", Operation("ManifestWorkload", 202, "ManifestRequest")
    yield "GET", "v2/workloads/{id}", Operation("SyncedWorkload")
    yield "PUT", "v2/workloads/{id}", Operation("ManifestWorkload", 202, "ManifestUpdate")
    yield "DELETE", "v2/workloads/{id}", Operation("Accepted", 202)


def _policy_operations() -> Iterator[tuple[str, str, Operation]]:
    place = ("scope", "projectId", "departmentId", "clusterId")
    yield "GET", "v2/policy", Operation("Policies", query=("workloadType", "includeFallbackPolicies", *place))
    for word in ("distributed", "training", "workspace"):
        yield "GET", f"v2/policy/{word}", Operation("Policy", query=place)
        for method in ("PUT", "PATCH"):
            query = ("validateOnly", "approveClusterDeletion")
            yield method, f"v2/policy/{word}", Operation("Policy", 200, "PolicyRequest", query)
        yield "DELETE", f"v2/policy/{word}", Operation("", 204, query=(*place, "approveClusterDeletion"))


OPERATIONS: dict[tuple[str, str], Operation] = {
    (method, f"/api/v2/{path[3:]}" if path.startswith("v2/") else f"/api/v1/{path}"): operation
    for rows in (
        _workload_operations(),
        _sweep_operations(),
        _organisation_operations(),
        _account_operations(),
        _inventory_operations(),
        _asset_operations(),
        _policy_operations(),
        _manifest_operations(),
    )
    for method, path, operation in rows
}
"""Every route of `routes.py` must have an entry; a test names missing ones."""
