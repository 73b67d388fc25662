"""The function of a sweep, as each rank of a run calls it: with the parameters of the run, which are in its environment.

`Client.sweep` pickles a `SweepCall` in place of the function (`rowlock.runtime.function_rank` calls it).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SweepCall:
    """Calls `fn(*args, **kwargs)` with the parameters of this run as further keyword arguments."""

    fn: Callable[..., Any]
    variables: Mapping[str, str]
    """Parameter → the environment variable with its value."""
    values: Mapping[str, Mapping[str, Any]]
    """Parameter → text of a value → the value that the program gave; a value that is not here is read from its text."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        chosen = {name: self._value_of(name, os.environ[variable]) for name, variable in self.variables.items()}
        return self.fn(*args, **kwargs, **chosen)

    def _value_of(self, name: str, text: str) -> Any:
        known = self.values.get(name, {})
        return known[text] if text in known else read_value(text)


def read_value(text: str) -> int | float | str:
    """A whole number, a number, or else the text itself."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
