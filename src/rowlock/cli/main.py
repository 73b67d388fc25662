"""Where the two programs begin: find the verb, parse its line, load its file, turn refusals into exit codes."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from rowlock.cli.grammar import Command, Flag, Group, Line, Refused, help_of, load, parse, resolve
from rowlock.cli.place import DATA_DIR, PROJECT

_LEVEL = Flag("--loglevel", "debug|info|warn|error", "how much is told", "info")


def rowlock() -> None:
    """The entry point of `rowlock`."""
    from rowlock.cli.tree import ROOT

    sys.exit(run(ROOT, sys.argv[1:], (DATA_DIR, PROJECT)))


def runai() -> None:
    """The entry point of `runai`."""
    from rowlock.cli.v1_tree import ROOT

    sys.exit(run(ROOT, sys.argv[1:], (DATA_DIR, PROJECT, _LEVEL)))


def run(root: Group, argv: list[str], shared: tuple[Flag, ...]) -> int:
    """Carry out one command line; the exit code: 0 done, 1 refused or failed, 2 not understood, 130 interrupted."""
    try:
        if argv[:1] in (["--version"], ["-V"]):
            argv = ["version"]
        if argv[:1] == ["help"]:
            argv = [*argv[1:], "--help"]
        found, path, left = resolve(root, argv, shared)
        if isinstance(found, Group):
            print(help_of(root.name, path, found))
            return 0 if not argv or set(argv) & {"-h", "--help"} else 2
        return _carry_out(root, found, Line(root.name, path, argv), left)
    except Refused as refusal:
        sys.stdout.flush()
        print(refusal.message, file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _reader_gone()
    except OSError as error:
        print(f"{error.filename or root.name} cannot be used: {error.strerror or error}", file=sys.stderr)
        return 1


def _carry_out(root: Group, command: Command, line: Line, left: list[str]) -> int:
    asked = left[: left.index("--")] if "--" in left else left
    parsed = None if {"-h", "--help"} & set(asked) and not command.eager else parse(line, command, left)
    if parsed is None or parsed.help:
        print(help_of(root.name, line.verb, command))
        return 0
    try:
        code = load(command.run)(parsed)
        sys.stdout.flush()
    finally:
        if line.server is not None:
            line.server.close()
    return int(code or 0)


def _reader_gone() -> NoReturn:
    """The reader of our output went away (`| head`): leave without a word, as other tools do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)
