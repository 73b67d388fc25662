"""`logs`, `exec`, `bash`, `attach`, `port-forward` of every family: all act on one pod of a workload, by default that of
the first rank."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS, find_workload
from rowlock.cli.output import parse_duration
from rowlock.cli.runai_v2.workloads import named_workload
from rowlock.cli.streams import exec_commands
from rowlock.cli.streams.logs import GONE_CHIEF, find_pod_name, write_lines

if TYPE_CHECKING:
    from rowlock.answers.workloads import Workload

_LOOK_AGAIN = 5.0
"""Seconds that one request may take; the server answers earlier when the phase is reached."""
_STARTED = "Running,Degraded,Completed,Failed"


def logs(line: CommandLine) -> None:
    server, workload = named_workload(line, past=True)
    if line.wait_timeout:
        _wait_for_start(server, workload, parse_duration(line.wait_timeout, "--wait-timeout"))
    if line.pod:
        pod = find_pod_name(server, workload, line.pod, gone=True)
    else:
        chief = str(workload["additionalFields"]["chief"])
        is_over = workload["phase"] in ("Completed", "Failed", "Deleted")
        waits = line.follow and not is_over
        pod = (chief or chief_pod(server, workload, follow=True)) if waits else GONE_CHIEF
    options: dict[str, Any] = {
        "follow": line.follow, "timestamps": line.timestamps, "sinceTime": line.since_time, "previous": line.previous,
        "container": line.container, "limitBytes": line.limit_bytes,
    }  # fmt: skip
    if line.tail >= 0:
        options["tail"] = line.tail
    if line.since:
        options["since"] = parse_duration(line.since, "--since")
    write_lines(server.stream_pieces(f"{WORKLOADS}/{workload['id']}/pods/{pod}/logs", **options))


def chief_pod(server: ServerClient, workload: Workload, *, follow: bool) -> str:
    """The default pod of a workload; with `follow`, wait until it is created."""
    while True:
        if chief := str(workload["additionalFields"]["chief"]):
            return chief
        if not follow or workload["phase"] in ("Completed", "Failed", "Deleted"):
            reason = workload.get("phaseMessage") or f"it is {workload['phase']}"
            raise CommandError(f"The job {workload['name']} has no pods: {reason}")
        path = f"{WORKLOADS}/{workload['id']}/wait"
        workload = server.get(path, **{"for": f"Pending,Initializing,{_STARTED}", "timeout": _LOOK_AGAIN})


def _wait_for_start(server: ServerClient, workload: Workload, seconds: float) -> None:
    """Wait until the pods run or have run. Raises CommandError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        left = max(0.0, min(_LOOK_AGAIN, deadline - time.monotonic()))
        body = server.get(f"{WORKLOADS}/{workload['id']}/wait", **{"for": _STARTED, "timeout": f"{left:.3f}"})
        if body["phase"] in _STARTED.split(","):
            return
        if time.monotonic() >= deadline or body["phase"] == "Deleted":
            reason = body.get("phaseMessage") or f"it is {body['phase']}"
            raise CommandError(f"workload is not ready to stream: {workload['name']}: {reason}")


def _await_pod(line: CommandLine) -> None:
    """Wait for the pod, as long as --wait-timeout or --pod-running-timeout allow."""
    limits = [
        parse_duration(text, flag)
        for flag, text in (("--wait-timeout", line.wait_timeout), ("--pod-running-timeout", line.pod_running_timeout))
        if text
    ]
    if limits and line.words:
        server = client.connect(line)
        _wait_for_start(server, find_workload(server, project(line), line.words[0]), max(limits))


def exec_command(line: CommandLine) -> int:
    _await_pod(line)
    return exec_commands.exec_(line)


def bash(line: CommandLine) -> int:
    _await_pod(line)
    return exec_commands.bash(line)


def attach(line: CommandLine) -> int:
    """Attach to the pod's program. stdin and a terminal are used where the pod has them, unless --no-stdin or --no-tty
    is given."""
    _await_pod(line)
    if line.tty and not sys.stdin.isatty():
        print("Unable to use a TTY - input is not a terminal or the right kind of file", file=sys.stderr)
    return exec_commands.attach(line)


def port_forward(line: CommandLine) -> int:
    _await_pod(line)
    return exec_commands.port_forward(line)
