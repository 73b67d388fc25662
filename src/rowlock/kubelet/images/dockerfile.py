"""Parses simple Dockerfiles. Pure. What a process image cannot do is refused with a sentence.

`parse(text, args)` gives instructions with variables put in. One stage only; local files only; what has no meaning for a
process (EXPOSE, LABEL, USER, …) is kept as a note, so that the build can say so.
"""

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

IGNORED_INSTRUCTIONS = frozenset({"EXPOSE", "LABEL", "USER", "VOLUME", "STOPSIGNAL", "MAINTAINER", "HEALTHCHECK"})
"""Accepted, without effect on a process."""
SUPPORTED_INSTRUCTIONS = frozenset(
    {"FROM", "RUN", "WORKDIR", "COPY", "ADD", "ENV", "ARG", "CMD", "ENTRYPOINT", "SHELL"}
)
_EXPANDED_INSTRUCTIONS = frozenset(
    {"FROM", "WORKDIR", "COPY", "ADD", "ENV", "ARG", "EXPOSE", "LABEL", "USER", "VOLUME"}
)
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_ALLOWED_FLAGS = {"COPY": {"chown", "chmod", "link", "from"}, "ADD": {"chown", "chmod", "link"}, "FROM": {"platform"}}
_PACKAGE_MANAGER = re.compile(
    r"(?:^|[;&|(]|\bsudo\b|\bthen\b|\bdo\b)\s*((?:apt-get|apt|yum|dnf|microdnf|apk|zypper|pacman|conda|mamba))\b"
)


class BadDockerfile(Exception):
    """A Dockerfile that cannot be built here; the message names the line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `words` is the exec form, or the operands; `shell` says that `text` is for a shell."""

    line: int
    name: str
    text: str
    words: tuple[str, ...] = ()
    shell: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.text}"


def parse(text: str, args: Mapping[str, str] | None = None) -> list[Instruction]:
    """All instructions. `args` are `--build-arg`s; one that no ARG declares is refused. Raises BadDockerfile."""
    unused_args = dict(args or {})
    scope: dict[str, str] = {}
    instructions: list[Instruction] = []
    for line, name, rest in _logical_lines(text):
        _check_instruction(line, name, instructions)
        rest = expand(rest, scope) if name in _EXPANDED_INSTRUCTIONS else rest
        instruction = _instruction(line, name, rest)
        if name == "ARG":
            key, _, default = instruction.words[0].partition("=")
            scope[key] = unused_args.pop(key, default)
            instruction = Instruction(line, name, instruction.text, (key, scope[key]))
        elif name == "ENV":
            scope |= dict(word.split("=", 1) for word in instruction.words)
        instructions.append(instruction)
    if unused_args:
        raise BadDockerfile(f"no ARG for --build-arg {', '.join(sorted(unused_args))} in the Dockerfile")
    if not any(i.name == "FROM" for i in instructions):
        raise BadDockerfile("no FROM instruction: the first line says what the image builds on")
    return instructions


def _logical_lines(text: str) -> list[tuple[int, str, str]]:
    """(line number, instruction, rest), with continued lines joined and comments gone."""
    lines: list[tuple[int, str, str]] = []
    begin, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.lstrip().startswith("#") or (joined and not raw.strip()):
            continue
        begin = begin if joined else number
        stripped = raw.rstrip()
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        joined += raw
        if joined.strip():
            name, _, rest = joined.strip().partition(" ")
            lines.append((begin, name.upper(), rest.strip()))
        joined = ""
    if joined.strip():
        raise BadDockerfile(f"line {begin}: the last line ends with a backslash")
    return lines


def _check_instruction(line: int, name: str, previous: list[Instruction]) -> None:
    if name not in SUPPORTED_INSTRUCTIONS | IGNORED_INSTRUCTIONS:
        near = difflib.get_close_matches(name, sorted(SUPPORTED_INSTRUCTIONS | IGNORED_INSTRUCTIONS), 1)
        hint = f"; did you mean {near[0]}?" if near else "; process images do not have it"
        raise BadDockerfile(f"line {line}: unknown instruction {name}{hint}")
    if name == "FROM" and any(i.name == "FROM" for i in previous):
        raise BadDockerfile(f"line {line}: a second FROM: a process image has one stage; build the stages one by one")
    if name not in ("FROM", "ARG") and not any(i.name == "FROM" for i in previous):
        raise BadDockerfile(f"line {line}: {name} before FROM")


