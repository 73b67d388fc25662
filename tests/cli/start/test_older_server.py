"""A client that was upgraded while a server of an older version runs: it must be able to stop it."""

from typing import Any, cast

import pytest

from rowlock.cli import client
from rowlock.cli.commands import down


class OlderServer:
    """Refuses every query parameter of a suspend, as versions did that knew none."""

    def __init__(self, status: int) -> None:
        self.status, self.calls = status, list[tuple[str, dict[str, Any]]]()

    def post(self, path: str, body: Any = None, **query: Any) -> None:
        self.calls.append((path, query))
        if query:
            raise client.StatusError(self.status, "there is no query parameter 'by'.", None)


def test_down_suspends_the_jobs_of_an_older_server() -> None:
    server = OlderServer(400)
    down._suspend_job(cast(client.ServerClient, server), "x")
    path = "/api/v1/workloads/distributed/x/suspend"
    assert server.calls == [(path, {"by": "rowlock down"}), (path, {})]


def test_other_refusals_are_told() -> None:
    server = OlderServer(409)
    with pytest.raises(client.StatusError):
        down._suspend_job(cast(client.ServerClient, server), "x")
    assert len(server.calls) == 1
