"""Facts about fields of Go structs that OpenAPI lacks, recorded in the table of types by `scripts/go_facts`.

A struct is a text with one word per field: `2:+io.k8s.api.core.v1.VolumeSource 8:resources! 14:imagePullPolicy=v1.PullPolicy
24:restartPolicy*=v1.ContainerRestartPolicy`. A word is the protobuf number, the JSON name, a mark, and after `=` the Go
type if the schema does not imply it. `!`: written even if empty (no `omitempty`, or a struct by
value); `*`: a pointer, whose zero value is kept if set; without a mark, a zero value is dropped. `+`
names a type whose fields are inline in JSON. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rowlock.apiserver.schema import types
from rowlock.apiserver.schema.types import Schema

KEYS = FIELDS, DEFAULTS = "x-go-fields", "x-go-defaults"
"""The keys in a schema for its struct, and for the defaults that the defaulting functions set in an empty one."""

_WORD = re.compile(r"(\d+):([^!*=]+)([!*]?)(?:=(.*))?")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a Go struct."""

    always: bool
    pointer: bool
    go: str
    """Its Go type without the pointer; "" if the schema implies it."""


TYPE_META = Field(always=False, pointer=False, go="")
"""`apiVersion` and `kind`, which are inline in every object and have no protobuf number."""


def fields(node: Schema) -> dict[str, Field]:
    """The fields of a built-in type, including those of inline types; {} for any other schema."""
    found: dict[str, Field] = {}
    for _, name, mark, go in _words(node):
        if name.startswith("+"):
            found |= fields(types.schema(name[1:]))
        else:
            found[name] = Field(mark == "!", mark == "*", go)
    return found


def numbers(node: Schema) -> dict[int, str]:
    """Protobuf field number → JSON name, or `+` and the type of an inline field."""
    return {int(number): name for number, name, _, _ in _words(node)}


def _words(node: Schema) -> list[tuple[str, str, str, str]]:
    found = map(_WORD.fullmatch, node.get(FIELDS, "").split())
    return [(word[1], word[2], word[3], word[4] or "") for word in found if word]


def zero_value(node: Schema) -> Any:
    """Go's zero value of a field, or of an element of a list or map, which replaces a null."""
    if "$ref" in node:
        leaf = {types.QUANTITY: "0", types.INT_OR_STRING: 0}
        return leaf.get(node["$ref"], {} if "properties" in types.schema(node["$ref"]) else None)
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(node.get("type", ""))


def zeros(node: Schema) -> dict[str, Any]:
    """The fields of a built-in type that Go always writes, with their zero values."""
    found = {}
    for key, about in fields(node).items():
        if about.always:
            child = node["properties"][key]
            zero = zero_value(child)
            found[key] = zeros(types.schema(child["$ref"])) if zero == {} else zero
    return found


def go_type(node: Schema) -> str:
    """The type that a schema implies in Go."""
    ref = node.get("$ref")
    if ref:
        return ".".join(ref.split(".")[-2:])
    more = node.get("additionalProperties")
    if isinstance(more, dict):
        return "v1.ResourceList" if more.get("$ref") == types.QUANTITY else f"map[string]{go_type(more)}"
    if node.get("type") == "array":
        return f"[]{go_type(node.get('items') or {})}"
    if node.get("format") == "byte":
        return "[]uint8"
    names: dict[Any, str] = {
        "string": "string",
        "boolean": "bool",
        "number": "float64",
        "object": "map[string]interface {}",
    }
    return node.get("format", "int64") if node.get("type") == "integer" else names.get(node.get("type"), "interface {}")
