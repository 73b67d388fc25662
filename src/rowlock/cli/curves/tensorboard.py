"""`rowlock tensorboard [RUN…]`: the user's own TensorBoard over the event files of runs.

Each run is a directory of links to its event files, so that TensorBoard shows it under its name, wherever it wrote them. The links are
updated at each start, and every half a minute while TensorBoard runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.runs import RUNS, find_run
from rowlock.cli.output import tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

_LINKS = "tensorboard"
_RENEWAL = 30.0
"""Seconds between updates of the links."""


def tensorboard(line: CommandLine) -> int:
    """Run TensorBoard until it ends or the user presses Ctrl-C. Raises CommandError when it is not installed."""
    if line.limit < 1:
        raise CommandError(f"--limit must be at least 1, but is {line.limit}", 2)
    program = shutil.which("tensorboard")
    if program is None:
        raise CommandError(
            "there is no `tensorboard` on your PATH: `python -m pip install tensorboard`, or activate the environment that has "
            "it. `rowlock plot RUN` draws the same scalars without it"
        )
    server = client.connect(line)
    top = os.path.join(server.directory, _LINKS, project(line))
    if not link_runs(line, server, top):
        tell("No run has written event files yet: what comes is shown as soon as it is there.")
    port = ["--port", str(line.port)] if line.port else []
    child = subprocess.Popen([program, "--logdir", top, "--bind_all" if line.bind_all else "--host=127.0.0.1", *port])
    try:
        while True:
            try:
                return child.wait(_RENEWAL)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(CommandError):  # the server is down: TensorBoard keeps the existing links
                    link_runs(line, server, top)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGTERM)
        child.wait()
        return 0


def link_runs(line: CommandLine, server: ServerClient, top: str) -> int:
    """Create a directory of links for each run on the command line, or for the newest runs if it names none. Returns how many
    of them have event files. Raises CommandError, OSError."""
    if line.words:
        runs = [find_run(server, project(line), word) for word in dict.fromkeys(line.words)]
    else:
        headers = server.get(RUNS, project=project(line), limit=min(500, line.limit))["runs"]
        runs = list(headers)
    wanted: dict[str, str] = {}
    for run in runs:
        for file in server.get(f"{RUNS}/{run['id']}/event-files")["files"]:
            place = "" if file["place"] == "." else file["place"]
            wanted[os.path.join(top, _title(run), place, os.path.basename(file["path"]))] = file["path"]
    _make_links(top, wanted)
    return len({os.path.relpath(path, top).split(os.sep)[0] for path in wanted})


def _title(run: Run) -> str:
    return f"{run['name']} {run['id'][:8]}"


def _make_links(top: str, wanted: dict[str, str]) -> None:
    """Create these links below `top` and remove all others."""
    os.makedirs(top, mode=0o700, exist_ok=True)
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.islink(path) and wanted.get(path) != os.readlink(path):
                os.unlink(path)
    for path, target in wanted.items():
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.symlink(target, path)
