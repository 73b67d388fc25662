"""`list`, `delete`, `suspend`, `resume` of every family of workloads, with the terms of the second generation.

Names are unique in a project across all types, so a verb of any family finds a workload by its name or id.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project, read_config
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import WORKLOADS, change_job, find_project, find_workload, find_workload_or_past
from rowlock.cli.output import ask, format_number, show, tell
from rowlock.cli.runai_v2.tables import Column, fetch_page, show_list

if TYPE_CHECKING:
    from rowlock.answers.workloads import Workload

STATUSES = "Creating Pending Initializing Running Degraded Stopping Stopped Resuming Completed Failed Deleting".split()
FRAMEWORKS = {
    "pytorch": "PyTorch", "tensorflow": "TF", "tf": "TF", "mpi": "MPI", "xgboost": "XGBoost", "jax": "JAX",
}  # fmt: skip
"""Framework on the command line → framework of the REST API."""


def format_pods(workload: Workload) -> str:
    """Running/requested pods: `2/3`, or `1/1-3` for an elastic workload."""
    requested = workload["requestedPods"]
    least, most = requested.get("min"), requested.get("max")
    wanted = f"{least}-{most}" if least is not None and most is not None and least != most else requested["number"]
    return f"{workload['runningPods']}/{wanted}"


COLUMNS: tuple[Column[Workload], ...] = (
    Column("name", "Workload", lambda w: w["name"], 13),
    Column("type", "Type", lambda w: w["type"], 13),
    Column("status", "Status", lambda w: w["phase"], 12),
    Column("project", "Project", lambda w: w["projectName"], 12),
    Column("preemptible", "Preemptible", lambda w: "Yes" if w["preemptible"] else "No", 17),
    Column("pods", "Running/Requested Pods", format_pods, 27),
    Column("gpu", "GPU Allocation", lambda w: f"{w['allocatedResources']['gpu']:.2f}"),
    Column("gpuRequest", "GPU Request", lambda w: format_number(w["workloadRequestedResources"]["gpu"]["request"]), 0, False),
    Column("framework", "Framework", lambda w: w["distributedFramework"], 0, False),
    Column("category", "Category", lambda w: w["category"], 0, False),
    Column("priority", "Priority", lambda w: w["priorityClassName"], 0, False),
    Column("namespace", "Namespace", lambda w: w["namespace"], 0, False),
    Column("nodes", "Nodes", lambda w: ",".join(w["additionalFields"]["nodes"]), 0, False),
    Column("nodePools", "Node Pools", lambda w: ",".join(w["requestedNodePools"]), 0, False),
    Column("image", "Image", lambda w: w["additionalFields"]["image"], 0, False),
    Column("submittedBy", "Created By", lambda w: w["submittedBy"], 0, False),
    Column("createdAt", "Creation Time", lambda w: w["createdAt"], 0, False),
    Column("completedAt", "Completion Time", lambda w: w["completedAt"] or "", 0, False),
    Column("reason", "Reason", lambda w: (w["phaseMessage"] or "").partition("\n")[0], 0, False),
    Column("id", "Id", lambda w: w["id"], 0, False),
)  # fmt: skip


_TYPES = {
    "training": ("Distributed", "Training"), "standard": ("Training",), "workspace": ("Workspace",), "inference": ("Inference",),
}  # fmt: skip
"""The families that list other workloads than distributed ones."""


def list_family(line: CommandLine) -> int:
    """`runai training list`, `runai training pytorch list`: the family or the framework is the word before the verb."""
    family = line.verb.split()[-2]
    return list_workloads(line, _TYPES.get(family, ("Distributed",)), FRAMEWORKS.get(family, ""))


def list_any(line: CommandLine) -> int:
    """`runai workload list`."""
    types = {"training": ("Distributed", "Training")}.get(line.type, (line.type.capitalize(),)) if line.type else ()
    word = (line.framework or "").lower()
    if word and word not in FRAMEWORKS:
        raise CommandError(f"there is no framework {line.framework}.{suggest_nearest(word, list(FRAMEWORKS))}", 2)
    return list_workloads(line, types=types, framework=FRAMEWORKS.get(word, ""))


def list_workloads(line: CommandLine, types: tuple[str, ...] = (), framework: str = "") -> int:
    """Workloads of these types, or of all."""
    server, project_name = client.connect(line), project(line)
    status = (line.status or "").capitalize()
    if status and status not in STATUSES:
        raise CommandError(
            f"there is no status {line.status}.{suggest_nearest(status, STATUSES)} Known: {', '.join(STATUSES)}.", 2
        )
    if not line.all:
        find_project(server, project_name)
    filters = [] if line.all else [f"projectName=={project_name}"]
    filters += [f"phase=={status}"] if status else []
    filters += [f"distributedFramework=={framework}"] if framework else []
    filters += [f"type=={types[0]}"] if len(types) == 1 else []
    if types == ("Distributed", "Training"):
        filters.append("type!=Workspace")
    query = {"filterBy": ",".join(filters)} | ({"deleted": True} if line.deleted else {})
    return show_list(line, COLUMNS, fetch_page(line, server, WORKLOADS, "workloads", **query))


# ---------------------------------------------------------------- one workload


def named_workload(line: CommandLine, *, past: bool = False) -> tuple[ServerClient, Workload]:
    """The workload with the name or --uuid on the command line. With `past` it may be deleted. Raises CommandError."""
    server = client.connect(line)
    identity, name_flag = getattr(line, "uuid", None), getattr(line, "name", None)
    if identity and line.words:
        raise CommandError(f"a name ({line.words[0]}) and --uuid both name a workload: give one of them", 2)
    if identity:
        workload = workload_by_id(server, identity)
    else:
        name = name_flag if name_flag and not line.words else line.word("workload")
        find = find_workload_or_past if past else find_workload
        workload = find(server, project(line), name)
    _check_kind(line, workload)
    return server, workload


def _check_kind(line: CommandLine, workload: Workload) -> None:
    """Raise CommandError when the workload does not have the type of --type or the framework of --framework."""
    wanted_type, wanted_framework = getattr(line, "type", None), getattr(line, "framework", None)
    is_training = (
        wanted_type == "training" and workload["type"] == "Distributed"
    )  # a distributed training is a training
    if wanted_type and wanted_type != workload["type"].lower() and not is_training:
        raise CommandError(
            f"no workload was found: {workload['name']} is of type {workload['type']}, not {wanted_type}"
        )
    framework = workload["distributedFramework"]
    if wanted_framework and FRAMEWORKS.get(wanted_framework.lower(), wanted_framework) != framework:
        raise CommandError(
            f"no workload was found: {workload['name']} is of framework {framework}, not {wanted_framework}"
        )


def workload_by_id(server: ServerClient, identity: str) -> Workload:
    """The workload with this id, as the REST API returns it. Raises CommandError when there is none."""
    try:
        found: Workload = server.get(f"{WORKLOADS}/{identity}")
        return found
    except client.StatusError as refusal:
        if refusal.status != 404:
            raise
        raise CommandError(
            f"no workload was found with the id {identity}: `runai workload list --json` shows ids"
        ) from None


def delete(line: CommandLine) -> int:
    return _for_each(line, "deleted")


def suspend(line: CommandLine) -> int:
    return _for_each(line, "suspended")


def resume(line: CommandLine) -> int:
    return _for_each(line, "resumed")


def delete_many(line: CommandLine) -> int:
    """`runai workload delete`: the only delete that asks for confirmation, and only at a terminal."""
    asks = not line.yes and sys.stdin.isatty() and read_config(line).get("interactive") != "disabled"
    if line.words and asks:
        if ask(f"Delete {', '.join(line.words)}? [y/N] ") not in ("y", "yes"):
            raise CommandError("Nothing was deleted.")
    return delete(line)


def _for_each(line: CommandLine, word: str) -> int:
    """Change each workload that is named, as `word` says. Print refusals and go on; the exit code is 1 if one was refused."""
    names: list[str] = line.words or ([""] if line.uuid else [])
    if not names:
        raise CommandError(f"`{line.program} {line.verb}` needs the name of a workload", 2)
    if line.uuid and line.words:
        raise CommandError(f"a name ({line.words[0]}) and --uuid both name a workload: give one of them", 2)
    server, failed = client.connect(line), False
    for name in names:
        try:
            workload = find_workload(server, project(line), name) if name else workload_by_id(server, line.uuid)
            _check_kind(line, workload)
            change_job(server, workload["id"], word)
        except CommandError as refusal:
            tell(refusal.message)
            failed = True
            continue
        show(f"Workload '{workload['name']}' {word} successfully")
    return 1 if failed else 0
