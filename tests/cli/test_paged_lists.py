"""Lists that come in pages are read to their end: what is not on the first page is there, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowlock.cli import client
from rowlock.cli.accounts import users
from rowlock.cli.client import ServerClient
from rowlock.cli.commands.tree import ROOT
from rowlock.cli.grammar import Command, CommandLine, parse, resolve
from rowlock.cli.history.runs import find_run

RUNS = [{"id": f"{number:08x}-run", "name": f"r{number}", "projectName": "default"} for number in range(1201)]
USERS = [{"username": f"u{number}", "createdAt": "2026-11-29T09:00:00Z", "createdBy": "me"} for number in range(1000)]


def answer(path: str, offset: int = 0, limit: int = 50, **query: Any) -> Any:
    """What the server says: at most 500 items of a list, and where the next ones are."""
    end = offset + min(limit, 500)
    if path == users.PATH:
        return USERS[offset:end]
    if path == "/api/v1/runs":
        runs = [run for run in RUNS if "name" not in query]
        return {"runs": runs[offset:end], **({"next": end} if end < len(runs) else {})}
    return next(run for run in RUNS if path.endswith(run["id"]))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ServerClient:
    server = ServerClient("https://127.0.0.1:7000", "/run/rowlock", logs_in=True)
    monkeypatch.setattr(server, "get", answer)
    monkeypatch.setattr(client, "connect", lambda line: server)
    return server


def test_an_old_run_is_found_by_a_part_of_its_id(server: ServerClient) -> None:
    assert find_run(server, "default", "000004b0")["name"] == "r1200"


def test_all_users_are_listed(server: ServerClient, capsys: pytest.CaptureFixture[str]) -> None:
    command, verb, args = resolve(ROOT, ["user", "list", "--json"], ())
    assert isinstance(command, Command)
    assert users.index(parse(CommandLine("rowlock", verb, []), command, args)) == 0
    assert json.loads(capsys.readouterr().out) == USERS
