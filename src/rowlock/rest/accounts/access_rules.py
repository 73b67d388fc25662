"""`/api/v1/authorization/access-rules`, `/roles` and `/me`: who may do what, as views of Kubernetes' bindings of roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Api
from rowlock.errors import AlreadyExists, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.inventory.scopes import unknown_project
from rowlock.rest.workloads import ACCEPTED, WRITE_OPTIONS
from rowlock.workloads import list_query
from rowlock.workloads.accounts.access_rules import (
    ROLES,
    AccessRule,
    Role,
    RuleSubject,
    find_role,
    parse_subject,
    role_json,
    rule_json,
    rules_of,
    to_binding,
    without_subject,
    without_subjects,
)
from rowlock.workloads.body_fields import did_you_mean

_FIELDS = ("subjectId", "subjectType", "roleId", "roleName", "scopeType", "scopeId", "clusterId")
_EVERYWHERE = ("system", "tenant", "cluster")
_FILTERS = ("subjectType", "subjectIdFilter", "subjectIds", "lastUpdated", "includeDeleted", "clusterId", "scopeType",
            "scopeId", "roleId")  # fmt: skip


async def roles(call: RestCall) -> Any:
    """GET /authorization/roles: the roles that rules give."""
    call.validate_query()
    return [role_json(role, call.context.cache.cluster_created) for role in ROLES]


async def show_role(call: RestCall) -> Any:
    """GET /authorization/roles/{id}: by number or name. Raises NotFound."""
    call.validate_query()
    try:
        return role_json(find_role(call.path["id"]), call.context.cache.cluster_created)
    except BadRequest as error:
        raise NotFound(f"Resource id not found: {error.message}") from None


# ---------------------------------------------------------------- lists


async def index(call: RestCall) -> Any:
    """GET /authorization/access-rules: the rules of the projects whose bindings the caller may list, and of all projects."""
    return _list(call, await _visible_rules(call))


async def count(call: RestCall) -> Any:
    """GET /authorization/access-rules/count: how many rules the filters leave."""
    return {"count": len(_select(call, await _visible_rules(call))[0])}


async def index_of_me(call: RestCall) -> Any:
    """GET /authorization/me/access-rules: the rules of the caller and of the caller's groups."""
    return {"accessRules": _list(call, await _rules_of_me(call))}


async def count_of_me(call: RestCall) -> Any:
    """GET /authorization/me/access-rules/count: how many rules the caller has."""
    return {"count": len(_select(call, await _rules_of_me(call))[0])}


def _list(call: RestCall, rules: list[AccessRule]) -> dict[str, Any]:
    rows, query = _select(call, rules)
    body = list_query.list_body("accessRules", rows, query, lambda rule: _rule_json(call, rule))
    return {**body, "totalRecords": len(rows), "displayRecords": len(body["accessRules"])}


def _select(call: RestCall, rules: list[AccessRule]) -> tuple[Any, list_query.Query]:
    readers: list_query.Readers[AccessRule] = {
        "subjectId": lambda rule: rule.subject.id,
        "subjectType": lambda rule: rule.subject.type,
        "roleId": lambda rule: rule.role.id,
        "roleName": lambda rule: rule.role.name,
        "scopeType": lambda rule: "project" if rule.namespace else "cluster",
        "scopeId": lambda rule: _scope(call, rule)[0],
        "scopeName": lambda rule: _scope(call, rule)[1],
        "createdAt": lambda rule: objects.meta(rule.binding).get("creationTimestamp"),
        "createdBy": lambda rule: objects.annotations(rule.binding).get("rowlock.dev/created-by", ""),
        "phase": lambda rule: "Ready",
        list_query.SEARCH: lambda rule: " ".join((rule.subject.id, rule.role.name, _scope(call, rule)[1])).lower(),
    }
    parameters = {name: value for name, value in call.query.items() if name not in _FILTERS}
    kept = [rule for rule in rules if _passes(call, rule)]
    return list_query.select(parameters, kept, readers)


def _passes(call: RestCall, rule: AccessRule) -> bool:
    """Whether a rule passes Run:ai's older filters, each of which is a query parameter."""
    given, scope = call.query, _scope(call, rule)
    ids = {one for one in given.get("subjectIds", "").split(",") if one}
    return (
        given.get("subjectType", rule.subject.type) == rule.subject.type
        and given.get("subjectIdFilter", "") in rule.subject.id
        and (not ids or rule.subject.id in ids)
        and given.get("roleId", str(rule.role.id)) == str(rule.role.id)
        and (given.get("scopeType") in (None, "project" if rule.namespace else "cluster"))
        and given.get("scopeId", scope[0]) == scope[0]
    )


async def _visible_rules(call: RestCall) -> list[AccessRule]:
    bindings: list[Object] = []
    if call.allows("list", kinds.CLUSTER_ROLE_BINDING):
        bindings += await _list_all(call.context.api, call, "")
    projects = call.context.cache.projects()
    if call.allows("list", kinds.ROLE_BINDING):
        page = await call.context.api.list(kinds.ROLE_BINDING)
        bindings += [one for one in page.items if objects.namespace(one) in projects]
    else:
        for namespace in projects:
            if call.allows("list", kinds.ROLE_BINDING, namespace):
                bindings += await _list_all(call.context.api, call, namespace)
    return list(rules_of(bindings))


