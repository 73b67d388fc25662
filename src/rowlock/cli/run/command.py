"""`rowlock run`: run a command as a distributed PyTorch job: submit it, follow it, and exit with the job's exit code.

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
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags, data_dir, data_dir_flag, prepare_data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import show, tell
from rowlock.cli.run import checkpoints, shell_environment, source
from rowlock.cli.run.changed_news import tell_changed
from rowlock.cli.run.console import Console
from rowlock.cli.run.following import DETACHED, STOPPED, TERMINATED, Follow, follow_run, leave_running
from rowlock.cli.run.notify import FLAG_OF as NOTIFY_FLAG_OF
from rowlock.cli.run.notify import notify_field
from rowlock.cli.run.request import HOST_IMAGE, are_arguments, parse_processes, submission
from rowlock.cli.run.start_order import start_order
from rowlock.cli.server_json import running_server
from rowlock.cli.start.process import start_server
from rowlock.cli.start.settings import check_same_settings, next_start, serve_argv
from rowlock.cli.submit.sending import message_in_flags, send_submit

if TYPE_CHECKING:
    from rowlock.cli.source.working_copy import WorkingCopy

FLAG_OF = {
    "name": "--name", "spec.image": "--image", "spec.numWorkers": "--nnodes",
    "spec.compute.cpuCoreRequest": "--cpu", "spec.compute.cpuMemoryRequest": "--memory", "spec.compute.cpuMemoryLimit": "--memory-limit",
    "spec.compute.gpuDevicesRequest": "--gpu", "spec.compute.gpuPortionRequest": "--gpu",
    **NOTIFY_FLAG_OF, "maxTimeSeconds": "--max-time", "tags": "--tag", "note": "--note", "after": "--after", "startAfter": "--start-after", "spec.terminationGracePeriodSeconds": "--grace", "spec.backoffLimit": "--backoff-limit", "spec.retryOn": "--retry-on", "spec.neverRetryOn": "--never-retry-on", "spec.environmentVariables": "--env", "spec.workingDir": "--working-dir",
}  # fmt: skip
"""Field of the request → flag of this command line."""


class Terminated(BaseException):
    """SIGTERM: `kill`, `timeout`, the end of a batch script."""


def run(line: CommandLine) -> int:
    command = [*line.words, *(line.rest or [])]
    check_command(line, command)
    source.check(line)
    if line.replace and not line.name:
        raise CommandError("--replace needs the --name of the job that is replaced", 2)
    if line.bell and line.detach:
        raise CommandError(
            "--bell rings when the job has ended, and --detach does not wait for that: leave one of them out, or take --notify",
            2,
        )
    console = Console.choose(line)

    def start(follow: Follow = follow_run) -> int:
        code = launch(line, lambda: _prepare(line, command, console), follow)
        if line.bell and sys.stderr.isatty():
            print("\a", end="", file=sys.stderr, flush=True)
        return code

    if not line.rerun_on_save:
        return start()
    from rowlock.cli.run import saves

    saves.check(line, console)
    return saves.run_on_save(line, command, start)


def check_command(line: CommandLine, command: list[str]) -> None:
    """Raise CommandError for numbers that are too small, and for a command that cannot run as the flags say. Sets the number of processes
    per pod."""
    _check_minimums(line)
    if line.retry_on and "backoff_limit" not in line.given_flags:
        line.set_values(backoff_limit=None)  # the server adds up what the rules allow
    elif line.never_retry_on and not line.backoff_limit:
        raise CommandError(
            "--never-retry-on excludes causes from the retries of --backoff-limit N or --retry-on: give one of them, too",
            2,
        )
    line.set_values(nproc_per_node=parse_processes(line.nproc_per_node, line.gpu))
    if not command and (line.image == HOST_IMAGE or line.nproc_per_node != 1):
        raise CommandError("say what to run: `rowlock run [flags] -- python train.py …`", 2)
    if line.nproc_per_node != 1 and are_arguments(line, command):
        raise CommandError(
            f"--nproc-per-node: torchrun would start {command[0]}, but that is an argument of the image's own program: "
            "say what to run, `rowlock run [flags] -- python train.py …`",
            2,
        )
    if line.image == HOST_IMAGE:
        _check_program(line, command[0])
        _check_working_directory(line)


class PreparedRun(NamedTuple):
    """A request that is ready to be submitted: its body and REST path, the number of pods, the shell environment that is sent
    along, the copy of the source in which it runs, and its console."""

    server: ServerClient
    body: dict[str, Any]
    console: Console
    shell: Mapping[str, str] = MappingProxyType({})
    copy: WorkingCopy | None = None
    path: str = f"{WORKLOADS}/distributed"
    pods: int = 0
    """0 = unknown."""
    flag_of: Mapping[str, str] = MappingProxyType(FLAG_OF)
    """Field of the request → its name in refusals."""
    beginning: str = ""
    """A sentence about the checkpoints that the job resumes from, or does not use."""


@contextlib.contextmanager
def _prepare(line: CommandLine, command: list[str], console: Console) -> Iterator[PreparedRun]:
    server, environ = find_server(line), shell_environment.of_shell(os.environ)
    shell = {} if line.clean_env or line.image != HOST_IMAGE else shell_environment.collect(environ)
    with contextlib.ExitStack() as stack:
        recording = None
        if line.image == HOST_IMAGE:
            from rowlock.cli.source.code_record import CodeRecording

            recording = CodeRecording(
                data_dir(line), line.working_dir or os.getcwd(), command, environ, packs=not line.source
            )
        name = _free_name(server, line, command)
        copy = stack.enter_context(source.make_copy(line, name))
        body = submission(line, command, name, shell, console)
        body |= notify_field(line, line.notify) | start_order(line)
        beginning = checkpoints.resume_from(line, server, body)
        if recording and (code := recording.result()):
            body["code"] = code
        if copy:
            source.redirect(line, body, copy)
        yield PreparedRun(server, body, console, shell, copy, pods=line.nnodes, beginning=beginning)


Prepare = Callable[[], contextlib.AbstractContextManager[PreparedRun]]


def launch(line: CommandLine, prepare: Prepare, follow: Follow = follow_run) -> int:
    """Submit the request that `prepare` yields and follow the job, as the flags `replace`, `detach`, `rm` and `backoff_limit` say. The
    submit happens inside `prepare`'s context, which cleans up on failure. Returns the exit code of the run. Raises CommandError."""
    if line.rm and line.detach:
        raise CommandError(
            "--rm deletes the job when it has ended, and --detach does not wait for that: leave one of them out", 2
        )
    old_handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _launch(line, prepare, follow)
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _launch(line: CommandLine, prepare: Prepare, follow: Follow) -> int:
    name = ""
    try:
        with prepare() as prepared:
            name = prepared.body["name"]
            if line.replace:
                _delete_old(line, prepared)
            created = _submit(prepared)
    except (KeyboardInterrupt, Terminated) as end:
        hint = f"whether job {name} was submitted is unknown: `rowlock list{context_flags(line)}` shows it"
        tell(f"Interrupted: {hint if name else 'nothing was submitted'}.")
        return TERMINATED if isinstance(end, Terminated) else STOPPED
    server, copy = prepared.server, prepared.copy
    name, identity = created["name"], created["workloadId"]
    try:
        pods = f": {prepared.pods} {'pods' if prepared.pods != 1 else 'pod'}" if prepared.pods else ""
        tell(f"Job {name} submitted to project {project(line)}{pods}.")
        if prepared.beginning:
            tell(prepared.beginning)
        tell_changed(
            data_dir(line),
            {
                "environment": shell_environment.describe(prepared.shell, shell_environment.of_parent()),
                "unsent": shell_environment.describe_unsent(os.environ) if prepared.shell else "",
                "python": _describe_python(prepared.body.get("code") or {}),
            },
        )
        if copy:
            source.settle(server, copy, identity)
        if line.detach:
            show(name)
            return DETACHED
        code = follow(line, server, name, identity, prepared.console)
        if copy:
            source.tell_written(copy)
        return code
    except Terminated:
        return leave_running(line, name, TERMINATED)
    except BrokenPipeError:
        leave_running(line, name, DETACHED)
        raise


