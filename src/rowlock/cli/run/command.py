"""`rowlock run`: a command as a distributed PyTorch job: submitted, followed, and left with the job's exit code.

It starts a cluster when none runs. Master and workers run the same command in the directory you are in, with the
environment of your shell; with more than one process per pod, torchrun starts them. The first rank reads what is piped in.
Ctrl-C asks: stop the job, leave it running, or delete it. SIGTERM leaves it running.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from typing import Any, NoReturn

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.commands import cluster
from rowlock.cli.commands.jobs import WORKLOADS, wait_for_phase
from rowlock.cli.commands.logs import write_merged
from rowlock.cli.context import context_flags, data_dir, data_dir_flag, prepare_data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import ask, show, tell
from rowlock.cli.progress import ProgressReporter
from rowlock.cli.run import shell_environment, source
from rowlock.cli.run.console import PIPED, TERMINAL, Console
from rowlock.cli.run.request import HOST_IMAGE, submission

_FLAG_OF = {
    "name": "--name", "spec.image": "--image", "spec.numWorkers": "--nnodes",
    "spec.compute.cpuCoreRequest": "--cpu", "spec.compute.cpuMemoryRequest": "--memory",
    "spec.compute.gpuDevicesRequest": "--gpu", "spec.compute.gpuPortionRequest": "--gpu",
    "spec.backoffLimit": "--backoff-limit", "spec.environmentVariables": "--env", "spec.workingDir": "--working-dir",
}  # fmt: skip
"""A field of the request in the words of this command line."""
DETACHED = 0
_STOPPED, _TERMINATED = 130, 143
_KILL_TIMEOUT = 10
"""Seconds that killed programs have to be gone."""
_AT_ONCE = "\x03"
"""Ctrl-C as an answer."""
_STOP_PHASES = "Stopped,Completed,Failed,Deleted"


class Terminated(BaseException):
    """SIGTERM: `kill`, `timeout`, the end of a batch script."""


def run(line: CommandLine) -> int:
    command = [*line.words, *(line.rest or [])]
    if not command and (line.image == HOST_IMAGE or line.nproc_per_node > 1):
        raise CommandError("say what to run: `rowlock run [flags] -- python train.py …`", 2)
    _check_minimums(line)
    if line.image == HOST_IMAGE:
        _check_program(command[0])
        _check_working_directory(line)
    source.check(line)
    if line.replace and not line.name:
        raise CommandError("--replace needs the --name of the job that is replaced", 2)
    console = Console.choose(line)
    old_handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(line, command, console)
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _run(line: CommandLine, command: list[str], console: Console) -> int:
    name, copy = "", None
    try:
        server = _server(line)
        name = _free_name(server, line, command)
        shell = {} if line.clean_env or line.image != HOST_IMAGE else shell_environment.collect(os.environ)
        with source.make_copy(line, name) as copy:
            body = submission(line, command, name, shell, console)
            if copy:
                source.redirect(line, body, copy)
            if line.replace:
                _delete_old(line, server, body)
            created = _submit(line, server, body)
    except (KeyboardInterrupt, Terminated) as end:
        hint = f"whether job {name} was submitted is unknown: `rowlock list{context_flags(line)}` shows it"
        tell(f"Interrupted: {hint if name else 'nothing was submitted'}.")
        return _TERMINATED if isinstance(end, Terminated) else _STOPPED
    name, identity = created["name"], created["workloadId"]
    try:
        pods = f"{line.nnodes} {'pods' if line.nnodes != 1 else 'pod'}"
        tell(f"Job {name} submitted to project {project(line)}: {pods}.")
        if sentence := shell_environment.describe(shell, shell_environment.of_parent()):
            tell(sentence)
        if copy:
            source.settle(server, copy, identity)
        if line.detach:
            show(name)
            return DETACHED
        code = _follow(line, server, name, identity, console)
        if copy:
            source.tell_written(copy)
        return code
    except Terminated:
        return _leave_running(line, name, _TERMINATED)
    except BrokenPipeError:
        _leave_running(line, name, DETACHED)
        raise


def _delete_old(line: CommandLine, server: ServerClient, body: dict[str, Any]) -> None:
    """The job of this name goes, once it is sure that the new one would be accepted."""
    query = f"projectName=={project(line)},name=={body['name']}"
    old = client.list_all(server, WORKLOADS, "workloads", filterBy=query)
    if not old:
        return
    try:
        server.post(f"{WORKLOADS}/distributed", body, dryRun="true", requireImages="true")
    except client.StatusError as refusal:
        raise CommandError(client.message_in_flags(refusal, _FLAG_OF)) from None
    for workload in old:
        server.delete(f"{WORKLOADS}/distributed/{workload['id']}")


def _submit(line: CommandLine, server: ServerClient, body: dict[str, Any]) -> dict[str, Any]:
    """The workload. Raises CommandError in the words of this command line."""
    try:
        created: dict[str, Any] = server.post(f"{WORKLOADS}/distributed", body, requireImages="true")
    except client.StatusError as refusal:
        if refusal.status == 409:
            name, where = body["name"], body["projectId"]
            free = "replace it with --replace, or give another --name"
            raise CommandError(f"there is a job {name} in project {where} already: {free}") from None
        raise CommandError(client.message_in_flags(refusal, _FLAG_OF)) from None
    return created


def _check_minimums(line: CommandLine) -> None:
    for name, least in (("nnodes", 1), ("nproc_per_node", 1), ("backoff_limit", 0), ("simulated_gpus", 0)):
        value = getattr(line, name)
        if value is not None and value < least:
            raise CommandError(f"--{name.replace('_', '-')} must be at least {least}, but is {value}", 2)


def _check_working_directory(line: CommandLine) -> None:
    """Refuse what the pods would find missing: programs of this machine run on this machine."""
    if line.working_dir and not os.path.isdir(line.working_dir):
        raise CommandError(
            f'the working directory "{line.working_dir}" does not exist on this machine: create it, or give another one',
            2,
        )


def _check_program(first: str) -> None:
    """Refuse a script where a program must stand: nobody has said what runs it."""
    if first.endswith(".py"):
        import shutil

        if not shutil.which(first):
            raise CommandError(
                f"{first} is a script, not a program: say what runs it, `rowlock run … -- python {first} …`", 2
            )


def _server(line: CommandLine) -> ServerClient:
    """The server; one is started when none runs."""
    directory = data_dir(line)
    settings = {"simulated_gpus": line.simulated_gpus} if line.simulated_gpus is not None else {}
    server_json = client.running_server(directory)
    if server_json is not None:
        if line.image == HOST_IMAGE and (server_json.get("flags") or {}).get("kubeconfig") is not None:
            raise CommandError(
                "nodes of a real cluster do not have this machine's programs: name an image with --image", 2
            )
        cluster.check_same_settings(directory, server_json, settings)
    else:
        prepare_data_dir(directory)
        server_json = cluster.start_server(directory, cluster.serve_argv(directory, settings))
        tell(
            f"No cluster was running: one was started at {server_json['url']} (`rowlock down{data_dir_flag(directory)}` stops it)."
        )
    return client.connect(line)


def _free_name(server: ServerClient, line: CommandLine, command: list[str]) -> str:
    """The name given, else one from the script's with the first free number."""
    if line.name:
        return str(line.name)
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    first = scripts[0] if scripts else command[0] if command else line.image.partition(":")[0]
    base = os.path.basename(first).rsplit(".", 1)[0]
    stem = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")[:40] or "job"
    stem = stem if stem[0].isalpha() else f"job-{stem}"
    query = f"projectName=={project(line)},name=^{stem}"
    taken = {w["name"] for w in client.list_all(server, WORKLOADS, "workloads", filterBy=query)}
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}-{n}") not in taken)


