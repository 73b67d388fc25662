"""Flags of the commands that lead into a running pod: `rowlock` and `runai` spell them alike."""

from __future__ import annotations

from rowlock.cli.grammar import Flag

EXEC = (
    Flag("-i --stdin", "switch", "pass your input on"),
    Flag("-t --tty", "switch", "give the command a terminal"),
)
ATTACH = (
    Flag("--no-stdin", "switch", "do not pass your input on"),
    Flag("--no-tty", "switch", "do not use your terminal as the program's"),
)
PORT_FORWARD = (
    Flag("--port", "list", "a port here and one in the pod", value="LOCAL:REMOTE"),
    Flag("--address", "text", "where to listen", "localhost", value="ADDRESS"),
)
CONTAINER = Flag("-c --container", "text", "this container (default: the first)", value="NAME")
