"""The grammar of both command lines: flags, commands and groups are rows of tables; this module parses them and prints help.

The flags are pflag's, because `runai` is: `--name value`, `--name=value`, `-g1`, `-it`, `--switch=false`, flags before
and after words, `--` before the words of another program. It uses no library: importing click takes 80 ms,
which is too slow for a command, and argparse does not support `--switch=false`. Unknown flags and commands are refused with
the nearest known name.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


def is_digits(text: str) -> bool:
    """Whether the text is at most 18 ASCII digits; `str.isdigit` alone also accepts "²", which `int` does not."""
    return text.isascii() and text.isdigit() and len(text) <= 18


class CommandError(Exception):
    """Ends the program with a sentence. Exit code 1: refused or failed; 2: the command line itself is wrong."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message, self.code = message, code


class Flag(NamedTuple):
    """One flag. `names`: its spellings (`-g --gpu`), `hidden`: undocumented ones; `kind`: text, int, float, switch,
    list, maybe (a value may follow after `=`, a number also as the next word) or the allowed words joined by `|`. `refuse`: why it is
    not supported; `neutral`: the value of such a flag that is accepted because it changes nothing."""

    names: str
    kind: str
    help: str
    default: Any = None
    value: str = ""
    hidden: str = ""
    refuse: str = ""
    neutral: str = ""

    @property
    def dest(self) -> str:
        return max(self.names.split(), key=len).lstrip("-").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return self.kind not in ("switch", "maybe")

    def spellings(self) -> list[str]:
        return [*self.names.split(), *self.hidden.split()]


class Command(NamedTuple):
    """One verb. `run`: its function, as `module:name`, which returns the exit code, or None for 0. `words`: its positional words as shown
    in help (`JOB...`, `[NAME]`); `rest`: the name of what may follow `--`. `flags` may be the location of a table (`module:NAME`), which is loaded when needed. With `eager` the first word ends flags.
    `refuse`: why the verb is not supported."""

    name: str
    summary: str
    run: str
    words: str = ""
    flags: tuple[Flag, ...] | str = ()
    rest: str = ""
    aliases: str = ""
    eager: bool = False
    hidden: bool = False
    refuse: str = ""


class Group(NamedTuple):
    """Verbs under a noun. `default`: the verb that runs when none is given. `foreign_commands`: verbs of other programs, and
    what to use instead."""

    name: str
    summary: str
    commands: tuple[Command | Group, ...]
    aliases: str = ""
    default: str = ""
    hidden: bool = False
    foreign_commands: tuple[tuple[str, str], ...] = ()


