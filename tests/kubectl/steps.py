"""A walk as data: its files, its steps, and what a real cluster answered to each. `tests/data/README.md` has the words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from tests.kubectl.normal import TimesAreStrings, parsed, plain_object, rules, text_lines, without

Result = dict[str, Any]
"""`exit`, `stdout`, `stderr`, `object`: those of them that count."""
Command = str | list[str]
COUNTED = ("exit", "stdout", "stderr")
_ASKS_FOR_AN_OBJECT = re.compile(r"(?:^|\s)(?:-o|--output)[ =]?(?:json|yaml)(?=\s|$)")


@dataclass(frozen=True)
class Raw:
    """What a command did. `seen` is all it printed before `pipe`."""

    exit: int | str
    stdout: str
    stderr: str
    seen: str = ""


@dataclass(frozen=True)
class Own:
    """What this run chose for itself and the record does not know."""

    namespace: str
    folder: str
    node: str

    def rules(self) -> list[tuple[re.Pattern[str], str]]:
        named = ((re.escape(self.namespace), "walk"), (rf"{re.escape(self.folder)}[\w/]*/", ""))
        return rules((*named, (rf"(?<![\w-]){re.escape(self.node)}(?![\w-])", "NODE")))


@dataclass(frozen=True)
class Step:
    """One command and what of its answer counts."""

    name: str
    run: Command
    let: Mapping[str, Command] = field(default_factory=dict)
    stdin: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    pipe: str = ""
    until: str = ""
    within: float = 60
    stop_after: float | None = None
    during: list[Command] = field(default_factory=list)
    http: str = ""
    normalise: list[list[str]] = field(default_factory=list)
    keep: list[str] | None = None
    drop: list[str] = field(default_factory=list)
    unordered: bool = False
    ignore: list[str] = field(default_factory=list)
    only: list[str] = field(default_factory=lambda: list(COUNTED))
    why: str = ""
    result: Result | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Step:
        unknown = sorted(set(given) - {f.name for f in fields(cls)})
        if unknown or not {"name", "run"} <= set(given):
            raise ValueError(f"step {given.get('name', given)}: {unknown or 'name or run'} is not what a step has")
        return cls(**given)

    def normal(self, raw: Raw, argv: list[str], own: Own, filled: Callable[[str], str]) -> Result:
        """What of a raw answer is compared. `filled` puts this run's names into a pattern."""
        named, extra = own.rules(), rules((filled(pattern), to) for pattern, to in self.normalise)
        found: Result = {"exit": raw.exit}
        for stream, text in (("stdout", raw.stdout), ("stderr", raw.stderr)):
            found[stream] = self._counted(text_lines(text, named, extra))
        if not self.pipe and _ASKS_FOR_AN_OBJECT.search(" ".join(argv)) and isinstance(parsed(raw.stdout), dict):
            obj = plain_object(parsed(raw.stdout), named, extra)
            for path in self.ignore:
                obj = without(obj, path.split("/"))
            found |= {"stdout": [], "object": obj}
        return {k: v for k, v in found.items() if ("stdout" if k == "object" else k) in self.only}

    def _counted(self, lines: list[str]) -> list[str]:
        def some(patterns: list[str], line: str) -> bool:
            return any(re.search(pattern, line) for pattern in patterns)

        kept = [line for line in lines if (self.keep is None or some(self.keep, line)) and not some(self.drop, line)]
        return sorted(kept) if self.unordered else kept


@dataclass(frozen=True)
class Walk:
    """Steps that build on each other, in a namespace of their own."""

    name: str
    steps: list[Step]
    files: Mapping[str, str]
    before: list[Command]
    after: list[Command]
    source: Mapping[str, Any]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Walk:
        unknown = sorted(set(given) - {"walk", "steps", "files", "before", "after", "recorded"})
        if unknown:
            raise ValueError(f"a walk has no {', '.join(unknown)}")
        steps = [Step.read(step) for step in given["steps"]]
        names = [step.name for step in steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"walk {given['walk']}: these names are used twice: {twice}")
        parts = (given.get("files", {}), given.get("before", []), given.get("after", []))
        return cls(given["walk"], steps, *parts, given)

    @classmethod
    def load(cls, path: Path) -> Walk:
        """From what was written by hand (YAML), or from what was recorded (JSON)."""
        text = path.read_text(encoding="utf-8")
        return cls.read(json.loads(text) if path.suffix == ".json" else yaml.load(text, TimesAreStrings))


def difference(wanted: Result, found: Result) -> list[str]:
    """Lines of a diff; [] when the two are equal."""
    if wanted == found:
        return []
    both = difflib.unified_diff(_lines(wanted), _lines(found), "recorded", "here", lineterm="", n=1)
    return list(both) or [f"recorded {wanted!r}", f"here {found!r}"]  # equal to the eye: 1 and true, say


def _lines(result: Result) -> list[str]:
    shown = [f"exit {result['exit']}"] if "exit" in result else ["exit does not count"]
    for stream in ("stdout", "stderr"):
        shown += [f"{stream}| {line}" for line in result.get(stream, [])]
    if "object" in result:
        whole = json.dumps(result["object"], indent=1, sort_keys=True, ensure_ascii=False)
        shown += [f"object| {line}" for line in whole.splitlines()]
    return shown
