"""`rowlock kubeconfig` of a user of a machine whose server is for all: kubectl logs in at the socket, through the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rowlock.cli import client
from rowlock.cli.accounts.kubeconfig import kubeconfig
from rowlock.cli.client import ServerClient
from rowlock.cli.commands.tree import KUBECONFIG
from rowlock.cli.grammar import CommandLine, parse

PROJECTS = [
    {"name": "one", "status": {"namespace": "runai-one"}},
    {"name": "two", "status": {"namespace": "runai-two"}},
    {"name": "three", "status": {"namespace": "runai-three"}},
]


def answer_projects(path: str, offset: int = 0, limit: int = 2) -> dict[str, Any]:
    """One page of the projects, as the server pages them: at most two."""
    end = offset + min(limit, 2)
    return {"projects": PROJECTS[offset:end], **({"next": end} if end < len(PROJECTS) else {})}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerClient:
    server = ServerClient("https://127.0.0.1:7000", "/run/rowlock", logs_in=True)
    monkeypatch.setattr(server, "get", answer_projects)
    monkeypatch.setattr(client, "find_system_server", lambda line: server)
    monkeypatch.setenv("ROWLOCK_DATA_DIR", str(tmp_path / "own"))
    return server


def run(*words: str) -> int:
    line = parse(CommandLine("rowlock", "kubeconfig", list(words)), KUBECONFIG, list(words))
    return kubeconfig(line)


def test_it_has_no_token_and_asks_for_one_at_each_call(
    machine: ServerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    config: dict[str, Any] = json.loads(capsys.readouterr().out)
    plugin = config["users"][0]["user"]["exec"]
    assert (
        plugin["args"] == ["auth", "get-token", "--output", "kubeconfig"] and "token" not in config["users"][0]["user"]
    )
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:7000", "certificate-authority": "/run/rowlock/ca.crt",
    }  # fmt: skip
    assert config["contexts"][0]["context"]["namespace"] == "runai-one", "the first that the user sees"


def test_its_path_is_a_file_of_the_users_own(
    machine: ServerClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text('{"project": "two"}')
    assert run("--path") == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "own" / "machine-kubeconfig" and os.stat(path).st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["contexts"][0]["context"]["namespace"] == "runai-two"


def test_the_selected_project_may_be_on_any_page(
    machine: ServerClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text('{"project": "three"}')
    assert run() == 0
    assert json.loads(capsys.readouterr().out)["contexts"][0]["context"]["namespace"] == "runai-three"


def test_the_owner_of_the_machines_server_has_his_own(
    machine: ServerClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.logs_in = False
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kubeconfig").write_text("his own")
    assert run() == 0 and capsys.readouterr().out == "his own\n"
