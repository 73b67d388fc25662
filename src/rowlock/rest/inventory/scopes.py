"""Look up the projects and departments that a request names; an unknown one is refused with the field's name."""

from __future__ import annotations

from rowlock.errors import BadRequest, Cause
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.inventory import departments
from rowlock.workloads.projects import Project

_MAX_QUOTED = 80


def unknown_project(cache: InformerCache, word: str) -> str:
    """Error message for a project that does not exist, or that the caller may not see."""
    shown = word[:_MAX_QUOTED]
    names = [project.name for project in cache.projects().values()]
    return f"project {shown!r} was not found.{did_you_mean(shown, names)}"


def require_project(call: RestCall, word: str, field: str) -> Project:
    """The project with the id or name `word`, given in the body's `field`. Raises BadRequest."""
    project = call.context.cache.project(word)
    if project is None:
        message = f"{unknown_project(call.context.cache, word)} GET /api/v1/org-unit/projects lists them."
        raise BadRequest(message, causes=[Cause("unknown", message, field)])
    return project


def require_department(call: RestCall, word: str, field: str) -> str:
    """Check the department id `word`, given in the body's `field`; returns it. Raises BadRequest."""
    queues = filter(departments.is_department, call.context.cache.queues())
    if word not in [departments.department_id(queue) for queue in queues]:
        message = f"there is no department {word[:_MAX_QUOTED]!r}. GET /api/v1/org-unit/departments lists them."
        raise BadRequest(message, causes=[Cause("unknown", message, field)])
    return word
