"""The input of a job that runs in the foreground: data piped into `rowlock run`, or its terminal.

One rank gets it: the first, or with `--debug` the given one. The others have an empty stdin, as with every launcher.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import termios
import threading
import time
from collections.abc import Set
from typing import Any, NamedTuple

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import tell
from rowlock.cli.streams import exec_commands
from rowlock.cli.streams.websocket import WebSocket
from rowlock.training.frameworks.torchrun import launched_ranks

CONSOLE_FIELDS = ("stdin", "stdinOnce", "tty")
_POLL_S, _LONGEST_POLL_S = 0.05, 0.5
_LAST_START_S = 10.0
"""Seconds to wait for a rank to start after its job is over."""
_OVER = frozenset(("Completed", "Failed", "Stopped", "Deleted"))
PIPED, TERMINAL = "piped", "terminal"


class _Life(NamedTuple):
    """One run of the rank's program."""

    namespace: str
    pod: str
    pod_id: str
    restarts: int

    @property
    def attach_path(self) -> str:
        return exec_commands.subresource_path({"metadata": {"name": self.pod, "namespace": self.namespace}}, "attach")


class Console:
    """`kind`: "", PIPED or TERMINAL; `rank`: the rank that gets the input."""

    def __init__(self, kind: str = "", rank: int = 0) -> None:
        self.kind, self.rank = kind, rank

    @classmethod
    def choose(cls, line: CommandLine) -> Console:
        """Choose the kind by the flags, else by the type of stdin. Raises CommandError when a flag needs a terminal and stdin
        is none."""
        if not line.tty and line.debug_rank is None:
            if line.detach and has_unread_input():
                tell("What is piped in reaches no rank of a job in the background: without -d the first rank reads it.")
            return cls(PIPED if not line.detach and _is_piped() else "")
        flag = "--tty" if line.debug_rank is None else "--debug"
        rank = line.debug_rank or 0
        if not 0 <= rank < line.nnodes:
            raise CommandError(
                f"--debug {rank}: there is no such rank; with --nnodes {line.nnodes} the last is {line.nnodes - 1}", 2
            )
        if line.nproc_per_node != 1 or (launched_ranks(line.rest or ()) or 1) > 1:
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
        # The program may end without reading its input. This is not an error; its exit code is reported elsewhere.
        with contextlib.suppress(CommandError, OSError):
            if life := self._wait_for_life(server, identity, set(), ""):
                exec_commands.copy_input(WebSocket(server, life.attach_path, [("stdin", "true")]))

    def converse(self, line: CommandLine, identity: str) -> bool:
        """Connect the terminal to the program, and again to each later run of the rank (after a restart, or after the job was
        suspended and resumed), until the rank has ended. False when each run ended before it was attached: then its output
        is in the log only."""
        server, lives, has_spoken = client.connect(line), set[_Life](), False
        while (life := self._wait_for_life(server, identity, lives, context_flags(line))) is not None:
            if lives:
                tell(f"Rank {self.rank} runs again, on this terminal.")
            lives.add(life)
            has_spoken = self._attach(server, identity, life) or has_spoken
        return has_spoken

    def _attach(self, server: ServerClient, identity: str, life: _Life) -> bool:
        """Connect the terminal until the program ends. False when it had ended already. Raises CommandError."""
        streams = ("stdin", "stdout", "tty", "logs")
        try:
            websocket = WebSocket(server, life.attach_path, [(name, "true") for name in streams])
            exec_commands.run_session(websocket, stdin=True, tty=True)
        except CommandError:
            deadline = time.monotonic() + _LAST_START_S
            while life == self._current_life(server, identity):  # the server may refuse before it reports the end
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            return False
        return True

    def _find_pod(self, server: ServerClient, identity: str) -> dict[str, Any] | None:
        pods = _get(server, f"{WORKLOADS}/{identity}/pods").get("pods") or ()
        return next((dict(pod) for pod in pods if pod["rank"] == f"rank {self.rank}"), None)

    def _current_life(self, server: ServerClient, identity: str) -> _Life | None:
        """The current run of the rank's program, as far as the server knows; None if it does not run."""
        pod = self._find_pod(server, identity)
        if pod is None or pod["k8sPhase"] != "Running" or pod["completedAt"] or not pod["containers"][0]["startedAt"]:
            return None
        namespace = _get(server, f"{WORKLOADS}/{identity}").get("namespace", "")
        return _Life(namespace, pod["name"], pod["id"], pod["restarts"])

    def _wait_for_life(self, server: ServerClient, identity: str, lives: Set[_Life], flags: str) -> _Life | None:
        """Wait for a run of the rank's program that is not in `lives`; None when the rank has ended or will not start.
        A suspended job is not waited for if it was never attached. `flags`: context flags for the printed command."""
        over_since: float | None = None
        poll_s, is_told = _POLL_S, False
        while over_since is None or time.monotonic() - over_since < _LAST_START_S:
            if (life := self._current_life(server, identity)) is not None and life not in lives:
                return life
            pod, workload = self._find_pod(server, identity), _get(server, f"{WORKLOADS}/{identity}")
            phase = workload.get("phase", "Deleted")
            if pod is not None and pod["completedAt"] and (phase in _OVER or pod["k8sPhase"] == "Succeeded"):
                return None
            if phase in ("Failed", "Deleted") or (phase == "Stopped" and not lives):
                return None
            if phase == "Completed" and over_since is None:  # the master has ended, but this rank may still start
                over_since = time.monotonic()
            if phase == "Stopped" and not is_told:
                name = workload["name"]
                tell(f"Job {name} is suspended; `rowlock resume {name}{flags}` starts it again, on this terminal.")
            is_told = phase == "Stopped"
            time.sleep(poll_s)
            poll_s = min(poll_s * 1.1, _LONGEST_POLL_S)
        return None


def _get(server: ServerClient, path: str) -> dict[str, Any]:
    """The server's answer; {} for a deleted job."""
    try:
        return dict(server.get(path))
    except client.StatusError as refusal:
        if refusal.status != 404:
            raise
        return {}


def has_unread_input() -> bool:
    """Whether stdin has unread input for this command. A file from which another program has already read, such as the list of a
    shell loop, does not count."""
    if not _is_piped():
        return False
    if stat.S_ISREG(os.fstat(0).st_mode):
        return os.lseek(0, 0, os.SEEK_CUR) == 0 and os.fstat(0).st_size > 0
    return fcntl.ioctl(0, termios.FIONREAD, bytes(4)) != bytes(4)


def _is_piped() -> bool:
    """Whether stdin is a pipe, a file or a socket, and not a terminal or /dev/null."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
