"""Every route of Run:ai's that distributed training touches is served, or refused with the reason; none is missing.

`python -m tests.rest.test_runai_routes` prints the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rest.conftest import World

from rowlock.rest.openapi.refused_routes import REFUSED_ROUTES, refusal_of
from rowlock.rest.routes import ROUTES, paths_served

LIST = Path(__file__).with_name("runai_routes.txt")
LOGINS = {("POST", "/api/v1/token"), ("POST", "/api/v2/token")}
"""Served before anybody is known: `app.py` has them beside the table."""


def routes() -> Iterator[tuple[str, str, str]]:
    """Priority, method, path."""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            priority, method, path = line.split()
            yield priority, method, path


def state_of(method: str, path: str) -> str:
    """`honoured`, `refused: REASON` or `missing`."""
    if (method, path) in LOGINS | {(m, p) for m, p, _, _ in ROUTES}:
        return "honoured"
    reason = refusal_of(method, path)
    return f"refused: {reason}" if reason else "missing"


@pytest.mark.parametrize(("priority", "method", "path"), [*routes()])
def test_no_route_is_missing(priority: str, method: str, path: str) -> None:
    assert state_of(method, path) != "missing"
    assert priority != "M" or state_of(method, path) == "honoured" or (method, path) == ("POST", "/api/v1/clusters")


def test_what_is_refused_says_so_at_both_doors(world: World) -> None:
    for row in REFUSED_ROUTES:
        method, path = (row.methods.split() or ["GET"])[0], row.path.replace("{id}", "x")
        for door in (path, f"/runai{path}"):
            answer = world.client.request(method, door)
            assert answer.status_code == 405 and row.reason in answer.json()["message"], (door, answer.text)
    below = world.client.post("/api/v1/asset/registries/x")
    assert below.status_code == 405 and "HOST/NAME:TAG" in below.json()["message"]


def test_nothing_that_is_served_is_refused() -> None:
    assert not [(m, p) for m, path, _, _ in ROUTES for p in paths_served(path) if refusal_of(m, p)]


if __name__ == "__main__":
    for row in routes():
        print(*row, state_of(*row[1:]))
