"""Reading a JSON body: typed reads that note mistakes, each with its field, its rule and a fix, instead of raising.

What is in no table is unknown and refused with the nearest known name; what is known, but not supported, is refused with
the reason that `submit_fields` gives, unless it is empty or says nothing new. Mistakes are collected, not raised one by one.
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
"""Mistakes that are told of one body."""
MOST_ITEMS = 5_000
"""Entries of all lists of one body together: each is read on the event loop, and some are compared with those before them."""
LARGEST_INTEGER = 2**31 - 1
"""The most that Kubernetes' fields of type int32 hold, which most whole numbers of a body become."""
_LONGEST_WORD, _MOST_NAMES = 100, 500
"""Characters of a word for which a like name is looked for, and names that are compared: the client chooses both, and each
comparison holds the event loop."""
_SHOWN = 200
"""Characters of a value that are repeated in a message."""


@dataclass(slots=True)
class BodyErrors:
    """Collects what is wrong with a body; `raise_if_any` raises them as one BadRequest, the first hundred."""

    causes: list[Cause] = field(default_factory=list)
    items_read: int = 0
    """Entries of the body's lists so far."""

    @property
    def are_enough(self) -> bool:
        """Nobody is told more: there is no need to look for more."""
        return len(self.causes) >= MOST_CAUSES

    def add(self, path: str, rule: str, message: str) -> None:
        """Note a mistake, once: some fields are read by several, and each would note the same. A field that is wrong is not also
        missing."""
        cause = Cause(rule, message, path[:_SHOWN])
        if self.are_enough or cause in self.causes:
            return
        if rule != "required" or all(earlier.field != cause.field for earlier in self.causes):
            self.causes.append(cause)

    def raise_if_any(self) -> None:
        if self.causes:
            raise BadRequest("; ".join(f"{c.field}: {c.message}" for c in self.causes), causes=self.causes)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """` Did you mean "x"?`, or nothing when no known name is like it."""
    if len(word) > _LONGEST_WORD:
        return ""
    choices = {k.lower(): k for k in islice(names, _MOST_NAMES)}
    matches = difflib.get_close_matches(word.lower(), choices, 1, 0.6)
    return f' Did you mean "{choices[matches[0]]}"?' if matches else ""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object of the body at `path`, with typed reads that note mistakes instead of raising."""

    path: str
    values: Mapping[str, Any]
    errors: BodyErrors

    def path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def add_error(self, name: str, rule: str, message: str) -> None:
        self.errors.add(self.path_of(name), rule, message)

    def allow_only(self, *allowed: str, refused: Mapping[str, tuple[Any, str]] | None = None) -> None:
        """Refuses what is unknown, and with its reason what is in `refused` (see `submit_fields.refused_fields`)."""
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
        """A list of strings; None when it is something else, which is for the caller to say."""
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
        """A name of what we make, which becomes part of names of objects."""
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
        if self.get(name) == value and value not in options:  # "" is no value: a field without a value is left out
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
        """A list of objects; those with `exclude: true` are left out."""
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
        """A string that `parse` accepts (it raises BadRequest). A number is none: Run:ai's clients would not read it back."""
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
    """A value as it is written, or its beginning."""
    if isinstance(value, list | dict) and len(value) > _SHOWN:
        return f"{len(value)} entries"
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
