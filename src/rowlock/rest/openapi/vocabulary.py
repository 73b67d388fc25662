"""Functions that build JSON schemas. A record always has all its fields; a field that may be null says so."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
ANYTHING: Schema = {}


def nullable(schema: Schema) -> Schema:
    """A schema that also allows null."""
    return {**schema, "type": [schema["type"], "null"]} if "type" in schema else {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    """The schema of a list of these."""
    return {"type": "array", "items": schema}


def choice(*words: str) -> Schema:
    """An enumeration of texts."""
    return {"type": "string", "enum": list(words)}


def record(**fields: Schema) -> Schema:
    """An object with these fields, all required."""
    return {"type": "object", "properties": fields, "required": sorted(fields)}


def with_optional(schema: Schema, **fields: Schema) -> Schema:
    """A record with additional optional fields."""
    return {**schema, "properties": {**schema["properties"], **fields}}


def ref(name: str) -> Schema:
    """A reference to the schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def page_of(field: str, name: str) -> Schema:
    """A page of a list: `next` is the next page's offset, if there is one."""
    return with_optional(record(**{field: list_of(ref(name))}), next=WHOLE)