# ---------------------------------------------------------------- following it


def _follow(line: CommandLine, server: ServerClient, name: str, identity: str, console: Console) -> int:
    try:
        _wait_for_start(server, name, identity)
        if console.kind == PIPED:
            console.feed(line, identity)
        if console.kind != TERMINAL or not console.converse(line, identity):
            events_path = f"{WORKLOADS}/{identity}/events"
            with ProgressReporter(server, name, events_path, restarts=bool(line.backoff_limit), pauses=True):
                write_merged(server, f"{WORKLOADS}/{identity}/logs", follow=True)
        body = wait_for_phase(client.connect(line), {"id": identity}, "Completed", None)
    except KeyboardInterrupt:
        return _handle_interrupt(line, name, identity)
    except client.StatusError:
        raise
    except CommandError:
        restart = client.restart_command(client.read_server_json(server.directory))
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
    tell(f"Job {name} is {body['phase'].lower()}" + (f": {why}" if why else ""))
    if line.rm and body["phase"] != "Deleted":
        server.delete(f"{WORKLOADS}/distributed/{identity}")
    elif still_running := [p["name"] for p in pods if p["completedAt"] is None]:
        them = "it" if len(still_running) == 1 else "them"
        tell(f"Still running: {', '.join(still_running)}. `rowlock delete {name}{context_flags(line)}` stops {them}.")
    return code


