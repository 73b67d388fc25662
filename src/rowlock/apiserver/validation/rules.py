"""The interpreter of `rules.txt`: walks an object by the table of types and checks its fields. Pure.

By the table of types, an absent field is checked as its Go zero value, unless it is a pointer, which is
not checked; checks of a list get each element. A check gets a value and the `Scope` of its struct, and
returns causes with fields relative to the value, so that no paths are built for a valid object. Rows are compiled to
closures at a type's first use. `@rule` makes a function of this folder available in `rules.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from rowlock.apiserver.schema import structs, types
from rowlock.apiserver.schema.types import Schema
from rowlock.apiserver.validation import ip_addresses
from rowlock.documents import field_errors
from rowlock.documents.field_errors import duplicate_value, forbidden_field, invalid_value, required_value
from rowlock.errors import Cause


class Scope(msgspec.Struct):
    """A struct that contains the value being checked, and notes of checks about it."""

    struct: dict[str, Any]
    outer: Any = None
    """The scope of the enclosing struct; None at the top."""
    notes: dict[str, Any] = {}

    def is_repeated(self, what: str, value: Any) -> bool:
        """Whether a value has been seen before in this struct under the name `what`; records it."""
        seen: set[Any] = self.notes.setdefault(what, set())
        repeated = value in seen
        seen.add(value)
        return repeated


Check = Callable[[Any, Scope], Iterable[Cause]]


_Row = tuple[str, str, Any, str | None, bool | None, tuple[Check, ...]]
"""A compiled line of `rules.txt`: the field; the path of its causes; its Go zero value;
the meaning of an empty value (a text: it is required, and why; `_OPTIONAL`: skip the checks; None: check it); whether
causes of list elements have an index, None if it is not a list; and the checks."""


class _Rows(NamedTuple):
    """The rows of a type."""

    all: list[_Row]
    by_shape: dict[tuple[str, ...], list[_Row]]
    """A cache: field names of a struct → the rows that apply to it. Few combinations of fields are common."""

    def of_shape(self, value: dict[str, Any]) -> list[_Row]:
        """The rows that apply to a struct: those of its fields, and those that also check absent fields."""
        found = [
            r
            for r in self.all
            if r[0] in value or not r[0] or r[3] not in (None, _OPTIONAL) or (r[2] is not None and r[3] is None)
        ]
        if len(self.by_shape) >= _SHAPES:
            self.by_shape.clear()
        return self.by_shape.setdefault(tuple(value), found)


_SHAPES = 64
_OPTIONAL = "optional"
_ROW = re.compile(r"(\S+)(?: > (\S+))?((?: +[^\s\"]+(?:\"[^\"]*\")?)*)")
_WORD = re.compile(r"([^\s\":]+):?([^\s\"]*)(?:\"([^\"]*)\")?")
_CHECKS: dict[str, Check] = {}
_MANY = 32
_QUICK: dict[Check, Callable[[list[Any]], bool]] = {}
"""Fast checks for many elements: True if all are valid."""


def rule(check: Check) -> Check:
    """Register a function as a check for `rules.txt`, under its name. Raises ValueError if the name is taken."""
    if _CHECKS.setdefault(check.__name__, check) is not check:
        raise ValueError(f"two rules are called {check.__name__}")
    return check


def quick_rule(check: Check) -> Callable[[Callable[[list[Any]], bool]], Callable[[list[Any]], bool]]:
    """Register a fast version of a check for many elements, which returns True if all are valid."""

    def note(quick: Callable[[list[Any]], bool]) -> Callable[[list[Any]], bool]:
        _QUICK[check] = quick
        return quick

    return note


def validate(name: str, value: dict[str, Any], path: str = "") -> list[Cause]:
    """The causes for an object, or for the part at `path`; [] if there are no rows of that name."""
    found = check_struct(name, value, None) if name in rule_names() else ()
    return [Cause(c.reason, c.message, (path + c.field).removeprefix(".")) for c in found] if found else []


def check_struct(name: str, value: dict[str, Any], outer: Scope | None) -> list[Cause]:
    """The causes for a struct from the rows of that name; their fields are relative to it."""
    return _check_rows(rows(name), value, outer)


def _check_rows(found: _Rows, value: dict[str, Any], outer: Scope | None) -> list[Cause]:
    causes: list[Cause] = []
    todo = found.by_shape.get(tuple(value))
    if todo is None:
        todo = found.of_shape(value)
    if not todo:
        return causes
    scope = Scope(value, outer)
    for field, path, zero, empty, indexed, checks in todo:
        part: Any = value.get(field, zero) if field else value
        if not part:
            if empty is _OPTIONAL or (part is None and empty is None):
                continue
            if empty is not None and part.__class__ is not dict:  # `{}` counts as present
                causes.append(required_value(path, empty))
                continue
        if indexed is None:
            for check in checks:
                for cause in check(part, scope):
                    causes.append(Cause(cause.reason, cause.message, path + cause.field))
        elif len(part) < _MANY or not all(check in _QUICK and _QUICK[check](part) for check in checks):
            for number, item in enumerate(part):
                for check in checks:
                    for cause in check(item, scope):
                        causes.append(_under(path, f"[{number}]" if indexed else "", cause))
    return causes


def _under(path: str, index: str, cause: Cause) -> Cause:
    """A cause of a list element with its full field; `..` is the list, `../..` the struct that contains it."""
    field = cause.field
    if not field.startswith(".."):
        field = path + index + field
    elif field.startswith("../.."):
        field = field[5:].replace("/", ".")
    else:
        field = path + field[2:].replace("/", ".")
    return Cause(cause.reason, cause.message, field)


# ---------------------------------------------------------------- the file


@cache
def rule_names() -> dict[str, list[str]]:
    """The lines of `rules.txt` for each name."""
    text = resources.files("rowlock.apiserver.validation").joinpath("rules.txt").read_text("utf-8")
    found: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            rows.append(line.strip())
        elif line and not line.startswith("#"):
            names, _, row = line.partition(": ")
            rows = [row] if row else []
            found.update(dict.fromkeys(names.split(", "), rows))
    return found


@cache
def rows(name: str) -> _Rows:
    """The compiled rows of that name. Raises KeyError for an unknown field or check."""
    type_name = name.partition(" ")[0]
    group, _, short = type_name.rpartition(".")
    prefix = "io.k8s.apimachinery.pkg.apis" if group == "meta.v1" else "io.k8s.api"
    node = types.schema(f"{prefix}.{group or 'core.v1'}.{short}")
    return _Rows([_compile_row(name, node, line) for line in rule_names()[name]], {})


@cache
def rows_name(type_name: str) -> str:
    """The name in `rules.txt` of a type in the table of types."""
    return ".".join(type_name.split(".")[-3:]).removeprefix("core.v1.")


def _compile_row(name: str, node: Schema, line: str) -> _Row:
    match = _ROW.fullmatch(line)
    if match is None:
        raise ValueError(f"rules.txt, {name}: cannot read {line!r}")
    field, place, words = match[1], match[2], [(m[1], m[2], m[3]) for m in _WORD.finditer(match[3])]
    empty = None
    if words and words[0][0] in ("optional", "required", "absent"):
        word, _, why = words.pop(0)
        empty = _OPTIONAL if word != "required" else why or ""
        if word == "absent":
            return (
                field,
                place or f".{field}",
                None,
                empty,
                None,
                (lambda _value, _: (forbidden_field("", why or ""),),),
            )
    path = "" if "." in (field, place) else place if place and place.startswith("..") else place or f".{field}"
    if field == ".":
        return "", "", None, None, None, tuple(_compile_check(name, node, word) for word in words)
    child, about = node["properties"][field], structs.fields(node)[field]
    whole = types.resolve_ref(child)
    is_list, is_struct = whole.get("type") == "array", "properties" in whole
    item = whole.get("items", {}) if is_list else child
    words = words or ([("fields", "", None)] if "$ref" in item else [])
    checks = tuple(_compile_check(f"{name}.{field}", item, word) for word in words)
    zero = None if is_list or is_struct or about.pointer else structs.zero_value(child)
    return field, path, zero, empty, not place if is_list else None, checks


def _compile_check(where: str, item: Schema, word: tuple[str, str, str | None]) -> Check:
    """Compile a word of a rule into a check; `item`: the type of the values to check."""
    name, argument, sentence = word
    match name:
        case "fields" | "rows":
            struct = rows_name(item["$ref"]) + (f" {argument}" if argument else "")
            if struct not in rule_names():
                raise KeyError(f"{where}: there are no rows for {struct}")
            return _walk_check(struct)
        case "enum" | "in":
            values = tuple(types.resolve_ref(item)["enum"] if name == "enum" else argument.split(","))
            return lambda value, _: () if value in values else (field_errors.not_supported("", value, values),)
        case "present":
            return lambda value, _: () if value else (required_value("", sentence or ""),)
        case "filled":
            return lambda value, _: () if value else (invalid_value("", "", sentence or ""),)
        case "max_length":
            why = f"can have at most {argument} characters"
            return lambda value, _: () if len(value) <= int(argument) else (invalid_value("", "", why),)
        case "min" | "range":
            low, _, high = argument.partition("..")
            return _number_check(int(low) if low else None, int(high) if high else None, sentence)
        case "without":
            return lambda value, scope: (
                (invalid_value("", value, sentence or ""),) if scope.struct.get(argument) else ()
            )
        case "warn":
            return lambda value, _: (Cause("", sentence or "", ""),)
        case "unique":
            return _unique_check(where, sentence)
        case "union":
            return _union_check(where, argument.split(","), sentence or "")
    return _CHECKS[name]


def _walk_check(name: str) -> Check:
    """A check of a nested struct, whose rows are compiled at its first use."""
    found: _Rows | None = None

    def check(value: dict[str, Any], scope: Scope) -> list[Cause]:
        nonlocal found
        found = found or rows(name)
        return _check_rows(found, value, scope)

    return check


def _number_check(low: int | None, high: int | None, sentence: str | None) -> Check:
    """A check that a number is from `low` to `high`, both inclusive; `sentence`: the message, if not the usual one."""
    least = "greater than 0" if low == 1 else f"greater than or equal to {low}"
    why = sentence or (f"must be {least}" if high is None else f"must be between {low} and {high}, inclusive")
    return lambda value, _: (
        () if (low is None or low <= value) and (high is None or value <= high) else (invalid_value("", value, why),)
    )


def _unique_check(what: str, sentence: str | None) -> Check:
    def check(value: Any, scope: Scope) -> Iterable[Cause]:
        if not scope.outer.is_repeated(what, value):
            return ()
        return (invalid_value("", value, sentence) if sentence else duplicate_value("", value),)

    return check


def _union_check(name: str, fields: list[str], noun: str) -> Check:
    def check(value: dict[str, Any], scope: Scope) -> Iterable[Cause]:
        there = [field for field in fields if field in value]
        if not there:
            yield required_value("", f"must specify a {noun}")
        for extra in there[1:]:
            yield forbidden_field(f".{extra}", f"may not specify more than 1 {noun}")
        yield from check_struct(f"{name} one", {field: value[field] for field in there[:1]}, scope)

    return check


# ---------------------------------------------------------------- words that are alphabets of names


def _text_check(problems: field_errors.Problems) -> Check:
    return lambda value, _: field_errors.invalid_values("", value, found) if (found := problems(value)) else ()


dns_label = _CHECKS["dns_label"] = _text_check(field_errors.dns_label_problems)
_CHECKS["subdomain"] = _text_check(field_errors.subdomain_problems)
qualified_name = _CHECKS["qualified_name"] = _text_check(field_errors.label_key_problems)
quick_rule(qualified_name)(field_errors.are_label_keys)
label_value = _CHECKS["label_value"] = _text_check(field_errors.label_value_problems)
_CHECKS["address"] = _text_check(ip_addresses.ip_problems)
_CHECKS["non_special_address"] = _text_check(ip_addresses.non_special_ip_problems)
_CHECKS["path_segment"] = _text_check(field_errors.path_segment_problems)
port_name = _CHECKS["port_name"] = _text_check(field_errors.port_name_problems)
_CHECKS["config_key"] = _text_check(field_errors.config_key_problems)
_CHECKS["http_header"] = _text_check(field_errors.header_problems)
port_number = _number_check(1, 65535, None)
_CHECKS["id"] = _number_check(0, 2**31 - 1, None)
_CHECKS["file_mode"] = _number_check(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
