"""Parses Dockerfiles, as BuildKit reads them. Pure.

`parse(text, args)` gives the stages of a build with variables put in. What no build here can do (ONBUILD, secrets, …) is
refused with a sentence; `require_simple` refuses what a build without a root file system of its own cannot do.
"""

import difflib
import json
import platform
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

RECORDED_INSTRUCTIONS = frozenset({"EXPOSE", "LABEL", "VOLUME", "MAINTAINER", "HEALTHCHECK"})
"""Accepted, without effect on a pod."""
INSTRUCTIONS = RECORDED_INSTRUCTIONS | frozenset(
    {"FROM", "RUN", "WORKDIR", "COPY", "ADD", "ENV", "ARG", "CMD", "ENTRYPOINT", "SHELL", "USER", "STOPSIGNAL"}
)
_EXPANDED_INSTRUCTIONS = frozenset(
    {"FROM", "WORKDIR", "COPY", "ADD", "ENV", "ARG", "EXPOSE", "LABEL", "USER", "VOLUME", "STOPSIGNAL"}
)
PROXY_ARGS = tuple(
    name for low in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy") for name in (low, low.upper())
)
"""Build arguments that need no ARG."""
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_ALLOWED_FLAGS = {
    "COPY": {"chown", "chmod", "link", "from", "parents", "exclude"},
    "ADD": {"chown", "chmod", "link", "exclude"},
    "FROM": {"platform"},
    "RUN": {"mount", "network"},
    "HEALTHCHECK": {"interval", "timeout", "start-period", "start-interval", "retries"},
}
_MOUNT_KINDS = ("cache", "bind", "tmpfs")
_PACKAGE_MANAGER = re.compile(
    r"(?:^|[;&|(]|\bsudo\b|\bthen\b|\bdo\b)\s*((?:apt-get|apt|yum|dnf|microdnf|apk|zypper|pacman|conda|mamba))\b"
)
_HEREDOC = re.compile(r"(?<![<\\])(\d*)<<(-?)(['\"]?)([A-Za-z_][\w.]*)\3")


class BadDockerfile(Exception):
    """A Dockerfile that cannot be built here; the message names the line."""


@dataclass(frozen=True, slots=True)
class Heredoc:
    """Text that stands in the Dockerfile itself."""

    name: str
    text: str
    expand: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `words` is the exec form, or the operands; `shell` says that `text` is for a shell."""

    line: int
    name: str
    text: str
    words: tuple[str, ...] = ()
    shell: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mapping[str, str], ...] = ()
    """Of RUN: the values of its `--mount`s."""
    heredocs: tuple[Heredoc, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.text}".partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and what follows. `name` is "" where it has none."""

    name: str
    base: str
    steps: tuple[Instruction, ...]
    """The FROM is the first."""


def parse(
    text: str,
    args: Mapping[str, str] | None = None,
    environment_of: Callable[[str], Mapping[str, str]] = lambda base: {},
) -> list[Stage]:
    """All stages, in order. `args` are `--build-arg`s; one that no ARG declares is refused. `environment_of` gives the
    variables of an image that a stage builds on. Raises BadDockerfile."""
    given = dict(args or {})
    unused = {name for name in given if name not in PROXY_ARGS}
    global_args = _platform_args()
    scope: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    environments: dict[str, dict[str, str]] = {}
    for line, name, rest, heredocs in _logical_lines(text):
        _check_instruction(line, name, has_stage=bool(stages))
        variables = scope if stages and name != "FROM" else global_args
        rest = expand(rest, variables) if name in _EXPANDED_INSTRUCTIONS else rest
        instruction = _instruction(line, name, rest, heredocs, variables)
        if name == "ARG":
            instruction = _declare(instruction, given, scope if stages else global_args, global_args)
            unused -= {word.partition("=")[0] for word in instruction.words}
            if not stages:
                continue
        elif name == "ENV":
            added = dict(word.split("=", 1) for word in instruction.words)
            scope |= added
            environments[str(len(stages) - 1)] |= added
        elif name == "FROM":
            base = instruction.words[0]
            environment = dict(environments.get(base.lower()) or environment_of(base))
            scope = dict(environment)
            environments[str(len(stages))] = environment
            environments[_stage_name(instruction) or str(len(stages))] = environment
            stages.append((_stage_name(instruction), base, []))
        stages[-1][2].append(instruction)
    if unused:
        raise BadDockerfile(f"no ARG for --build-arg {', '.join(sorted(unused))} in the Dockerfile")
    if not stages:
        raise BadDockerfile("no FROM instruction: the first line says what the image builds on")
    return [Stage(name, base, tuple(steps)) for name, base, steps in stages]


