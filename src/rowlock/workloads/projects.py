"""A project is a Namespace `runai-<name>` with the label `runai/queue`, and the leaf Queue that the label names.

Names may contain characters that DNS labels may not (`project_name`, `Team.A`): namespace and queue have a DNS label made
from the name, the annotation `rowlock.dev/project` has the name itself. A project's id is a numeric string, as Run:ai's
clients expect, derived from the namespace's uid so that no table is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.inventory.quotas import (
    UNLIMITED,
    Quota,
    parse_resources,
    quota_status_json,
    resources_json,
    total_resources_json,
)

QUEUE_LABEL = "runai/queue"
PROJECT_ANNOTATION = "rowlock.dev/project"
DESCRIPTION_ANNOTATION = "rowlock.dev/description"
DEPARTMENT_PREFIX = "department-"
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_NAME_LENGTH = 50


@dataclass(frozen=True, slots=True)
class Project:
    """A project. `quota` is its guaranteed GPUs, `limit` the most that it may hold; -1 means unlimited."""

    id: str
    name: str
    namespace: str
    queue: str
    department: str
    created: str
    quota: Decimal
    limit: Decimal
    deleting: bool = False
    description: str = ""


def dns_label(name: str) -> str:
    """The DNS label for a project's name: `project_name` → `project-name`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "project"


def namespace_of(name: str) -> str:
    return f"runai-{dns_label(name)}"


def department_queue(name: str) -> str:
    return DEPARTMENT_PREFIX + dns_label(name)


def is_project(namespace: Object) -> bool:
    return QUEUE_LABEL in objects.labels(namespace)


def project_of(namespace: Object, queue: Object | None) -> Project:
    """The project of a namespace and its queue (None if it was deleted)."""
    name = objects.annotations(namespace).get(PROJECT_ANNOTATION) or objects.name(namespace).removeprefix("runai-")
    parent = str(objects.dig(queue or {}, "spec.parentQueue", ""))
    return Project(
        id=project_id(objects.uid(namespace)),
        name=name,
        namespace=objects.name(namespace),
        queue=objects.labels(namespace)[QUEUE_LABEL],
        department=parent.removeprefix(DEPARTMENT_PREFIX) or "default",
        created=str(objects.meta(namespace).get("creationTimestamp") or ""),
        quota=_gpu_bound(queue, "quota"),
        limit=_gpu_bound(queue, "limit"),
        deleting=objects.is_deleting(namespace),
        description=objects.annotations(namespace).get(DESCRIPTION_ANNOTATION, ""),
    )


def project_id(uid: str) -> str:
    """A positive number as text, derived from the namespace's uid."""
    return str(int(uid.replace("-", "")[:8] or "0", 16) + 1)


def _gpu_bound(queue: Object | None, bound: str) -> Decimal:
    return Decimal(str(objects.dig(queue or {}, f"spec.resources.gpu.{bound}", UNLIMITED)))


@dataclass(frozen=True, slots=True)
class ProjectRequest:
    """The project in a request. `quota` None means the default for a new project, or no change."""

    name: str
    namespace: str
    department: str
    quota: Quota | None = None
    description: str | None = None
    cluster: str = ""


_NO_RULES = "jobs have no limits of time by project; give a job autoDeletionTimeAfterCompletionSeconds"
REFUSED_FIELDS: dict[str, tuple[Any, str]] = {
    "schedulingRules": (None, _NO_RULES),
    "nodeTypes": (None, "a job names its own: spec.nodeType"),
    "defaultNodePools": (["default"], "a job names its own: spec.nodePools"),
    "overtimeData": (None, "the server reckons it"),
}
"""Unsupported field of projects and departments → (the accepted value, why others are refused)."""


def parse_name(top: Fields) -> str:
    """The name of a project or department; an invalid one is added to the errors, with a valid suggestion."""
    name = top.text("name")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_LENGTH:
        fix = f"Use {dns_label(name)[:_MAX_NAME_LENGTH].strip('-')!r}, for example."
        message = f"{name!r} must be 1 to {_MAX_NAME_LENGTH} letters, digits, '-', '_' or '.', a letter or digit at both ends."
        top.add_error("name", "format", f"{message} {fix}")
    return name


def parse_project_request(body: Any) -> ProjectRequest:
    """The body of `POST /api/v1/org-unit/projects`. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only(
        "name", "clusterId", "description", "parentId", "requestedNamespace", "resources", "enforceRunaiScheduler",
        refused=REFUSED_FIELDS,
    )  # fmt: skip
    if top.get("enforceRunaiScheduler") is not None and not top.flag("enforceRunaiScheduler"):
        top.add_error("enforceRunaiScheduler", "unsupported", "pods of projects have one scheduler. Leave it out.")
    name = parse_name(top)
    request = ProjectRequest(
        name=name,
        namespace=top.text("requestedNamespace") or namespace_of(name),
        department=top.text("parentId") or "default",
        quota=parse_resources(top) if top.get("resources") is not None else None,
        description=None if top.get("description") is None else top.text("description"),
        cluster=top.text("clusterId"),
    )
    errors.raise_if_any()
    return request


def to_namespace(project: ProjectRequest) -> Object:
    labels = {QUEUE_LABEL: dns_label(project.name)}
    annotations = {PROJECT_ANNOTATION: project.name}
    if project.description:
        annotations[DESCRIPTION_ANNOTATION] = project.description
    metadata = {"name": project.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def to_queue(project: ProjectRequest) -> Object:
    """The leaf Queue of a new project."""
    quota = project.quota or Quota()
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": dns_label(project.name), "labels": {PROJECT_ANNOTATION: dns_label(project.name)}},
        "spec": {
            "displayName": project.name,
            "parentQueue": department_queue(project.department),
            **quota.queue_fields(),
        },
    }


def to_department(name: str) -> Object:
    """The Queue of a new department without limits."""
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": department_queue(name)},
        "spec": {"displayName": name, **Quota().queue_fields()},
    }


def project_json(
    project: Project, queue: Object | None, cluster: str, overtime: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run:ai's Project JSON. `overtime`: its `overtimeData`, None before the first sample."""
    quota_status = quota_status_json(queue)
    status: dict[str, Any] = {
        "namespace": project.namespace,
        "phase": "Deleting" if project.deleting else "Ready" if queue else "NotReady",
        "phaseMessage": "" if queue else f"The project's queue {project.queue!r} does not exist.",
        "quotaStatus": quota_status,
        "nodePoolQuotaStatuses": [],
    }
    return {
        "id": project.id,
        "name": project.name,
        "clusterId": cluster,
        "parentId": project.department,
        "description": project.description,
        "status": status,
        "totalResources": total_resources_json(queue),
        "resources": resources_json(queue),
        "effective": {},
        "enforceRunaiScheduler": True,
        "parent": {"id": project.department, "name": project.department, "type": "department"},
        "defaultNodePools": ["default"],
        "nodeTypes": None,
        "schedulingRules": None,
        "overtimeData": overtime,
        "createdAt": project.created,
        "updatedAt": project.created,
    }
