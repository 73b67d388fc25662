"""The table of endpoints: method, path, who serves it. Literal paths come before those with a parameter."""

from __future__ import annotations

from rowlock.rest import draining, logs, manifest_check, projects, scheduler, workloads
from rowlock.rest.call import Endpoint

_WORKLOADS = "/api/v1/workloads"
_PROJECTS = "/api/v1/org-unit/projects"

ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", f"{_WORKLOADS}/distributed", workloads.submit),
    ("GET", f"{_WORKLOADS}/distributed/{{id}}", workloads.show_distributed),
    ("DELETE", f"{_WORKLOADS}/distributed/{{id}}", workloads.delete),
    ("POST", f"{_WORKLOADS}/distributed/{{id}}/suspend", workloads.suspend),
    ("POST", f"{_WORKLOADS}/distributed/{{id}}/resume", workloads.resume),
    ("GET", _WORKLOADS, workloads.index),
    ("GET", f"{_WORKLOADS}/count", workloads.count),
    ("GET", f"{_WORKLOADS}/{{id}}", workloads.show),
    ("GET", f"{_WORKLOADS}/{{id}}/pods", workloads.pods),
    ("GET", f"{_WORKLOADS}/{{id}}/events", workloads.events),
    ("GET", f"{_WORKLOADS}/{{id}}/history", workloads.history),
    ("GET", f"{_WORKLOADS}/{{id}}/explain", workloads.explain),
    ("GET", f"{_WORKLOADS}/{{id}}/why", workloads.why),
    ("GET", f"{_WORKLOADS}/{{id}}/wait", workloads.wait),
    ("GET", f"{_WORKLOADS}/{{id}}/logs", logs.workload_logs),
    ("GET", f"{_WORKLOADS}/{{id}}/pods/{{pod}}/logs", logs.pod_logs),
    ("GET", _PROJECTS, projects.index),
    ("POST", _PROJECTS, projects.create),
    ("GET", f"{_PROJECTS}/count", projects.count),
    ("GET", f"{_PROJECTS}/{{id}}", projects.show),
    ("PUT", f"{_PROJECTS}/{{id}}", projects.update),
    ("DELETE", f"{_PROJECTS}/{{id}}", projects.delete),
    ("GET", "/api/v1/scheduler/snapshot", scheduler.snapshot),
    ("POST", "/api/v1/scheduler/what-if", scheduler.what_if),
    ("POST", "/api/v1/drain", draining.drain),
    ("POST", "/api/v1/check", manifest_check.check),
    ("GET", "/api/v1/clusters", projects.clusters),
    ("GET", "/api/v1/workload-priorities", workloads.priorities),
    ("GET", "/api/v1/workload-types", workloads.types),
)
