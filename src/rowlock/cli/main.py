"""Entry points of both programs: find the verb, parse its line, import its module, turn errors into exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import NoReturn

from rowlock.cli.grammar import Command, CommandError, CommandLine, Flag, Group, help_of, load_target, parse, resolve
from rowlock.cli.output import visible

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writes to stdout; errors of other files have a file name."""


def rowlock() -> None:
    """The entry point of `rowlock`."""
    from rowlock.cli.commands.tree import ROOT, SHARED

    sys.exit(run(ROOT, sys.argv[1:], SHARED))


def runai() -> None:
    """The entry point of `runai`."""
    from rowlock.cli.runai_tree import ROOT, SHARED

    sys.exit(run(ROOT, sys.argv[1:], SHARED))


def run(root: Group, argv: list[str], shared: tuple[Flag, ...]) -> int:
    """Run one command line. Exit code: 0 done, 1 refused or failed, 2 invalid command line, 130 interrupted."""
    try:
        if argv[:1] in (["--version"], ["-V"]):
            argv = ["version"]
        if argv[:1] == ["help"]:
            argv = [*argv[1:], "--help"]
        node, path, args = resolve(root, argv, shared)
        if isinstance(node, Group):
            print(help_of(root.name, path, node))
            return 0 if not argv or set(argv) & {"-h", "--help"} else 2
        return _run_command(root, node, CommandLine(root.name, path, argv), args, shared)
    except CommandError as refusal:
        sys.stdout.flush()
        print(visible(refusal.message), file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _exit_on_broken_pipe()
    except OSError as error:
        print(_os_error_sentence(error, root.name), file=sys.stderr)
        return 1


def _os_error_sentence(error: OSError, program: str) -> str:
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_directory_gone():
        here = os.environ.get("PWD", "of this shell")
        return f"the working directory {here} was deleted: go to another one (`cd`), or make it again and `cd` into it"
    if error.filename is None and error.errno in _OUTPUT_ERRORS:
        return f"the output cannot be written ({why}): make room where it goes, or send it elsewhere"
    return f"{error.filename or program} cannot be used: {why}"


def _is_directory_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _run_command(root: Group, command: Command, line: CommandLine, args: list[str], shared: tuple[Flag, ...]) -> int:
    own_args = args[: args.index("--")] if "--" in args else args
    wants_help = {"-h", "--help"} & set(own_args) and not command.eager
    if command.refuse and not wants_help:
        raise CommandError(f"`{root.name} {line.verb}` is not supported by rowlock: {command.refuse}")
    parsed = None if wants_help else parse(line, command, args, shared)
    if parsed is None or parsed.help:
        print(help_of(root.name, line.verb, command))
        return 0
    with contextlib.ExitStack() as cleanup:
        if getattr(parsed, "quiet", False):
            silence = cleanup.enter_context(open(os.devnull, "w", encoding="utf-8"))
            cleanup.enter_context(contextlib.redirect_stdout(silence))
        try:
            code = load_target(command.run)(parsed)
            sys.stdout.flush()
        finally:
            if line.server is not None:
                line.server.close()
    return int(code or 0)


def _exit_on_broken_pipe() -> NoReturn:
    """Exit without a message because stdout was closed (`| head`), as other tools do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)
