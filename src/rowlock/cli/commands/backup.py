"""`backup` and `restore`: both run the store's own program, which reads and writes the database. They do not use a server."""

from __future__ import annotations

import os
import sys

from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandLine


def create(line: CommandLine) -> int:
    """Write the cluster's state to one file, while the server works."""
    return _exec_module("create", line)


def restore(line: CommandLine) -> int:
    """Make a new data directory from a file of `rowlock backup`."""
    return _exec_module("restore", line)


def _exec_module(action: str, line: CommandLine) -> int:
    file = line.word("file")
    sys.stdout.flush()
    module = [sys.executable, "-P", "-m", "rowlock.storage.backup"]
    os.execv(sys.executable, [*module, action, "--data-dir", data_dir(line), "--", file])
