"""The schemas of request bodies. Those of submits are derived from the table of a submit's fields."""

from __future__ import annotations

from rowlock import submit_fields
from rowlock.rest.inventory.queue_quotas import EVERYTHING_GIVEN
from rowlock.rest.openapi.asset_schemas import asset_requests, user_credential_requests
from rowlock.rest.openapi.vocabulary import (
    ANYTHING,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    Schema,
    choice,
    list_of,
    record,
    ref,
    with_optional,
)
from rowlock.submit_fields import CODE_FIELDS, SUBMIT_FIELDS, SubmitField
from rowlock.workloads.run_options.notify import EVENTS

_BY_KIND: dict[str, Schema] = {
    "text": TEXT, "int": WHOLE, "float": NUMBER, "switch": FLAG, "duration": WHOLE, "names": list_of(TEXT),
    "words": {"type": ["string", "array"]}, "list": {"type": ["string", "array"]}, "quantity": {"type": ["string", "number"]},
    "numbers": {"type": ["string", "array"]}, "preferred topology": OBJECT, "required topology": OBJECT,
    "excluded nodes": OBJECT, "object": OBJECT, "gpus": NUMBER, "own user": WHOLE,
}  # fmt: skip
"""Kind of field → its JSON schema; all other kinds are lists of objects."""
_WHOLE_NUMBERS = {"compute.gpuDevicesRequest"}


def _field_schema(row: SubmitField, path: str) -> Schema:
    if path in _WHOLE_NUMBERS:
        return {**WHOLE, "description": row.help}
    schema = choice(*row.kind.split("|")) if "|" in row.kind else _BY_KIND.get(row.kind, list_of(OBJECT))
    return {**schema, "description": row.help}


def _spec_schema(names: tuple[str, ...]) -> Schema:
    """The `spec` of a submit with these fields: refused fields are left out."""
    schema: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
    rows = (row for row in SUBMIT_FIELDS if not row.refuse)
    plain_first = sorted(
        rows, key=lambda row: (row.const is not None, row.kind == "switch")
    )  # a switch may share its path with words
    for row in plain_first:
        for path in submit_fields.paths(row):
            first, _, below = path.partition(".")
            if first not in names:
                continue
            place = schema["properties"]
            if below:
                inner = place.setdefault(first, {"type": "object", "properties": {}, "additionalProperties": False})
                place, first = inner["properties"], below
            place.setdefault(first, _field_schema(row, path))
    return schema


_NOTIFY = with_optional(record(url=TEXT), key=TEXT, on=list_of(choice(*EVENTS)))


def _submit_schema(spec: str, *, distributed: bool) -> Schema:
    fields: dict[str, Schema] = {
        "useGivenNameAsPrefix": FLAG, "clusterId": TEXT, "templateId": TEXT, "spec": ref(spec), "submitCommand": TEXT,
        "shellEnvironment": ANYTHING,
        "tags": list_of(TEXT), "note": TEXT, "favourite": FLAG, "notify": _NOTIFY, "maxTimeSeconds": WHOLE, "startAfter": TEXT,
        "after": list_of(with_optional(record(job=TEXT), succeeded=FLAG)),
        "code": {"type": "object", "additionalProperties": False,
                 "properties": {name: WHOLE if name == "changedFiles" else TEXT for name in CODE_FIELDS}},
        "assets": {"type": "object", "properties": {
            "environment": TEXT, "compute": TEXT, "datasources": list_of(record(id=TEXT, kind=TEXT))}},
    }  # fmt: skip
    if distributed:
        fields |= {"masterSpecSameAsWorker": FLAG, "masterSpec": ref("MasterSpec")}
    return with_optional(record(name=TEXT, projectId=TEXT), **fields)


_ALL = submit_fields.field_names()
_BOUNDS: Schema = {"type": "object", "properties": {"deserved": NUMBER, "limit": NUMBER, "overQuotaWeight": NUMBER}}
_ASSET_META = with_optional(
    record(name=TEXT, scope=choice("project", "department", "cluster", "tenant")),
    description=TEXT, clusterId=TEXT, departmentId=TEXT, projectId=WHOLE, workloadSupportedTypes=OBJECT,
)  # fmt: skip
_TEMPLATE_META = with_optional(
    record(name=TEXT, scopeType=choice("project", "department", "cluster", "tenant")), description=TEXT, scopeId=TEXT
)
_TEMPLATE_ASSETS: Schema = {
    "type": "object",
    "properties": {"datasources": list_of({"type": "object", "properties": {"id": TEXT, "kind": TEXT}})},
}
_LABEL: dict[str, Schema] = {"labelKey": TEXT, "labelValue": TEXT}
_NEW_ORG_UNIT: dict[str, Schema] = {
    "clusterId": TEXT,
    "description": TEXT,
    "resources": list_of(ref("ResourcesRequest")),
}

