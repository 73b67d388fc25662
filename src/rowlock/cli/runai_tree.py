"""`runai` as one program: the commands of both generations, and hints for commands of other programs.

Where both generations use the same word, the second one gets it if the first has another name for the same output
(`runai project list` of the second is `runai list projects` of the first).
"""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, PROJECT
from rowlock.cli.grammar import Command, Flag, Group
from rowlock.cli.runai_v1 import tree as v1
from rowlock.cli.runai_v2 import tree as v2

SHARED = (
    DATA_DIR,
    PROJECT,
    Flag("--loglevel", "debug|info|warn|error", "how much is told; debug shows the requests to the server", "info"),
    Flag("-d --debug", "switch", "show the requests to the server"),
    Flag("--verbose", "switch", "show the requests to the server"),
    Flag("-q --quiet", "switch", "print errors alone"),
    Flag("--config-path", "text", "the same as --data-dir (default: $RUNAI_CLI_CONFIG_PATH)", value="DIR"),
    Flag(
        "--config-file",
        "text",
        "",
        value="FILE",
        neutral="config.json",
        refuse="the configuration is config.json in the data directory: --data-dir DIR names another one",
    ),
)
"""Flags of every command, unless a command has its own flag of the same spelling."""


def _families() -> tuple[Command | Group, ...]:
    """`runai mpi --name j ...` is the first generation's, `runai mpi submit j ...` the second's."""
    older = next(c for c in v1.SUBMIT_OLD if c.name == "submit-mpi")._replace(
        name="submit-old", hidden=True, aliases=""
    )
    families: list[Command | Group] = []
    for family in v2.FAMILIES:
        if family.name == "mpi":
            family = family._replace(commands=(*family.commands, older), default=older.name)
        families.append(family)
    return tuple(families)


ROOT = Group("runai", "Run:ai's command lines, of both generations, for rowlock.", (
    *v1.COMMANDS, *_families(), *v2.RESOURCES, v2.LOGIN, *v2.OTHERS,
), foreign_commands=(
    ("run start", "`runai submit NAME -i IMAGE -- COMMAND` submits a job of one pod, `runai resume NAME` starts a suspended one."),
    ("stop cancel kill", "`runai delete job NAME` stops a job for good, `runai suspend NAME` until it is resumed."),
    ("wait", "`rowlock wait NAME` waits for the end of a job."),
    ("apply create", "`runai workload submit -f FILE` submits a manifest."),
))  # fmt: skip
