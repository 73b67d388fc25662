"""Checks label selectors that parse, but contain keys or values that no label can have. Pure."""

from __future__ import annotations

from rowlock.documents.field_errors import format_value, label_key_problems, label_value_problems
from rowlock.errors import BadRequest
from rowlock.selectors import Selector


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
