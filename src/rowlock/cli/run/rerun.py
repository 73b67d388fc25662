"""`rowlock rerun`: submits the request of an earlier run again, with today's files or, with `--exact`, with the files of
that run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import data_dir, project, typed_command
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.runs import find_run, had_shell_environment, kept_request
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import shorten_names, tell
from rowlock.cli.run import checkpoints, shell_environment, source
from rowlock.cli.run.command import PreparedRun, launch
from rowlock.cli.run.console import CONSOLE_FIELDS, Console
from rowlock.cli.run.notify import notify_field
from rowlock.cli.run.request import HOST_IMAGE, environment_variables
from rowlock.submit_fields import DISTRIBUTED

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

NOT_KEPT = "(not kept)"
"""The archive stores this text instead of a secret value."""
_SHOWN = 5
_FLAG_OF = {"name": "--name", "spec.environmentVariables": "--env", "spec.image": "its image"}
"""Field of the request → its name in error messages."""


def rerun(line: CommandLine) -> int:
    """Submit a run again, under its own name or another, and follow it. Raises CommandError when a part of the run cannot be
    restored."""
    server = client.connect(line)
    run = find_run(server, project(line), line.word("run"))
    body = kept_request(run, "again")
    line.set_values(
        backoff_limit=None if body["spec"].get("retryOn") else body["spec"].get("backoffLimit") or 0, clean_env=False
    )
    return launch(line, lambda: _prepare(line, server, run, body))


@contextlib.contextmanager
def _prepare(line: CommandLine, server: ServerClient, run: Run, kept: dict[str, Any]) -> Iterator[PreparedRun]:
    body = json.loads(json.dumps(kept))
    for order in ("after", "startAfter"):
        body.pop(order, None)
    body["name"], body["submitCommand"] = line.name or run["name"], typed_command(line)
    spec, code = body["spec"], run["ran"]["code"] or {}
    for role in (spec, body.get("masterSpec") or {}):
        for name in CONSOLE_FIELDS:
            role.pop(name, None)
    _set_variables(body, line.env)
    beginning = checkpoints.resume_from(line, server, body)
    if line.resume_from is None and not line.replace:
        beginning = checkpoints.describe_beginning(server, run, body)
    _refuse_lost_values(body)
    body |= notify_field(line, line.notify)
    if code.get("copy"):
        body = _in_source_directory(body, code)
    shell = {}
    if had_shell_environment(run):
        shell = body["shellEnvironment"] = shell_environment.collect(
            shell_environment.of_shell(os.environ), has_clean_env=False
        )
    with contextlib.ExitStack() as stack:
        copy = None
        if body["spec"].get("image") == HOST_IMAGE:
            copy = stack.enter_context(_copy_source(line, body, code))
        elif line.exact:
            raise CommandError(
                f"--exact is for programs of this machine, and {run['name']} ran the image {spec.get('image')}"
            )
        tell(
            f"Run again: {run['name']} ({run['id'][:8]})"
            + (f", as {body['name']}" if body["name"] != run["name"] else "")
        )
        path = f"{WORKLOADS}/{_last_word(run, body)}"
        yield PreparedRun(server, body, Console(), shell, copy, path, flag_of=_FLAG_OF, beginning=beginning)


def _last_word(run: Run, body: dict[str, Any]) -> str:
    """The last part of the REST path for this request. (A distributed workload of one pod is listed as a training.)"""
    if any(name in DISTRIBUTED for name in body["spec"]):
        return "distributed"
    return {"Training": "trainings", "Workspace": "workspaces"}.get(run["ran"]["type"], "distributed")


@contextlib.contextmanager
def _copy_source(line: CommandLine, body: dict[str, Any], code: dict[str, Any]) -> Iterator[Any]:
    """Record today's code, or check out that of the earlier run. Yields the copy, None without one."""
    from rowlock.cli.source.code_record import CodeRecording

    directory, command = body["spec"].get("workingDir") or os.getcwd(), body["spec"].get("command") or []
    if not line.exact:
        _require_directory(directory, "make it again, rerun with --exact, or run the command anew")
    words = command if isinstance(command, list) else []
    copies = line.exact or bool(code.get("source"))
    recording = CodeRecording(data_dir(line), directory, words, os.environ, packs=not copies)
    if not copies:
        body["code"] = recording.result()
        yield None
        return
    if line.exact:
        _require_snapshot(line, code)
    place = code.get("source") or code.get("repository") or ""
    line.set_values(source=place)
    with source.make_copy(line, body["name"], code if line.exact else None) as copy:
        body["code"] = recording.result()
        if copy:
            source.redirect(line, body, copy)
        if line.exact:
            _require_directory(body["spec"]["workingDir"], "it was not part of the code; make it again")
            if not os.path.isdir(place):
                tell(
                    f"warning: {place} is not there any more: the copy has no data sets or other files that git ignores"
                )
            _compare_packages(line, code, body["code"])
        yield copy


