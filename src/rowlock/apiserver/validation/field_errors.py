"""The real API server's sentences about values, and the alphabets of names. Rules elsewhere speak through this. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rowlock.errors import Cause

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_SERVICE_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def format_value(value: Any) -> str:
    """A value inside a sentence: texts in quotes, the rest as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid_value(field: str, value: Any, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {format_value(value)}: {why}", field)


def required_value(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def forbidden_field(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def immutable_field(field: str, value: Any) -> Cause:
    return invalid_value(field, value, "field is immutable")


def not_found(field: str, value: Any) -> Cause:
    return Cause("FieldValueNotFound", f"Not found: {format_value(value)}", field)


def duplicate_value(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {format_value(value)}", field)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    text = ", ".join(f'"{v}"' for v in supported)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {format_value(value or '')}: supported values: {text}", field
    )


def _too_long_text(limit: int) -> str:
    return f"must be no more than {limit} characters"


@lru_cache(4096)
def dns_label_problems(name: str) -> list[str]:
    problems = [_too_long_text(63)] if len(name) > 63 else []
    if _LABEL.fullmatch(name):
        return problems
    return [*problems, "must not contain dots" if _SUBDOMAIN.fullmatch(name) else _LABEL_TEXT]


@lru_cache(4096)
def port_name_problems(name: str) -> list[str]:
    """What is wrong with the name of a port: an IANA service name."""
    problems = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not re.fullmatch(r"[-a-z0-9]+", name):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


@lru_cache(4096)
def subdomain_problems(name: str) -> list[str]:
    problems = [_too_long_text(253)] if len(name) > 253 else []
    return problems if _SUBDOMAIN.fullmatch(name) else [*problems, _SUBDOMAIN_TEXT]


@lru_cache(4096)
def service_name_problems(name: str) -> list[str]:
    problems = [_too_long_text(63)] if len(name) > 63 else []
    return problems if _SERVICE.fullmatch(name) else [*problems, _SERVICE_TEXT]


@lru_cache(4096)
def label_key_problems(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    if slash and "/" in prefix:
        return [
            "a qualified name "
            + _NAME_PART_TEXT.removeprefix("name part ").removesuffix("')")
            + "') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {p}" for p in subdomain_problems(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append(f"name part {_too_long_text(63)}")
    if not _QUALIFIED.fullmatch(name):
        problems.append(_NAME_PART_TEXT)
    return problems


@lru_cache(4096)
def label_value_problems(value: str) -> list[str]:
    problems = [_too_long_text(63)] if len(value) > 63 else []
    return problems if not value or _QUALIFIED.fullmatch(value) else [*problems, _VALUE_TEXT]