def expand(text: str, scope: Mapping[str, str]) -> str:
    """`$A`, `${A}`, `${A:-default}`, `${A:+other}`; `\\$` stays a dollar."""

    def replace_variable(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        value = scope.get(match[1] or match[2], "")
        if match[3] and match[3].endswith("-"):
            return value or match[4]
        if match[3]:
            return match[4] if value else ""
        return value

    return _VARIABLE.sub(replace_variable, text)


def _instruction(line: int, name: str, rest: str) -> Instruction:
    flags, rest = _parse_flags(line, name, rest)
    if not rest:
        raise BadDockerfile(f"line {line}: {name} needs an argument")
    if "<<" in rest and name in ("RUN", "COPY") and re.search(r"<<-?['\"]?[A-Za-z]", rest):
        raise BadDockerfile(f"line {line}: here-documents are not supported; put the text into a file and COPY it")
    if name == "RUN":
        _refuse_package_manager(line, rest)
    if name in ("RUN", "CMD", "ENTRYPOINT", "SHELL", "COPY", "ADD") and rest.startswith("["):
        words = _parse_exec_form(rest)
        if words is not None:
            return Instruction(line, name, rest, words, flags=flags)
    if name in ("RUN", "CMD", "ENTRYPOINT"):
        return Instruction(line, name, rest, (), True, flags)
    if name == "SHELL":
        raise BadDockerfile(f'line {line}: SHELL needs the JSON form, as in SHELL ["/bin/bash", "-c"]')
    return Instruction(line, name, rest, _operands(line, name, rest), flags=flags)


def _parse_flags(line: int, name: str, rest: str) -> tuple[dict[str, str], str]:
    flags: dict[str, str] = {}
    while match := _FLAG.match(rest):
        if name == "RUN":
            raise BadDockerfile(
                f"line {line}: RUN --{match[1]} is not supported: steps run on this machine as they are"
            )
        if match[1] not in _ALLOWED_FLAGS.get(name, set()):
            raise BadDockerfile(f"line {line}: {name} --{match[1]} is not supported")
        flags[match[1]] = match[2] or ""
        rest = rest[match.end() :]
    if "from" in flags:
        raise BadDockerfile(f"line {line}: COPY --from needs several stages; a process image has one")
    return flags, rest


def _refuse_package_manager(line: int, text: str) -> None:
    if match := _PACKAGE_MANAGER.search(text):
        raise BadDockerfile(
            f"line {line}: {match[1]} would change this machine itself: RUN steps of a process image run on it; "
            "install the package on the machine and remove the step"
        )


def _parse_exec_form(text: str) -> tuple[str, ...] | None:
    """The JSON form; None when it is not valid JSON, which Docker then takes as shell text."""
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return tuple(words) if isinstance(words, list) and all(isinstance(w, str) for w in words) else None


def _operands(line: int, name: str, rest: str) -> tuple[str, ...]:
    if name == "ENV" and "=" not in rest.split()[0]:
        key, space, value = rest.partition(" ")
        if not space:
            raise BadDockerfile(f"line {line}: ENV needs KEY=VALUE")
        return (f"{key}={value.strip()}",)
    if name in IGNORED_INSTRUCTIONS or name == "WORKDIR":
        return (rest.strip("\"'"),)
    try:
        words = tuple(shlex.split(rest))
    except ValueError as error:
        raise BadDockerfile(f"line {line}: {name}: {error}") from None
    if name == "ENV" and any("=" not in word for word in words):
        raise BadDockerfile(f"line {line}: ENV needs KEY=VALUE")
    if name in ("COPY", "ADD") and len(words) < 2:
        raise BadDockerfile(f"line {line}: {name} needs a source and a destination")
    if name == "FROM" and len(words) not in (1, 3):
        raise BadDockerfile(f"line {line}: FROM takes an image and, at most, AS name")
    return words


def parse_dockerignore(patterns: str) -> list[tuple[bool, re.Pattern[str]]]:
    """A .dockerignore: (excludes?, pattern) in order; the last that matches a path decides."""
    rules = []
    for raw in patterns.splitlines():
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        excludes = not text.startswith("!")
        rules.append((excludes, _glob(text.lstrip("!").strip("/"))))
    return rules


def _glob(text: str) -> re.Pattern[str]:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", text)
    return re.compile("".join(parts.get(t, re.escape(t)) for t in tokens) + r"(?:/.*)?$")


def is_excluded(path: str, rules: list[tuple[bool, re.Pattern[str]]]) -> bool:
    """Is a path of the context left out?"""
    result = False
    for excludes, pattern in rules:
        if pattern.match(path):
            result = excludes
    return result
