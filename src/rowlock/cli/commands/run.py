"""`rowlock run`: a command as a distributed PyTorch job: submitted, followed, and left with the job's exit code.

It starts a cluster when none runs. Master and workers run the same command in the directory you are in, with the
programs of your shell (`PATH` and what belongs to it) and the environment that the cluster was started in; with more
than one process per pod, torchrun starts them. Ctrl-C asks: detach, or stop the job. SIGTERM leaves it running.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Any, NoReturn

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.commands import cluster
from rowlock.cli.commands.jobs import WORKLOADS, wait_for_phase
from rowlock.cli.commands.logs import write_lines
from rowlock.cli.context import context_flags, data_dir, data_dir_flag, prepare_data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import ask, show, tell
from rowlock.cli.progress import ProgressReporter

HOST_IMAGE = "rowlock.dev/host"
SHELL_VARIABLES = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
"""What decides which programs a shell finds: yours are meant, not those of whoever started the cluster."""
_FLAG_OF = {
    "name": "--name", "spec.image": "--image", "spec.numWorkers": "--nnodes",
    "spec.compute.cpuCoreRequest": "--cpu", "spec.compute.cpuMemoryRequest": "--memory",
    "spec.compute.gpuDevicesRequest": "--gpu", "spec.compute.gpuPortionRequest": "--gpu",
    "spec.backoffLimit": "--backoff-limit", "spec.environmentVariables": "--env", "spec.workingDir": "--working-dir",
}  # fmt: skip
"""A field of the request in the words of this command line."""
DETACHED = 0
_STOPPED, _TERMINATED = 130, 143


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
    old_handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(line, command)
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _run(line: CommandLine, command: list[str]) -> int:
    name = ""
    try:
        server = _server(line)
        name = _free_name(server, line, command)
        created = _submit(line, server, submission(line, command, name))
    except (KeyboardInterrupt, Terminated) as end:
        hint = f"whether job {name} was submitted is unknown: `rowlock list{context_flags(line)}` shows it"
        tell(f"Interrupted: {hint if name else 'nothing was submitted'}.")
        return _TERMINATED if isinstance(end, Terminated) else _STOPPED
    name, identity = created["name"], created["workloadId"]
    try:
        pods = f"{line.nnodes} {'pods' if line.nnodes != 1 else 'pod'}"
        tell(f"Job {name} submitted to project {project(line)}: {pods}.")
        if line.detach:
            show(name)
            return DETACHED
        return _follow(line, server, name, identity)
    except Terminated:
        return _leave_running(line, name, _TERMINATED)
    except BrokenPipeError:
        _leave_running(line, name, DETACHED)
        raise


def _submit(line: CommandLine, server: ServerClient, body: dict[str, Any]) -> dict[str, Any]:
    """The workload. Raises CommandError in the words of this command line."""
    try:
        created: dict[str, Any] = server.post(f"{WORKLOADS}/distributed", body)
    except client.StatusError as refusal:
        if refusal.status == 409:
            name, where = body["name"], body["projectId"]
            free = f"delete it (`rowlock delete {name}{context_flags(line)}`), or give another --name"
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


# ---------------------------------------------------------------- what is submitted


def submission(line: CommandLine, command: list[str], name: str) -> dict[str, Any]:
    """The request: Master 1 and Worker N-1, as one spec."""
    from rowlock.cli.compute_flags import compute_request

    spec: dict[str, Any] = {
        "image": line.image,
        "distributedFramework": "PyTorch",
        **({"numWorkers": line.nnodes - 1} if line.nnodes > 1 else {"noWorkers": True}),
        **_program(line, command),
        "nprocPerNode": line.nproc_per_node,
        "compute": compute_request(line),
        "backoffLimit": line.backoff_limit,
        "restartPolicy": "OnFailure" if line.backoff_limit else "Never",
        "environmentVariables": [*_shell_environment(line), *environment_variables(line.env)],
        "inheritEnv": "" if line.clean_env else "*",
    }
    return {
        "name": name,
        "projectId": project(line),
        "spec": spec,
        "submitCommand": _typed_command(line),
    }


def _program(line: CommandLine, command: list[str]) -> dict[str, Any]:
    """What runs, and where. An image has a program and a working directory of its own; this machine has those of here."""
    program: dict[str, Any] = {}
    if command:
        program["command"] = [_escape_dollars(word) for word in launch_command(command, line.nproc_per_node)]
    if line.image == HOST_IMAGE:
        program["workingDir"] = os.path.abspath(line.working_dir or os.getcwd())
    elif line.working_dir:
        program["workingDir"] = line.working_dir
    return program


def _escape_dollars(word: str) -> str:
    """Kubernetes reads `$$` as `$` in a command; what was typed here is meant as it is."""
    return word.replace("$$", "$$$$")


def _shell_environment(line: CommandLine) -> list[dict[str, str]]:
    if line.image != HOST_IMAGE or line.clean_env:
        return []
    overridden = {item.partition("=")[0] for item in line.env}
    return [{"name": n, "value": os.environ[n]} for n in SHELL_VARIABLES if os.environ.get(n) and n not in overridden]


def _typed_command(line: CommandLine) -> str:
    import shlex

    return shlex.join([line.program, *line.argv])


def launch_command(command: list[str], nproc: int) -> list[str]:
    """The command each pod runs: as it is, or under torchrun when a pod holds several ranks. torchrun takes the number
    of nodes, this node's rank and the master's address from the environment (`PET_*`)."""
    if nproc == 1 or os.path.basename(command[0]) == "torchrun" or command[1:3] == ["-m", "torch.distributed.run"]:
        return command
    if not os.path.basename(command[0]).startswith("python"):
        return ["torchrun", "--no-python", *command]
    launcher = [command[0], "-m", "torch.distributed.run"]
    script = command[1:2] and command[1].endswith(".py")
    return [*launcher, *command[1:]] if script else [*launcher, "--no-python", *command]


def environment_variables(entries: list[str]) -> list[dict[str, str]]:
    """`NAME=VALUE`, or `NAME` for the value it has here."""
    variables = []
    for item in entries:
        name, equals, value = item.partition("=")
        if not equals:
            if name not in os.environ:
                raise CommandError(f"--env {name}: you have no variable {name}; write --env {name}=VALUE", 2)
            value = os.environ[name]
        variables.append({"name": name, "value": value})
    return variables


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


def _follow(line: CommandLine, server: ServerClient, name: str, identity: str) -> int:
    try:
        _wait_for_start(server, name, identity)
        events_path = f"{WORKLOADS}/{identity}/events"
        with ProgressReporter(server, name, events_path, restarts=bool(line.backoff_limit), pauses=True):
            write_lines(server.stream_lines(f"{WORKLOADS}/{identity}/logs", follow=True))
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
    """Ctrl-C: detach or stop. Without a terminal to ask, the job is stopped: nobody is watching it any more."""
    stop = True
    if sys.stdin.isatty():
        tell("")
        question = f"[d]etach and leave job {name} running, or [s]top and delete it? [d/s] "
        while (answer := ask(question)[:1]) not in ("d", "s", ""):
            continue
        stop = answer == "s"
    if not stop:
        return _leave_running(line, name, DETACHED)
    client.connect(line).delete(f"{WORKLOADS}/distributed/{identity}")
    tell(f"Job {name} is stopped and deleted.")
    return _STOPPED


def _leave_running(line: CommandLine, name: str, code: int) -> int:
    flags = context_flags(line)
    tell(f"Job {name} goes on. Follow it: `rowlock logs -f {name}{flags}`; stop it: `rowlock delete {name}{flags}`")
    return code
