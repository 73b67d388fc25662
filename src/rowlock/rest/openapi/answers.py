"""The schemas of answers, by name, derived from the types of `rowlock.answers`. `tests/rest/test_openapi.py` checks every route against them."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from rowlock.answers import Json, Time, accounts, cluster, sweeps, workloads
from rowlock.rest.openapi.asset_schemas import credential_answers, user_credential_answers
from rowlock.rest.openapi.vocabulary import (
    ANYTHING,
    FLAG,
    NUMBER,
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

_SCALARS = ((Time, TIME), (Json, OBJECT), (Any, ANYTHING), (str, TEXT), (bool, FLAG), (int, WHOLE), (float, NUMBER))


def schema_of(answer: Any) -> Schema:
    """The schema of a type; a record is referred to by its name."""
    for scalar, schema in _SCALARS:
        if answer == scalar:
            return schema
    if is_typeddict(answer):
        return ref(answer.__name__)
    origin, parts = get_origin(answer), get_args(answer)
    if origin is list:
        return list_of(schema_of(parts[0]))
    if origin is Literal:
        return choice(*parts)
    assert origin in (UnionType, Union) and parts[1:] == (NoneType,), f"no schema stands for {answer}"
    return nullable(schema_of(parts[0]))


def describe(answer: Any) -> Schema:
    """The schema of an answer with its fields, each of which is always there, except for those that are NotRequired."""
    if not is_typeddict(answer):
        return schema_of(answer)
    fields = get_type_hints(answer, include_extras=True)
    optional = {name: schema_of(get_args(of)[0]) for name, of in fields.items() if get_origin(of) is NotRequired}
    return with_optional(
        record(**{name: schema_of(of) for name, of in fields.items() if name not in optional}), **optional
    )


_MODULES = (workloads, cluster, accounts, sweeps)
_LISTS = {"Clusters": cluster.Clusters, "Users": accounts.Users, "Roles": accounts.Roles}
RECORDS = {name: of for module in _MODULES for name, of in vars(module).items() if is_typeddict(of)}
"""Every record of an answer, by name."""

ANSWERS: dict[str, Schema] = {
    **{name: describe(of) for name, of in {**RECORDS, **_LISTS, "Snapshot": Json, "OpenAPI": Json}.items()},
    **credential_answers(ref("AssetMeta")),
    **user_credential_answers(),
}
