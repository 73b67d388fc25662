"""Why a label selector cannot be parsed, in the words of the real server's parser.

Selectors themselves are parsed in `selectors.py`, which knows only that something is wrong; clients and their tests
know these sentences. Pure.
"""

from __future__ import annotations

import re

from rowlock.cluster.api.wording import label_key_problems, label_value_problems, shown
from rowlock.errors import BadRequest
from rowlock.selectors import Selector

_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|,|\(|\)|[^\s=!<>,()]+)")
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")


def spoken(text: str) -> str:
    """The sentence, or "" when this reader finds nothing wrong."""
    tokens = _TOKEN.findall(text)
    at = 0
    while at < len(tokens):
        if not re.match(r"!$|[^=!<>,()]", tokens[at]):
            if at:
                return f"found '{tokens[at]}', expected: identifier after ','"
            return f"found '{tokens[at]}', expected: !, identifier, or 'end of string'"
        problem, at = _requirement([*tokens, ""], at)
        if problem:
            return f"unable to parse requirement: {problem}"
        if tokens[at : at + 1] not in ([], [","]):
            return f"found '{tokens[at]}', expected: ',' or 'end of string'"
        at += 1
        if at == len(tokens):
            return "found '', expected: identifier after ','"
    return ""


def check(selector: Selector) -> None:
    """Keys and values that no label can have match nothing: they are mistakes. Raises BadRequest."""
    for term in selector.terms:
        if problems := label_key_problems(term.key):
            raise BadRequest(_refusal("<nil>", term.key, problems))
        for index, value in enumerate(sorted(term.values)):
            if problems := label_value_problems(value):
                raise BadRequest(_refusal(f"values[{index}][{term.key}]", value, problems))


def _refusal(where: str, value: str, problems: list[str]) -> str:
    return f"unable to parse requirement: {where}: Invalid value: {shown(value)}: {'; '.join(problems)}"


def _requirement(tokens: list[str], at: int) -> tuple[str, int]:
    """What is wrong with one requirement, and where the next token is."""
    if tokens[at] == "!":
        return ("", at + 2) if tokens[at + 1] else ("found '', expected: identifier", at)
    operator = tokens[at + 1]
    if operator in ("", ","):
        return "", at + 1
    if operator not in _OPERATORS:
        return f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt", at
    if operator not in ("in", "notin"):
        value = tokens[at + 2]
        return "", at + (2 if value in ("", ",") else 3)
    if tokens[at + 2] != "(":
        return f"found '{tokens[at + 2]}' expected: '('", at
    return _values(tokens, at + 3)


def _values(tokens: list[str], at: int) -> tuple[str, int]:
    while True:
        if tokens[at] == ")":
            return "", at + 1
        if not tokens[at]:
            return "found '', expected: ',', ')' or identifier", at
        if tokens[at] != ",":
            at += 1
            if tokens[at] not in (",", ")"):
                return f"found '{tokens[at]}', expected: ',' or ')'", at
        if tokens[at] == ",":
            at += 1