def _wait_for_start(server: ServerClient, name: str, identity: str) -> None:
    """A job that does not start at once says why, once per reason."""
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


def exit_code(phase: str, pods: list[dict[str, Any]]) -> int:
    """The code of the first rank that failed, in the order of ends; else 0 for a completed job and 1 for any other.

    A rank may fail after the master has succeeded: the job is complete then, but the run did not go well."""
    failed = sorted((p for p in pods if p["exitCode"]), key=lambda p: str(p["completedAt"] or ""))
    return int(failed[0]["exitCode"]) if failed else int(phase != "Completed")


def _first_failure_code(diagnosis: dict[str, Any]) -> int:
    """The code of who died first, last time: its pod may have been started once more and have none; 0 = nobody died."""
    last = next((i for i in reversed(diagnosis["incidents"]) if not i["asked"]), None)
    return int(last["deaths"][0]["code"]) if last else 0


def _handle_interrupt(line: CommandLine, name: str, identity: str) -> int:
    """Ctrl-C: stop and keep the job, leave it running, or delete it; once more stops it at once. Without a terminal to ask
    the job is stopped: nobody is watching it any more. With --rm it is deleted, as if it had ended."""
    answer = "x" if line.rm else "s"
    if sys.stdin.isatty():
        tell("")
        question = f"[s]top job {name} and keep it, [d]etach and leave it running, or delete it [x]? Ctrl-C stops it at once. [s/d/x] "
        while (answer := ask(question, interrupted=_AT_ONCE)) not in ("", _AT_ONCE) and answer[0] not in "sdx":
            continue
        answer = answer if answer == _AT_ONCE else answer[:1]
    if answer in ("d", ""):
        return _leave_running(line, name, DETACHED)
    server = client.connect(line)
    if answer == "x":
        server.delete(f"{WORKLOADS}/distributed/{identity}")
        tell(f"Job {name} is stopped and deleted.")
        return _STOPPED
    _stop(server, name, identity, at_once=answer == _AT_ONCE)
    flags = context_flags(line)
    tell(
        f"Job {name} is stopped. `rowlock resume {name}{flags}` starts it again; `rowlock delete {name}{flags}` deletes it."
    )
    return _STOPPED


def _stop(server: ServerClient, name: str, identity: str, *, at_once: bool) -> None:
    """Suspends the job and waits until its programs have ended; Ctrl-C, or `at_once`, kills them."""
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
        with contextlib.suppress(client.StatusError):  # it has gone
            server.call("DELETE", path, query={"gracePeriodSeconds": 0})
    server.get(f"{WORKLOADS}/{identity}/wait", **{"for": _STOP_PHASES, "timeout": _KILL_TIMEOUT})


def _leave_running(line: CommandLine, name: str, code: int) -> int:
    flags = context_flags(line)
    tell(f"Job {name} goes on. Follow it: `rowlock logs -f {name}{flags}`; stop it: `rowlock delete {name}{flags}`")
    return code
