"""Parses Dockerfiles, as BuildKit reads them. Pure.

`parse(text, args)` returns the stages of a build with variables expanded. What no build here can do (secrets, …) is
refused with a sentence; `require_simple` refuses what a build without a root file system of its own cannot do.
"""

import difflib
import json
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rowlock.kubelet.images.word_expansion import announced_heredocs, expand_word, split_words

RECORDED_INSTRUCTIONS = frozenset({"EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK"})
"""Accepted, without effect on a pod."""
INSTRUCTIONS = RECORDED_INSTRUCTIONS | frozenset(
    {
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "ADD",
        "ENV",
        "ARG",
        "CMD",
        "ENTRYPOINT",
        "SHELL",
        "USER",
        "STOPSIGNAL",
        "ONBUILD",
        "VOLUME",
    }
)
_NO_TRIGGERS = frozenset({"FROM", "ONBUILD", "MAINTAINER"})
_EXPANDED_INSTRUCTIONS = frozenset(
    {"FROM", "WORKDIR", "COPY", "ADD", "ENV", "ARG", "EXPOSE", "LABEL", "USER", "VOLUME", "STOPSIGNAL"}
)
PROXY_ARGS = tuple(
    name for low in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy") for name in (low, low.upper())
)
"""Build arguments that are accepted without an ARG."""
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=(.*)", re.DOTALL)
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


class BadDockerfile(Exception):
    """A Dockerfile cannot be built here; the message names the line."""


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document: text in the Dockerfile itself."""

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
    """The values of a RUN's `--mount` flags."""
    heredocs: tuple[Heredoc, ...] = ()

    def __str__(self) -> str:
        mounts = [f"--mount={','.join(f'{k}={v}' for k, v in mount.items())}" for mount in self.mounts]
        flags = [f"--{key}={value}" if value else f"--{key}" for key, value in self.flags.items()]
        return " ".join((self.name, *mounts, *flags, self.text)).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and the instructions after it. `name` is "" if it has none."""

    name: str
    base: str
    steps: tuple[Instruction, ...]
    """The instructions, beginning with the FROM."""


def parse(
    text: str,
    args: Mapping[str, str] | None = None,
    environment_of: Callable[[str], Mapping[str, str]] = lambda base: {},
    triggers_of: Callable[[str], Sequence[str]] = lambda base: (),
) -> list[Stage]:
    """All stages, in order. `args` are `--build-arg`s; one that no ARG declares is refused. For a base image, `environment_of`
    returns the variables and `triggers_of` the ONBUILD instructions. Raises BadDockerfile."""
    parser = _Parser(dict(args or {}), environment_of, triggers_of, _escape_character(_lines(text)))
    for line, name, rest, heredocs in _logical_lines(text):
        parser.add(line, name, rest, heredocs)
    return parser.stages()


@dataclass(slots=True)
class _Base:
    """What the instructions after a FROM know about their base; the stage's own settings are added."""

    environment: dict[str, str]
    triggers: list[str]


class _Parser:
    """One Dockerfile, instruction by instruction."""

    def __init__(
        self,
        args: dict[str, str],
        environment_of: Callable[[str], Mapping[str, str]],
        triggers_of: Callable[[str], Sequence[str]],
        escape: str,
    ) -> None:
        self._args, self._environment_of, self._triggers_of = args, environment_of, triggers_of
        self._escape = escape
        self._unused = {name for name in args if name not in PROXY_ARGS}
        self._global_args = _platform_args()
        self._scope: dict[str, str] = {}
        self._stages: list[tuple[str, str, list[Instruction]]] = []
        self._bases: dict[str, _Base] = {}

    def add(self, line: int, name: str, rest: str, heredocs: tuple[Heredoc, ...]) -> None:
        """Adds the next instruction. Raises BadDockerfile."""
        _check_instruction(line, name, has_stage=bool(self._stages))
        variables = self._scope if self._stages and name != "FROM" else self._global_args
        expand = partial(expand_word, scope=variables, escape=self._escape) if name in _EXPANDED_INSTRUCTIONS else str
        try:
            instruction = _instruction(line, name, rest, heredocs, expand)
        except ValueError as error:
            raise BadDockerfile(f"line {line}: {name}: {error}") from None
        triggers: list[str] = []
        if name == "ARG":
            scope = self._scope if self._stages else self._global_args
            instruction = _declare(instruction, self._args, scope, self._global_args)
            self._unused -= {word.partition("=")[0] for word in instruction.words}
            if not self._stages:
                return
        elif name == "ENV":
            added = dict(word.split("=", 1) for word in instruction.words)
            self._scope |= added
            self._bases[str(len(self._stages) - 1)].environment |= added
        elif name == "ONBUILD":
            _check_trigger(line, rest)
            self._bases[str(len(self._stages) - 1)].triggers.append(rest)
        elif name == "FROM":
            triggers = self._begin_stage(instruction)
        self._stages[-1][2].append(instruction)
        for trigger in triggers:
            word, _, operands = trigger.partition(" ")
            self.add(line, word.upper(), operands.strip(), ())

    def _begin_stage(self, instruction: Instruction) -> list[str]:
        """Begins a stage; returns the ONBUILD instructions of its base."""
        base = instruction.words[0]
        below = self._bases.get(base.lower()) or _Base(dict(self._environment_of(base)), list(self._triggers_of(base)))
        stage = _Base(dict(below.environment), [])
        self._scope = dict(stage.environment)
        self._bases[str(len(self._stages))] = stage
        self._bases[_stage_name(instruction) or str(len(self._stages))] = stage
        self._stages.append((_stage_name(instruction), base, []))
        return below.triggers

    def stages(self) -> list[Stage]:
        """All stages. Raises BadDockerfile."""
        if self._unused:
            raise BadDockerfile(f"no ARG for --build-arg {', '.join(sorted(self._unused))} in the Dockerfile")
        if not self._stages:
            raise BadDockerfile("no FROM instruction: the first line says what the image builds on")
        return [Stage(name, base, tuple(steps)) for name, base, steps in self._stages]


