"""A department is a Queue `department-<name>`, the parent of its projects' Queues. Its id is its name as a DNS label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads import projects
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.inventory.quotas import (
    Quota,
    parse_resources,
    quota_status_json,
    resources_json,
    total_resources_json,
)
from rowlock.workloads.projects import DEPARTMENT_PREFIX, DESCRIPTION_ANNOTATION, Project


@dataclass(frozen=True, slots=True)
class DepartmentRequest:
    """The department in a request; `description` and `quota` None mean no change."""

    name: str
    cluster: str
    description: str | None
    quota: Quota | None


def parse_department_request(body: Any) -> DepartmentRequest:
    """The body of a POST, or of a PUT completed with the name. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("name", "clusterId", "description", "resources", refused=projects.REFUSED_FIELDS)
    name = projects.parse_name(top)
    quota = parse_resources(top) if top.get("resources") is not None else None
    description = None if top.get("description") is None else top.text("description")
    cluster = top.text("clusterId")
    errors.raise_if_any()
    return DepartmentRequest(name, cluster, description, quota)


def to_queue(request: DepartmentRequest) -> Object:
    """The Queue of a new department."""
    notes = {"annotations": {DESCRIPTION_ANNOTATION: request.description}} if request.description else {}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": projects.department_queue(request.name), **notes},
        "spec": {"displayName": request.name, **(request.quota or Quota()).queue_fields()},
    }


def is_department(queue: Object) -> bool:
    """Whether a Queue is a department's."""
    return objects.name(queue).startswith(DEPARTMENT_PREFIX) and not objects.dig(queue, "spec.parentQueue")


def department_id(queue: Object) -> str:
    """The id of a department's Queue."""
    return objects.name(queue).removeprefix(DEPARTMENT_PREFIX)


def department_name(queue: Object) -> str:
    """The department's display name, else its id."""
    return str(objects.dig(queue, "spec.displayName") or department_id(queue))


def gpu_quota(queue: Object) -> float:
    """The department's quota of GPUs; -1 means unlimited."""
    return float(total_resources_json(queue)["gpuQuota"])


def department_json(
    queue: Object, members: Sequence[Project], cluster: str, overtime: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run:ai's Department JSON; `children` are its projects, `overtime` its `overtimeData`."""
    created = str(objects.meta(queue).get("creationTimestamp") or "")
    return {
        "id": department_id(queue),
        "name": department_name(queue),
        "clusterId": cluster,
        "description": objects.annotations(queue).get(DESCRIPTION_ANNOTATION, ""),
        "createdAt": created,
        "updatedAt": created,
        "createdBy": None,
        "updatedBy": None,
        "children": [{"id": project.id, "name": project.name} for project in members],
        "status": {"quotaStatus": quota_status_json(queue)},
        "totalResources": total_resources_json(queue),
        "resources": resources_json(queue),
        "defaultNodePools": ["default"],
        "nodeTypes": None,
        "schedulingRules": None,
        "overtimeData": overtime,
    }
