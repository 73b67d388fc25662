"""`/api/v1/me/credentials`: the caller's own credentials. Other users, admins included, cannot see that they exist.

A workload names one with `environmentVariables[].userCredential`, or among its `imagePullSecrets` with `userCredential: true`. It gets
its own Secret in its project with the credential's values at that moment, which is deleted with the workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from rowlock.accounts.user_credentials import UserCredential, UserCredentials
from rowlock.errors import BadRequest
from rowlock.objects import timestamp
from rowlock.rest.assets.asset_store import ACCEPTED
from rowlock.rest.call import JsonResult, RestCall
from rowlock.workloads.assets.asset_objects import parse_body
from rowlock.workloads.assets.credentials import (
    CREDENTIAL_KINDS,
    CREDENTIAL_WORDS,
    EXISTING,
    REGISTRY,
    SECRET_FIELD,
    CredentialKind,
    Data,
)
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.objects import OwnSecret
from rowlock.workloads.pod_options import UserCredentialUse
from rowlock.workloads.submission import Submission

_MAX_DESCRIPTION = 250


def _user_credentials(call: RestCall) -> UserCredentials:
    """The credentials of all users. Raises BadRequest if the caller cannot have any."""
    credentials, instead = call.context.settings.credentials, "make one of the project, below /api/v1/asset/credentials"
    if credentials is None:
        raise BadRequest(f"the server of a real cluster keeps no credentials of users: {instead}")
    if call.user.startswith("system:"):
        raise BadRequest(f"{call.user} is no person, and its name may be another one's tomorrow: {instead}")
    return credentials


def user_key(name: str, *, is_owner: bool) -> str:
    """The key of a user's credentials. It tells the cluster's owner from an account with the same name."""
    return f"owner:{name}" if is_owner else f"user:{name}"


def _caller(call: RestCall) -> str:
    return user_key(call.user, is_owner=call.rights is None)


# ---------------------------------------------------------------- endpoints


async def index(call: RestCall) -> Any:
    """GET /me/credentials: the caller's credentials without their secrets. Raises BadRequest."""
    wanted = call.validate_query("type").get("type", "")
    if wanted and wanted not in CREDENTIAL_WORDS:
        raise BadRequest(f"type: there is no type {wanted[:60]!r}; there are {', '.join(CREDENTIAL_WORDS)}.")
    return {
        "credentials": [_to_json(one) for one in _user_credentials(call).of(_caller(call)) if wanted in ("", one.kind)]
    }


async def create(call: RestCall) -> Any:
    """POST /me/credentials: create a credential of the caller. Raises BadRequest, AlreadyExists."""
    call.validate_query()
    stored = _user_credentials(call)
    top, errors = parse_body(await call.json(), "name", "description", "type", "spec")
    name, description = top.label("name"), _read_description(top)
    row = _row_of(top.choice("type", *CREDENTIAL_WORDS))
    if row is None:
        top.add_error("type", "required", f"must be one of {', '.join(CREDENTIAL_WORDS)}.")
    data, shown = _read_spec(row, top, errors) if row else ({}, {})
    errors.raise_if_any()
    assert row is not None
    new = UserCredential("", _caller(call), name, row.kind, row.secret_type, shown, data, 0.0, 0.0, description)
    return JsonResult(202, _to_json(await stored.create(new)))


async def show(call: RestCall) -> Any:
    """GET /me/credentials/{id}: one of the caller's, by id or name, without its secret. Raises NotFound."""
    call.validate_query()
    return _to_json(_user_credentials(call).find(_caller(call), str(call.path["id"])))


