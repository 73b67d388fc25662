"""The input of a job that runs in the foreground: data piped into `rowlock run`, or its terminal.

One rank gets it: the first, or with `--debug` the one named. The others have an empty stdin, as under every launcher.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from typing import Any

from rowlock.cli import client, exec_commands
from rowlock.cli.client import ServerClient
from rowlock.cli.commands.jobs import WORKLOADS
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.websocket import WebSocket

CONSOLE_FIELDS = ("stdin", "stdinOnce", "tty")
_POLL_S = 0.05
_LAST_START_S = 10.0
"""Seconds to wait for a rank to start after its job is over."""
PIPED, TERMINAL = "piped", "terminal"


class Console:
    """`kind` is "", PIPED or TERMINAL; `rank` whose stdin it is."""

    def __init__(self, kind: str = "", rank: int = 0) -> None:
        self.kind, self.rank = kind, rank

    @classmethod
    def choose(cls, line: CommandLine) -> Console:
        """Choose by the flags, else by the type of stdin. Raises CommandError when a flag asks for a terminal and there
        is none."""
        if not line.tty and line.debug_rank is None:
            return cls(PIPED if not line.detach and _is_piped() else "")
        flag = "--tty" if line.debug_rank is None else "--debug"
        rank = line.debug_rank or 0
        if not 0 <= rank < line.nnodes:
            raise CommandError(
                f"--debug {rank}: there is no such rank; with --nnodes {line.nnodes} the last is {line.nnodes - 1}", 2
            )
        if line.nproc_per_node > 1:
            raise CommandError(f"{flag} gives a terminal to one rank: leave --nproc-per-node out", 2)
        if not line.detach and not sys.stdin.isatty():
            raise CommandError(
                f"{flag} needs a terminal, and stdin is none: leave it out, and what is piped in is passed on", 2
            )
        return cls(TERMINAL, rank)

    def role_fields(self) -> dict[str, bool]:
        """Fields of the pod spec for the rank that gets the console."""
        return {PIPED: {"stdin": True, "stdinOnce": True}, TERMINAL: {"stdin": True, "tty": True}}.get(self.kind, {})

    def feed(self, line: CommandLine, identity: str) -> None:
        """Start a thread that sends piped data to the rank."""
        server = client.connect(line)
        own = ServerClient(server.url, server.directory)  # a connection belongs to one thread
        threading.Thread(target=self._feed, args=(own, identity), daemon=True).start()

    def _feed(self, server: ServerClient, identity: str) -> None:
        # The program may end without reading its input. That is no error, and its exit code is reported elsewhere.
        with contextlib.suppress(CommandError, OSError):
            if pod := self._wait_for_pod(server, identity):
                exec_commands.copy_input(
                    WebSocket(server, exec_commands.subresource_path(pod, "attach"), [("stdin", "true")])
                )

    def converse(self, line: CommandLine, identity: str) -> bool:
        """Connect the terminal to the program until it ends. False when it had already ended."""
        server = client.connect(line)
        pod = self._wait_for_pod(server, identity)
        if pod is None:
            return False
        streams = ("stdin", "stdout", "tty", "logs")
        try:
            websocket = WebSocket(
                server, exec_commands.subresource_path(pod, "attach"), [(name, "true") for name in streams]
            )
        except CommandError:
            if self._wait_for_pod(server, identity) is not None:
                raise
            return False
        exec_commands.run_session(websocket, stdin=True, tty=True)
        return True

    def _wait_for_pod(self, server: ServerClient, identity: str) -> dict[str, Any] | None:
        """Wait until the rank's program runs and return its pod; None when it has ended or will not start."""
        workload = server.get(f"{WORKLOADS}/{identity}")
        over_since: float | None = None
        while over_since is None or time.monotonic() - over_since < _LAST_START_S:
            pods = server.get(f"{WORKLOADS}/{identity}/pods")["pods"]
            found = next((pod for pod in pods if pod["rank"] == f"rank {self.rank}"), None)
            if found is not None and found["completedAt"] is not None:
                return None
            if found is not None and found["k8sPhase"] == "Running":
                return {"metadata": {"name": found["name"], "namespace": workload["namespace"]}}
            phase = server.get(f"{WORKLOADS}/{identity}")["phase"]
            if phase in ("Failed", "Deleted", "Stopped"):
                break
            if (
                phase == "Completed" and over_since is None
            ):  # the job is complete when the master ends: this rank may still start
                over_since = time.monotonic()
            time.sleep(_POLL_S)
        return None


def _is_piped() -> bool:
    """Is stdin a pipe, a file or a socket? A terminal and /dev/null are not."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
