"""`build` and `image`: both run programs of the node, which manage its images."""

from __future__ import annotations

import os
import sys

from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.server_json import read_server_json


def _exec_node_command(line: CommandLine, *argv: str) -> int:
    """Replace this process by the node's program, whose exit code becomes that of the command."""
    sys.stdout.flush()
    argv += ("--json",) if line.json else ()
    program = [sys.executable, "-P", "-m", "rowlock.kubelet.images.commands", "--data-dir", data_dir(line)]
    os.execv(sys.executable, [*program, *argv])


def build(line: CommandLine) -> int:
    if not line.tag:
        raise CommandError("the image needs a name: `rowlock build -t NAME DIR`", 2)
    directory = line.word("directory")
    if not os.path.isdir(directory):
        raise CommandError(f"there is no directory {directory}")
    options = ["--file", line.file] if line.file else []
    for argument in line.build_arg:
        options += ["--build-arg", argument]
    options += ["--target", line.target] if line.target else []
    options += ["--no-cache"] if line.no_cache else []
    options += ["--pull"] if line.pull else []
    options += ["--runtime", line.runtime or _server_runtime(line)]
    return _exec_node_command(line, "build", "-t", line.tag, *options, directory)


def _server_runtime(line: CommandLine) -> str:
    """The runtime with which the data directory's server was started, so that its pods find the image."""
    return str((read_server_json(data_dir(line)) or {}).get("flags", {}).get("runtime") or "auto")


def index(line: CommandLine) -> int:
    return _exec_node_command(line, "list")


def add(line: CommandLine) -> int:
    if bool(line.host) == bool(line.dir):
        raise CommandError("say what the image is: --host for this machine's programs, or --dir DIR", 2)
    if line.dir and not os.path.isdir(line.dir):
        raise CommandError(f"there is no directory {line.dir}")
    source = ["--host"] if line.host else ["--dir", os.path.abspath(line.dir)]
    return _exec_node_command(line, "add", line.word("name"), *source)


def remove(line: CommandLine) -> int:
    return _exec_node_command(line, "remove", line.word("name"))
