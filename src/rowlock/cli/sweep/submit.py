"""`rowlock sweep … -- COMMAND`: submits a sweep, which the server keeps going."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags, data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import SWEEPS
from rowlock.cli.output import show, show_json, tell
from rowlock.cli.run import shell_environment, source
from rowlock.cli.run.command import FLAG_OF, check_command, find_server, program_name
from rowlock.cli.run.console import Console
from rowlock.cli.run.request import HOST_IMAGE, submission
from rowlock.cli.submit.sending import message_in_flags, send_submit

if TYPE_CHECKING:
    from rowlock.answers.sweeps import Sweep
    from rowlock.cli.source.working_copy import WorkingCopy

_FLAGS = {
    "parameters": "--param", "search": "--search", "samples": "--samples", "seed": "--seed", "maxParallel": "--max-parallel",
    "metric": "--metric", "order": "--max", "stop": "--stop", "stopAfter": "--stop-after", "file": "--file", **{f"workload.{field}": flag for field, flag in FLAG_OF.items()}, **FLAG_OF, "name": "NAME",
    "workload.projectId": "--project",
}  # fmt: skip
"""Field of the request → flag of this command line."""
_MOST_FILE = 1 << 20


def submit(line: CommandLine) -> None:
    name, command = _split_words(line)
    line.set_values(interactive=False, resume_from=None, name=name)
    body: dict[str, Any] = {**_search(line), "command": ""}
    check_command(line, command)
    source.check(line)
    server = find_server(line)
    body["name"] = name or _free_name(server, line, program_name(command))
    with source.make_copy(line, body["name"]) as copy:
        body["workload"], body["command"] = _workload(line, command, copy)
        if line.dry_run:
            _show_objects(server, body, copy)
            return
        made = _send(server, line, body)
        if copy:
            source.settle(server, copy, f"{source.SWEEP}{made['id']}")
    if line.json:
        show_json(made)
        return
    runs = made["runs"]["total"]
    tell(
        f"Sweep {made['name']} submitted to project {project(line)}: {runs} {'run' if runs == 1 else 'runs'},"
        f" {min(made['maxParallel'], runs)} at a time."
    )
    tell(f"`rowlock sweep show {made['name']}{context_flags(line)}` shows them.")
    show(made["name"])


def _show_objects(server: ServerClient, body: dict[str, Any], copy: WorkingCopy | None) -> None:
    try:
        show_json(server.post(SWEEPS, body, dryRun="true"))
    except client.StatusError as refusal:
        raise CommandError(message_in_flags(refusal, _FLAGS)) from None
    if copy:
        copy.remove()


def _send(server: ServerClient, line: CommandLine, body: dict[str, Any]) -> Sweep:
    try:
        made: Sweep = send_submit(server, SWEEPS, body)
    except client.StatusError as refusal:
        raise CommandError(message_in_flags(refusal, _FLAGS)) from None
    return made


def _split_words(line: CommandLine) -> tuple[str, list[str]]:
    """The sweep's name, "" if none is given, and the command. Raises CommandError."""
    usage = "`rowlock sweep [NAME] --param lr=1e-4,3e-4 -- python train.py --lr {lr}`"
    if not line.rest:
        raise CommandError(f"say what to run, after --: {usage}", 2)
    if len(line.words) > 1:
        raise CommandError(
            f"a sweep has one name, and {line.words[1]} comes after it; the command stands after --: {usage}", 2
        )
    return (line.words[0] if line.words else ""), line.rest


def _search(line: CommandLine) -> dict[str, Any]:
    """What is searched, as the fields of a request; the server reads the values. Raises CommandError."""
    body: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    for item in line.param:
        name, equals, values = item.partition("=")
        if not (name and equals):
            raise CommandError(f'invalid argument "{item}" for --param: write NAME=VALUES, such as lr=1e-4,3e-4', 2)
        if name in parameters:
            raise CommandError(f"--param {name} is given twice: write all its values into one, {name}=1,2,3", 2)
        parameters[name] = values
    if parameters:
        body["parameters"] = parameters
    given = {
        "search": line.search, "samples": line.samples, "seed": line.seed, "maxParallel": line.max_parallel,
        "metric": line.metric, "order": "max" if line.max else None, "stop": line.stop, "stopAfter": line.stop_after,
    }  # fmt: skip
    body |= {field: value for field, value in given.items() if value is not None}
    if line.file:
        body["file"] = _read_file(line.file)
    elif not parameters:
        raise CommandError("a sweep needs parameters: --param lr=1e-4,3e-4, or --file sweep.yaml", 2)
    return body


def _read_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--file {path} cannot be read: {getattr(error, 'strerror', None) or error}", 2) from None
    if not text.strip():
        raise CommandError(
            f"--file {path} is empty: it has parameters, for example `parameters: {{lr: [1e-4, 3e-4]}}`", 2
        )
    return text


def _workload(line: CommandLine, command: list[str], copy: WorkingCopy | None) -> tuple[dict[str, Any], str]:
    """The submit that all runs share, as `rowlock run` would send it, and the typed command line. `copy`: the one in which they run."""
    environ = shell_environment.of_shell(os.environ)
    shell = {} if line.clean_env or line.image != HOST_IMAGE else shell_environment.collect(environ)
    recording = None
    if line.image == HOST_IMAGE:
        from rowlock.cli.source.code_record import CodeRecording

        recording = CodeRecording(
            data_dir(line), line.working_dir or os.getcwd(), command, environ, packs=not line.source
        )
    body = submission(line, command, "", shell, Console())
    if recording and (code := recording.result()):
        body["code"] = code
    if copy:
        source.redirect(line, body, copy)
    del body["name"]
    return body, str(body["submitCommand"])


def _free_name(server: ServerClient, line: CommandLine, base: str) -> str:
    """A name made from the script's, with the first free number."""
    stem = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-")[:30] or "sweep"
    stem = f"{stem if stem[0].isalpha() else f'sweep-{stem}'}-sweep"
    taken = {sweep["name"] for sweep in server.get(SWEEPS, project=project(line))["sweeps"]}
    return next(name for n in range(len(taken) + 1) if (name := f"{stem}-{n}") not in taken)