REQUESTS: dict[str, Schema] = {
    "DistributedSpec": _spec_schema(_ALL),
    "MasterSpec": _spec_schema(submit_fields.field_names(whole_job=False)),
    "StandardSpec": _spec_schema(tuple(name for name in _ALL if name not in submit_fields.DISTRIBUTED)),
    "DistributedCreationRequest": _submit_schema("DistributedSpec", distributed=True),
    "StandardCreationRequest": _submit_schema("StandardSpec", distributed=False),
    "SweepRequest": with_optional(
        record(name=TEXT, workload=OBJECT), parameters=OBJECT, search=choice("grid", "random", "tpe"), samples=WHOLE, seed=WHOLE,
        maxParallel=WHOLE, metric=TEXT, order=choice("min", "max"), stop=choice("asha"), stopAfter=WHOLE, file=TEXT, command=TEXT),
    "RunMarks": with_optional(record(), tags=list_of(TEXT), note=TEXT, favourite=FLAG),
    "BatchRequest": record(ids=list_of(TEXT), action=choice("delete", "suspend", "resume")),
    "ResourcesRequest": {"type": "object", "properties": {
        "nodePool": OBJECT, **{name: TEXT if name == "priority" else _BOUNDS for name in sorted(EVERYTHING_GIVEN)}}},
    "ResourcesRequests": list_of(ref("ResourcesRequest")),
    "ProjectRequest": with_optional(
        record(name=TEXT), **_NEW_ORG_UNIT, parentId=TEXT, requestedNamespace=TEXT, enforceRunaiScheduler=FLAG
    ),
    "ProjectUpdate": {"type": "object", "properties": _NEW_ORG_UNIT},
    "DepartmentRequest": with_optional(record(name=TEXT), **_NEW_ORG_UNIT),
    "NodePoolRequest": with_optional(record(name=TEXT, **_LABEL), clusterId=TEXT),
    "NodePoolUpdate": {"type": "object", "properties": _LABEL},
    **asset_requests(_ASSET_META),
    **user_credential_requests(),
    "AssetUpdate": {"type": "object", "properties": {"meta": record(name=TEXT), "spec": OBJECT}},
    "TemplateRequest": with_optional(
        record(meta=_TEMPLATE_META), spec=OBJECT, assets=_TEMPLATE_ASSETS, master=OBJECT, masterSpecSameAsWorker=FLAG
    ),
    "TemplateUpdate": {"type": "object", "properties": {
        "meta": OBJECT, "spec": OBJECT, "assets": _TEMPLATE_ASSETS, "master": OBJECT, "masterSpecSameAsWorker": FLAG}},
    "PolicyRequest": with_optional(record(meta=_ASSET_META), policy={"type": "object", "properties": {
        "defaults": OBJECT, "rules": OBJECT, "imposedAssets": ANYTHING}}),
    "ApplicationRequest": record(name=TEXT),
    "TokenRequest": {"type": "object", "properties": {
        "grantType": choice("client_credentials", "app_token", "password"), "clientId": TEXT, "clientSecret": TEXT, "username": TEXT,
        "password": TEXT}},
    "UserRequest": with_optional(record(email=TEXT), password=TEXT, roles=list_of(TEXT)),
    "PasswordRequest": record(password=TEXT),
    "OwnPasswordRequest": record(currentPassword=TEXT, newPassword=TEXT),
    "AccessRuleRequest": with_optional(
        record(subjectId=TEXT, subjectType=TEXT, scopeType=TEXT), roleId=WHOLE, roleName=TEXT, scopeId=TEXT, clusterId=TEXT
    ),
    "NotifyTest": with_optional(record(), projectId=TEXT, notify=_NOTIFY),
    "ProjectNotifyRequest": _NOTIFY,
    "QueueMove": with_optional(record(workloadId=TEXT), place=choice("first", "last"), before=TEXT, after=TEXT),
    "QuotaTrial": record(projects=list_of(record(id=TEXT, gpuQuota=NUMBER))),
    "ManifestRequest": with_optional(
        record(metadata=with_optional(record(name=TEXT, projectId=TEXT), useGivenNameAsPrefix=FLAG, clusterId=TEXT,
                                      priority=TEXT, category=TEXT, preemptibility=TEXT)),
        manifest=OBJECT, manifestBase64Encoded=TEXT,
    ),
    "ManifestUpdate": {"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"priority": TEXT, "category": TEXT}}, "manifest": OBJECT,
        "manifestBase64Encoded": TEXT}},
    "Manifests": with_optional(record(objects=list_of(OBJECT)), project=TEXT),
}  # fmt: skip
