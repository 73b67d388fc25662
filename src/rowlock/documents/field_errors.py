"""The real API server's messages about field values, and its name formats, for the validation rules elsewhere. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from rowlock.errors import BadRequest, Cause
from rowlock.selectors import Selector

Causes = Iterator[Cause]
Problems = Callable[[str], list[str]]
"""Returns what is wrong with a text, one sentence per problem; [] when it is valid."""


def format_value(value: Any) -> str:
    """A value for a message, as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def invalid_value(field: str, value: Any, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {format_value(value)}: {why}", field)


def invalid_values(field: str, value: Any, problems: Iterable[str]) -> list[Cause]:
    """One `invalid_value` for each problem."""
    return [invalid_value(field, value, why) for why in problems]


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


def too_long(field: str, limit: int) -> Cause:
    """The cause for a value that is longer than `limit` bytes."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    text = ", ".join(f'"{v}"' for v in supported)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {format_value(value or '')}: supported values: {text}", field
    )


# ---------------------------------------------------------------- alphabets


def text_format(limit: int, pattern: str, rule: str, *examples: str) -> Problems:
    """A function for the problems of texts that must match a pattern, worded as apimachinery's RegexError."""
    matches = re.compile(pattern).fullmatch
    shown = ",  or ".join(f"'{example}'" for example in examples)
    sentence = f"{rule} (e.g. {shown}, regex used for validation is '{pattern}')"

    @lru_cache(4096)
    def problems(text: str) -> list[str]:
        found = [f"must be no more than {limit} characters"] if len(text) > limit else []
        return found if matches(text) else [*found, sentence]

    return problems


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_LOWER = "must consist of lower case alphanumeric characters"
_MIXED = "consist of alphanumeric characters, '-', '_' or '.'"
_ENDS = "must start and end with an alphanumeric character"

subdomain_problems = text_format(
    253, _SUBDOMAIN, f"a lowercase RFC 1123 subdomain {_LOWER}, '-' or '.', and {_ENDS}", "example.com"
)
service_name_problems = text_format(
    63, "[a-z]([-a-z0-9]*[a-z0-9])?",
    f"a DNS-1035 label {_LOWER} or '-', start with an alphabetic character, and end with an alphanumeric character",
    "my-name", "abc-123",
)  # fmt: skip
search_domain_problems = text_format(
    253, r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
    f"a lowercase RFC 1123 subdomain {_LOWER}, '_', '-' or '.', and {_ENDS}", "example.com",
)  # fmt: skip
label_value_problems = text_format(
    63, f"({_QUALIFIED})?", f"a valid label must be an empty string or {_MIXED}, and {_ENDS}",
    "MyValue", "my_value", "12345",
)  # fmt: skip
header_problems = text_format(
    2**31, "[-A-Za-z0-9]+", "a valid HTTP header must consist of alphanumeric characters or '-'", "X-Header-Name"
)
_label_problems = text_format(
    63, _LABEL, f"a lowercase RFC 1123 label {_LOWER} or '-', and {_ENDS}", "my-name", "123-abc"
)
_name_problems = text_format(63, _QUALIFIED, f"must {_MIXED}, and {_ENDS}", "MyName", "my.name", "123-abc")
_config_key_problems = text_format(
    253, _CONFIG_KEY, f"a valid config key must {_MIXED}", "key.name", "KEY_NAME", "key-name"
)


@lru_cache(4096)
def dns_label_problems(name: str) -> list[str]:
    problems = _label_problems(name)
    dotted = "." in name and re.fullmatch(_SUBDOMAIN, name)
    return [*problems[:-1], "must not contain dots"] if dotted else problems


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
def label_key_problems(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        why = _name_problems("")[0]
        return [f"a qualified name {why} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = [f"prefix part {why}" for why in subdomain_problems(prefix)] if prefix else []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    if not name:
        problems.append("name part must be non-empty")
    return problems + [f"name part {why}" for why in _name_problems(name)]


_PLAIN_LABEL_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?(?=[^/]{{1,63}}\Z){_QUALIFIED}").fullmatch
_PLAIN_LABEL_VALUE = re.compile(rf"(?=[^\n]{{0,63}}\Z)({_QUALIFIED})?").fullmatch
_PLAIN_CONFIG_KEY = re.compile(r"(?!\.\Z|\.\.)[-._a-zA-Z0-9]{1,253}").fullmatch


def are_label_keys(keys: Iterable[str]) -> bool:
    """Whether all keys are free of `label_key_problems`; a fast check for thousands of keys."""
    return all(map(_PLAIN_LABEL_KEY, keys))


def are_label_values(values: Iterable[str]) -> bool:
    """Whether all values are free of `label_value_problems`; a fast check for thousands of values."""
    return all(map(_PLAIN_LABEL_VALUE, values))


def are_config_keys(keys: Iterable[str]) -> bool:
    """Whether all keys are free of `config_key_problems`; a fast check for thousands of keys."""
    return all(map(_PLAIN_CONFIG_KEY, keys))


def config_key_problems(key: str) -> list[str]:
    """What is wrong with a key of a ConfigMap or Secret."""
    problems = _config_key_problems(key)
    if key in (".", ".."):
        return [*problems, f"must not be '{key}'"]
    relative = key.startswith("..") and re.fullmatch(_CONFIG_KEY, key)
    return [*problems, "must not start with '..'"] if relative else problems


def path_segment_problems(name: str) -> list[str]:
    """What is wrong with a name that may be any single segment of a path."""
    return [f"may not contain '{c}'" for c in ("/", "%") if c in name]


def check_selector(selector: Selector) -> None:
    """Raise BadRequest for keys and values that no label can have: they would match nothing, so they are mistakes."""
    for term in selector.terms:
        if problems := label_key_problems(term.key):
            raise BadRequest(_requirement_error("<nil>", term.key, problems))
        for index, value in enumerate(sorted(term.values)):
            if problems := label_value_problems(value):
                raise BadRequest(_requirement_error(f"values[{index}][{term.key}]", value, problems))


def _requirement_error(where: str, value: str, problems: list[str]) -> str:
    return f"unable to parse requirement: {where}: Invalid value: {format_value(value)}: {'; '.join(problems)}"
