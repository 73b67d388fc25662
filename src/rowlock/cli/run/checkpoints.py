"""`--resume-from RUN`: a job resumes from the checkpoints of another run; and messages about checkpoints that a new job
does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.cli.client import ServerClient, StatusError
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.checkpoint_files import look_at
from rowlock.cli.history.runs import RUNS, find_run

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run

_OVER = ("Completed", "Failed", "Stopped", "Deleted")
_RESUME_ANNOTATION = "rowlock.dev/resume-from"


def resume_from(line: CommandLine, server: ServerClient, body: dict[str, Any]) -> str:
    """Change the request so that the job resumes from the checkpoints of the run that `--resume-from` names. Returns a sentence for
    when it is submitted, "" without the flag. Raises CommandError."""
    if line.resume_from is None:
        return ""
    if not line.resume_from:
        raise CommandError("--resume-from needs the name or id of a run, and is empty: `rowlock history` shows them", 2)
    run = find_run(server, project(line), line.resume_from)
    if run["phase"] not in _OVER:
        raise CommandError(
            f"--resume-from: {run['name']} is {run['phase'].lower()} and writes its checkpoints itself; stop it first, "
            f"`rowlock delete {run['name']}` (its checkpoints stay for some days)"
        )
    found = look_at(server, run)
    if found is None or not found.files:
        where = f"{found.path} is empty" if found else "its directory is not on this machine any more"
        raise CommandError(f"--resume-from: {run['name']} ({run['id'][:8]}) left no checkpoints: {where}")
    for role in (body["spec"], *([body["masterSpec"]] if body.get("masterSpec") else [])):
        kept = [one for one in role.get("annotations") or [] if one.get("name") != _RESUME_ANNOTATION]
        if role is body["spec"] or kept:
            role["annotations"] = [*kept, {"name": _RESUME_ANNOTATION, "value": run["checkpointsOf"]}]
    return f"It goes on from the checkpoints of {run['name']} ({run['id'][:8]}), in {found.describe()}."


def describe_beginning(server: ServerClient, run: Run, body: dict[str, Any]) -> str:
    """A sentence for a run that is submitted again: whether it resumes from the earlier checkpoints or starts without them; ""
    when there are none."""
    found = look_at(server, run)
    if found is None or not found.files:
        return ""
    if any(one.get("name") == _RESUME_ANNOTATION for one in body["spec"].get("annotations") or ()):
        return f"It goes on from checkpoints, as {run['name']} ({run['id'][:8]}) did: {found.describe()}."
    return (
        f"Its checkpoint directory is empty: {run['name']} ({run['id'][:8]}) left its own in {found.describe()}; "
        f"`--resume-from {run['id'][:8]}` goes on from there."
    )


def describe_replacement(server: ServerClient, identity: str, body: dict[str, Any]) -> str:
    """The same sentence for a workload that is replaced; "" also when the server keeps no archive."""
    try:
        return describe_beginning(server, server.get(f"{RUNS}/{identity}"), body)
    except StatusError:
        return ""
