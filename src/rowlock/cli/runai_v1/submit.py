"""`runai submit`, `runai submit-dist FRAMEWORK` and its old spellings: flags → the request of Run:ai's REST API."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli.context import project, typed_command
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS
from rowlock.cli.output import show, show_json
from rowlock.cli.run.submit_checks import check_submit_flags, follow_submit, requested_name
from rowlock.cli.submit.assets import asset_references
from rowlock.cli.submit.request import request_specs
from rowlock.cli.submit.sending import message_in_flags, send_submit
from rowlock.submit_fields import flag_names

_FRAMEWORKS = {"pytorch": "PyTorch", "tf": "TF", "mpi": "MPI", "xgboost": "XGBoost"}
"""The last word of the command → framework of the REST API; a job of one pod for all other words."""


def submit(line: CommandLine) -> int:
    """Submit a job of the framework that the command names (`submit-dist tf`, `submit-tf`), from the flags of the first generation."""
    framework = _FRAMEWORKS.get(line.verb.split()[-1].removeprefix("submit-"), "Standard")
    check_submit_flags(line)
    name_flag = requested_name(line)
    spec, master = request_specs(line, 1, framework)
    path = f"{WORKLOADS}/distributed"
    if framework == "Standard" and line.template:
        path = f"{WORKLOADS}/{'workspaces' if line.interactive else 'trainings'}"
    elif framework == "Standard":
        spec |= {"distributedFramework": "PyTorch", "noWorkers": True}
        spec |= {"category": "Build"} if line.interactive else {}
    else:
        spec["distributedFramework"] = framework
    server, project_name = client.connect(line), project(line)
    name = name_flag or _free_name(server, project_name, line.job_name_prefix or "job")
    body: dict[str, Any] = {
        "name": name,
        "projectId": project_name,
        "spec": spec,
        "submitCommand": typed_command(line),
        **asset_references(line),
    }
    if master:
        body["masterSpec"] = master
    try:
        if line.dry_run:
            show_json(server.call("POST", path, body=body, query={"dryRun": True})["objects"])
            return 0
        send_submit(server, path, body)
    except client.StatusError as refusal:
        raise CommandError(message_in_flags(refusal, flag_names(1, line.given_flags))) from None
    show(f"The job '{name}' has been submitted successfully")
    show(f"You can run `runai describe job {name} -p {project_name}` to check the job status")
    return follow_submit(line, server, name)


def _free_name(server: client.ServerClient, project_name: str, prefix: str) -> str:
    query = f"projectName=={project_name},name=^{prefix}-"
    taken = {w["name"] for w in client.list_all(server, WORKLOADS, "workloads", filterBy=query)}
    return next(name for n in range(len(taken) + 1) if (name := f"{prefix}-{n}") not in taken)