def _describe_python(code: Mapping[str, Any]) -> str:
    """A sentence that names the interpreter of a run when it is not rowlock's own (a project's, conda's, `uv run`'s);
    else ""."""
    python = str(code.get("python") or "")
    if not python or os.path.dirname(python) == os.path.dirname(sys.executable):
        return ""
    return f"Its interpreter is {python} (Python {code.get('pythonVersion', 'of an unknown version')})."


def _delete_old(line: CommandLine, prepared: PreparedRun) -> None:
    """Delete the job of this name, after a dry run has shown that the new one would be accepted."""
    server, body = prepared.server, prepared.body
    query = f"projectName=={project(line)},name=={body['name']}"
    old = client.list_all(server, WORKLOADS, "workloads", filterBy=query)
    if not old:
        return
    try:
        server.post(prepared.path, body, dryRun="true", **_image_check(prepared))
    except client.StatusError as refusal:
        raise CommandError(message_in_flags(refusal, prepared.flag_of)) from None
    for workload in old:
        if not line.resume_from and (sentence := checkpoints.describe_replacement(server, workload["id"], body)):
            tell(sentence)
        server.delete(f"{WORKLOADS}/distributed/{workload['id']}")


def _image_check(prepared: PreparedRun) -> dict[str, str]:
    """Query parameters by which the server checks that this machine has the image; only distributed workloads take them."""
    return {"requireImages": "true"} if prepared.path.endswith("/distributed") else {}


