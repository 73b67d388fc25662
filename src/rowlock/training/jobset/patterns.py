"""Regular expressions of a set's failure policy, searched in time that grows with the text alone, as Go's are.

`re` tries one way after the other: `(.|.)*!` on a line of sixty characters takes it years, and all others wait. Here all ways are walked at
once. The syntax is Go's, without classes by names of scripts (`\\pL`), which count as invalid. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

MAX_PATTERN, MAX_TEXT = 512, 512
"""Characters of a pattern, and of a text, that are looked at."""
_MAX_STATES, _MAX_REPEAT, _MAX_NESTED = 2_000, 1_000, 50
_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "0-9a-zA-Z", "upper": "A-Z", "lower": "a-z", "space": r"\t\n\v\f\r ", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f", "punct": r"!-/:-@\[-`{-~", "blank": r"\t ",
}  # fmt: skip
_COUNTED = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.ASCII)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_SPECIAL_IN_CLASS = re.compile(r"(\\.)|[\[&~|]", re.DOTALL)
_GROUP = re.compile(r"\?(?:P?<\w+>|([imsU]*)(?:-([imsU]+))?(:|\)))", re.ASCII)


Part = Callable[[int], int]
"""Adds a part of the automaton in front of the state that follows it, and returns the part's first state."""


class BadPattern(ValueError):
    """It is no pattern, or one of a size that is not walked."""


class OutOfSteps(Exception):
    """The patterns together take longer than a look may take."""


@dataclass
class PatternSteps:
    """How many steps the patterns of one look may still take, a microsecond and a half each."""

    left: int = 50_000

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise OutOfSteps


class _PatternState(NamedTuple):
    """A step of the automaton: a character to read, a place to be at, or (with neither) only ways to go on."""

    reads: Callable[[str], object] | None
    place: str
    following: tuple[int, ...]


@dataclass
class _PatternParser:
    """Builds the automaton from its end: each part is given the state that follows it, and gives the one that it begins with."""

    text: str
    at: int = 0
    states: list[_PatternState] = field(default_factory=list)
    nested: int = 0
    repeated_parts: int = 0

    def add(self, reads: Callable[[str], object] | None, place: str, *following: int) -> int:
        if len(self.states) >= _MAX_STATES:
            raise BadPattern("too large")
        self.states.append(_PatternState(reads, place, following))
        return len(self.states) - 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def alternatives(self, flags: str) -> Part:
        """What stands between two brackets, or is the whole."""
        if (nested := self.nested) >= _MAX_NESTED:
            raise BadPattern("too deep")
        self.nested += 1
        branches = [[*self.sequence(flags)]]
        while self.peek() == "|":
            self.at += 1
            branches.append([*self.sequence(flags)])
        self.nested = nested

        def build(then: int) -> int:
            firsts = list[int]()
            for branch in branches:
                first = then
                for part in reversed(branch):
                    first = part(first)
                firsts.append(first)
            return firsts[0] if len(firsts) == 1 else self.add(None, "", *firsts)

        return build

    def sequence(self, flags: str) -> Iterator[Part]:
        while self.peek() not in ("", "|", ")"):
            group = _GROUP.match(self.text, self.at + 1) if self.peek() == "(" else None
            if group is not None and group[3] == ")":  # flags from here on
                flags, self.at = _flags_after(flags, group[1], group[2]), group.end()
                continue
            yield self.repetition(self.atom(flags))

    def atom(self, flags: str) -> Part:
        char, start = self.peek(), self.at
        self.at += 1
        if char == "(":
            return self.group(flags)
        if char in "*+?":
            raise BadPattern("nothing to repeat")
        if char in "^$":
            return self.place(("begin" if char == "^" else "end") + (" of line" if "m" in flags else ""))
        if char == "\\":
            escaped, self.at = self.peek(), self.at + 1
            if escaped in ("A", "z", "b", "B"):
                return self.place({"A": "begin", "z": "end"}.get(escaped, escaped))
            if escaped == "x" and (code := re.compile(r"[0-9A-Fa-f]{2}").match(self.text, self.at)):
                self.at = code.end()
        elif char == "[":
            found = _CLASS.match(self.text, start)
            if found is None:
                raise BadPattern("missing ]")
            self.at = found.end()
        return self.character(self.text[start : self.at], flags)

    def group(self, flags: str) -> Part:
        if self.peek() == "?":
            head = _GROUP.match(self.text, self.at)
            if head is None:
                raise BadPattern("unknown group")
            self.at = head.end()
            flags = _flags_after(flags, head[1], head[2])
        part = self.alternatives(flags)
        if self.peek() != ")":
            raise BadPattern("missing )")
        self.at += 1
        return part

    def repetition(self, part: Part) -> Part:
        counted = _COUNTED.match(self.text, self.at)
        if counted is None and self.peek() not in ("*", "+", "?"):
            return part
        if counted is None:
            least, most = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[self.peek()]
            self.at += 1
        else:
            least = int(counted[1])
            most = (int(counted[3]) if counted[3] else -1) if counted[2] else least
            self.at = counted.end()
        if max(least, most) > _MAX_REPEAT or -1 < most < least:
            raise BadPattern("invalid repeat count")
        if self.peek() == "?":  # as few as possible: the same texts match
            self.at += 1
        if self.peek() in ("*", "+") or _COUNTED.match(self.text, self.at):
            raise BadPattern("invalid nested repetition")
        return lambda then: self.repeat(part, least, most, then)

    def repeat(self, part: Part, least: int, most: int, then: int) -> int:
        self.repeated_parts += max(least, most)
        if self.repeated_parts > _MAX_STATES:
            raise BadPattern("too large")
        first = then
        if most < 0:
            first = self.add(None, "", then)
            self.states[first] = _PatternState(None, "", (then, part(first)))
        for _ in range(most - least):
            first = self.add(None, "", then, part(first))
        for _ in range(least):
            first = part(first)
        return first

    def place(self, place: str) -> Part:
        return lambda then: self.add(None, place, then)

    def character(self, text: str, flags: str) -> Part:
        if len(text) > 1 and text[0] == "[":
            text = _as_class(text)
        if len(text) == 1 and text != "." and "i" not in flags:
            return lambda then: self.add(text.__eq__, "", then)
        try:
            way = re.ASCII | ("i" in flags and re.IGNORECASE) | ("s" in flags and re.DOTALL)
            reads = re.compile(text if len(text) > 1 or text == "." else re.escape(text), way).fullmatch
        except re.error as error:
            raise BadPattern(str(error)) from None
        return lambda then: self.add(reads, "", then)


