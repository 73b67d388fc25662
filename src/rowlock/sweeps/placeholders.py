"""Placeholders of parameters in a command: `--lr {lr}`.

`{name}` stands for the value of a parameter, `{index}` for the number of the run. `{{` is a brace, and so is the `}}` that closes it. All other
braces stay as they are, so that JSON needs no escape: `{"lr": {lr}}` and `{"a": {"b": 1}}` mean what they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rowlock.errors import BadRequest, Cause
from rowlock.workloads.body_fields import did_you_mean

_PARTS = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}|\}", re.ASCII)


def fill(word: str, values: Mapping[str, str]) -> tuple[str, set[str]]:
    """The word with values in place of the placeholders, and the names of those. Raises BadRequest for an unknown one."""
    filled: list[str] = []
    used: set[str] = set()
    position = opened = 0
    while part := _PARTS.search(word, position):
        filled.append(word[position : part.start()])
        position = part.end()
        text = part[0]
        if part[1]:
            if part[1] not in values:
                raise _unknown(part[1], values)
            used.add(part[1])
            filled.append(values[part[1]])
        elif text == "{{":
            opened += 1
            filled.append("{")
        elif text == "}}" and opened:
            opened -= 1
            filled.append("}")
        else:  # a brace of the word's own: what follows it is looked at anew
            filled.append("}")
            position = part.start() + 1
    filled.append(word[position:])
    return "".join(filled), used


def _unknown(name: str, known: Iterable[str]) -> BadRequest:
    names = list(known)
    message = (
        f"the command names {{{name}}}, but the sweep has no parameter {name}.{did_you_mean(name, names)} It has: {', '.join(names)}."
        f" Write {{{{{name}}}}} to pass {{{name}}} to the program unchanged."
    )
    return BadRequest(message, causes=[Cause("unknown", message, "command")])