async def update(call: RestCall) -> Any:
    """PUT /me/credentials/{id}: change name, description or values; only workloads submitted later get the new values. Raises
    NotFound, BadRequest, AlreadyExists."""
    call.validate_query()
    stored = _user_credentials(call)
    credential = stored.find(_caller(call), str(call.path["id"]))
    top, errors = parse_body(await call.json(), "name", "description", "spec")
    changes: dict[str, Any] = {}
    if top.get("name") is not None:
        changes["name"] = top.label("name")
    if top.get("description") is not None:
        changes["description"] = _read_description(top)
    if top.get("spec") is not None:
        row = _row_of(credential.kind)
        assert row is not None, credential.kind
        changes["data"], changes["shown"] = _read_spec(row, top, errors)
    errors.raise_if_any()
    return JsonResult(202, _to_json(await stored.change(structs.replace(credential, **changes))))


async def delete(call: RestCall) -> Any:
    """DELETE /me/credentials/{id}: delete a credential; workloads that use it keep its values. Raises NotFound."""
    call.validate_query()
    stored, user = _user_credentials(call), _caller(call)
    await stored.delete(user, stored.find(user, str(call.path["id"])).id)
    return JsonResult(202, ACCEPTED)


def _row_of(kind: str) -> CredentialKind | None:
    return next((row for row in CREDENTIAL_KINDS if row.kind == kind), None)


def _read_description(top: Fields) -> str:
    description = top.text("description")
    if len(description) > _MAX_DESCRIPTION:
        top.add_error("description", "max", f"at most {_MAX_DESCRIPTION} characters are allowed.")
    return description


def _read_spec(row: CredentialKind, top: Fields, errors: BodyErrors) -> tuple[Data, dict[str, Any]]:
    """The data of the Secret and the spec that the owner may see; mistakes are added to `errors`."""
    body = top.get("spec")
    if isinstance(body, Mapping) and body.get(EXISTING) is not None:
        text = "is for credentials of a project: a Secret belongs to all who read Secrets there. Give the values."
        top.object("spec").add_error(EXISTING, "unsupported", text)
        return {}, {}
    data = row.check_spec(body, errors)
    if errors.causes or data is None or not isinstance(body, Mapping):
        return {}, {}
    shown = {name: value for name, value in row.stored_spec(body, "").items() if name != SECRET_FIELD}
    return data, shown


def _to_json(credential: UserCredential) -> dict[str, Any]:
    return {
        "id": credential.id, "name": credential.name, "type": credential.kind,
        "description": credential.description or None, "createdAt": timestamp(credential.created),
        "updatedAt": timestamp(credential.updated),
        "spec": {**credential.shown, "keys": sorted(credential.data)},
    }  # fmt: skip


# ---------------------------------------------------------------- submits


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the credentials of one user; `errors` collects unusable ones."""

    stored: UserCredentials
    user: str
    errors: BodyErrors

    def find(self, use: UserCredentialUse) -> UserCredential | None:
        credential = self.stored.find_named(self.user, use.credential)
        if credential is None:
            message = f"you have no credential {use.credential[:80]!r}: `runai my-credential list` shows yours."
            self.errors.add(use.field, "unknown", message)
        elif use.key and use.key not in credential.data:
            keys = ", ".join(sorted(credential.data))
            self.errors.add(
                use.field, "unknown", f"your credential {credential.name} has no key {use.key[:80]!r}; it has {keys}."
            )
        elif not use.key and credential.kind != REGISTRY:
            message = f"your credential {credential.name} is a {credential.kind}: images are pulled with a {REGISTRY}."
            self.errors.add(use.field, "options", message)
        return credential


def secrets_of_submit(call: RestCall, request: Submission, *, only_shown: bool) -> tuple[OwnSecret, ...]:
    """The Secrets for the caller's credentials that a submit names; for a preview (`only_shown`) their values are empty.
    Raises BadRequest with one cause for each unusable credential."""
    uses = dict.fromkeys(request.user_credentials)
    if not uses:
        return ()
    finder = _Finder(_user_credentials(call), _caller(call), BodyErrors())
    found = {credential.name: credential for use in uses if (credential := finder.find(use)) is not None}
    finder.errors.raise_if_any()
    return tuple(
        OwnSecret(one.name, one.secret_type, dict.fromkeys(one.data, "") if only_shown else one.data)
        for one in found.values()
    )
