"""Follow a submitted job to its end: print why it waits and its log, handle Ctrl-C, and return its exit code.

A job that hangs logs nothing. So a thread fetches the job's events every few seconds and prints those of the diagnosis (`RankFailed`,
`JobHangs` and so on) once, to stderr.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS, read_holders, wait_for_phase
from rowlock.cli.output import ask, tell
from rowlock.cli.run.console import PIPED, TERMINAL, Console
from rowlock.cli.server_json import read_server_json
from rowlock.cli.start.settings import restart_command
from rowlock.cli.streams.logs import write_merged

if TYPE_CHECKING:
    from rowlock.answers.workloads import Pod

DETACHED = 0
STOPPED, TERMINATED = 130, 143
_KILL_TIMEOUT = 10
"""Seconds to wait until killed programs are gone."""
_LAST_LINES_S = 1.0
"""Seconds within which the other ranks usually end after one has."""
_AT_ONCE = "\x03"
"""The answer that stands for Ctrl-C."""
_ANSWERS = {"s": "s", "stop": "s", "d": "d", "detach": "d", "": "d", "x": "x", "delete": "x", _AT_ONCE: _AT_ONCE}
"""Answer after Ctrl-C → action; other answers are asked for again."""
_STOP_PHASES = "Stopped,Completed,Failed,Deleted"


Follow = Callable[[CommandLine, ServerClient, str, str, Console], int]
"""The type of `follow_run`, and of functions that wrap it."""


def follow_run(
    line: CommandLine,
    server: ServerClient,
    name: str,
    identity: str,
    console: Console,
    *,
    on_interrupt: Callable[[], None] = lambda: None,
) -> int:
    """Follow the job until it is over or the user interrupts. Returns the exit code of the first rank that failed, else 0 for a
    completed job. `line` has the flags `rm`, `fold` and `backoff_limit` of `run`; `on_interrupt` is called after Ctrl-C, before the user is asked."""
    try:
        wait_for_start(server, name, identity)
        if console.kind == PIPED:
            console.feed(line, identity)
        heard_until: float | None = None
        if console.kind == TERMINAL and console.converse(line, identity):
            heard_until = time.monotonic()
        if heard_until is None or _goes_on_without(console.rank, server, name, identity):
            since = None if heard_until is None else f"{time.monotonic() - heard_until:.3f}"
            events_path = f"{WORKLOADS}/{identity}/events"
            with ProgressReporter(server, name, events_path, restarts=line.backoff_limit != 0, pauses=True):
                write_merged(server, f"{WORKLOADS}/{identity}/logs", follow=True, since=since, fold=line.fold)
        body = wait_for_phase(client.connect(line), {"id": identity}, "Completed", None)
    except KeyboardInterrupt:
        on_interrupt()
        return _handle_interrupt(line, name, identity)
    except client.StatusError:
        raise
    except CommandError:
        restart = restart_command(read_server_json(server.directory))
        raise CommandError(
            f"the server has stopped; job {name} goes on, unless `rowlock down` stopped it: start the server again "
            f"(`{restart}`), then follow the job: `rowlock logs -f {name}{context_flags(line)}`"
        ) from None
    pods = server.get(f"{WORKLOADS}/{identity}/pods")["pods"] if body["phase"] != "Deleted" else []
    why = str(body.get("phaseMessage") or "") if body["phase"] != "Completed" else ""
    code = exit_code(body["phase"], pods)
    if code and body["phase"] != "Deleted":
        diagnosis = server.get(f"{WORKLOADS}/{identity}/why")
        why = str(diagnosis["sentence"]) or why
        code = code if any(p["exitCode"] for p in pods) else _first_failure_code(diagnosis) or code
    elif body["phase"] == "Completed":
        diagnosis = server.get(f"{WORKLOADS}/{identity}/why")
        has_failed = any(not incident["asked"] for incident in diagnosis["incidents"])
        why = str(diagnosis["sentence"]) if diagnosis["remarks"] or has_failed else ""
    tell(f"Job {name} is {body['phase'].lower()}" + (f": {why}" if why else ""))
    if line.rm and body["phase"] != "Deleted":
        server.delete(f"{WORKLOADS}/distributed/{identity}")
    elif still_running := [p["name"] for p in pods if p["completedAt"] is None]:
        them = "it" if len(still_running) == 1 else "them"
        tell(f"Still running: {', '.join(still_running)}. `rowlock delete {name}{context_flags(line)}` stops {them}.")
    elif sys.stderr.isatty():
        tell(_next_commands(name, context_flags(line), failed=bool(code) and body["phase"] != "Deleted"))
    return code


def _goes_on_without(rank: int, server: ServerClient, name: str, identity: str) -> bool:
    """Whether the log of other ranks should be followed after the rank at the terminal has ended. Reports it if the job continues."""
    body = wait_for_phase(server, {"id": identity}, "Completed", _LAST_LINES_S)
    if body["phase"] not in ("Completed", "Failed", "Deleted"):
        tell(f"Rank {rank} has ended, and job {name} goes on. What the other ranks print from now on:")
    return bool(body["phase"] != "Deleted")


def _next_commands(name: str, flags: str, *, failed: bool) -> str:
    """A hint with the commands that are likely to be useful next."""
    first = f"`rowlock why {name}{flags}`" if failed else f"`rowlock show {name}{flags}`"
    return f"Next: {first}, `rowlock logs {name}{flags}`, `rowlock rerun {name} --replace{flags}`."


def wait_for_start(server: ServerClient, name: str, identity: str) -> None:
    """Wait until the job runs, and print each reason why it waits once."""
    last_reason = ""
    wait = f"{WORKLOADS}/{identity}/wait"
    while True:
        body = server.get(wait, **{"for": "Running,Degraded,Completed,Failed,Deleted,Stopped", "timeout": 1})
        if body["phase"] not in ("Creating", "Pending", "Initializing", "Resuming"):
            return
        reason = str(body.get("phaseMessage") or "")
        if reason and reason != last_reason:
            tell(f"Job {name} is {body['phase'].lower()}: {reason}")
            last_reason = reason
            if held_by := read_holders(server, {**body, "id": identity}):
                tell(held_by)


def exit_code(phase: str, pods: list[Pod]) -> int:
    """The exit code of the rank that failed first (by end time); else 0 for a completed job and 1 for any other phase.

    A rank may fail after the master has succeeded: then the job is complete, but the exit code still reports the failure."""
    failed = sorted((p for p in pods if p["exitCode"]), key=lambda p: str(p["completedAt"] or ""))
    return int(failed[0]["exitCode"] or 0) if failed else int(phase != "Completed")


def _first_failure_code(diagnosis: dict[str, Any]) -> int:
    """The exit code of the root cause in the last incident, for pods that were restarted since; 0 when no rank failed."""
    last = next((i for i in reversed(diagnosis["incidents"]) if not i["asked"]), None)
    return int(last["deaths"][0]["code"]) if last else 0


def _handle_interrupt(line: CommandLine, name: str, identity: str) -> int:
    """After Ctrl-C, ask whether to stop and keep the job, leave it running, or delete it; a second Ctrl-C stops it at once.
    Without a terminal the job is stopped, or deleted with --rm."""
    answer = "x" if line.rm else "s"
    if sys.stdin.isatty():
        tell("")
        question = f"[s]top job {name} and keep it, [d]etach and leave it running, or delete it [x]? Ctrl-C stops it at once. [s/d/x] "
        while (answer := ask(question, interrupted=_AT_ONCE)) not in _ANSWERS:
            continue
        answer = _ANSWERS[answer]
    if answer == "d":
        return leave_running(line, name, DETACHED)
    server = client.connect(line)
    if answer == "x":
        server.delete(f"{WORKLOADS}/distributed/{identity}")
        tell(f"Job {name} is stopped and deleted.")
        return STOPPED
    _stop(server, name, identity, at_once=answer == _AT_ONCE)
    flags = context_flags(line)
    tell(
        f"Job {name} is stopped. `rowlock resume {name}{flags}` starts it again; `rowlock delete {name}{flags}` deletes it."
    )
    return STOPPED


def _stop(server: ServerClient, name: str, identity: str, *, at_once: bool) -> None:
    """Suspend the job and wait until its pods have ended. Ctrl-C, or `at_once`, kills the pods without a grace period."""
    workload = server.get(f"{WORKLOADS}/{identity}")
    pods = [pod["name"] for pod in server.get(f"{WORKLOADS}/{identity}/pods")["pods"]]
    server.post(f"{WORKLOADS}/distributed/{identity}/suspend")
    try:
        if not at_once:
            tell(f"Job {name} is being stopped; Ctrl-C stops it at once.")
            while (
                server.get(f"{WORKLOADS}/{identity}/wait", **{"for": _STOP_PHASES, "timeout": 1})["phase"] == "Stopping"
            ):
                continue
            return
    except KeyboardInterrupt:
        tell("")
    for pod in pods:
        path = f"/api/v1/namespaces/{workload['namespace']}/pods/{pod}"
        with contextlib.suppress(client.StatusError):  # the pod is gone already
            server.call("DELETE", path, query={"gracePeriodSeconds": 0})
    server.get(f"{WORKLOADS}/{identity}/wait", **{"for": _STOP_PHASES, "timeout": _KILL_TIMEOUT})


def leave_running(line: CommandLine, name: str, code: int) -> int:
    """Print how to follow and stop the job from now on. Returns `code`."""
    flags = context_flags(line)
    tell(f"Job {name} goes on. Follow it: `rowlock logs -f {name}{flags}`; stop it: `rowlock delete {name}{flags}`")
    return code


POLL_INTERVAL = 3.0
"""Seconds between two requests."""
_EVENT_REASONS = frozenset(
    {"JobHangs", "JobStill", "RankSlow", "JobMovesAgain", "RanksNeverMet", "WorkersIdle", "GpusIdle"}
)
_SUSPEND_REASONS = frozenset({"PyTorchJobSuspended", "PyTorchJobResumed"})


class ProgressReporter:
    """Polls while a log is followed: `with ProgressReporter(server, name, events_path): …`."""

    def __init__(
        self, server: ServerClient, name: str, events_path: str, *, restarts: bool = False, pauses: bool = False
    ) -> None:
        """`events_path`: the REST path of the job's events. `restarts`: print failed ranks, too (without restarts the end of
        the job reports them). `pauses`: print when the job is suspended or resumed; only for a job that is followed from its
        start, since older events would look new."""
        self._reasons = (
            _EVENT_REASONS | ({"RankFailed"} if restarts else set()) | (_SUSPEND_REASONS if pauses else set())
        )
        self._server = ServerClient(
            server.url, server.directory
        )  # its own connection, because the log uses the other one
        self._name, self._events_path = name, events_path
        self._reported: set[tuple[str, str]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(POLL_INTERVAL):
                self.report_new_events()
        except CommandError:  # the job or the server is gone: the follower of the log reports it
            return
        finally:
            self.close()

    def close(self) -> None:
        """Close its connection."""
        self._server.close()

    def report_new_events(self) -> None:
        """Print new events, the oldest first."""
        events: list[dict[str, Any]] = self._server.get(self._events_path, limit=100)["events"]
        for event in reversed(events):
            key = (str(event["reason"]), str(event["message"]))
            if key[0] in self._reasons and key not in self._reported and not self._stopped.is_set():
                self._reported.add(key)
                tell(f"Job {self._name}: {key[1]}")
