"""`/api/v1/users`: users with a password; `/api/v1/me`: the caller, and the caller's password.

A caller that may set passwords can act as any user, so all routes here need Kubernetes' right for that: `impersonate users`.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import partial
from operator import eq
from typing import Any

from rowlock.accounts.user_accounts import UserAccount, UserAccounts
from rowlock.errors import BadRequest, Forbidden
from rowlock.http_server.connection_limits import client_of
from rowlock.kinds import Kind
from rowlock.rest.accounts import access_rules
from rowlock.rest.accounts.user_credentials import user_key
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.workloads import ACCEPTED
from rowlock.workloads import list_query
from rowlock.workloads.accounts.access_rules import RuleSubject, find_role
from rowlock.workloads.body_fields import did_you_mean

USER = Kind("", "v1", "User", "users", namespaced=False)
"""The resource of the verb `impersonate`; it has no objects."""
_FIELDS = (
    "email", "username", "name", "password", "roles", "entityType", "tenantId", "needToChangePassword", "permitAllClusters",
    "permittedClusters", "userId", "resetPassword", "notify",
)  # fmt: skip
"""Fields that Run:ai's clients send. Only name, password and roles have an effect here."""
_READERS: list_query.Readers[UserAccount] = {
    "username": lambda account: account.name,
    "createdBy": lambda account: account.created_by,
    "creationTime": lambda account: account.created,
    "type": lambda account: "regular-user",
    list_query.SEARCH: lambda account: account.name,
}


def _accounts(call: RestCall) -> UserAccounts:
    """The local accounts. Raises BadRequest when the server has none."""
    accounts = call.context.settings.accounts
    if accounts is None:
        raise BadRequest("this server keeps no passwords: users of a real cluster come with a token of that cluster")
    return accounts


async def index(call: RestCall) -> Any:
    """GET /users: the users with a password account, filtered, sorted and paged. Raises BadRequest."""
    rows, query = list_query.select(call.query, _accounts(call).all(), _READERS, other_parameters=("filter",))
    return [_user_json(account) for account in list_query.page_of(rows, query)[0]]


async def count(call: RestCall) -> Any:
    """GET /users/count: how many users the filters leave."""
    return {"count": len(list_query.select(call.query, _accounts(call).all(), _READERS)[0])}


async def show(call: RestCall) -> Any:
    """GET /users/{id}: by id or name. Raises NotFound."""
    call.validate_query()
    return _user_json(_accounts(call).find(str(call.path["id"])))


async def create(call: RestCall) -> Any:
    """POST /users: create a user. Without a password one is generated and returned once. `roles` hold in all projects.
    Raises AlreadyExists."""
    call.validate_query()
    body = _object(await call.json(), _FIELDS)
    roles = body.get("roles") or []
    if not isinstance(roles, list):
        raise BadRequest("roles must be a list of names")
    wanted = [find_role(role) for role in roles]
    name = body.get("email") or body.get("username") or body.get("name")
    given = body.get("password")
    password = given if given is not None else secrets.token_urlsafe(18)
    account = await _accounts(call).create(name, password, call.user)
    try:
        for role in wanted:
            await access_rules.add_rule(call, RuleSubject("user", account.name), role, "")
    except Exception:
        await _accounts(call).delete(account.name)
        raise
    return JsonResult(201, {**_user_json(account), **({} if given is not None else {"tempPassword": password})})


async def delete(call: RestCall) -> Any:
    """DELETE /users/{id}: delete a user with credentials, access rules and tokens. Raises NotFound."""
    call.validate_query()
    account = _accounts(call).find(str(call.path["id"]))
    await access_rules.delete_rules_of(call, partial(eq, RuleSubject("user", account.name)))
    if (credentials := call.context.settings.credentials) is not None:
        await credentials.forget(user_key(account.name, is_owner=False))
    await _accounts(call).delete(account.name)
    return JsonResult(202, ACCEPTED)


async def reset_password(call: RestCall) -> Any:
    """POST /users/{id}/password: generate a new password, which is returned once. Raises NotFound."""
    call.validate_query()
    account, password = _accounts(call).find(str(call.path["id"])), secrets.token_urlsafe(18)
    await _accounts(call).set_password(account.name, password)
    return {**_user_json(account), "tempPassword": password}


async def set_password(call: RestCall) -> Any:
    """PUT /users/{id}/password: set the password of the body; the user's tokens end. Raises NotFound."""
    call.validate_query()
    account = _accounts(call).find(str(call.path["id"]))
    await _accounts(call).set_password(account.name, _object(await call.json(), ("password",)).get("password"))
    return _user_json(account)


async def end_sessions(call: RestCall) -> Any:
    """POST /users/{id}/logout: end all tokens of a user. Raises NotFound."""
    call.validate_query()
    account = _accounts(call).find(str(call.path["id"]))
    await _accounts(call).end_sessions(account.name)
    return JsonResult(202, ACCEPTED)


async def show_me(call: RestCall) -> Any:
    """GET /me: the caller."""
    call.validate_query()
    accounts = call.context.settings.accounts
    account = accounts.get(call.user) if accounts and call.rights is not None else None
    groups = list(call.rights.user_groups) if call.rights else ["system:masters"]
    return {"username": call.user, "groups": groups, "isLocalAccount": account is not None}


async def change_own_password(call: RestCall) -> Any:
    """POST /me/password: set a new password, given the current one. The user's tokens end. Raises Forbidden."""
    call.validate_query()
    body = _object(await call.json(), ("currentPassword", "newPassword"))
    current = body.get("currentPassword")
    address = client_of(call.request.client.host if call.request.client else "")
    accounts = _accounts(call)
    account = await accounts.authenticate(call.user, current, address) if isinstance(current, str) else None
    if account is None:
        raise Forbidden("the current password is wrong, or you have none here")
    await accounts.set_password(account.name, body.get("newPassword"))
    return JsonResult(202, ACCEPTED)


def _object(body: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    for field in body:
        if field not in known:
            raise BadRequest(f"there is no field {str(field)[:60]!r}.{did_you_mean(str(field)[:60], known)}")
    return body


def _user_json(account: UserAccount) -> dict[str, Any]:
    created = datetime.fromtimestamp(account.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": account.id, "userId": account.id, "username": account.name, "email": account.name, "entityType": "regular-user",
        "createdAt": created, "updatedAt": created, "createdBy": account.created_by, "tenantId": 1, "lastLogin": None,
        "isLocal": True, "groups": [],
    }  # fmt: skip
