"""Label and field selectors: parse once, match often.

Grammar of labels (apimachinery's): `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k>1`, `k<1`,
joined by commas. Field selectors have only `=`, `==` and `!=`. A selector that cannot be parsed raises `BadRequest` with the
message of the real server's parser, because clients and their tests check it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.errors import BadRequest

_TERM = re.compile(
    r"\s*+(?:"
    r"(?P<absent>!)\s*+(?P<akey>[^\s,=!<>()]+)"
    r"|(?P<skey>[^\s,=!<>()]+)\s++(?P<set>in|notin)\s*+\((?P<values>[^()]*)\)"
    r"|(?P<key>[^\s,=!<>()]+)\s*+(?:(?P<op>==|!=|=|<|>)\s*+(?P<value>[^\s,=!<>()]*))?"
    r")\s*+(?:,|$)"
)
"""Possessive quantifiers: with backtracking, n blanks would cost n² steps, and clients control n."""


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement: `op` is `=`, `!=`, `in`, `notin`, `exists`, `absent`, `<` or `>`."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        have = labels.get(self.key)
        if self.op in ("=", "in"):
            return have is not None and have in self.values
        if self.op in ("!=", "notin"):
            return have is None or have not in self.values
        if self.op == "exists":
            return have is not None
        if self.op == "absent":
            return have is None
        return _satisfies_bound(have, self.op, next(iter(self.values)))


def _satisfies_bound(have: str | None, op: str, bound: str) -> bool:
    try:
        number = int(have or "")
    except ValueError:
        return False
    return number > int(bound) if op == ">" else number < int(bound)


@dataclass(frozen=True, slots=True)
class Selector:
    """All terms must match; the empty selector matches everything."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.terms)


EVERYTHING = Selector()


def parse_labels(text: str | None) -> Selector:
    """A label selector from its query-string form. Raises BadRequest."""
    if not text or not text.strip():
        return EVERYTHING
    terms, position = [], 0
    while position < len(text):
        match = _TERM.match(text, position)
        if not match or match.end() == position:
            near = f'unable to parse requirement: "{text}" is not a label selector near "{text[position:]}"'
            raise BadRequest(_parse_error(text) or near)
        terms.append(_parse_term(match, text))
        position = match.end()
    if text.rstrip().endswith(","):
        raise BadRequest("found '', expected: identifier after ','")
    return Selector(tuple(terms))


_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|,|\(|\)|[^\s=!<>,()]+)")
_WORDS = ("in", "notin", "=", "==", "!=", ">", "<")


def _parse_error(text: str) -> str:
    """The error of the real server's parser, which reads token by token; "" when it would accept the text."""
    tokens = _TOKEN.findall(text)
    ended, position = [*tokens, ""], 0
    while position < len(tokens):
        if not re.match(r"!$|[^=!<>,()]", tokens[position]):
            if position:
                return f"found '{tokens[position]}', expected: identifier after ','"
            return f"found '{tokens[position]}', expected: !, identifier, or 'end of string'"
        problem, position = _parse_requirement(ended, position)
        if problem:
            return f"unable to parse requirement: {problem}"
        if tokens[position : position + 1] not in ([], [","]):
            return f"found '{tokens[position]}', expected: ',' or 'end of string'"
        position += 1
        if position == len(tokens):
            return "found '', expected: identifier after ','"
    return ""


def _parse_requirement(tokens: list[str], position: int) -> tuple[str, int]:
    """What is wrong with one requirement, and where the next token is."""
    if tokens[position] == "!":
        return ("", position + 2) if tokens[position + 1] else ("found '', expected: identifier", position)
    operator = tokens[position + 1]
    if operator in ("", ","):
        return "", position + 1
    if operator not in _WORDS:
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


def _parse_term(match: re.Match[str], text: str) -> Term:
    if match["absent"]:
        return Term(match["akey"], "absent")
    if match["set"]:
        values = frozenset(v.strip() for v in match["values"].split(","))
        return Term(match["skey"], match["set"], values)
    if not match["op"]:
        return Term(match["key"], "exists")
    op = "=" if match["op"] == "==" else match["op"]
    if op in "<>" and not re.fullmatch(r"-?\d+", match["value"]):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise BadRequest(f'unable to parse requirement: values[0]: Invalid value: "{match["value"]}": {why}')
    return Term(match["key"], op, frozenset({match["value"]}))


def from_labels(labels: Mapping[str, str]) -> Selector:
    """The selector that requires these label values."""
    return Selector(tuple(Term(k, "=", frozenset({v})) for k, v in labels.items()))


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


def from_label_selector(selector: Mapping[str, Any]) -> Selector | None:
    """An object's LabelSelector (`matchLabels`, `matchExpressions`); None when it has an unknown operator."""
    terms = list(from_labels(selector.get("matchLabels") or {}).terms)
    for expression in selector.get("matchExpressions") or ():
        operator = _OPERATORS.get(str(expression.get("operator")))
        if operator is None:
            return None
        terms.append(Term(str(expression.get("key")), operator, frozenset(expression.get("values") or ())))
    return Selector(tuple(terms))


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Equality on fields by dotted path. The API server defines the paths that a kind supports."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """`value_of(path)` gives the field as text, "" when it is absent."""
        return all((value_of(t.key) in t.values) == (t.op == "=") for t in self.terms)


_FIELD_PART = re.compile(r"(?:[^,\\]|\\.?)+", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\,=])")


def parse_fields(text: str | None) -> FieldSelector:
    """A field selector from its query-string form; `,`, `=` and `\\` in values are escaped with a backslash. Raises
    BadRequest."""
    terms = []
    for part in sorted(_FIELD_PART.findall(text or "")):  # sorted as a real server: it names the first that it refuses
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(==|!=|=)\s*(.*)", part, re.DOTALL)
        if not match:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        value = match[3].rstrip()  # a regex for trailing spaces would take quadratic time
        plain = _ESCAPED.sub("", value)
        if bad_escape := re.search(r"=|\\.?", plain, re.DOTALL):
            problem = (
                "unescaped character in value: 61"
                if bad_escape[0] == "="
                else f"invalid escape sequence: {bad_escape[0]}"
            )
            raise BadRequest(f"invalid field selector: {problem}")
        terms.append(Term(match[1], "!=" if match[2] == "!=" else "=", frozenset({_ESCAPED.sub(r"\1", value)})))
    return FieldSelector(tuple(terms))
