"""The parameters of a sweep as users write them, and the values that they stand for.

lr=1e-4,3e-4            these values, as they are written
seed=1..5               whole numbers, both ends included; also within a list: `1..3,10`
lr=uniform(0.1, 0.9)    with a random search: drawn between the two
lr=loguniform(1e-5, 1)  the same, evenly over the logarithm
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rowlock.errors import BadRequest, Cause

MOST_RUNS = 1_000
"""Most runs of a sweep, so most values of a parameter, too."""
MOST_PARAMETERS = 32
LONGEST_VALUE = 1_000
"""Most characters of one value."""
VARIABLE_PREFIX = "ROWLOCK_SWEEP_"
INDEX = "index"
"""The name of a run's number, which every run has: `{index}`, `$ROWLOCK_SWEEP_INDEX`."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}", re.ASCII)
_RANGE = re.compile(r"([+-]?\d{1,18})\.\.([+-]?\d{1,18})", re.ASCII)
_NUMBER = re.compile(r"[+-]?[\d.]*\d", re.ASCII)
_DISTRIBUTION = re.compile(r"([a-z]+)\(([^()]*)\)", re.ASCII)
_DISTRIBUTIONS = ("uniform", "loguniform")


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a parameter that are tried, as text."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values between two numbers, drawn by a random search."""

    low: float
    high: float
    is_log: bool

    def value_at(self, fraction: float) -> str:
        """The value at a fraction (0 to 1) of the range, with six significant digits."""
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            return f"{math.exp(low + (high - low) * fraction):.6g}"
        return f"{self.low + (self.high - self.low) * fraction:.6g}"


Parameter = Values | Distribution
Space = Mapping[str, Parameter]
"""Name → what it may be, in the order in which users wrote them."""


def parse_space(parameters: Any) -> dict[str, Parameter]:
    """The parameters of a request: name → a text as above, a number, or a list of values. Raises BadRequest."""
    if not isinstance(parameters, Mapping) or not parameters:
        raise _error("", "required", "a sweep needs parameters: --param lr=1e-4,3e-4")
    if len(parameters) > MOST_PARAMETERS:
        raise _error("", "max", f"a sweep has {MOST_PARAMETERS} parameters at most, and these are {len(parameters)}.")
    space = {name: _parse_parameter(str(name), value) for name, value in parameters.items()}
    by_variable: dict[str, str] = {}
    for name in space:
        other = by_variable.setdefault(variable_name(name), name)
        if other != name:
            text = f"{other} and {name} would be the same variable, ${variable_name(name)}: rename one of them."
            raise _error(name, "unique", text)
    return space


def variable_name(parameter: str) -> str:
    """The environment variable with the value of a parameter: that of optimizer.lr is ROWLOCK_SWEEP_OPTIMIZER_LR."""
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]", "_", parameter.upper())


def _parse_parameter(name: str, value: Any) -> Parameter:
    if not _NAME.fullmatch(name):
        text = f"{name[:63]!r} is no name of a parameter: a letter, then letters, digits and any of _ . - (63 at most)."
        raise _error(name, "format", text)
    if name.lower() == INDEX:
        raise _error(name, "format", "index is the number of the run, which every run has: choose another name.")
    if isinstance(value, list):
        return _values(name, [_scalar_text(name, one) for one in value])
    text = _scalar_text(name, value)
    called = _DISTRIBUTION.fullmatch(text.strip())
    if called and called[1] in _DISTRIBUTIONS:
        return _parse_distribution(name, called[1], called[2])
    if called and "," in called[2]:
        known = " and ".join(f"{one}(LOW,HIGH)" for one in _DISTRIBUTIONS)
        raise _error(name, "options", f"{name}: there is no {called[1]}(); there are {known}.")
    words = (word.strip() for word in text.split(",", MOST_RUNS + 1))
    expanded = (one for word in words for one in _expand_range(name, word))
    return _values(
        name, list(islice(expanded, MOST_RUNS + 1))
    )  # a thousand ranges of a thousand numbers fit into a request


def _values(name: str, values: Sequence[str]) -> Values:
    if not values or "" in values:
        text = f"{name} has no value{' between two commas' if len(values) > 1 else ''}: write {name}=1,2,3."
        raise _error(name, "required", text)
    if len(values) > MOST_RUNS:
        raise _error(name, "max", f"{name} has more than {MOST_RUNS:,} values; a sweep has {MOST_RUNS:,} runs at most.")
    for value in values:
        if len(value) > LONGEST_VALUE or not value.isprintable():
            text = f"{name}: a value has {LONGEST_VALUE:,} printable characters at most; give programs longer ones in a file."
            raise _error(name, "format", text)
    if twice := next((value for value, count in Counter(values).items() if count > 1), None):
        raise _error(name, "unique", f"{name} has the value {twice[:60]} twice: leave one of them out.")
    return Values(tuple(values))


def _scalar_text(name: str, value: Any) -> str:
    """A value of JSON or YAML as text: numbers as Python writes them, `true` and `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    raise _error(name, "type", f"{name}: a value is a text, a number, true or false, or a list of these.")


def _expand_range(name: str, word: str) -> list[str]:
    found = _RANGE.fullmatch(word)
    if found is None:
        low_text, _, high_text = word.partition(
            ".."
        )  # one pattern for both would search for the square of their length
        if _NUMBER.fullmatch(low_text) and _NUMBER.fullmatch(high_text):
            text = (
                f"{name}: a range has whole numbers at both ends, and {word[:60]} has not; write its values one by one."
            )
            raise _error(name, "format", text)
        return [word]
    low, high = int(found[1]), int(found[2])
    if high < low:
        raise _error(name, "min", f"{name}: the range {word} ends before it begins.")
    if high - low >= MOST_RUNS:
        text = f"{name}: the range {word} has {high - low + 1:,} numbers; a sweep has {MOST_RUNS:,} runs at most."
        raise _error(name, "max", text)
    return [str(number) for number in range(low, high + 1)]


def _parse_distribution(name: str, kind: str, inside: str) -> Distribution:
    try:
        low, high = (float(part) for part in inside.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        text = f"{name}: {kind} needs two numbers, the lower one first: {kind}(1e-5,1e-2)."
        raise _error(name, "format", text)
    if kind == "loguniform" and low <= 0:
        raise _error(name, "min", f"{name}: the numbers of loguniform are above 0, and {low:g} is not.")
    return Distribution(low, high, kind == "loguniform")


def _error(name: str, rule: str, message: str) -> BadRequest:
    return BadRequest(message, causes=[Cause(rule, message, f"parameters.{name}" if name else "parameters")])