def _as_class(text: str) -> str:
    """A class of Go's as one of Python's, where some characters in classes will get a meaning."""
    for name, members in _POSIX.items():
        text = text.replace(f"[:{name}:]", members)
    if "--" in text:
        raise BadPattern("ranges of minus signs")
    return "[" + _SPECIAL_IN_CLASS.sub(lambda found: found[1] or f"\\{found[0]}", text[1:])


def _flags_after(flags: str, on: str | None, off: str | None) -> str:
    return "".join(sorted({*flags, *(on or "")} - {*(off or "")}))


class _PatternAutomaton(NamedTuple):
    states: tuple[_PatternState, ...]
    first: int


@lru_cache(256)
def _automaton(pattern: str) -> _PatternAutomaton | None:
    """The states of a pattern, of which number 0 is the end; None for an invalid pattern."""
    if len(pattern) > MAX_PATTERN:
        return None
    parser = _PatternParser(pattern)
    parser.add(None, "")
    try:
        first = parser.alternatives("")(0)
    except BadPattern:
        return None
    return None if parser.peek() else _PatternAutomaton(tuple(parser.states), first)


def is_found(pattern: str, text: str, steps: PatternSteps) -> bool:
    """Whether the pattern is found in the first `MAX_TEXT` characters; an invalid one is not. Raises OutOfSteps."""
    steps.take(20 * min(len(pattern), MAX_PATTERN))
    automaton, text = _automaton(pattern), text[:MAX_TEXT]
    if automaton is None:
        return False
    active = set[int]()
    for at in range(len(text) + 1):
        reached = _states_at(automaton, {*active, automaton.first}, text, at)
        steps.take(1 + len(reached))
        if 0 in reached:
            return True
        char, active = text[at : at + 1], set()
        for state in reached if char else ():
            reads = automaton.states[state].reads
            if reads is not None and reads(char):
                active.update(automaton.states[state].following)
    return False


def _states_at(automaton: _PatternAutomaton, active: set[int], text: str, at: int) -> set[int]:
    """The states that are reached from these without reading a character."""
    reached, unvisited = set(active), list(active)
    while unvisited:
        state = automaton.states[unvisited.pop()]
        if state.reads is None and (not state.place or _is_at(state.place, text, at)):
            new = [each for each in state.following if each not in reached]
            reached.update(new)
            unvisited += new
    return reached


def _is_at(place: str, text: str, at: int) -> bool:
    before, after = text[at - 1 : at] if at else "", text[at : at + 1]
    match place:
        case "begin":
            return not at
        case "end":
            return at == len(text)
        case "begin of line":
            return before in ("", "\n")
        case "end of line":
            return after in ("", "\n")
        case _:
            return (_is_of_word(before) != _is_of_word(after)) == (place == "b")


def _is_of_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")
