"""A project is a Namespace `runai-<name>` with the label `runai/queue`, and the leaf Queue that the label names.

Names may contain what DNS names may not (`project_name`, `Team.A`): the namespace and the queue carry the mangled
form, the annotation `rowlock.dev/project` the name itself. A project's id is a numeric string taken from the
namespace's uid, because Run:ai's clients expect one and no table needs to be kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.compute import format_number

QUEUE_LABEL = "runai/queue"
PROJECT_ANNOTATION = "rowlock.dev/project"
DESCRIPTION_ANNOTATION = "rowlock.dev/description"
DEPARTMENT_PREFIX = "department-"
UNLIMITED = -1
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_NAME_LENGTH = 50


@dataclass(frozen=True, slots=True)
class Project:
    """A project as everybody else needs it. `quota` is its GPUs, -1 for no bound; `limit` the most it may ever use."""

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
    """The project that a namespace and its queue (None when somebody deleted it) make."""
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
    """A positive number, stable for the namespace's life."""
    return str(int(uid.replace("-", "")[:8] or "0", 16) + 1)


def _gpu_bound(queue: Object | None, bound: str) -> Decimal:
    return Decimal(str(objects.dig(queue or {}, f"spec.resources.gpu.{bound}", UNLIMITED)))


@dataclass(frozen=True, slots=True)
class ProjectRequest:
    """A project as asked for."""

    name: str
    namespace: str
    department: str
    quota: Decimal
    limit: Decimal
    weight: Decimal
    description: str = ""


def parse_project_request(body: Any) -> ProjectRequest:
    """The body of `POST /api/v1/org-unit/projects`. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only(
        "name", "clusterId", "description", "parentId", "requestedNamespace", "resources", "enforceRunaiScheduler"
    )
    name = top.text("name")
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME_LENGTH:
        fix = f"Use {dns_label(name)[:_MAX_NAME_LENGTH].strip('-')!r}, for example."
        message = f"{name!r} must be 1 to {_MAX_NAME_LENGTH} letters, digits, '-', '_' or '.', a letter or digit at both ends."
        top.add_error("name", "format", f"{message} {fix}")
    namespace = top.text("requestedNamespace") or namespace_of(name)
    quota, limit, weight = _parse_quota(top)
    errors.raise_if_any()
    return ProjectRequest(
        name, namespace, top.text("parentId") or "default", quota, limit, weight, top.text("description")
    )


def _parse_quota(top: Fields) -> tuple[Decimal, Decimal, Decimal]:
    """The first node pool's GPUs; there is one pool. Unset means unbounded, in rowlock as in no other default."""
    pools = top.items("resources")
    if len(pools) > 1:
        top.add_error("resources", "max", 'there is one node pool, "default"; give one item.')
    gpu = pools[0].object("gpu") if pools else Fields("resources[0].gpu", {}, top.errors)
    if pools:
        pools[0].allow_only("nodePool", "gpu", "cpu", "memory", "priority")
        for other in ("cpu", "memory"):
            if (pools[0].object(other).number("deserved") or -1) > 0:
                pools[0].add_error(
                    other, "unsupported", "quotas of CPU and memory cannot be set here yet. Leave it out."
                )
    gpu.allow_only("deserved", "limit", "overQuotaWeight")
    amounts = []
    for name, default in (("deserved", UNLIMITED), ("limit", UNLIMITED), ("overQuotaWeight", 1)):
        amount = gpu.number(name)
        if amount is not None and amount < 0 and amount != UNLIMITED:
            gpu.add_error(name, "min", f"must be no less than 0, or -1 for unlimited, but is {amount:g}.")
        amounts.append(Decimal(str(default if amount is None else amount)))
    return amounts[0], amounts[1], amounts[2]


def to_namespace(project: ProjectRequest) -> Object:
    labels = {QUEUE_LABEL: dns_label(project.name)}
    annotations = {PROJECT_ANNOTATION: project.name}
    if project.description:
        annotations[DESCRIPTION_ANNOTATION] = project.description
    metadata = {"name": project.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def to_queue(project: ProjectRequest) -> Object:
    """All nine numbers are written: KAI takes an absent limit for zero."""
    unbounded = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    gpu = {
        "quota": _json_number(project.quota),
        "limit": _json_number(project.limit),
        "overQuotaWeight": _json_number(project.weight),
    }
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": dns_label(project.name), "labels": {PROJECT_ANNOTATION: dns_label(project.name)}},
        "spec": {
            "displayName": project.name,
            "parentQueue": department_queue(project.department),
            "resources": {"cpu": dict(unbounded), "memory": dict(unbounded), "gpu": gpu},
        },
    }


def _json_number(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def to_department(name: str) -> Object:
    """A department that nothing bounds."""
    unbounded = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": department_queue(name)},
        "spec": {
            "displayName": name,
            "resources": {"cpu": dict(unbounded), "memory": dict(unbounded), "gpu": dict(unbounded)},
        },
    }


def project_json(project: Project, queue: Object | None, cluster: str) -> dict[str, Any]:
    """Run:ai's Project JSON."""
    gpu = {
        "deserved": _json_number(project.quota),
        "limit": _json_number(project.limit),
        "overQuotaWeight": _weight(queue),
    }
    figures = objects.dig(queue or {}, "status", {})
    status: dict[str, Any] = {
        "namespace": project.namespace,
        "phase": "Deleting" if project.deleting else "Ready" if queue else "NotReady",
        "phaseMessage": "" if queue else f"The project's queue {project.queue!r} does not exist.",
        "quotaStatus": {
            name: _usage(figures.get(name) or {}) for name in ("allocated", "allocatedNonPreemptible", "requested")
        },
        "nodePoolQuotaStatuses": [],
    }
    return {
        "id": project.id,
        "name": project.name,
        "clusterId": cluster,
        "parentId": project.department,
        "description": project.description,
        "status": status,
        "totalResources": {"gpuQuota": float(format_number(project.quota)), "cpuQuota": -1, "memoryQuota": -1},
        "resources": [{"nodePool": {"id": "default", "name": "default"}, "gpu": gpu}],
        "effective": {},
        "enforceRunaiScheduler": True,
        "parent": {"id": project.department, "name": project.department, "type": "department"},
        "defaultNodePools": ["default"],
        "createdAt": project.created,
        "updatedAt": project.created,
    }


def _weight(queue: Object | None) -> int | float:
    return _json_number(Decimal(str(objects.dig(queue or {}, "spec.resources.gpu.overQuotaWeight", 1))))


def _usage(amounts: Mapping[str, Any]) -> dict[str, float]:
    """A queue's figures in Run:ai's units: GPUs, millicores, MB."""
    units = {"gpu": ("nvidia.com/gpu", "1"), "cpu": ("cpu", "0.001"), "memory": ("memory", "1000000")}
    return {ours: float(parse(amounts.get(name, 0)) / Decimal(unit)) for ours, (name, unit) in units.items()}
