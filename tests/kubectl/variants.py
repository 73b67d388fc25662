"""What a step may answer beside what was recorded: listed, line by line, each with its reason (`known.json`). Pure.

A list has choices. A choice names recorded lines that stand together and what may stand in their place: lines, or
`~` and a regular expression for one line. Or it names a place in an object (`at`, keys with `/` between them) and other
values there; null is nothing at all. Each choice is free of the others.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubectl.steps import Result, Step

Json = Any
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Variants:
    why: str
    choices: tuple[Mapping[str, Json], ...]

    @classmethod
    def read(cls, given: Mapping[str, Json]) -> Variants:
        for choice in given["choices"]:
            if set(choice) not in ({"recorded", "or"}, {"at", "recorded", "or"}) or not choice["or"]:
                raise ValueError(f"{choice} is not a choice")
        return cls(given["why"], tuple(given["choices"]))

    def accepted(self, step: Step) -> Iterator[Result]:
        """Every answer but the recorded one that the list allows."""
        assert step.result is not None
        ways = ((choice["recorded"], *choice["or"]) for choice in self.choices)
        for picks in itertools.islice(itertools.product(*ways), 1, None):  # the first is the record itself
            found = copy.deepcopy(step.result)
            for choice, pick in zip(self.choices, picks, strict=True):
                if "at" in choice:
                    _put(found["object"], choice["at"].split("/"), choice["recorded"], pick)
                else:
                    _replace(found, choice["recorded"], pick)
            yield {k: sorted(v) if step.unordered and k in STREAMS else v for k, v in found.items()}

    def allow(self, step: Step, found: Result) -> bool:
        return any(_alike(accepted, found) for accepted in self.accepted(step))


def _replace(result: Result, recorded: list[str], lines: list[str]) -> None:
    """In the stream that has the recorded lines; a choice that is nowhere, or twice, does not fit the record."""
    size = len(recorded)
    places = [
        (stream, i)
        for stream in STREAMS
        for i in range(len(result.get(stream, ())))
        if size and result[stream][i : i + size] == recorded
    ]
    if len(places) != 1:
        raise ValueError(f"these lines are {len(places)} times in the record, and should be there once: {recorded}")
    stream, i = places[0]
    result[stream][i : i + size] = lines


def _put(obj: Json, path: list[str], recorded: Json, value: Json) -> None:
    for key in path[:-1]:
        obj = obj[key]
    if obj.get(path[-1]) != recorded:
        raise ValueError(f"the record has {obj.get(path[-1])!r} at {'/'.join(path)}, and not {recorded!r}")
    if value is None:
        obj.pop(path[-1], None)
    else:
        obj[path[-1]] = value


def _alike(accepted: Result, found: Result) -> bool:
    if set(accepted) != set(found) or any(accepted[k] != found[k] for k in accepted if k not in STREAMS):
        return False
    return all(_same_lines(accepted[k], found[k]) for k in STREAMS if k in accepted)


def _same_lines(accepted: list[str], found: list[str]) -> bool:
    return len(accepted) == len(found) and all(map(_same, accepted, found))


def _same(accepted: str, found: str) -> bool:
    return re.fullmatch(accepted[1:], found) is not None if accepted.startswith("~") else accepted == found
