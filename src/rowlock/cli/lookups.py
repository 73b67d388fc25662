"""Requests that many commands share: find a project or a workload by name, wait for a phase, suspend or delete a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from rowlock.cli import client
from rowlock.cli.client import ServerClient, StatusError
from rowlock.cli.grammar import CommandError, suggest_nearest

if TYPE_CHECKING:
    from rowlock.answers import Identified
    from rowlock.answers.cluster import Project
    from rowlock.answers.workloads import AwaitedWorkload, Workload, Workloads

PROJECTS = "/api/v1/org-unit/projects"
WORKLOADS = "/api/v1/workloads"
SWEEPS = "/api/v1/sweeps"
_JOBS = "/api/v1/workloads/distributed"
_UUID_LENGTH = 36
_POLL_SECONDS = 30.0
"""The longest time in seconds of one wait request; the server answers earlier when the phase is reached."""


def read_projects(server: ServerClient) -> list[Project]:
    """All projects that this user may see, as JSON of the REST API."""
    return client.list_all(server, PROJECTS, "projects")


def find_project(server: ServerClient, name: str) -> Project:
    """The project of this name. Raises CommandError with the nearest name."""
    projects = read_projects(server)
    for item in projects:
        if item["name"] == name:
            return item
    names = [item["name"] for item in projects]
    hint = (
        f"{suggest_nearest(name, names)} `rowlock project list` shows them, `rowlock project create {name}` makes it."
    )
    raise CommandError(f"project {name} was not found.{hint}")


class NoSuchWorkload(CommandError):
    """The project exists, but has no workload of this name."""


def find_workload(server: ServerClient, project_name: str, name: str) -> Workload:
    """The workload of this name in the project. Raises NoSuchWorkload with the nearest name, or with hints for a deleted one, and
    CommandError when there is no such project."""
    workloads: list[Workload] = server.get(WORKLOADS, filterBy=f"name=={name},projectName=={project_name}")["workloads"]
    if workloads:
        return workloads[0]
    find_project(server, project_name)
    query = {"filterBy": f"name=={name},projectName=={project_name}", "deleted": "true", "limit": "1"}
    if server.get(WORKLOADS, **query)["workloads"]:
        raise NoSuchWorkload(
            f"The job {name} does not exist in project {project_name}. It was deleted: `rowlock show {name}` and "
            f"`rowlock logs {name}` have what is kept of it."
        )
    present: list[Workload] = client.list_all(server, WORKLOADS, "workloads", filterBy=f"projectName=={project_name}")
    if made := [one for one in present if one["additionalFields"].get("cronJob") == name]:
        raise NoSuchWorkload(_about_cron_job(name, made))
    names = [one["name"] for one in present]
    raise NoSuchWorkload(
        f"The job {name} does not exist in project {project_name}.{suggest_nearest(name, names)} "
        "If the job exists in a different project, use -p <project name>."
    )


def _about_cron_job(name: str, made: Sequence[Workload]) -> str:
    """What to say about a CronJob, which is no workload itself. `made`: its Jobs that are there."""
    newest = sorted(made, key=lambda one: one["createdAt"], reverse=True)[:3]
    return (
        f"{name} is a CronJob, and each Job that it makes is a workload of its own. Name one of them (the newest: "
        f"{', '.join(one['name'] for one in newest)}). `kubectl patch cronjob {name} -n {newest[0]['namespace']} -p "
        """'{"spec":{"suspend":true}}'` lets it make no more."""
    )


def find_workload_or_past(server: ServerClient, project_name: str, name: str) -> Workload:
    """The workload of this name; else the newest deleted one of this name or id. Raises CommandError when there is
    neither."""
    query = f"name=={name},projectName=={project_name}"
    for extra in ({}, {"deleted": "true"}):
        page: Workloads = server.get(WORKLOADS, filterBy=query, **extra)
        if page["workloads"]:
            return page["workloads"][0]
    if len(name) == _UUID_LENGTH:
        try:
            one: Workload = server.get(f"{WORKLOADS}/{name}")
            return one
        except client.StatusError as refusal:
            if refusal.status != 404:
                raise
    return find_workload(server, project_name, name)


def read_holders(server: ServerClient, workload: Mapping[str, Any]) -> str:
    """A sentence about the jobs that hold the GPUs for which this workload waits, if the user may see them; "" for other waits."""
    if workload["phase"] != "Pending":
        return ""
    with suppress(StatusError):  # the user may not read events, or the job is gone
        return str(server.get(f"{WORKLOADS}/{workload['id']}/explain").get("heldBy") or "")
    return ""


def wait_for_phase(
    server: ServerClient, workload: Identified, target_phase: str, limit: float | None
) -> AwaitedWorkload:
    """Wait until the workload is in the phase, can no longer reach it, or `limit` seconds are over. Returns the workload."""
    final = final_phases(target_phase)
    deadline = time.monotonic() + limit if limit is not None else None
    while True:
        timeout = _POLL_SECONDS if deadline is None else max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))
        path = f"{WORKLOADS}/{workload['id']}/wait"
        try:
            body: AwaitedWorkload = server.get(
                path, **{"for": ",".join({target_phase, *final}), "timeout": f"{timeout:.3f}"}
            )
        except client.StatusError as refusal:
            if refusal.status != 404:
                raise
            return cast("AwaitedWorkload", {**workload, "phase": "Deleted", "phaseMessage": ""})
        is_over = has_reached(body, target_phase) or body["phase"] in final
        if is_over or (deadline is not None and time.monotonic() >= deadline):
            return body


def final_phases(target_phase: str) -> set[str]:
    """The phases from which a workload can no longer reach the target. One that has ended can still be deleted."""
    return {"Deleted"} if target_phase == "Deleted" else {"Completed", "Failed", "Deleted"}


def has_reached(workload: AwaitedWorkload, phase: str) -> bool:
    """Whether a workload, as the wait request answered it, reached the phase. Older servers do not send `reachedPhase`."""
    return phase in (workload["phase"], workload.get("reachedPhase"))


def change_job(server: ServerClient, identity: str, word: str) -> None:
    """Do to a job what `word` says: deleted, suspended, or resumed. Raises as `ServerClient.call` does."""
    if word == "deleted":
        server.delete(f"{_JOBS}/{identity}")
    else:
        server.post(f"{_JOBS}/{identity}/{'suspend' if word == 'suspended' else 'resume'}")


# ---------------------------------------------------------------- the end of a job: the request names the command that asks for it


def suspend_job(server: ServerClient, identity: str, by: str) -> None:
    """Suspend a job; `by`: the command that requests it. Raises as `ServerClient.call` does."""
    _ask(server.post, f"{_JOBS}/{identity}/suspend", by)


def delete_job(server: ServerClient, identity: str, by: str) -> None:
    """Delete a job; `by`: the command that requests it. Raises as `ServerClient.call` does."""
    _ask(server.delete, f"{_JOBS}/{identity}", by)


def _ask(send: Callable[..., object], path: str, by: str) -> None:
    """Send a request with the parameter `by`; without it if the server, from before an upgrade of rowlock, refuses the parameter."""
    try:
        send(path, by=by)
    except StatusError as refusal:
        if refusal.status != 400:
            raise
        send(path)
