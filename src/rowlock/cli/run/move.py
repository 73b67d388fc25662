"""`rowlock move`: submits the request of a run, with the code as it was then, to a cluster of a kubeconfig.

A separate program (`kube/transfer/`) talks to that cluster: the command line itself only makes HTTP requests to our server.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags, data_dir, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.history.runs import find_run, had_shell_environment, kept_request
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import show, show_json, tell
from rowlock.cli.run.request import HOST_IMAGE

if TYPE_CHECKING:
    from rowlock.answers.workloads import Run


def move(line: CommandLine) -> None:
    """Submit a run to another cluster. The job on this cluster stays, unless --delete-here is given. Raises CommandError."""
    if not line.to:
        raise CommandError("name the other cluster with --to CONTEXT: `kubectl config get-contexts` lists them", 2)
    server = client.connect(line)
    run = find_run(server, project(line), line.word("run"))
    body = kept_request(run, "there")
    code = run["ran"]["code"] or {}
    parcel: dict[str, Any] = {"request": {**body, **_shell_marker(run)}}
    if body["spec"].get("image") == HOST_IMAGE and not line.without_code:
        parcel |= _pack_code(line, run, code)
    answer = _submit(line, parcel)
    if line.dry_run:
        show_json(answer["objects"])
        return
    for note in answer["notes"]:
        tell(f"note: {note}")
    sentence = (
        f"Job {answer['name']} submitted to project {answer['project']} of {line.to} (namespace {answer['namespace']})."
    )
    if not line.json:
        show(sentence)  # before the job here is deleted, which may fail
    is_deleted_here = _settle_here(line, server, run)
    if line.json:
        show_json({**answer, "context": line.to, "deletedHere": is_deleted_here})


def _shell_marker(run: Run) -> dict[str, Any]:
    """Fields that tell the other program that the run had variables of a shell. Their values are in a Secret and are not
    moved."""
    return {"shellEnvironment": {"": ""}} if had_shell_environment(run) else {}


def _pack_code(line: CommandLine, run: Run, code: dict[str, Any]) -> dict[str, Any]:
    """The packed snapshot of the run's code, and the directories under which the request's paths lie."""
    from rowlock.cli.source.snapshot import SourceStore

    tree = str(code.get("snapshot") or "")
    if not tree:
        note = f" ({code['note']})" if code.get("note") else ""
        raise CommandError(
            f"no snapshot of the code of {run['name']} was kept{note}: run it here with --source once, or, where the image"
            " has the code, move it with --without-code"
        )
    store = SourceStore(data_dir(line))
    if not store.has(tree):
        raise CommandError(
            "the snapshot of its code is not on this machine: move it from where it was submitted, within 90 days;"
            " where the image has the code, --without-code leaves it here"
        )
    with tempfile.TemporaryDirectory(prefix="rowlock-move-") as scratch:
        directory, packed = os.path.join(scratch, "source"), os.path.join(scratch, "source.tar.gz")
        os.mkdir(directory)
        store.check_out(tree, directory)
        _write_archive(directory, packed)
        with open(packed, "rb") as file:
            content = base64.b64encode(file.read()).decode()
    roots = [code.get("copy"), code.get("source") or code.get("repository")]
    return {"code": content, "codeRoots": [root for root in roots if root]}


def _write_archive(directory: str, packed: str) -> None:
    """Pack the files without owners and times, so that the same code gives the same bytes, except for gzip's header."""
    import tarfile

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(packed, "w:gz") as archive:
        archive.add(directory, ".", filter=anonymous)


def _submit(line: CommandLine, parcel: dict[str, Any]) -> dict[str, Any]:
    """Run the program that submits to the real cluster. Raises CommandError with its message."""
    kubeconfig = os.path.expanduser(line.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    if not os.path.isfile(kubeconfig):
        raise CommandError(
            f"there is no kubeconfig {kubeconfig}: name the file that has the context with --kubeconfig FILE", 2
        )
    argv = [sys.executable, "-P", "-m", "rowlock.kube.transfer.move", "--kubeconfig", kubeconfig, "--context", line.to]
    given = {"--name": line.name, "--project": line.to_project, "--image": line.image, "--scheduler": line.scheduler}
    argv += [word for flag, value in given.items() if value for word in (flag, value)]
    argv += ["--dry-run"] if line.dry_run else []
    result = subprocess.run(argv, input=json.dumps(parcel), capture_output=True, text=True, check=False)
    if result.returncode:
        said = result.stderr.strip().splitlines()
        raise CommandError(f"nothing was submitted: {said[-1] if said else 'no answer'}")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def _settle_here(line: CommandLine, server: ServerClient, run: Run) -> bool:
    """After the other cluster has accepted the job: delete the job here if --delete-here was given, else tell the user that
    it still exists here. Returns whether it was deleted."""
    try:
        phase = str(server.get(f"{WORKLOADS}/{run['id']}")["phase"])
    except client.StatusError as answer:
        if answer.status != 404:
            raise
        return False
    if phase == "Deleted":
        return False
    if line.delete_here:
        server.delete(f"{WORKLOADS}/distributed/{run['id']}")
        (tell if line.json else show)(f"Deleted here: {run['name']}.")
        return True
    tell(f"{run['name']} is here as well ({phase}): `rowlock delete {run['name']}{context_flags(line)}` deletes it.")
    return False
