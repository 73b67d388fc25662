"""A client that was upgraded while a server of an older version runs: it must be able to stop what runs there."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from rowlock.cli import client
from rowlock.cli.lookups import delete_job, suspend_job


class OlderServer:
    """Refuses every query parameter of a stop, as versions did that knew none."""

    def __init__(self, status: int) -> None:
        self.status, self.calls = status, list[tuple[str, str, dict[str, Any]]]()

    def post(self, path: str, body: Any = None, **query: Any) -> None:
        self._take("POST", path, query)

    def delete(self, path: str, **query: Any) -> None:
        self._take("DELETE", path, query)

    def _take(self, method: str, path: str, query: dict[str, Any]) -> None:
        self.calls.append((method, path, query))
        if query:
            raise client.StatusError(self.status, "there is no query parameter 'by'.", None)


@pytest.mark.parametrize(
    ("stop", "method", "path"),
    [
        (suspend_job, "POST", "/api/v1/workloads/distributed/x/suspend"),  # `rowlock down`
        (delete_job, "DELETE", "/api/v1/workloads/distributed/x"),  # `rowlock run --rerun-on-save`
    ],
)
def test_jobs_of_an_older_server_are_stopped(stop: Callable[..., None], method: str, path: str) -> None:
    server = OlderServer(400)
    stop(cast(client.ServerClient, server), "x", "a command")
    assert server.calls == [(method, path, {"by": "a command"}), (method, path, {})]


def test_other_refusals_are_told() -> None:
    server = OlderServer(409)
    with pytest.raises(client.StatusError):
        suspend_job(cast(client.ServerClient, server), "x", "a command")
    assert len(server.calls) == 1