class CommandLine:
    """A parsed command line: `line.workers` and so on; `words`, `rest`; `argv` as typed, `program` and `verb`."""

    def __init__(self, program: str, verb: str, argv: list[str]) -> None:
        self.program, self.verb, self.argv = program, verb, argv
        self.words: list[str] = []
        self.rest: list[str] | None = None
        self.given_flags: set[str] = set()
        self.server: Any = None
        """The connection to the server, once there is one (`client.connect`)."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.program} {self.verb} has no flag {name}")

    def set_values(self, **values: Any) -> None:
        """Set values that the verb itself decides, for functions of other verbs that it calls."""
        for name, value in values.items():
            setattr(self, name, value)

    def word(self, name: str) -> str:
        """The single positional word of the command. Raises CommandError if there is not exactly one."""
        if len(self.words) != 1:
            raise CommandError(
                f"`{self.program} {self.verb}` needs one {name}; see `{self.program} {self.verb} --help`", 2
            )
        return self.words[0]


HELP = Flag("-h --help", "switch", "show this help")


def suggest_nearest(word: str, candidates: list[str]) -> str:
    """` Did you mean x?` with a similar candidate, or ""."""
    import difflib

    if word.startswith("--"):  # the leading dashes of all flags must not count as similarity
        bare = {name.lstrip("-"): name for name in candidates}
        close = difflib.get_close_matches(word.lstrip("-"), bare, 1, 0.6)
        matches = [bare[name] for name in close]
    else:
        matches = difflib.get_close_matches(word, candidates, 1, 0.5)
    return f" Did you mean `{matches[0]}`?" if matches else ""


def load_target(target: str) -> Any:
    """Import `module:name` of the command lines, or `rowlock.module:name`, for commands that work without the server."""
    import importlib

    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module if module.startswith("rowlock.") else f"rowlock.cli.{module}"), name)


def flags_of(command: Command) -> tuple[Flag, ...]:
    """The flags of the command, including `--help`; a table that is given by its location is loaded."""
    flags: tuple[Flag, ...] = load_target(command.flags) if isinstance(command.flags, str) else command.flags
    return (*flags, HELP)


# ---------------------------------------------------------------- finding the verb


def resolve(root: Group, argv: list[str], shared: tuple[Flag, ...]) -> tuple[Command | Group, str, list[str]]:
    """The verb that `argv` names, its path, and what is left. Flags in `shared` may stand before the verb."""
    node: Command | Group = root
    path: list[str] = []
    args, shared_args = list(argv), list[str]()
    while isinstance(node, Group):
        shared_args += _pop_shared_flags(args, shared)
        if args and args[0] in ("-h", "--help"):
            return node, " ".join(path), []
        if (
            node.default and "--" in args and find_command(node, args[0]) is None
        ):  # the default verb runs what comes after --
            path.append(node.default)
            node = find_command(node, node.default) or node
            continue
        if not args or (args[0].startswith("-") and node.default):
            if not node.default:
                return node, " ".join(path), []
            node = find_command(node, node.default) or node
            continue
        word = args.pop(0)
        child = find_command(node, word)
        if child is None:
            raise CommandError(_unknown_command_message(node, word, " ".join([root.name, *path])), 2)
        path.append(child.name)
        node = child
    return node, " ".join(path), shared_args + args


def _unknown_command_message(group: Group, word: str, command_path: str) -> str:
    """The error message for an unknown command, with what to use instead."""
    names = [c.name for c in group.commands if not c.hidden]
    if word.startswith("-"):
        return f"`{command_path}` needs a command before {word}: {', '.join(names)}. `{command_path} --help` says what each does."
    for words, instead in group.foreign_commands:
        if word in words.split():
            return f"`{command_path}` has no command `{word}`. {instead}"
    return (
        f"`{command_path}` has no command `{word}`.{suggest_nearest(word, names)} `{command_path} --help` lists them."
    )


def find_command(group: Group, word: str) -> Command | Group | None:
    """The command with this name or alias in a group; None if there is none."""
    return next((c for c in group.commands if word == c.name or word in c.aliases.split()), None)


def _pop_shared_flags(args: list[str], shared: tuple[Flag, ...]) -> list[str]:
    """Remove the shared flags (with their values) from the front of `args` and return them."""
    taken: list[str] = []
    names = {n: f for f in shared for n in f.spellings()}
    while args and args[0].partition("=")[0] in names:
        flag = names[args[0].partition("=")[0]]
        count = 2 if flag.takes_value and "=" not in args[0] else 1
        taken += args[:count]
        del args[:count]
    return taken


# ---------------------------------------------------------------- parsing a verb's line


def parse(line: CommandLine, command: Command, args: list[str], shared: tuple[Flag, ...] = ()) -> CommandLine:
    """Fill `line` from `args`, the words after the verb, which may include flags in `shared`. Raises CommandError with code 2."""
    flags = flags_of(command)
    own_dests = {flag.dest for flag in flags}
    shared = tuple(flag for flag in shared if flag.dest not in own_dests)
    names = {spelling: flag for flag in (*shared, *flags) for spelling in flag.spellings()}
    for flag in (*shared, *flags):
        setattr(line, flag.dest, [] if flag.kind == "list" else flag.default)
    tokens = list(args)
    while tokens:
        token = tokens.pop(0)
        if token == "--":
            line.rest, tokens = tokens, []
        elif token.startswith("-") and len(token) > 1:
            _parse_flag(line, names, token, tokens)
        else:
            line.words.append(token)
            if command.eager:
                line.words += tokens
                tokens = []
    if line.rest is not None and not command.rest:
        line.words, line.rest = line.words + line.rest, None
    if line.words and not command.words and not command.eager:
        hint = f" Did you mean `-f {line.words[0]}`?" if "-f" in names and names["-f"].takes_value else ""
        raise CommandError(f"`{line.program} {line.verb}` takes no argument, but `{line.words[0]}` was given.{hint}", 2)
    return line


def _parse_flag(line: CommandLine, names: dict[str, Flag], token: str, tokens: list[str]) -> None:
    """Parse one flag; its value is in the token itself or the next one. Raises CommandError."""
    name, equals, value = token.partition("=")
    if not token.startswith("--") and name not in names:
        name, equals, value = token[:2], "=" if len(token) > 2 else "", token[2:].removeprefix("=")
        flag = names.get(name)
        if flag and not flag.takes_value and value:  # -it: switches in a row
            tokens.insert(0, f"-{value}")
            equals = value = ""
    flag = names.get(name)
    if flag is None:
        long_names = [n for n in names if len(n) > 2]
        hint = suggest_nearest(name, long_names) if len(name) > 2 else ""
        if name in ("-o", "--output"):  # kubectl's
            hint = (
                " Did you mean `--json`? Without it, a table is printed."
                if "--json" in names
                else " It prints a table."
            )
        elif owners := _frameworks_of(name) if "submit" in line.verb else "":
            hint = f" Only {owners} jobs have it."
        command_path = f"{line.program} {line.verb}"
        raise CommandError(f"unknown flag: {name}.{hint} `{command_path} --help` lists the flags.", 2)
    if flag.takes_value and not equals:
        if not tokens or tokens[0] == "--":  # pflag would take the dashes as the value
            switch = f" `{name}` is {max(flag.names.split(), key=len)} here." if len(name) == 2 and tokens else ""
            raise CommandError(f"flag needs an argument: {name}.{switch}".rstrip("."), 2)
        value = tokens.pop(0)
    if (
        flag.refuse
        and not (flag.kind == "switch" and value == "false")
        and not (flag.neutral and value == flag.neutral)
    ):
        raise CommandError(f"{name} is not supported by rowlock: {flag.refuse}", 1)
    if flag.kind == "maybe" and not equals and tokens and is_digits(tokens[0]):
        equals, value = "=", tokens.pop(0)
    line.given_flags.add(flag.dest)
    _store_value(line, flag, name, value if flag.takes_value or equals else None)


def _frameworks_of(name: str) -> str:
    """The frameworks that this submit flag is for, as text; "" if it is not limited to frameworks."""
    from rowlock.submit_fields import SUBMIT_FIELDS

    words = [
        row.frameworks
        for row in SUBMIT_FIELDS
        if row.frameworks not in ("", "any", "Standard") and name in f"{row.v1} {row.v2}".split()
    ]
    return " and ".join(words[0].split()).replace(" and ", ", ", max(0, len(words[0].split()) - 2)) if words else ""


def _store_value(line: CommandLine, flag: Flag, name: str, value: str | None) -> None:
    if flag.kind == "list":
        getattr(line, flag.dest).append(value)
    else:
        setattr(line, flag.dest, _parse_value(flag, name, value))


def _parse_value(flag: Flag, name: str, value: str | None) -> Any:
    """Parse a flag's value by its kind. Raises CommandError with code 2."""
    if flag.kind == "switch":
        if value not in (None, "true", "false"):
            raise CommandError(f'invalid argument "{value}" for {name}: it is true or false', 2)
        return value != "false"
    text = value or ""
    if flag.kind == "int":
        if not is_digits(text.removeprefix("-")):
            raise CommandError(f'invalid argument "{text}" for {name}: it must be a whole number', 2)
        return int(text)
    if flag.kind == "float":
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise CommandError(f'invalid argument "{text}" for {name}: it must be a number', 2)
        return number
    if "|" in flag.kind:
        options = {word.lower(): word for word in flag.kind.split("|")}
        if text.lower() not in options:
            quoted = ", ".join(f'"{word}"' for word in options.values())
            raise CommandError(
                f"{name.lstrip('-')} flag should be set with one of the following values of: {quoted}", 2
            )
        return options[text.lower()]
    return text