def _platform_args() -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    sides = {"PLATFORM": f"linux/{machine}", "OS": "linux", "ARCH": machine, "VARIANT": ""}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in sides.items()}


def _declare(
    instruction: Instruction, given: Mapping[str, str], scope: dict[str, str], global_args: Mapping[str, str]
) -> Instruction:
    """ARG: each name with the value it has from here on; one without a value keeps what stands before the first FROM."""
    words = []
    for word in instruction.words:
        key, equals, default = word.partition("=")
        value = given.get(key, default if equals else global_args.get(key))
        if value is not None and key not in scope:
            scope[key] = value
        elif value is not None and (equals or key in given):
            scope[key] = value
        words.append(f"{key}={scope[key]}" if key in scope else key)
    return Instruction(instruction.line, "ARG", instruction.text, tuple(words))


def _stage_name(instruction: Instruction) -> str:
    words = instruction.words
    if len(words) == 3 and words[1].lower() != "as":
        raise BadDockerfile(f"line {instruction.line}: FROM takes an image and, at most, AS name")
    return words[2].lower() if len(words) == 3 else ""


def _logical_lines(text: str) -> Iterator[tuple[int, str, str, tuple[Heredoc, ...]]]:
    """(line number, instruction, rest, here-documents), with continued lines joined and comments gone."""
    lines = text.splitlines()
    escape = _escape_character(lines)
    begin, joined, number = 0, "", 0
    while number < len(lines):
        raw = lines[number]
        number += 1
        if raw.lstrip().startswith("#") or (joined and not raw.strip()):
            continue
        begin = begin if joined else number
        stripped = raw.rstrip()
        if stripped.endswith(escape):
            joined += stripped[: -len(escape)]
            continue
        joined += raw
        if joined.strip():
            name, _, rest = joined.strip().partition(" ")
            heredocs, number = _read_heredocs(lines, number, name.upper(), rest, begin)
            yield begin, name.upper(), rest.strip(), heredocs
        joined = ""
    if joined.strip():
        raise BadDockerfile(f"line {begin}: the last line ends with a backslash")


def _escape_character(lines: Sequence[str]) -> str:
    """A backslash, unless the first comments say `escape=`."""
    for line in lines:
        match = re.fullmatch(r"#\s*([a-zA-Z]+)\s*=\s*(.+?)\s*", line)
        if not match:
            break
        if match[1].lower() == "escape":
            return match[2]
    return "\\"


def _read_heredocs(
    lines: Sequence[str], number: int, name: str, rest: str, begin: int
) -> tuple[tuple[Heredoc, ...], int]:
    """The here-documents that a line announces, and the number of the line after them."""
    heredocs = []
    if name in ("RUN", "COPY", "ADD") and not rest.startswith("["):
        for _, dash, quote, word in _HEREDOC.findall(rest):
            body = []
            while number < len(lines) and (lines[number].lstrip("\t") if dash else lines[number]) != word:
                body.append(lines[number].lstrip("\t") if dash else lines[number])
                number += 1
            if number == len(lines):
                raise BadDockerfile(f"line {begin}: the here-document {word} has no end: a line with {word} alone")
            number += 1
            heredocs.append(Heredoc(word, "".join(f"{line}\n" for line in body), not quote))
    return tuple(heredocs), number


def _check_instruction(line: int, name: str, *, has_stage: bool) -> None:
    if name not in INSTRUCTIONS:
        near = difflib.get_close_matches(name, sorted(INSTRUCTIONS), 1)
        hint = f"; did you mean {near[0]}?" if near else "; process images do not have it"
        raise BadDockerfile(f"line {line}: unknown instruction {name}{hint}")
    if name not in ("FROM", "ARG") and not has_stage:
        raise BadDockerfile(f"line {line}: {name} before FROM")