async def _list_all(api: Api, call: RestCall, namespace: str) -> list[Object]:
    kind = kinds.ROLE_BINDING if namespace else kinds.CLUSTER_ROLE_BINDING
    return list((await api.list(kind, namespace)).items)


async def _rules_of_me(call: RestCall) -> list[AccessRule]:
    api = call.context.server_api or call.context.api
    groups = call.rights.user_groups if call.rights else ()
    pages = [await api.list(kind) for kind in (kinds.CLUSTER_ROLE_BINDING, kinds.ROLE_BINDING)]
    subjects = {("user", call.user), ("app", call.user.removeprefix("app:")), *(("group", one) for one in groups)}
    projects = call.context.cache.projects()
    rules = rules_of(binding for page in pages for binding in page.items)
    return [r for r in rules if tuple(r.subject) in subjects and (not r.namespace or r.namespace in projects)]


def _scope(call: RestCall, rule: AccessRule) -> tuple[str, str]:
    """(id, name) of the project or cluster for which a rule holds."""
    if not rule.namespace:
        return call.context.cache.cluster, call.context.settings.cluster_name
    project = call.context.cache.projects().get(rule.namespace)
    return (project.id, project.name) if project else (rule.namespace, rule.namespace)


def _rule_json(call: RestCall, rule: AccessRule) -> dict[str, Any]:
    return rule_json(rule, _scope(call, rule), call.context.cache.cluster)


# ---------------------------------------------------------------- one rule


async def show(call: RestCall) -> Any:
    """GET /authorization/access-rules/{id}: one rule. Raises NotFound."""
    call.validate_query()
    return _rule_json(call, await _find(call))


async def create(call: RestCall) -> Any:
    """POST /authorization/access-rules: give a role, but no rights that the caller does not have. Raises AlreadyExists,
    BadRequest, Forbidden."""
    call.validate_query()
    body = await call.json()
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for field in body:
        if field not in _FIELDS:
            raise BadRequest(f"there is no field {str(field)[:60]!r}.{did_you_mean(str(field)[:60], _FIELDS)}")
    subject = parse_subject(body.get("subjectType"), body.get("subjectId"))
    role = find_role(body.get("roleId", body.get("roleName")))
    namespace = _parse_scope(call, body.get("scopeType"), body.get("scopeId"))
    return JsonResult(201, _rule_json(call, await add_rule(call, subject, role, namespace)))


async def delete(call: RestCall) -> Any:
    """DELETE /authorization/access-rules/{id}: take the role away at once. Raises NotFound, Forbidden."""
    call.validate_query()
    await _remove(call, await _find(call))
    return JsonResult(202, ACCEPTED)


async def add_rule(call: RestCall, subject: RuleSubject, role: Role, namespace: str) -> AccessRule:
    """Write the binding. Raises AlreadyExists, Forbidden."""
    binding = to_binding(subject, role, namespace, call.user)
    kind = kinds.ROLE_BINDING if namespace else kinds.CLUSTER_ROLE_BINDING
    try:
        made = await call.context.api.create(kind, binding, options=WRITE_OPTIONS)
    except AlreadyExists:
        raise AlreadyExists(f"{subject.type} {subject.id!r} has the role {role.name} there already") from None
    return next(rules_of([made]))


async def delete_rules_of(call: RestCall, is_gone: Callable[[RuleSubject], bool]) -> None:
    """Take every rule from the subjects that go, so that a later subject of the same name does not inherit them. The server deletes
    them with its own rights: the caller may have none in some of the projects."""
    api = call.context.server_api or call.context.api
    for kind in (kinds.ROLE_BINDING, kinds.CLUSTER_ROLE_BINDING):
        bindings = (await api.list(kind)).items
        for rule in {objects.uid(one.binding): one for one in rules_of(bindings) if is_gone(one.subject)}.values():
            await _write_back(api, rule, without_subjects(rule, is_gone))


async def _remove(call: RestCall, rule: AccessRule) -> None:
    await _write_back(call.context.api, rule, without_subject(rule))


async def _write_back(api: Api, rule: AccessRule, left: Object | None) -> None:
    """Write the rule's changed binding; None deletes it."""
    if left is None:
        await api.delete(rule.kind, rule.namespace, objects.name(rule.binding))
    else:
        await api.update(rule.kind, left, options=WRITE_OPTIONS)


async def _find(call: RestCall) -> AccessRule:
    wanted = str(call.path["id"])
    rule = next((one for one in await _visible_rules(call) if str(one.id) == wanted), None)
    if rule is None:
        raise NotFound(
            f"Resource id not found: there is no access rule {wanted[:60]!r}. `rowlock access-rule list` lists them."
        )
    return rule


def _parse_scope(call: RestCall, scope_type: object, scope_id: object) -> str:
    """The namespace that a new rule is for; "" for all. Raises BadRequest."""
    if scope_type in _EVERYWHERE:
        return ""
    if scope_type == "department":
        raise BadRequest(
            "a rule for a department is not there: Kubernetes binds roles in one namespace or in all, and projects come and go in a"
            " department. Make a rule for each project, or for a group that all have"
        )
    if scope_type != "project":
        raise BadRequest(
            f"scopeType must be project, or {', '.join(_EVERYWHERE)} for all, not {str(scope_type)[:60]!r}"
        )
    project = call.context.cache.project(str(scope_id)) if isinstance(scope_id, str | int) else None
    if project is None:
        raise BadRequest(f"{unknown_project(call.context.cache, str(scope_id))} `rowlock project list` lists them.")
    return project.namespace