# ---------------------------------------------------------------- help


def help_of(program: str, path: str, node: Command | Group) -> str:
    """The help text of a verb or of a group."""
    command_path = f"{program} {path}".strip()
    if isinstance(node, Group):
        rows = [(c.name, c.summary) for c in node.commands if not c.hidden]
        lines = [node.summary, "", f"Usage: {command_path} COMMAND", "", "Commands:", *_align_rows(rows), ""]
        return "\n".join([*lines, f"`{command_path} COMMAND --help` shows the flags of a command."])
    if node.refuse:
        return f"{node.summary}\n\nNot supported by rowlock: {node.refuse}."
    words = " ".join(filter(None, [node.words, f"-- {node.rest}" if node.rest else ""]))
    lines = [node.summary, "", f"Usage: {command_path} [flags] {words}".rstrip(), "", "Flags:"]
    shown = [(_format_spelling(f), _format_help(f)) for f in flags_of(node) if not f.refuse]
    refused = [(_format_spelling(f), f.refuse) for f in flags_of(node) if f.refuse]
    lines += _align_rows(shown)
    if refused:
        lines += ["", "Flags that rowlock does not support, and why:", *_align_rows(refused)]
    return "\n".join(lines)


def _format_spelling(flag: Flag) -> str:
    names = flag.names.split()
    short = ", ".join(names) if names[0].count("-") == 1 or len(names[0]) == 2 else "    " + ", ".join(names)
    value = flag.value or ("" if not flag.takes_value else flag.kind if "|" in flag.kind else flag.kind.upper())
    return f"{short} {value}".rstrip()


def _format_help(flag: Flag) -> str:
    many = " (may be repeated)" if flag.kind == "list" else ""
    default = f" (default {flag.default})" if flag.default not in (None, "", False) else ""
    return flag.help + many + default


def _align_rows(rows: list[tuple[str, str]]) -> list[str]:
    width = min(max((len(name) for name, _ in rows), default=0), 34)
    lines = []
    for name, text in rows:
        gap = "  " if len(name) <= width else f"\n  {'':{width}}  "
        lines.append(f"  {name:{width}}{gap}{text}")
    return lines