def expand(text: str, scope: Mapping[str, str]) -> str:
    """`$A`, `${A}`, `${A:-default}`, `${A-default}`, `${A:+other}`, `${A+other}`; `\\$` stays a dollar."""

    def replace_variable(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        value = scope.get(match[1] or match[2])
        is_set = bool(value) if (match[3] or "").startswith(":") else value is not None
        if match[3] and match[3].endswith("-"):
            return (value or "") if is_set else match[4]
        if match[3]:
            return match[4] if is_set else ""
        return value or ""

    return _VARIABLE.sub(replace_variable, text)


def _instruction(
    line: int, name: str, rest: str, heredocs: tuple[Heredoc, ...], variables: Mapping[str, str]
) -> Instruction:
    flags, mounts, rest = _parse_flags(line, name, rest, variables)
    if not rest:
        raise BadDockerfile(f"line {line}: {name} needs an argument")
    if name in ("RUN", "CMD", "ENTRYPOINT", "SHELL", "COPY", "ADD", "VOLUME") and rest.startswith("["):
        words = _parse_exec_form(rest)
        if words is not None:
            return Instruction(line, name, rest, words, flags=flags, mounts=mounts)
    if name in ("RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK"):
        return Instruction(line, name, rest, (), True, flags, mounts, heredocs)
    if name == "SHELL":
        raise BadDockerfile(f'line {line}: SHELL needs the JSON form, as in SHELL ["/bin/bash", "-c"]')
    return Instruction(line, name, rest, _operands(line, name, rest), flags=flags, heredocs=heredocs)


def _parse_flags(
    line: int, name: str, rest: str, variables: Mapping[str, str]
) -> tuple[dict[str, str], tuple[Mapping[str, str], ...], str]:
    flags: dict[str, str] = {}
    mounts: list[Mapping[str, str]] = []
    while name in _ALLOWED_FLAGS or rest.startswith("--"):
        match = _FLAG.match(rest)
        if match is None:
            break
        if match[1] not in _ALLOWED_FLAGS.get(name, set()):
            raise BadDockerfile(f"line {line}: {name} --{match[1]} is not supported")
        if match[1] == "mount":
            mounts.append(_parse_mount(line, expand(match[2] or "", variables)))
        elif match[1] == "network" and match[2] != "default":
            raise BadDockerfile(f"line {line}: RUN --network={match[2]} is not supported: steps use this machine's")
        else:
            flags[match[1]] = match[2] or ""
        rest = rest[match.end() :]
    return flags, tuple(mounts), rest


def _parse_mount(line: int, text: str) -> dict[str, str]:
    """The words of `--mount=type=…`, under their long names."""
    names = {"dst": "target", "destination": "target", "src": "source", "readonly": "ro", "readwrite": "rw"}
    mount = {"type": "bind"}
    for word in filter(None, text.split(",")):
        key, equals, value = word.partition("=")
        mount[names.get(key, key)] = value if equals else "true"
    if mount["type"] not in _MOUNT_KINDS:
        raise BadDockerfile(
            f"line {line}: RUN --mount=type={mount['type']} is not supported; {', '.join(_MOUNT_KINDS)} are"
        )
    if not mount.get("target", "").startswith("/"):
        raise BadDockerfile(f"line {line}: RUN --mount needs target=/an/absolute/path")
    return mount


def require_simple(stages: Sequence[Stage]) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile that can be built by steps which run on this machine itself. Raises BadDockerfile."""
    if len(stages) > 1:
        line = stages[1].steps[0].line
        raise BadDockerfile(f"line {line}: a second FROM: a process image has one stage; build the stages one by one")
    for step in stages[0].steps:
        if step.heredocs:
            raise BadDockerfile(
                f"line {step.line}: here-documents are not supported; put the text into a file and COPY it"
            )
        for flag in ("from", "parents", "exclude"):
            if flag in step.flags:
                raise BadDockerfile(f"line {step.line}: {step.name} --{flag} needs an image with files of its own")
        if step.mounts:
            raise BadDockerfile(
                f"line {step.line}: RUN --mount is not supported: steps run on this machine as they are"
            )
        if step.name == "RUN" and (match := _PACKAGE_MANAGER.search(" ".join(step.words) or step.text)):
            raise BadDockerfile(
                f"line {step.line}: {match[1]} would change this machine itself: RUN steps of a process image run on "
                "it; install the package on the machine and remove the step"
            )
    return stages[0].steps


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
    if name in RECORDED_INSTRUCTIONS or name in ("WORKDIR", "USER", "STOPSIGNAL"):
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
        rules.append((excludes, _glob(text.lstrip("!").strip().strip("/"))))
    return rules


def _glob(text: str) -> re.Pattern[str]:
    text = re.sub(r"^(?:\./)+", "", text)
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|[^*?\[]+|\[", text)
    sets = {
        token: f"[{token[1:-1].replace(chr(92), chr(92) * 2)}]"
        for token in tokens
        if len(token) > 2 and token[0] == "["
    }
    return re.compile("".join(parts.get(t) or sets.get(t) or re.escape(t) for t in tokens) + r"(?:/.*)?$")


def is_excluded(path: str, rules: Sequence[tuple[bool, re.Pattern[str]]]) -> bool:
    """Is a path of the context left out?"""
    result = False
    for excludes, pattern in rules:
        if pattern.match(path):
            result = excludes
    return result
