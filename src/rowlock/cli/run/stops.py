"""Requests that end a job and name the command that asks for it: its record says who stopped it."""

from __future__ import annotations

from collections.abc import Callable

from rowlock.cli.client import ServerClient, StatusError

_JOBS = "/api/v1/workloads/distributed"


def suspend_job(server: ServerClient, identity: str, by: str) -> None:
    """Raises as `ServerClient.call` does."""
    _ask(server.post, f"{_JOBS}/{identity}/suspend", by)


def delete_job(server: ServerClient, identity: str, by: str) -> None:
    """Raises as `ServerClient.call` does."""
    _ask(server.delete, f"{_JOBS}/{identity}", by)


def _ask(send: Callable[..., object], path: str, by: str) -> None:
    """Also a server that was started by an older version: rowlock may have been upgraded while it ran, and that one refuses the name
    of the command."""
    try:
        send(path, by=by)
    except StatusError as refusal:
        if refusal.status != 400:
            raise
        send(path)
