"""`rowlock run --source DIR`: the job runs in a copy of DIR as it is now, so that later edits do not affect running ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import SWEEPS, WORKLOADS
from rowlock.cli.output import shorten_names, tell
from rowlock.cli.run.request import HOST_IMAGE

if TYPE_CHECKING:
    from rowlock.cli.source.working_copy import WorkingCopy

_SHOWN = 5
SWEEP = "sweep:"
"""Prefix of the id of a sweep, where a copy belongs to one and not to a job."""


def check(line: CommandLine) -> None:
    """Raise CommandError when the flags or the directory do not allow a copy."""
    if not line.source:
        return
    if line.image != HOST_IMAGE:
        raise CommandError(
            "--source is for programs of this machine: pods of an image have the image's files. Build the source into "
            "one (`rowlock build`), or leave --image out",
            2,
        )
    if not os.path.isdir(line.source):
        raise CommandError(f"--source {line.source}: there is no such directory on this machine", 2)
    here, directory = os.path.realpath(line.working_dir or os.getcwd()), os.path.realpath(line.source)
    if os.path.commonpath([here, directory]) != directory:
        raise CommandError(
            f"the command runs in {here}, which is not in --source {directory}: go there, or name a --working-dir in it",
            2,
        )


@contextlib.contextmanager
def make_copy(line: CommandLine, name: str, earlier: Mapping[str, Any] | None = None) -> Iterator[WorkingCopy | None]:
    """Yield the copy for the job of this name, None without --source. `earlier` (`snapshot`, `commit`, `changedFiles`) names an
    earlier snapshot to copy instead of the directory's present content. The copy is deleted when the job is not submitted."""
    if not line.source:
        yield None
        return
    from rowlock.cli.source.snapshot import SourceStore
    from rowlock.cli.source.working_copy import WorkingCopy

    store = SourceStore(data_dir(line))
    if earlier is None:
        snapshot = store.take(line.source)
    else:
        commit, changed = str(earlier.get("commit") or ""), int(earlier.get("changedFiles") or 0)
        snapshot = store.restore(line.source, earlier["snapshot"], commit, changed)
    copy = WorkingCopy.make(store, snapshot, name)
    try:
        yield copy
    except CommandError:  # the submit was refused; after Ctrl-C the job may exist, so the copy stays
        copy.remove()
        raise


def redirect(line: CommandLine, body: dict[str, Any], copy: WorkingCopy) -> None:
    """Change the request so that the job runs in the copy."""
    spec = body["spec"]
    place = spec["workingDir"]
    spec["workingDir"] = copy.working_directory(spec["workingDir"])
    spec["command"] = copy.redirect(spec["command"])
    body["code"] = {**(body.get("code") or {}), **code_facts(copy, place)}
    environ: Mapping[str, str] = os.environ if not line.clean_env else {"PATH": os.environ.get("PATH", "")}
    variables = spec["environmentVariables"]
    own = next((variable for variable in variables if variable["name"] == "PYTHONPATH" and variable.get("value")), None)
    if own is not None:
        environ = {**environ, "PYTHONPATH": own["value"]}
        body["code"]["pythonPath"] = own["value"]
    path = copy.python_path(environ)
    if path:
        others = [variable for variable in variables if variable is not own]
        spec["environmentVariables"] = [*others, {"name": "PYTHONPATH", "value": path}]


def code_facts(copy: WorkingCopy, working_directory: str) -> dict[str, Any]:
    """Facts about a run in a copy that `rerun` and `diff` need."""
    snapshot = copy.snapshot
    facts = {
        "source": snapshot.directory,
        "copy": copy.path,
        "workingDir": working_directory,
        "snapshot": snapshot.tree,
    }
    return {**facts, "changedFiles": snapshot.changed, **({"commit": snapshot.commit} if snapshot.commit else {})}


def settle(server: ServerClient, copy: WorkingCopy, identity: str) -> None:
    """After the job is accepted: print where its copy is, keep the snapshot, and delete copies of deleted jobs."""
    from rowlock.cli.source.snapshot import SourceStore
    from rowlock.cli.source.working_copy import tidy_up

    snapshot = copy.snapshot
    commit = f", commit {snapshot.commit[:10]}{' with changes' if snapshot.changed else ''}" if snapshot.commit else ""
    files = f"{snapshot.files} {'file' if snapshot.files == 1 else 'files'}"
    tell(f"It runs in a copy of {snapshot.directory} ({files}{commit}): {copy.path}")
    if nested := snapshot.nested_repositories():
        tell(
            f"Not copied, because they are git repositories of their own: {shorten_names(nested, _SHOWN)}. Edits there reach running ranks."
        )
    copy.belongs_to(identity)
    SourceStore(server.directory).keep(snapshot.tree)

    def is_gone(workload: str) -> bool:
        try:
            if workload.startswith(SWEEP):
                return server.get(f"{SWEEPS}/{workload.removeprefix(SWEEP)}") is None
            return bool(server.get(f"{WORKLOADS}/{workload}")["phase"] == "Deleted")
        except client.StatusError as answer:
            return answer.status == 404

    tidy_up(SourceStore(server.directory), is_gone)


def tell_written(copy: WorkingCopy) -> None:
    """Print the files that programs wrote next to their source: they are in the copy, not in the source directory."""
    written = copy.changed_files()
    if not written:
        return
    tell(f"Written beside the source, in {copy.path}: {shorten_names(written, _SHOWN)}")
