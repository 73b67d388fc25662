"""The table of endpoints: method, path, who serves it. Literal paths come before those with a parameter."""

from __future__ import annotations

from rowlock.server import checking, logs, projects, scheduler, workloads
from rowlock.server.call import Endpoint

_W = "/api/v1/workloads"
_P = "/api/v1/org-unit/projects"

TABLE: tuple[tuple[str, str, Endpoint], ...] = (
    ("POST", f"{_W}/distributed", workloads.submit),
    ("GET", f"{_W}/distributed/{{id}}", workloads.show_distributed),
    ("DELETE", f"{_W}/distributed/{{id}}", workloads.delete),
    ("POST", f"{_W}/distributed/{{id}}/suspend", workloads.suspend),
    ("POST", f"{_W}/distributed/{{id}}/resume", workloads.resume),
    ("GET", _W, workloads.index),
    ("GET", f"{_W}/count", workloads.count),
    ("GET", f"{_W}/{{id}}", workloads.show),
    ("GET", f"{_W}/{{id}}/pods", workloads.pods),
    ("GET", f"{_W}/{{id}}/events", workloads.events),
    ("GET", f"{_W}/{{id}}/history", workloads.history),
    ("GET", f"{_W}/{{id}}/explain", workloads.explain),
    ("GET", f"{_W}/{{id}}/why", workloads.why),
    ("GET", f"{_W}/{{id}}/wait", workloads.wait),
    ("GET", f"{_W}/{{id}}/logs", logs.merged),
    ("GET", f"{_W}/{{id}}/pods/{{pod}}/logs", logs.of_pod),
    ("GET", _P, projects.index),
    ("POST", _P, projects.create),
    ("GET", f"{_P}/count", projects.count),
    ("GET", f"{_P}/{{id}}", projects.show),
    ("PUT", f"{_P}/{{id}}", projects.update),
    ("DELETE", f"{_P}/{{id}}", projects.delete),
    ("GET", "/api/v1/scheduler/snapshot", scheduler.snapshot),
    ("POST", "/api/v1/scheduler/what-if", scheduler.what_if),
    ("POST", "/api/v1/check", checking.check),
    ("GET", "/api/v1/clusters", projects.clusters),
    ("GET", "/api/v1/workload-priorities", workloads.priorities),
    ("GET", "/api/v1/workload-types", workloads.types),
)
