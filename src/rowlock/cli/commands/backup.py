"""`backup` and `restore`: the store's own functions read and write the database. They do not use a server."""

from __future__ import annotations

from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandLine, load_target


def create(line: CommandLine) -> int:
    """Write the cluster's state to one file, while the server works."""
    return int(load_target("rowlock.storage.backup:print_backup")(data_dir(line), line.word("file")))


def restore(line: CommandLine) -> int:
    """Make a new data directory from a file of `rowlock backup`."""
    return int(load_target("rowlock.storage.backup:print_restore")(data_dir(line), line.word("file")))
