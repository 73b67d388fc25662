"""Patterns of a failure policy are found where `re` finds them, and in time that grows with the text alone."""

from __future__ import annotations

import re
from random import Random

import pytest

from rowlock.training.jobset.patterns import MAX_PATTERN, OutOfSteps, PatternSteps, is_found

MESSAGE = "Job has reached the specified backoff limit: pod js-a-0-7 (exit code 137)\nsecond line_x"
PATTERNS = (
    "", "backoff", "^Job", "^backoff", "x$", "line$", "limit$", r"exit code \d+", r"code (137|143)\b", r"(?i)JOB HAS", "job has",
    "a.*z", "(?s)137.*second", "137.*second", r"(?m)^second", r"(?m)\)$", r"\bpod\b", r"\Bod", r"[^a-z ]{4}", "(a|b|)+-0", "(?:js-)?a-0", "(?P<n>j)s",
    "(?i:JS)-A", "(?i:JS)-a", "lim.{0,2}:", "o{2}", "(ck|of){2,}", "f{2,3}", "x{0}", r"\Aspecified", r"\(exit", r"\x28exit", "[]e]xit", "[a\\]]xit", ".+?-7",
    "(.|.)*!", r"(\w+\s?)+!", "((a*)*)*b{3}", "(x?){60}x{60}", "$^", "(^|b)ackoff", "js-[a-c]-[0-9]", "e{1}x", "(|a)*q", "é",
)  # fmt: skip
HARMLESS = [one for one in PATTERNS if one not in ("(.|.)*!", r"(\w+\s?)+!", "((a*)*)*b{3}", "(x?){60}x{60}", "(|a)*q")]


@pytest.mark.parametrize("pattern", HARMLESS)
def test_it_finds_what_re_finds(pattern: str) -> None:
    wanted = re.search(pattern.replace("$", r"\Z") if "(?m)" not in pattern else pattern, MESSAGE, re.ASCII)
    assert is_found(pattern, MESSAGE, PatternSteps()) == (wanted is not None)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [(r"[[:digit:]]{3}\)", True), ("[^[:lower:]]{5}", True), ("a{,2}", False), ("[[b]ackoff", True), ("[&~|b]ackoff", True), (r"[\[b]ack", True)],
)  # fmt: skip
def test_what_python_writes_in_another_way(pattern: str, wanted: bool) -> None:
    assert is_found(pattern, MESSAGE, PatternSteps()) == wanted


@pytest.mark.parametrize("pattern", [one for one in PATTERNS if one not in HARMLESS])
def test_what_re_would_never_end_is_not_found(pattern: str) -> None:
    assert not is_found(pattern, MESSAGE, PatternSteps())


def test_drawn_patterns_are_found_where_re_finds_them() -> None:
    dice, found = Random(7), 0
    pieces = (
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        "(a|b)",
        "(b|)",
        "^",
        "$",
        r"\b",
        "ab?",
        "a+",
        "b*",
        "(a|bc){1,2}",
        "|",
        "(?:ca)+",
    )
    for _ in range(3_000):
        pattern = "".join(dice.choice(pieces) for _ in range(dice.randint(1, 4)))
        text = "".join(dice.choice("abc \n") for _ in range(dice.randint(0, 8)))
        wanted = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
        assert is_found(pattern, text, PatternSteps()) == wanted, (pattern, text)
        found += wanted
    assert 500 < found < 2_900


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[b-a]", "*", "a**", "a{2}{3}", "a{2,1}", "a{2000}", "((a{1000}){1000})", "((((){1000}){1000}){1000})", "(?<!a)b", "(?=a)", r"\1",
     "(" * 400 + "a" + ")" * 400, "a" * (MAX_PATTERN + 1)],
)  # fmt: skip
def test_what_is_no_pattern_or_none_of_a_size_is_not_found(pattern: str) -> None:
    assert not is_found(pattern, "aaaa b (" * 80, PatternSteps())


def test_the_patterns_of_one_look_have_their_steps_together() -> None:
    steps = PatternSteps()
    with pytest.raises(OutOfSteps):
        for _ in range(1_000):
            is_found("(a?){500}b", "a" * 512, steps)
