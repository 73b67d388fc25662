"""Flags of `exec`, `attach` and `port-forward`: they are the same in `rowlock` and `runai`."""

from __future__ import annotations

from rowlock.cli.grammar import Flag

EXEC = (
    Flag("-i --stdin", "switch", "pass your input to the command"),
    Flag("-t --tty", "switch", "run the command in a terminal"),
)
ATTACH = (
    Flag("--no-stdin", "switch", "do not pass your input to the program"),
    Flag("--no-tty", "switch", "do not connect your terminal"),
)
PORT_FORWARD = (
    Flag("--port", "list", "a local port and a port of the pod", value="LOCAL:REMOTE"),
    Flag("--address", "text", "the local address to listen on", "localhost", value="ADDRESS"),
)
CONTAINER = Flag("-c --container", "text", "the container (default: the first one)", value="NAME")
