"""The schemas of assets: each kind's `spec` in requests, and credentials, whose answers omit the secrets."""

from __future__ import annotations

from rowlock.rest.openapi.vocabulary import (
    ANYTHING,
    FLAG,
    OBJECT,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    choice,
    list_of,
    nullable,
    record,
    ref,
    with_optional,
)
from rowlock.workloads.assets.asset_kinds import ASSET_KINDS, AssetKind
from rowlock.workloads.assets.credentials import (
    CREDENTIAL_KINDS,
    CREDENTIAL_WORDS,
    EXISTING,
    SECRET_FIELD,
    CredentialKind,
)

_NOT_TEXT: dict[str, Schema] = {
    "readOnly": FLAG, "existingPvc": FLAG, "ephemeral": FLAG, "claimInfo": OBJECT, "secretRef": OBJECT,
    "keyValuePairs": list_of(record(key=TEXT, value=TEXT)), "keys": list_of(TEXT),
}  # fmt: skip
"""Fields of data sources and credentials that are not text."""


def _spec_schema(row: AssetKind) -> Schema:
    """An asset's spec. Environments and compute resources have the fields of a submit, which its own schema describes."""
    fields = {name: _NOT_TEXT.get(name, TEXT) if row.storage else ANYTHING for name in row.fields}
    schema: Schema = {"type": "object", "properties": fields, "additionalProperties": False}
    needed = {"nfs": ["mountPath", "path", "server"], "s3": ["bucket", "path"], "git": ["path", "repository"],
              "secret-volume": ["credentialAssetId", "mountPath"], "hostPath": ["mountPath", "path"],
              "config-map": ["configMap", "mountPath"], "pvc": ["path"]}.get(row.kind)  # fmt: skip
    return schema | ({"required": needed} if needed else {})


def _credential_spec(row: CredentialKind) -> Schema:
    """A credential's spec: its own fields, or the name of an existing Secret."""
    fields = {name: _NOT_TEXT.get(name, TEXT) for name in (*row.shown, *row.hidden)}
    return {"type": "object", "properties": {EXISTING: TEXT, **fields}, "additionalProperties": False}


def _credential_answer(row: CredentialKind) -> Schema:
    shown = {name: TEXT for name in row.shown} | ({"keys": list_of(TEXT)} if not row.shown else {})
    return with_optional(record(**{SECRET_FIELD: TEXT, "keyId": WHOLE}), **{EXISTING: TEXT}, **shown)


_OWN_SPEC: Schema = {
    "type": "object",
    "properties": {name: _NOT_TEXT.get(name, TEXT) for row in CREDENTIAL_KINDS for name in (*row.shown, *row.hidden)},
    "additionalProperties": False,
}
"""The spec of a user's credential: the fields of its type."""


def user_credential_requests() -> dict[str, Schema]:
    """The bodies that create and change a user's own credential."""
    changes: dict[str, Schema] = {"name": TEXT, "description": TEXT, "spec": _OWN_SPEC}
    new = record(name=TEXT, type=choice(*CREDENTIAL_WORDS), spec=_OWN_SPEC)
    return {
        "UserCredentialRequest": {**with_optional(new, description=TEXT), "additionalProperties": False},
        "UserCredentialUpdate": {"type": "object", "properties": changes, "additionalProperties": False},
    }


def user_credential_answers() -> dict[str, Schema]:
    """The answers that have a user's own credentials."""
    shown = {name: TEXT for row in CREDENTIAL_KINDS for name in row.shown}
    one = record(
        id=TEXT, name=TEXT, type=choice(*CREDENTIAL_WORDS), description=nullable(TEXT), createdAt=TIME, updatedAt=TIME,
        spec=with_optional(record(keys=list_of(TEXT)), **shown),
    )  # fmt: skip
    return {"UserCredential": one, "UserCredentials": record(credentials=list_of(ref("UserCredential")))}


def asset_requests(meta: Schema) -> dict[str, Schema]:
    """The bodies of creates and updates, by the name of their schema."""
    new_meta = {"type": "object", "properties": {"name": TEXT, "description": TEXT}}
    return {
        **{f"{row.kind}Request": record(meta=meta, spec=_spec_schema(row)) for row in ASSET_KINDS},
        **{f"{row.kind}Request": record(meta=meta, spec=_credential_spec(row)) for row in CREDENTIAL_KINDS},
        **{
            f"{row.kind}Update": {"type": "object", "properties": {"meta": new_meta, "spec": _credential_spec(row)}}
            for row in CREDENTIAL_KINDS
        },
    }


def credential_answers(meta: Schema) -> dict[str, Schema]:
    """The answers that have credentials, by the name of their schema."""
    answers: dict[str, Schema] = {}
    for row in CREDENTIAL_KINDS:
        answers[f"{row.kind}Credential"] = record(meta=meta, spec=_credential_answer(row))
        answers[f"{row.kind}Credentials"] = record(entries=list_of(ref(f"{row.kind}Credential")))
    of_any_kind = {"type": "object", "properties": {row.kind: _credential_answer(row) for row in CREDENTIAL_KINDS}}
    answers["CredentialsOfAllKinds"] = record(entries=list_of(record(meta=meta, spec=of_any_kind)))
    return answers