def _submit(prepared: PreparedRun) -> dict[str, Any]:
    """Submit the request and return the server's answer. Raises CommandError that names flags instead of fields."""
    body = prepared.body
    try:
        created: dict[str, Any] = send_submit(prepared.server, prepared.path, body, **_image_check(prepared))
    except client.StatusError as refusal:
        if refusal.status == 409 and isinstance(refusal.body, dict) and refusal.body.get("details") == "AlreadyExists":
            name, where = body["name"], body["projectId"]
            free = "replace it with --replace, or give another --name"
            raise CommandError(f"there is a job {name} in project {where} already: {free}") from None
        raise CommandError(message_in_flags(refusal, prepared.flag_of)) from None
    return created


def _check_minimums(line: CommandLine) -> None:
    for name, least in (("nnodes", 1), ("backoff_limit", 0), ("simulated_gpus", 0)):
        value = getattr(line, name)
        if value is not None and value < least:
            raise CommandError(f"--{name.replace('_', '-')} must be at least {least}, but is {value}", 2)


def _check_working_directory(line: CommandLine) -> None:
    """Raise CommandError when the working directory does not exist: the pods run on this machine and need it."""
    if line.working_dir and not os.path.isdir(line.working_dir):
        raise CommandError(
            f'the working directory "{line.working_dir}" does not exist on this machine: create it, or give another one',
            2,
        )


def _check_program(line: CommandLine, first: str) -> None:
    """Raise CommandError when this machine cannot run the command: it begins with a script that is not executable, or with a
    program that is not in PATH. Nothing is checked for a server on another machine, or if the pods' PATH is not this
    shell's."""
    import shutil

    path = shell_environment.of_shell(os.environ)["PATH"]
    place = os.path.join(line.working_dir or "", first) if os.path.dirname(first) else first
    if shutil.which(place, path=path):
        return
    if first.endswith(".py"):
        raise CommandError(
            f"{first} is a script, not a program: say what runs it, `rowlock run … -- python {first} …`", 2
        )
    other_path = line.clean_env or any(one.partition("=")[0] == "PATH" for one in line.env)
    if client.remote_url(line) or (other_path and not os.path.dirname(first)):
        return
    if os.path.dirname(first):
        hint = "make it executable: `chmod +x`" if os.path.isfile(place) else "there is no such file"
        raise CommandError(f"{first} is no program: {hint}", 2)
    raise CommandError(f"there is no program {first} in your PATH: correct its name, or give its path", 2)


def find_server(line: CommandLine, *, remedy: str = "name an image with --image") -> ServerClient:
    """The client of the data directory's server; starts a server when none runs. `remedy`: what to do on a real cluster, whose nodes lack
    this machine's programs."""
    directory = data_dir(line)
    settings = {"simulated_gpus": line.simulated_gpus} if line.simulated_gpus is not None else {}
    if url := client.remote_url(line):
        if settings:
            raise CommandError(
                f"--simulated-gpus is for a server that is started here, and this directory's is {url}: leave it out", 2
            )
        return client.connect(line)
    server_json = running_server(directory)
    if server_json is None and (shared_server := client.find_system_server(line)) is not None:
        line.server = shared_server
        return shared_server
    if server_json is not None:
        if line.image == HOST_IMAGE and (server_json.get("flags") or {}).get("kubeconfig") is not None:
            raise CommandError(f"nodes of a real cluster do not have this machine's programs: {remedy}", 2)
        check_same_settings(directory, server_json, settings)
    else:
        prepare_data_dir(directory)
        settings, sentences = next_start(directory, settings)
        server_json = start_server(directory, serve_argv(directory, settings))
        tell(
            f"No cluster was running: one was started at {server_json['url']} (`rowlock down{data_dir_flag(directory)}` stops it)."
        )
        for sentence in sentences:
            tell(sentence)
    return client.connect(line)


def program_name(command: list[str]) -> str:
    """A short name for what a command runs: its script, or the last part of its module (`python -m pkg.train`)."""
    words = iter(command)
    is_python = os.path.basename(command[0]).startswith(("python", "torchrun"))
    for word in words:
        if word.endswith((".py", ".sh")):
            return os.path.basename(word).rsplit(".", 1)[0]
        module = next(words, "") if word == "-m" and is_python else ""
        if module and not module.startswith("torch.distributed."):  # a launcher of another program
            return module.removesuffix(".__main__").rpartition(".")[2]
    return os.path.basename(command[0]).rsplit(".", 1)[0]


def _free_name(server: ServerClient, line: CommandLine, command: list[str]) -> str:
    """The given name; else the script's name with the first free number."""
    if line.name:
        return str(line.name)
    base = (
        program_name(command)
        if command and not are_arguments(line, command)
        else os.path.basename(line.image.partition(":")[0]).rsplit(".", 1)[0]
    )
    stem = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")[:40] or "job"
    stem = stem if stem[0].isalpha() else f"job-{stem}"
    query = f"projectName=={project(line)},name=^{stem}"
    taken = {w["name"] for w in client.list_all(server, WORKLOADS, "workloads", filterBy=query)}
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}-{n}") not in taken)
