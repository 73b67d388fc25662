"""The table of routes: method, path, required Kubernetes right, endpoint. Literal paths come before those with a
parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock import kinds
from rowlock.rest import applications, draining, manifest_check, projects, scheduler, workloads
from rowlock.rest.accounts import access_rules, user_credentials, users
from rowlock.rest.assets import assets, credentials, templates
from rowlock.rest.call import Endpoint, RestCall
from rowlock.rest.cluster_view import allocations, cards, pod_explanation, queue, queue_move, quota_trial, usage
from rowlock.rest.hours import routes as hours
from rowlock.rest.inventory import (
    clusters,
    departments,
    node_pools,
    nodes,
    organisation_telemetry,
    queue_quotas,
    scope_metrics,
)
from rowlock.rest.notifications import project_routes, trial
from rowlock.rest.openapi.document import openapi_document
from rowlock.rest.policies import policies
from rowlock.rest.rights import EVERYBODY, Right
from rowlock.rest.run_history import curves, event_files, past_logs, past_workloads, run_marks, runs
from rowlock.rest.run_history.past_workloads import or_past
from rowlock.rest.sweeps import routes as sweeps
from rowlock.rest.sweeps import submits as sweep_submits
from rowlock.rest.workload_routes import (
    batch,
    dictionaries,
    manifests,
    metrics,
    pods,
    standard,
    structure,
    suspension,
    workload_telemetry,
)
from rowlock.workloads.assets.asset_kinds import ASSET_KINDS
from rowlock.workloads.assets.credentials import CREDENTIAL_KINDS
from rowlock.workloads.policies.policy import TYPES as POLICY_TYPES

RUNAI_DOOR = "/runai"
"""The path prefix below which only Run:ai's API is served, as Run:ai's own clients expect it."""

_SWEEPS = "/api/v1/sweeps"
_WORKLOADS, _CLUSTERS, _NODES = "/api/v1/workloads", "/api/v1/clusters", "/api/v1/nodes"
_POOLS, _ASSETS, _TEMPLATES = "/api/v1/node-pools", "/api/v1/asset", "/api/v1/workload-templates"
_PROJECTS, _DEPARTMENTS = "/api/v1/org-unit/projects", "/api/v1/org-unit/departments"

_SUBMIT = Right("body", "create")
_CHECK = Right("body", "create")
_READ, _LIST = Right("workload", "get"), Right("list", "list")
_DELETE, _CHANGE = Right("workload", "delete"), Right("workload", "patch")
_READ_PODS, _READ_EVENTS = Right("workload", "list", kinds.POD), Right("workload", "list", kinds.EVENT)
_LIST_PODS = Right("list", "list", kinds.POD)
_READ_LOGS = Right("workload", "get", kinds.POD, "log")
_READ_PROJECT, _LIST_PROJECTS = Right("project", "get", kinds.NAMESPACE), Right("list", "get", kinds.NAMESPACE)
_CREATE_PROJECT = Right("cluster", "create", kinds.NAMESPACE)
_CHANGE_PROJECT, _DELETE_PROJECT = (
    Right("project", "patch", kinds.NAMESPACE),
    Right("project", "delete", kinds.NAMESPACE),
)
_LIST_ASSETS, _CREATE_ASSET = Right("list", "list", kinds.CONFIG_MAP), Right("body", "create", kinds.CONFIG_MAP)
_READ_ASSET, _CHANGE_ASSET = Right("asset", "get", kinds.CONFIG_MAP), Right("asset", "patch", kinds.CONFIG_MAP)
_DELETE_ASSET = Right("asset", "delete", kinds.CONFIG_MAP)
_LIST_QUEUES, _CHANGE_QUEUE = Right("cluster", "list", kinds.QUEUE), Right("cluster", "patch", kinds.QUEUE)
_LIST_NODES, _CHANGE_NODES = Right("cluster", "list", kinds.NODE), Right("cluster", "patch", kinds.NODE)
_MANAGE_USERS = Right("cluster", "impersonate", users.USER)
_RULES, _USERS = "/api/v1/authorization/access-rules", "/api/v1/users"
_READ_CLUSTER, _DRAIN = Right("cluster", "list", kinds.POD), Right("cluster", "update", kinds.NODE)

_POLICIES, _MANIFESTS = "/api/v2/policy", "/api/v2/workloads"
_OWN_CREDENTIALS = "/api/v1/me/credentials"

RouteRow = tuple[str, str, Right, Endpoint]


def _standard_routes(word: str, workload_type: str, submit: Endpoint) -> tuple[RouteRow, ...]:
    """The routes of workloads of one pod."""
    path, serve = f"{_WORKLOADS}/{word}", standard.ENDPOINTS[workload_type]
    return (
        ("POST", path, _SUBMIT, submit),
        ("GET", f"{path}/{{id}}", _READ, serve["show"]),
        ("DELETE", f"{path}/{{id}}", _DELETE, serve["delete"]),
        ("POST", f"{path}/{{id}}/suspend", _CHANGE, serve["suspend"]),
        ("POST", f"{path}/{{id}}/resume", _CHANGE, serve["resume"]),
    )


async def serve_openapi(call: RestCall) -> dict[str, Any]:
    """GET /openapi.json: this API, as OpenAPI 3.1 describes it."""
    call.validate_query()
    return openapi_document(ROUTES, RUNAI_DOOR)


def _asset_routes(path: str, serve: Mapping[str, Endpoint]) -> tuple[RouteRow, ...]:
    """The routes of one kind of asset. Credentials also need the right to their Secret, which the endpoints
    check."""
    path = f"{_ASSETS}/{path}"
    return (
        ("GET", path, _LIST_ASSETS, serve["index"]),
        ("POST", path, _CREATE_ASSET, serve["create"]),
        ("GET", f"{path}/{{id}}", _READ_ASSET, serve["show"]),
        ("PUT", f"{path}/{{id}}", _CHANGE_ASSET, serve["update"]),
        ("DELETE", f"{path}/{{id}}", _DELETE_ASSET, serve["delete"]),
    )


def _template_routes(word: str) -> tuple[RouteRow, ...]:
    path, serve = f"{_TEMPLATES}/{word}", templates.endpoints(word)
    return (
        ("GET", path, _LIST_ASSETS, serve["index"]),
        ("POST", path, _CREATE_ASSET, serve["create"]),
        ("GET", f"{path}/{{id}}", _READ_ASSET, serve["show"]),
        ("PUT", f"{path}/{{id}}", _CHANGE_ASSET, serve["replace"]),
        ("PATCH", f"{path}/{{id}}", _CHANGE_ASSET, serve["patch"]),
        ("DELETE", f"{path}/{{id}}", _DELETE_ASSET, serve["delete"]),
    )


def _policy_routes(word: str) -> tuple[RouteRow, ...]:
    """The routes of policies. A policy sets limits as a quota does, so both need the same right."""
    path, serve = f"{_POLICIES}/{word}", policies.endpoints(word)
    return (
        ("GET", path, EVERYBODY, serve["show"]),
        ("PUT", path, _CHANGE_QUEUE, serve["overwrite"]),
        ("PATCH", path, _CHANGE_QUEUE, serve["change"]),
        ("DELETE", path, _CHANGE_QUEUE, serve["delete"]),
    )


ROUTES: tuple[RouteRow, ...] = (
    ("POST", _MANIFESTS, _SUBMIT, manifests.create),
    ("GET", f"{_MANIFESTS}/{{id}}", _READ, manifests.show),
    ("PUT", f"{_MANIFESTS}/{{id}}", _CHANGE, manifests.update),
    ("DELETE", f"{_MANIFESTS}/{{id}}", _DELETE, manifests.delete),
    ("POST", f"{_WORKLOADS}/distributed", _SUBMIT, workloads.submit),
    ("GET", f"{_WORKLOADS}/distributed/{{id}}", _READ, workloads.show_distributed),
    ("DELETE", f"{_WORKLOADS}/distributed/{{id}}", _DELETE, workloads.delete),
    ("POST", f"{_WORKLOADS}/distributed/{{id}}/suspend", _CHANGE, suspension.suspend),
    ("POST", f"{_WORKLOADS}/distributed/{{id}}/resume", _CHANGE, suspension.resume),
    *_standard_routes("trainings", "Training", standard.submit_training),
    *_standard_routes("workspaces", "Workspace", standard.submit_workspace),
    ("POST", f"{_WORKLOADS}/batch", Right("batch", "delete"), batch.run_action),
    ("GET", f"{_WORKLOADS}/pods", _LIST_PODS, pods.index),
    ("GET", f"{_WORKLOADS}/pods/count", _LIST_PODS, pods.count),
    ("GET", _WORKLOADS, _LIST, workloads.index),
    ("GET", f"{_WORKLOADS}/count", _LIST, workloads.count),
    ("GET", f"{_WORKLOADS}/telemetry", _LIST, workload_telemetry.show),
    ("GET", f"{_WORKLOADS}/{{id}}", _READ, or_past(workloads.show, past_workloads.show)),
    ("GET", f"{_WORKLOADS}/{{id}}/pods", _READ_PODS, or_past(workloads.pods, past_workloads.show_pods)),
    ("GET", f"{_WORKLOADS}/{{id}}/events", _READ_EVENTS, or_past(workloads.events, past_workloads.show_events)),
    ("GET", f"{_WORKLOADS}/{{id}}/history", _READ_EVENTS, or_past(workloads.history, past_workloads.show_history)),
    ("GET", f"{_WORKLOADS}/{{id}}/metrics", _READ_PODS, or_past(metrics.show, metrics.show_past)),
    ("GET", f"{_WORKLOADS}/{{id}}/pods/{{pod}}/metrics", _READ_PODS, or_past(metrics.show_pod, metrics.show_past_pod)),
    ("GET", "/api/v1/usage", _LIST_PODS, usage.index),
    ("GET", "/api/v1/usage/{id}", _READ_PODS, usage.show),
    ("GET", f"{_WORKLOADS}/{{id}}/structure", _READ_PODS, structure.show),
    ("GET", f"{_WORKLOADS}/{{id}}/explain", _READ_EVENTS, workloads.explain),
    ("GET", f"{_WORKLOADS}/{{id}}/what-if", _READ_EVENTS, queue.what_if),
    ("GET", f"{_WORKLOADS}/{{id}}/why", _READ_LOGS, or_past(workloads.why, past_workloads.show_why)),
    ("GET", f"{_WORKLOADS}/{{id}}/wait", _READ, workloads.wait),
    ("GET", f"{_WORKLOADS}/{{id}}/logs", _READ_LOGS, past_logs.workload_logs),
    ("GET", f"{_WORKLOADS}/{{id}}/pods/{{pod}}/logs", _READ_LOGS, past_logs.pod_logs),
    ("GET", "/api/v1/hours", _LIST, hours.index),
    ("GET", "/api/v1/runs", _LIST, runs.index),
    ("GET", "/api/v1/runs/{id}", _READ_LOGS, runs.show),
    ("PATCH", "/api/v1/runs/{id}", _CHANGE, run_marks.change),
    ("GET", "/api/v1/runs/{id}/curves", _READ_LOGS, curves.show),
    ("GET", "/api/v1/runs/{id}/event-files", _READ_LOGS, event_files.show),
    ("GET", _SWEEPS, _LIST_ASSETS, sweeps.index),
    ("POST", _SWEEPS, _SUBMIT, sweep_submits.create),
    ("GET", f"{_SWEEPS}/{{id}}", _READ_ASSET, sweeps.show),
    ("DELETE", f"{_SWEEPS}/{{id}}", _DELETE_ASSET, sweeps.delete),
    ("POST", f"{_SWEEPS}/{{id}}/stop", _CHANGE_ASSET, sweeps.stop),
    ("POST", f"{_SWEEPS}/{{id}}/resume", _CHANGE_ASSET, sweeps.resume),
    ("GET", _PROJECTS, _LIST_PROJECTS, projects.index),
    ("POST", _PROJECTS, _CREATE_PROJECT, projects.create),
    ("GET", f"{_PROJECTS}/count", _LIST_PROJECTS, projects.count),
    ("GET", f"{_PROJECTS}/telemetry", _LIST_PROJECTS, organisation_telemetry.show_projects),
    ("GET", f"{_PROJECTS}/{{id}}", _READ_PROJECT, projects.show),
    ("GET", f"{_PROJECTS}/{{id}}/metrics", _READ_PROJECT, scope_metrics.show_project),
    ("GET", f"{_PROJECTS}/{{id}}/pods/{{pod}}/explain", Right("project", "get", kinds.POD), pod_explanation.show),
    ("PUT", f"{_PROJECTS}/{{id}}", _CHANGE_PROJECT, projects.update),
    ("DELETE", f"{_PROJECTS}/{{id}}", _DELETE_PROJECT, projects.delete),
    ("PUT", f"{_PROJECTS}/{{id}}/resources", _CHANGE_PROJECT, projects.update_resources),
    ("PATCH", f"{_PROJECTS}/{{id}}/resources", _CHANGE_PROJECT, projects.update_resources),
    ("GET", f"{_PROJECTS}/{{id}}/notify", _READ_PROJECT, project_routes.show),
    ("PUT", f"{_PROJECTS}/{{id}}/notify", _CHANGE_PROJECT, project_routes.change),
    ("DELETE", f"{_PROJECTS}/{{id}}/notify", _CHANGE_PROJECT, project_routes.remove),
    ("POST", f"{_PROJECTS}/{{id}}/notify/test", _CHANGE_PROJECT, project_routes.send_test),
    ("GET", _DEPARTMENTS, _LIST_QUEUES, departments.index),
    ("POST", _DEPARTMENTS, Right("cluster", "create", kinds.QUEUE), departments.create),
    ("GET", f"{_DEPARTMENTS}/count", _LIST_QUEUES, departments.count),
    ("GET", f"{_DEPARTMENTS}/telemetry", _LIST_QUEUES, organisation_telemetry.show_departments),
    ("GET", f"{_DEPARTMENTS}/{{id}}", _LIST_QUEUES, departments.show),
    ("GET", f"{_DEPARTMENTS}/{{id}}/metrics", _LIST_QUEUES, scope_metrics.show_department),
    ("PUT", f"{_DEPARTMENTS}/{{id}}", _CHANGE_QUEUE, departments.update),
    ("DELETE", f"{_DEPARTMENTS}/{{id}}", Right("cluster", "delete", kinds.QUEUE), departments.delete),
    ("PUT", f"{_DEPARTMENTS}/{{id}}/resources", _CHANGE_QUEUE, departments.update_resources),
    ("PATCH", f"{_DEPARTMENTS}/{{id}}/resources", _CHANGE_QUEUE, departments.update_resources),
    ("GET", "/api/v1/org-unit/priorities", EVERYBODY, queue_quotas.priorities),
    ("GET", "/api/v1/scheduler/snapshot", _READ_CLUSTER, scheduler.snapshot),
    ("POST", "/api/v1/scheduler/what-if", _READ_CLUSTER, scheduler.what_if),
    ("POST", "/api/v1/scheduler/quota-what-if", _READ_CLUSTER, quota_trial.try_out),
    ("GET", "/api/v1/scheduler/cards", _READ_CLUSTER, cards.index),
    ("GET", "/api/v1/scheduler/nodes", _READ_CLUSTER, allocations.index),
    ("GET", "/api/v1/scheduler/queue", _LIST, queue.index),
    ("POST", "/api/v1/scheduler/queue/move", _CHANGE_QUEUE, queue_move.move),
    ("POST", "/api/v1/notify/test", _SUBMIT, trial.send_test),
    ("GET", "/api/v1/drain/pods", _READ_CLUSTER, draining.list_ending_pods),
    ("POST", "/api/v1/drain", _DRAIN, draining.drain),
    ("POST", "/api/v1/check", _CHECK, manifest_check.check),
    ("POST", "/api/v1/applications", Right("cluster", "create", kinds.SECRET), applications.create),
    ("GET", "/api/v1/applications", Right("cluster", "list", kinds.SECRET), applications.index),
    ("DELETE", "/api/v1/applications/{id}", Right("cluster", "delete", kinds.SECRET), applications.delete),
    ("GET", _USERS, _MANAGE_USERS, users.index),
    ("POST", _USERS, _MANAGE_USERS, users.create),
    ("GET", f"{_USERS}/count", _MANAGE_USERS, users.count),
    ("GET", f"{_USERS}/{{id}}", _MANAGE_USERS, users.show),
    ("DELETE", f"{_USERS}/{{id}}", _MANAGE_USERS, users.delete),
    ("POST", f"{_USERS}/{{id}}/password", _MANAGE_USERS, users.reset_password),
    ("PUT", f"{_USERS}/{{id}}/password", _MANAGE_USERS, users.set_password),
    ("POST", f"{_USERS}/{{id}}/logout", _MANAGE_USERS, users.end_sessions),
    ("GET", "/api/v1/me", EVERYBODY, users.show_me),
    ("POST", "/api/v1/me/password", EVERYBODY, users.change_own_password),
    ("GET", _OWN_CREDENTIALS, EVERYBODY, user_credentials.index),
    ("POST", _OWN_CREDENTIALS, EVERYBODY, user_credentials.create),
    ("GET", f"{_OWN_CREDENTIALS}/{{id}}", EVERYBODY, user_credentials.show),
    ("PUT", f"{_OWN_CREDENTIALS}/{{id}}", EVERYBODY, user_credentials.update),
    ("DELETE", f"{_OWN_CREDENTIALS}/{{id}}", EVERYBODY, user_credentials.delete),
    ("GET", "/api/v1/authorization/roles", EVERYBODY, access_rules.roles),
    ("GET", "/api/v1/authorization/roles/{id}", EVERYBODY, access_rules.show_role),
    ("GET", "/api/v1/authorization/me/access-rules", EVERYBODY, access_rules.index_of_me),
    ("GET", "/api/v1/authorization/me/access-rules/count", EVERYBODY, access_rules.count_of_me),
    ("GET", _RULES, Right("list", "list", kinds.ROLE_BINDING), access_rules.index),
    ("POST", _RULES, Right("body", "create", kinds.ROLE_BINDING), access_rules.create),
    ("GET", f"{_RULES}/count", Right("list", "list", kinds.ROLE_BINDING), access_rules.count),
    ("GET", f"{_RULES}/{{id}}", Right("rule", "get", kinds.ROLE_BINDING), access_rules.show),
    ("DELETE", f"{_RULES}/{{id}}", Right("rule", "delete", kinds.ROLE_BINDING), access_rules.delete),
    ("GET", f"{_ASSETS}/datasource", _LIST_ASSETS, assets.data_sources),
    *(route for row in ASSET_KINDS for route in _asset_routes(row.path, assets.endpoints(row))),
    ("GET", f"{_ASSETS}/credentials", _LIST_ASSETS, credentials.list_all),
    *(
        route
        for row in CREDENTIAL_KINDS
        for route in _asset_routes(f"credentials/{row.path}", credentials.endpoints(row))
    ),
    ("GET", _TEMPLATES, _LIST_ASSETS, templates.index),
    ("GET", f"{_TEMPLATES}/count", _LIST_ASSETS, templates.count),
    ("GET", f"{_TEMPLATES}/name-availability", _LIST_ASSETS, templates.name_availability),
    *(route for word in templates.TYPES for route in _template_routes(word)),
    ("GET", f"{_TEMPLATES}/{{id}}", _READ_ASSET, templates.show_any),
    ("GET", _POLICIES, EVERYBODY, policies.index),
    *(route for word in POLICY_TYPES for route in _policy_routes(word)),
    ("GET", _CLUSTERS, EVERYBODY, clusters.index),
    ("GET", f"{_CLUSTERS}/{{id}}", EVERYBODY, clusters.show),
    ("GET", f"{_CLUSTERS}/{{id}}/metrics", _READ_CLUSTER, scope_metrics.show_cluster),
    ("GET", f"{_CLUSTERS}/{{id}}/nodepools/{{pool}}/metrics", _READ_CLUSTER, scope_metrics.show_pool),
    ("GET", f"{_CLUSTERS}/{{id}}/nodes", _LIST_NODES, nodes.index_of_cluster),
    ("GET", f"{_CLUSTERS}/{{id}}/nodes/count", _LIST_NODES, nodes.count_of_cluster),
    ("GET", _POOLS, _LIST_NODES, node_pools.index),
    ("POST", _POOLS, _CHANGE_NODES, node_pools.create),
    ("GET", f"{_POOLS}/count", _LIST_NODES, node_pools.count),
    ("GET", f"{_POOLS}/{{id}}", _LIST_NODES, node_pools.show),
    ("PUT", f"{_POOLS}/{{id}}", _CHANGE_NODES, node_pools.update),
    ("PATCH", f"{_POOLS}/{{id}}", _CHANGE_NODES, node_pools.update),
    ("DELETE", f"{_POOLS}/{{id}}", _CHANGE_NODES, node_pools.delete),
    ("GET", _NODES, _LIST_NODES, nodes.index),
    ("GET", f"{_NODES}/count", _LIST_NODES, nodes.count),
    ("GET", f"{_NODES}/telemetry", _READ_CLUSTER, nodes.show_telemetry),
    ("GET", f"{_NODES}/{{id}}/metrics", _LIST_NODES, scope_metrics.show_node),
    ("GET", "/api/v1/workload-priorities", EVERYBODY, dictionaries.priorities),
    ("GET", "/api/v1/workload-types", EVERYBODY, dictionaries.types),
    ("GET", "/api/v1/workload-categories", EVERYBODY, dictionaries.categories),
    ("GET", "/api/v1/openapi.json", EVERYBODY, serve_openapi),
)


def paths_served(path: str) -> tuple[str, ...]:
    """The paths of a route: with and without Run:ai's prefix; only with it when Kubernetes has the same path."""
    behind_the_door = f"{RUNAI_DOOR}{path}"
    return (behind_the_door,) if path.startswith(_NODES) else (path, behind_the_door)
