"""Label and field selectors: parse once, match often.

Grammar of labels (apimachinery's): `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k>1`, `k<1`,
joined by commas. Fields know only `=`, `==` and `!=`. A selector that cannot be parsed is `BadRequest`, in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.errors import BadRequest

_TERM = re.compile(
    r"\s*(?:"
    r"(?P<absent>!)\s*(?P<akey>[^\s,=!<>()]+)"
    r"|(?P<skey>[^\s,=!<>()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<key>[^\s,=!<>()]+)\s*(?:(?P<op>==|!=|=|<|>)\s*(?P<value>[^\s,=!<>()]*))?"
    r")\s*(?:,|$)"
)


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
        return _compares(have, self.op, next(iter(self.values)))


def _compares(have: str | None, op: str, bound: str) -> bool:
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
    terms, at = [], 0
    while at < len(text):
        found = _TERM.match(text, at)
        if not found or found.end() == at:
            raise BadRequest(f'unable to parse requirement: "{text}" is not a label selector near "{text[at:]}"')
        terms.append(_term(found, text))
        at = found.end()
    if text.rstrip().endswith(","):
        raise BadRequest(f'unable to parse requirement: "{text}" ends where another requirement should begin')
    return Selector(tuple(terms))


def _term(found: re.Match[str], text: str) -> Term:
    if found["absent"]:
        return Term(found["akey"], "absent")
    if found["set"]:
        values = frozenset(v.strip() for v in found["values"].split(","))
        return Term(found["skey"], found["set"], values)
    if not found["op"]:
        return Term(found["key"], "exists")
    op = "=" if found["op"] == "==" else found["op"]
    if op in "<>" and not re.fullmatch(r"-?\d+", found["value"]):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise BadRequest(f'unable to parse requirement: values[0]: Invalid value: "{found["value"]}": {why}')
    return Term(found["key"], op, frozenset({found["value"]}))


def from_object(selector: Mapping[str, Any] | None) -> Selector:
    """A `metav1.LabelSelector` (`matchLabels`, `matchExpressions`) as a Selector; None matches nothing is the caller's rule."""
    selector = selector or {}
    ops = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    terms = [Term(k, "=", frozenset({v})) for k, v in (selector.get("matchLabels") or {}).items()]
    for item in selector.get("matchExpressions") or ():
        terms.append(Term(item["key"], ops[item["operator"]], frozenset(item.get("values") or ())))
    return Selector(tuple(terms))


def from_labels(labels: Mapping[str, str]) -> Selector:
    """The selector that asks for exactly these label values."""
    return Selector(tuple(Term(k, "=", frozenset({v})) for k, v in labels.items()))


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Equality on fields by dotted path; which paths a kind supports is the server's table."""

    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """`value_of(path)` gives the field as text, "" when it is absent."""
        return all((value_of(t.key) in t.values) == (t.op == "=") for t in self.terms)


_FIELD_PART = re.compile(r"(?:[^,\\]|\\.?)+", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\,=])")


def parse_fields(text: str | None) -> FieldSelector:
    """A field selector from its query-string form; a value's own `,`, `=` and `\\` stand behind a backslash. Raises
    BadRequest."""
    terms = []
    for part in sorted(_FIELD_PART.findall(text or "")):  # sorted as a real server: it names the first that it refuses
        if not part.strip():
            continue
        found = re.fullmatch(r"\s*([^=!\s]+)\s*(==|!=|=)\s*(.*?)\s*", part, re.DOTALL)
        if not found:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        plain = _ESCAPED.sub("", found[3])
        if wrong := re.search(r"=|\\.?", plain, re.DOTALL):
            what = "unescaped character in value: 61" if wrong[0] == "=" else f"invalid escape sequence: {wrong[0]}"
            raise BadRequest(f"invalid field selector: {what}")
        terms.append(Term(found[1], "!=" if found[2] == "!=" else "=", frozenset({_ESCAPED.sub(r"\1", found[3])})))
    return FieldSelector(tuple(terms))
