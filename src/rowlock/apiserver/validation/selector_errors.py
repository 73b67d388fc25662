"""Why a label selector cannot be parsed, in the words of the real server's parser.

Selectors themselves are parsed in `selectors.py`, which knows only that something is wrong; clients and their tests
know these sentences. Pure.
"""

from __future__ import annotations

import re

from rowlock.apiserver.validation.field_errors import format_value, label_key_problems, label_value_problems
from rowlock.errors import BadRequest
from rowlock.selectors import Selector

_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|,|\(|\)|[^\s=!<>,()]+)")
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")


def parse_error(text: str) -> str:
    """The sentence, or "" when this reader finds nothing wrong."""
    tokens = _TOKEN.findall(text)
    position = 0
    while position < len(tokens):
        if not re.match(r"!$|[^=!<>,()]", tokens[position]):
            if position:
                return f"found '{tokens[position]}', expected: identifier after ','"
            return f"found '{tokens[position]}', expected: !, identifier, or 'end of string'"
        problem, position = _parse_requirement([*tokens, ""], position)
        if problem:
            return f"unable to parse requirement: {problem}"
        if tokens[position : position + 1] not in ([], [","]):
            return f"found '{tokens[position]}', expected: ',' or 'end of string'"
        position += 1
        if position == len(tokens):
            return "found '', expected: identifier after ','"
    return ""


def check_selector(selector: Selector) -> None:
    """Keys and values that no label can have match nothing: they are mistakes. Raises BadRequest."""
    for term in selector.terms:
        if problems := label_key_problems(term.key):
            raise BadRequest(_requirement_error("<nil>", term.key, problems))
        for index, value in enumerate(sorted(term.values)):
            if problems := label_value_problems(value):
                raise BadRequest(_requirement_error(f"values[{index}][{term.key}]", value, problems))


def _requirement_error(where: str, value: str, problems: list[str]) -> str:
    return f"unable to parse requirement: {where}: Invalid value: {format_value(value)}: {'; '.join(problems)}"


def _parse_requirement(tokens: list[str], position: int) -> tuple[str, int]:
    """What is wrong with one requirement, and where the next token is."""
    if tokens[position] == "!":
        return ("", position + 2) if tokens[position + 1] else ("found '', expected: identifier", position)
    operator = tokens[position + 1]
    if operator in ("", ","):
        return "", position + 1
    if operator not in _OPERATORS:
        return f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt", position
    if operator not in ("in", "notin"):
        value = tokens[position + 2]
        return "", position + (2 if value in ("", ",") else 3)
    if tokens[position + 2] != "(":
        return f"found '{tokens[position + 2]}' expected: '('", position
    return _parse_values(tokens, position + 3)


def _parse_values(tokens: list[str], position: int) -> tuple[str, int]:
    while True:
        if tokens[position] == ")":
            return "", position + 1
        if not tokens[position]:
            return "found '', expected: ',', ')' or identifier", position
        if tokens[position] != ",":
            position += 1
            if tokens[position] not in (",", ")"):
                return f"found '{tokens[position]}', expected: ',' or ')'", position
        if tokens[position] == ",":
            position += 1