def _require_directory(directory: str, hint: str) -> None:
    if not os.path.isdir(directory):
        raise CommandError(f"its working directory {directory} is not there any more: {hint}")


def _require_snapshot(line: CommandLine, code: dict[str, Any]) -> None:
    from rowlock.cli.source.snapshot import SourceStore

    tree = str(code.get("snapshot") or "")
    if not tree:
        note = (
            f" ({code['note']})"
            if code.get("note")
            else "; only what runs in a git repository, or with --source, is kept"
        )
        raise CommandError(f"--exact: no snapshot of its code was kept{note}")
    if not SourceStore(data_dir(line)).has(tree):
        raise CommandError(
            "--exact: the snapshot of its code is not on this machine: rerun it where it was submitted, within 90 days"
        )


def _compare_packages(line: CommandLine, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn when the interpreter or packages differ from those of the run, because only the code is restored exactly."""
    from rowlock.cli.curves.compare import changed_packages

    if then.get("pythonVersion") and then["pythonVersion"] != now.get("pythonVersion"):
        tell(
            f"warning: it ran under Python {then['pythonVersion']}, and now it is {now.get('pythonVersion') or 'another one'}"
        )
    changes = changed_packages(data_dir(line), then, now)
    if changes:
        words = [f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in changes]
        tell(f"warning: packages are not those of then: {shorten_names(words, _SHOWN)}")


def _set_variables(body: dict[str, Any], entries: list[str]) -> None:
    """Set the variables of this command line; take variables whose values were not kept from this shell."""
    given = environment_variables(entries)
    for role in (body["spec"], body.get("masterSpec") or {}):
        variables = role.get("environmentVariables")
        if not isinstance(variables, list):
            variables = []
        names = {variable["name"] for variable in given}
        kept = [variable for variable in variables if variable.get("name") not in names]
        for variable in kept:
            if variable.get("value") == NOT_KEPT and variable["name"] in os.environ:
                variable["value"] = os.environ[variable["name"]]
        if role is body["spec"] or variables:
            role["environmentVariables"] = [*kept, *given]


def _refuse_lost_values(body: dict[str, Any]) -> None:
    """Raise CommandError when secret values are still missing: the archive does not keep them, so the user must give
    them."""
    for role in (body["spec"], body.get("masterSpec") or {}):
        for variable in role.get("environmentVariables") or ():
            if NOT_KEPT in str(variable.get("value")):
                name = variable["name"]
                raise CommandError(
                    f"the value of {name} is secret and was not kept: export {name}, or give --env {name}=VALUE"
                )
    if NOT_KEPT in json.dumps(body["spec"], ensure_ascii=False):
        raise CommandError(
            "its command held a secret value, which was not kept: run it anew, and give secrets as variables"
        )


def _in_source_directory(body: dict[str, Any], code: dict[str, Any]) -> dict[str, Any]:
    """The request with the paths of the source directory, instead of those of the run's copy."""
    text = json.dumps(body).replace(json.dumps(code["copy"])[1:-1], json.dumps(code["source"])[1:-1])
    restored: dict[str, Any] = json.loads(text)
    restored["spec"]["workingDir"] = code.get("workingDir") or restored["spec"].get("workingDir")
    variables = restored["spec"].get("environmentVariables") or []
    own = [{"name": "PYTHONPATH", "value": code["pythonPath"]}] if code.get("pythonPath") else []
    restored["spec"]["environmentVariables"] = [v for v in variables if v.get("name") != "PYTHONPATH"] + own
    return restored
