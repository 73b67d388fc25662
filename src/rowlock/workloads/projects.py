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
from rowlock.workloads.compute import plain
from rowlock.workloads.fields import Fields, Mistakes

QUEUE_LABEL = "runai/queue"
PROJECT = "rowlock.dev/project"
DEPARTMENT_PREFIX = "department-"
UNLIMITED = -1
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST = 50


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


def mangled(name: str) -> str:
    """The DNS label for a project's name: `project_name` → `project-name`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "project"


def namespace_of(name: str) -> str:
    return f"runai-{mangled(name)}"


def department_queue(name: str) -> str:
    return DEPARTMENT_PREFIX + mangled(name)


def is_project(namespace: Object) -> bool:
    return QUEUE_LABEL in objects.labels(namespace)


def of(namespace: Object, queue: Object | None) -> Project:
    """The project that a namespace and its queue (None when somebody deleted it) make."""
    name = objects.annotations(namespace).get(PROJECT) or objects.name(namespace).removeprefix("runai-")
    parent = str(objects.dig(queue or {}, "spec.parentQueue", ""))
    return Project(
        id=project_id(objects.uid(namespace)),
        name=name,
        namespace=objects.name(namespace),
        queue=objects.labels(namespace)[QUEUE_LABEL],
        department=parent.removeprefix(DEPARTMENT_PREFIX) or "default",
        created=str(objects.meta(namespace).get("creationTimestamp") or ""),
        quota=_gpu(queue, "quota"),
        limit=_gpu(queue, "limit"),
        deleting=objects.deleting(namespace),
    )


def project_id(uid: str) -> str:
    """A positive number, stable for the namespace's life."""
    return str(int(uid.replace("-", "")[:8] or "0", 16) + 1)


def _gpu(queue: Object | None, bound: str) -> Decimal:
    return Decimal(str(objects.dig(queue or {}, f"spec.resources.gpu.{bound}", UNLIMITED)))


@dataclass(frozen=True, slots=True)
class Creation:
    """A project as asked for."""

    name: str
    namespace: str
    department: str
    quota: Decimal
    limit: Decimal
    weight: Decimal


def read(body: Any) -> Creation:
    """The body of `POST /api/v1/org-unit/projects`. Raises BadRequest with one cause per mistake."""
    mistakes = Mistakes()
    top = Fields("", body if isinstance(body, Mapping) else {}, mistakes)
    if not isinstance(body, Mapping):
        mistakes.add("body", "type", "must be a JSON object.")
    top.only("name", "clusterId", "description", "parentId", "requestedNamespace", "resources", "enforceRunaiScheduler")
    name = top.text("name")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        fix = f"Use {mangled(name)[:_LONGEST].strip('-')!r}, for example."
        message = f"{name!r} must be 1 to {_LONGEST} letters, digits, '-', '_' or '.', a letter or digit at both ends."
        top.wrong("name", "format", f"{message} {fix}")
    namespace = top.text("requestedNamespace") or namespace_of(name)
    quota, limit, weight = _quota(top)
    mistakes.check()
    return Creation(name, namespace, top.text("parentId") or "default", quota, limit, weight)


def _quota(top: Fields) -> tuple[Decimal, Decimal, Decimal]:
    """The first node pool's GPUs; there is one pool. Unset means unbounded, in rowlock as in no other default."""
    pools = top.items("resources")
    if len(pools) > 1:
        top.wrong("resources", "max", 'there is one node pool, "default"; give one item.')
    gpu = pools[0].object("gpu") if pools else Fields("resources[0].gpu", {}, top.mistakes)
    if pools:
        pools[0].only("nodePool", "gpu", "cpu", "memory", "priority")
        for other in ("cpu", "memory"):
            if (pools[0].object(other).number("deserved") or -1) > 0:
                pools[0].wrong(other, "unsupported", "quotas of CPU and memory cannot be set here yet. Leave it out.")
    gpu.only("deserved", "limit", "overQuotaWeight")
    amounts = []
    for name, default in (("deserved", UNLIMITED), ("limit", UNLIMITED), ("overQuotaWeight", 1)):
        amount = gpu.number(name)
        if amount is not None and amount < 0 and amount != UNLIMITED:
            gpu.wrong(name, "min", f"must be no less than 0, or -1 for no bound, but is {amount:g}.")
        amounts.append(Decimal(str(default if amount is None else amount)))
    return amounts[0], amounts[1], amounts[2]


def to_namespace(project: Creation) -> Object:
    labels = {QUEUE_LABEL: mangled(project.name)}
    annotations = {PROJECT: project.name}
    metadata = {"name": project.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def to_queue(project: Creation) -> Object:
    """All nine numbers are written: KAI takes an absent limit for zero."""
    free = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    gpu = {"quota": _json(project.quota), "limit": _json(project.limit), "overQuotaWeight": _json(project.weight)}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": mangled(project.name), "labels": {PROJECT: mangled(project.name)}},
        "spec": {
            "displayName": project.name,
            "parentQueue": department_queue(project.department),
            "resources": {"cpu": dict(free), "memory": dict(free), "gpu": gpu},
        },
    }


def _json(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)


def to_department(name: str) -> Object:
    """A department that nothing bounds."""
    free = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": department_queue(name)},
        "spec": {"displayName": name, "resources": {"cpu": dict(free), "memory": dict(free), "gpu": dict(free)}},
    }


def present(project: Project, queue: Object | None, cluster: str) -> dict[str, Any]:
    """Run:ai's Project JSON."""
    gpu = {"deserved": _json(project.quota), "limit": _json(project.limit), "overQuotaWeight": 1}
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
        "description": "",
        "status": status,
        "totalResources": {"gpuQuota": float(plain(project.quota)), "cpuQuota": -1, "memoryQuota": -1},
        "resources": [{"nodePool": {"id": "default", "name": "default"}, "gpu": gpu}],
        "effective": {},
        "enforceRunaiScheduler": True,
        "parent": {"id": project.department, "name": project.department, "type": "department"},
        "defaultNodePools": ["default"],
        "createdAt": project.created,
        "updatedAt": project.created,
    }


def _usage(amounts: Mapping[str, Any]) -> dict[str, float]:
    """A queue's figures in Run:ai's units: GPUs, millicores, MB."""
    units = {"gpu": ("nvidia.com/gpu", "1"), "cpu": ("cpu", "0.001"), "memory": ("memory", "1000000")}
    return {ours: float(parse(amounts.get(name, 0)) / Decimal(unit)) for ours, (name, unit) in units.items()}