def _check_trigger(line: int, text: str) -> None:
    """Checks that ONBUILD's instruction is allowed as a trigger. Raises BadDockerfile."""
    name = text.partition(" ")[0].upper()
    _check_instruction(line, name, has_stage=True)
    if name in _NO_TRIGGERS:
        raise BadDockerfile(f"line {line}: {name} isn't allowed as an ONBUILD trigger")


def _platform_args() -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    sides = {"PLATFORM": f"linux/{machine}", "OS": "linux", "ARCH": machine, "VARIANT": ""}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in sides.items()}


def _declare(
    instruction: Instruction, given: Mapping[str, str], scope: dict[str, str], global_args: Mapping[str, str]
) -> Instruction:
    """ARG: each name with its value from here on; one without a value keeps that from before the first FROM."""
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


def _lines(text: str) -> list[str]:
    """Lines as BuildKit splits them: at newlines only; a byte order mark is removed."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


def _logical_lines(text: str) -> Iterator[tuple[int, str, str, tuple[Heredoc, ...]]]:
    """(line number, instruction, rest, here-documents), with continued lines joined and comments removed."""
    lines = _lines(text)
    escape = _escape_character(lines)
    begin, parts, number = 0, list[str](), 0
    while number < len(lines):
        raw = lines[number]
        number += 1
        if raw.lstrip().startswith("#") or not raw.strip():
            continue
        begin = begin if parts else number
        stripped = raw.rstrip()
        if stripped.endswith(escape) and not stripped.endswith(escape * 2):  # else it is an escaped backslash
            parts.append(stripped[:-1])
            continue
        name, *rest = "".join((*parts, raw)).split(None, 1)
        parts.clear()
        operands = rest[0].rstrip() if rest else ""
        heredocs, number = _read_heredocs(lines, number, name.upper(), operands, begin)
        yield begin, name.upper(), operands, heredocs
    if "".join(parts).strip():
        raise BadDockerfile(f"line {begin}: the last line ends with a backslash")


def _escape_character(lines: Sequence[str]) -> str:
    """The escape character: a backslash, unless the first comments say `escape=`. Raises BadDockerfile."""
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.fullmatch(line)
        if not match or not match[2].strip():
            break
        if match[1].lower() == "escape":
            character = match[2].strip()
            if character not in ("\\", "`"):
                raise BadDockerfile(f"line {number}: escape={character}: it is a backslash or a backtick (`)")
            return character
    return "\\"


def _read_heredocs(
    lines: Sequence[str], number: int, name: str, rest: str, begin: int
) -> tuple[tuple[Heredoc, ...], int]:
    """The here-documents that a line declares, and the number of the line after them."""
    heredocs = []
    if name in ("RUN", "COPY", "ADD") and "<<" in rest and not rest.startswith("["):
        for word, dash, expand in announced_heredocs(rest):
            body = []
            while number < len(lines) and (lines[number].lstrip("\t") if dash else lines[number]) != word:
                body.append(lines[number].lstrip("\t") if dash else lines[number])
                number += 1
            if number == len(lines):
                raise BadDockerfile(f"line {begin}: the here-document {word} has no end: a line with {word} alone")
            number += 1
            heredocs.append(Heredoc(word, "".join(f"{line}\n" for line in body), expand))
    return tuple(heredocs), number


def _check_instruction(line: int, name: str, *, has_stage: bool) -> None:
    if name not in INSTRUCTIONS:
        near = difflib.get_close_matches(name, sorted(INSTRUCTIONS), 1)
        hint = f"; did you mean {near[0]}?" if near else "; process images do not have it"
        raise BadDockerfile(f"line {line}: unknown instruction {name}{hint}")
    if name not in ("FROM", "ARG") and not has_stage:
        raise BadDockerfile(f"line {line}: {name} before FROM")


def _instruction(
    line: int, name: str, rest: str, heredocs: tuple[Heredoc, ...], expand: Callable[[str], str]
) -> Instruction:
    """Raises BadDockerfile, or ValueError for words that cannot be expanded."""
    flags, mounts, rest = _parse_flags(line, name, rest, expand)
    if not rest:
        raise BadDockerfile(f"line {line}: {name} needs an argument")
    if name in ("RUN", "CMD", "ENTRYPOINT", "SHELL", "COPY", "ADD", "VOLUME") and rest.startswith("["):
        words = _parse_exec_form(rest)
        if words is not None:
            return Instruction(line, name, rest, tuple(map(expand, words)), flags=flags, mounts=mounts)
    if name in ("RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK", "ONBUILD"):
        return Instruction(line, name, rest, (), True, flags, mounts, heredocs)
    if name == "SHELL":
        raise BadDockerfile(f'line {line}: SHELL needs the JSON form, as in SHELL ["/bin/bash", "-c"]')
    words = _operands(line, name, rest, expand)
    shown = " ".join(words) if "$" in rest else rest
    return Instruction(line, name, shown, words, flags=flags, heredocs=heredocs)


def _parse_flags(
    line: int, name: str, rest: str, expand: Callable[[str], str]
) -> tuple[dict[str, str], tuple[Mapping[str, str], ...], str]:
    flags: dict[str, str] = {}
    mounts: list[Mapping[str, str]] = []
    position = 0
    while match := _FLAG.match(rest, position):
        if match[1] not in _ALLOWED_FLAGS.get(name, set()):
            raise BadDockerfile(f"line {line}: {name} --{match[1]} is not supported")
        value = expand(match[2] or "")
        if match[1] == "mount":
            mounts.append(_parse_mount(line, value))
        elif match[1] == "network" and value != "default":
            raise BadDockerfile(f"line {line}: RUN --network={value} is not supported: steps use this machine's")
        else:
            flags[match[1]] = value
        position = match.end()
    return flags, tuple(mounts), rest[position:]


def _parse_mount(line: int, text: str) -> dict[str, str]:
    """The options of `--mount=type=…`, under their long names."""
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


def needed_stages(stages: Sequence[Stage]) -> list[int]:
    """Numbers of the last stage and of those it builds on or copies from, in order."""
    numbers = {str(number): number for number in range(len(stages))}
    numbers |= {stage.name: number for number, stage in enumerate(stages) if stage.name}
    needed, waiting = set[int](), [len(stages) - 1]
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            steps = stages[number].steps
            names = [stages[number].base, *(step.flags.get("from", "") for step in steps)]
            names += [mount.get("from", "") for step in steps for mount in step.mounts]
            waiting += [numbers[n.lower()] for n in names if n.lower() in numbers and numbers[n.lower()] < number]
    return sorted(needed)


def stages_until(stages: list[Stage], target: str) -> list[Stage]:
    """All stages up to the target, given by name or number; all when it is "". Raises BadDockerfile."""
    if not target:
        return stages
    for number, stage in enumerate(stages):
        if target.lower() in (stage.name, str(number)):
            return stages[: number + 1]
    names = ", ".join(stage.name or str(number) for number, stage in enumerate(stages))
    raise BadDockerfile(f"--target {target}: there is no such stage; there are: {names}")


def require_simple(stages: Sequence[Stage]) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile whose steps can run on this machine itself. Raises BadDockerfile."""
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
        if step.name == "ONBUILD":
            raise BadDockerfile(f"line {step.line}: ONBUILD needs an image with files of its own")
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
    """The words of the JSON form; None when it is not valid JSON, which Docker then treats as shell text."""
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(words) if isinstance(words, list) and all(isinstance(w, str) for w in words) else None


def _operands(line: int, name: str, rest: str, expand: Callable[[str], str]) -> tuple[str, ...]:
    """Raises BadDockerfile, or ValueError for words that cannot be expanded."""
    if name == "ENV" and "=" not in rest.split()[0]:
        key, space, value = rest.partition(" ")
        if not space:
            raise BadDockerfile(f"line {line}: ENV needs KEY=VALUE")
        return (f"{key}={expand(value.strip())}",)
    if name in ("WORKDIR", "USER", "STOPSIGNAL"):
        return (expand(rest),)
    if name == "MAINTAINER":
        return (rest,)
    words = tuple(map(expand, split_words(rest)))
    if name == "ENV" and any("=" not in word for word in words):
        raise BadDockerfile(f"line {line}: ENV needs KEY=VALUE")
    if name in ("COPY", "ADD") and len(words) < 2:
        raise BadDockerfile(f"line {line}: {name} needs a source and a destination")
    if name == "FROM" and len(words) not in (1, 3):
        raise BadDockerfile(f"line {line}: FROM takes an image and, at most, AS name")
    return words
