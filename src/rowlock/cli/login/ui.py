"""`rowlock ui`: an address of the web UI with a one-time code, opened in a browser if possible."""

from __future__ import annotations

import os
import sys
import webbrowser

from rowlock.cli import client
from rowlock.cli.accounts.kubeconfig import read_user_token
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json, tell


def ui(line: CommandLine) -> None:
    """Ask the server for a one-time code and print its address; open a browser, if there is one, on the same address."""
    server = client.connect(line)
    if line.user:
        server.user_token = read_user_token(data_dir(line), line.user)
    try:
        answer = server.post("/api/v1/ui/codes")
    except client.StatusError as error:
        if error.status != 404:
            raise
        raise CommandError(
            "the server that runs has no web UI yet: `rowlock down --keep-jobs`, then start it again"
        ) from None
    if line.json:
        show_json(answer)
        return
    show(answer["url"])
    tell(f"This address works once, within {answer['seconds']} s; `rowlock ui` prints another.")
    if not (line.no_browser or line.user) and has_display() and not webbrowser.open(answer["url"]):
        tell("No browser could be started: open the address in one of this machine.")


def has_display() -> bool:
    """Whether this process has a display, so that a graphical browser could open."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
