"""Typed reads of a JSON body that collect mistakes, each with its field, its rule and a fix, instead of raising at the first.

Unknown fields are refused with the nearest known name. Known but unsupported fields are refused with the reason that
`submit_fields` gives, unless they are empty or have their default value.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rowlock.errors import BadRequest, Cause
from rowlock.objects import is_dns_label

MOST_CAUSES = 100
"""Most mistakes reported for one body."""
MOST_ITEMS = 5_000
"""Most entries of all lists of one body together, since they are parsed on the event loop, some in quadratic time."""
LARGEST_INTEGER = 2**31 - 1
"""The largest int32, the type of most whole numbers in Kubernetes objects."""
_LONGEST_WORD, _MOST_NAMES = 100, 500
"""Most characters of a word, and most names, that are compared to find a similar name: the client controls both, and the
comparison blocks the event loop."""
_SHOWN = 200
"""Most characters of a value quoted in a message."""


@dataclass(slots=True)
class BodyErrors:
    """Collects the mistakes of a body; `raise_if_any` raises the first hundred as one BadRequest."""

    causes: list[Cause] = field(default_factory=list)
    items_read: int = 0
    """Entries of the body's lists read so far."""

    @property
    def are_enough(self) -> bool:
        """Whether no more mistakes will be recorded, so that checking can stop."""
        return len(self.causes) >= MOST_CAUSES

    def add(self, path: str, rule: str, message: str) -> None:
        """Record a mistake, once, since several parsers may read the same field. A field with another mistake is not also
        recorded as missing."""
        cause = Cause(rule, message, path[:_SHOWN])
        if self.are_enough or cause in self.causes:
            return
        if rule != "required" or all(earlier.field != cause.field for earlier in self.causes):
            self.causes.append(cause)

    def raise_if_any(self) -> None:
        if self.causes:
            raise BadRequest("; ".join(f"{c.field}: {c.message}" for c in self.causes), causes=self.causes)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """` Did you mean "x"?`, or "" if no known name is similar."""
    if len(word) > _LONGEST_WORD:
        return ""
    choices = {k.lower(): k for k in islice(names, _MOST_NAMES)}
    matches = difflib.get_close_matches(word.lower(), choices, 1, 0.6)
    return f' Did you mean "{choices[matches[0]]}"?' if matches else ""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object of the body at `path`, with typed reads that record mistakes in `errors` instead of raising."""

    path: str
    values: Mapping[str, Any]
    errors: BodyErrors

    def path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def add_error(self, name: str, rule: str, message: str) -> None:
        self.errors.add(self.path_of(name), rule, message)

    def allow_only(self, *allowed: str, refused: Mapping[str, tuple[Any, str]] | None = None) -> None:
        """Record an error for every unknown field, and, with its reason, for those in `refused` (see `submit_fields.refused_fields`)."""
        refused = refused or {}
        for name, value in self.values.items():
            if self.errors.are_enough:
                return
            if name in allowed:
                continue
            if name not in refused:
                self.add_error(name, "unknown", f"there is no such field.{did_you_mean(name, (*allowed, *refused))}")
            elif value not in (None, refused[name][0], [], {}):
                self.add_error(name, "unsupported", f"is not supported by rowlock: {refused[name][1]}. Leave it out.")

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def text(self, name: str) -> str:
        value = self.get(name)
        if value is None or isinstance(value, str):
            return self._without_nul(name, value or "")
        self.add_error(name, "type", f"must be a string, not {_describe_value(value)}.")
        return ""

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings; None if it is something else, which the caller must report."""
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            return None
        return tuple(self._without_nul(name, word) for word in value)

    def _without_nul(self, name: str, text: str) -> str:
        if "\0" not in text:
            return text
        rule = "has a NUL character, but variables, arguments and names of files cannot hold one. Take it out."
        self.add_error(name, "format", rule)
        return ""

    def label(self, name: str) -> str:
        """A DNS label, for names that become part of object names."""
        text = self.text(name)
        if self.get(name) in (None, text) and not is_dns_label(text):
            rule = "must be 1 to 63 lower case letters, digits and '-', with a letter or a digit at both ends"
            self.add_error(name, "format", f"{rule}, but is {_show(text)}.")
        return text

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.add_error(name, "type", f"must be true or false, not {_describe_value(value)}.")
        return False

    def integer(self, name: str, least: int = 0, most: int = LARGEST_INTEGER) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self.add_error(name, "type", f"must be a whole number, not {_describe_value(value)}.")
            return None
        if value < least:
            self.add_error(name, "min", f"must be no less than {least}, but is {_show(value)}.")
            return None
        if value > most:
            self.add_error(name, "max", f"must be no more than {most:,}, but is {_show(value)}.")
            return None
        return value

    def number(self, name: str) -> float | None:
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            self.add_error(name, "type", f"must be a number, not {_describe_value(value)}.")
            return None
        return float(value)

    def choice(self, name: str, *options: str) -> str:
        value = self.text(name)
        if self.get(name) == value and value not in options:  # a field without a value must be left out, not ""
            words = ", ".join(options)
            self.add_error(
                name, "options", f"must be one of {words}, but is {_show(value)}.{did_you_mean(value, options)}"
            )
            return ""
        return value

    def object(self, name: str) -> Fields:
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            self.add_error(name, "type", f"must be an object, not {_describe_value(value)}.")
            value = None
        return Fields(self.path_of(name), value or {}, self.errors)

    def items(self, name: str) -> list[Fields]:
        """A list of objects, without those with `exclude: true`."""
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.add_error(name, "type", f"must be a list of objects, not {_describe_value(value)}.")
            return []
        self.errors.items_read += len(value)
        if self.errors.items_read > MOST_ITEMS:
            self.add_error(
                name, "max", f"has too many entries: all lists of a request may have {MOST_ITEMS:,} together."
            )
            return []
        entries = [Fields(f"{self.path_of(name)}[{n}]", item, self.errors) for n, item in enumerate(value)]
        return [item for item in entries if not item.flag("exclude")]

    def parsable_text(self, name: str, parse: Callable[[str], Any]) -> str:
        """A string that `parse` accepts (it raises BadRequest). Numbers are refused, since Run:ai's clients could not read them back."""
        text = self.text(name)
        try:
            if self.get(name) == text:
                parse(text)
        except BadRequest:
            self.add_error(
                name, "format", f"{_show(text)} is not a quantity: write a number and a unit, for example 2Gi or 500M"
            )
            return ""
        return text


def _describe_value(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return f"{names.get(type(value), type(value).__name__)} ({_show(value)})"


def _show(value: Any) -> str:
    """A value's literal, shortened for a message."""
    if isinstance(value, list | dict) and len(value) > _SHOWN:
        return f"{len(value)} entries"
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
