"""Checks the flags of a submit, with Run:ai's error messages; after a submit attaches to the job or forwards its ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS, find_workload, has_reached, wait_for_phase
from rowlock.cli.output import parse_duration, tell
from rowlock.cli.run.following import exit_code
from rowlock.cli.streams import exec_commands
from rowlock.cli.streams.logs import GONE_CHIEF, write_lines
from rowlock.cli.submit.assets import says_image_elsewhere

if TYPE_CHECKING:
    from rowlock.answers.workloads import Workload

_ENDED = ("Completed", "Failed")


def check_submit_flags(line: CommandLine) -> None:
    """Raise CommandError for flags that contradict each other."""
    if not line.image and not says_image_elsewhere(line):
        raise CommandError("\n-i, --image must be set\n")
    if getattr(line, "attach", False):
        line.set_values(stdin=True, tty=True)
    if line.tty and not line.stdin and not getattr(line, "template", None):
        raise CommandError("--stdin is required for containers with -t/--tty=true")
    if getattr(line, "gpu", None) and getattr(line, "gpu_memory", None):
        raise CommandError("unexpected to accept both gpu and gpu-memory flag. please use only one of them")
    if getattr(line, "preemptible", False) and getattr(line, "non_preemptible", False):
        raise CommandError(
            "unexpected to accept both preemptible and non-preemptible flag. please use only one of them"
        )
    workers = getattr(line, "workers", None)
    if workers is not None and workers < 1:
        raise CommandError(f"--workers must be at least 1, but is {workers}")
    if line.command and not line.rest:
        raise CommandError("--command needs the command after `--`, for example: --command -- python train.py")
    if getattr(line, "service_type", None) not in (None, "portforward"):
        raise CommandError(
            f"--service-type {line.service_type}: ports of pods are not opened on the nodes here; "
            "--service-type portforward brings them to this machine"
        )
    if getattr(line, "service_type", None) and not line.port:
        raise CommandError("--service-type needs a port: --port LOCAL:REMOTE")


def requested_name(line: CommandLine) -> str:
    """The job's name: the positional NAME or --name, not both."""
    flag = getattr(line, "name", None)
    names = [*line.words, *([flag] if flag else [])]
    if len(names) > 1:
        raise CommandError(f"unexpected arguments {line.words[-1:] if flag else line.words[1:]}")
    return str(names[0]) if names else ""


def follow_submit(line: CommandLine, server: ServerClient, name: str) -> int:
    """After a submit: wait until the workload runs, then attach to it or forward its ports, if the flags ask for it."""
    forward = getattr(line, "service_type", None) == "portforward"
    if not getattr(line, "attach", False) and not forward:
        _tell_of_unread_input(line, name)
        return 0
    timeout = getattr(line, "pod_running_timeout", None)
    limit = parse_duration(timeout, "--pod-running-timeout") if timeout else None
    body = wait_for_phase(server, find_workload(server, project(line), name), "Running", limit)
    if not has_reached(body, "Running") and (forward or body["phase"] not in _ENDED):
        raise CommandError(f"The job {name} is {body['phase']}, not running. {_reason(body)}".strip())
    line.set_values(words=[name], pod=None, container=None, no_stdin=False, no_tty=False)
    return exec_commands.port_forward(line) if forward else _attach(line, server, body)


def _tell_of_unread_input(line: CommandLine, name: str) -> None:
    """Warn about piped input that is not read: --stdin without --attach opens the program's stdin but sends nothing to it."""
    if line.stdin:
        from rowlock.cli.run.console import has_unread_input  # late: most submits have no use for it

        if has_unread_input():
            tell(
                f"What is piped in is not passed on: --attach does that, or `rowlock attach {name}{context_flags(line)}`."
            )


def _attach(line: CommandLine, server: ServerClient, body: Workload) -> int:
    """Attach to the chief pod, from its first line; if its program has ended already, print its log. Returns its exit code."""
    chief, previous = body["additionalFields"]["chief"], False
    if body["phase"] in _ENDED:
        code = exit_code(body["phase"], server.get(f"{WORKLOADS}/{body['id']}/pods")["pods"])
    else:
        pod = server.get(f"/api/v1/namespaces/{body['namespace']}/pods/{chief}")
        ended = exec_commands.attach_from_start(line, server, pod)
        if isinstance(ended, int):
            return ended
        code, previous = ended
    path = f"{WORKLOADS}/{body['id']}/pods/{chief or GONE_CHIEF}/logs"
    write_lines(server.stream_lines(path, previous=previous))
    return code


def _reason(body: Workload) -> str:
    return str(body.get("phaseMessage") or f"`GET {WORKLOADS}/{body['id']}` shows more.")
