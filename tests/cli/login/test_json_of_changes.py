"""Commands that change something say what they did as JSON, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

from rowlock.cli.commands.tree import ROOT
from rowlock.cli.grammar import Command, Group, load_target

OUTPUT_OF_ITS_OWN = frozenset(
    "kubeconfig|run|logs|rerun|tensorboard|notebook|exec|attach|port-forward|scheduler snapshot|manifests|skill|completion".split(
        "|"
    )
)
"""Commands that print what a program says, a file, or JSON anyway."""


def commands(node: Group | Command, path: str = "") -> Iterator[tuple[str, Command]]:
    if isinstance(node, Command):
        yield path.strip(), node
    else:
        for each in node.commands:
            yield from commands(each, f"{path} {each.name}")


def test_which_commands_print_json() -> None:
    without = set[str]()
    for name, command in commands(ROOT):
        flags = load_target(command.flags) if isinstance(command.flags, str) else command.flags
        if not command.hidden and not any(flag.dest == "json" for flag in flags):
            without.add(name)
    assert without == OUTPUT_OF_ITS_OWN


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        yield made


def test_changes_of_projects_users_and_rules(cluster: Cluster) -> None:
    cluster.up()

    def answer(*words: str) -> object:
        return cluster.json("rowlock", *words, "--json")

    me = cluster.json("rowlock", "whoami", "--json")
    assert me["username"] == me["loggedInAs"] and me["until"] is None
    assert f"User: {me['username']}\n" in cluster.run("rowlock", "whoami")
    assert answer("logout") == {"result": "nobody", "providerUrl": None}
    cluster.run("rowlock", "project", "create", "vision")
    assert answer("project", "set", "vision") == {"name": "vision", "result": "selected"}
    assert answer("project", "delete", "vision") == {"name": "vision", "result": "deleted"}
    cluster.run("rowlock", "application", "create", "ci")
    rule = cluster.json("rowlock", "access-rule", "create", "--application", "ci", "--role", "viewer", "-A", "--json")
    assert answer("access-rule", "delete", str(rule["id"])) == {"id": str(rule["id"]), "result": "deleted"}
    assert answer("application", "delete", "ci") == {"name": "ci", "result": "deleted"}


def test_images_backups_logins_and_the_end(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "Dockerfile").write_text("FROM python:3.11\nRUN true\n")
    assert cluster.json("rowlock", "down", "--json") == {"result": "not running", "stoppedJobs": [], "runningPods": 0}
    cluster.up()
    assert cluster.json("rowlock", "login", "--json")["result"] == "logged in"
    assert cluster.json("rowlock", "image", "add", "mine:1", "--dir", str(program), "--json") == {"added": "mine:1"}
    built = cluster.json("rowlock", "build", "-t", "mine:2", "--runtime", "process", str(program), "--json")
    assert built["image"] == "mine:2" and Path(built["root"]).is_dir()
    assert cluster.json("rowlock", "image", "remove", "mine:1", "--json") == {"removed": "mine:1"}
    job = cluster.run("rowlock", "run", "-d", "--name", "sleeps", "--", "sleep", "1000")
    assert "sleeps" in job
    cluster.run("rowlock", "wait", "sleeps", "--for", "running")

    file = tmp_path / "state.tar"
    kept = cluster.json("rowlock", "backup", str(file), "--json")
    assert kept["objects"]["pytorchjobs.kubeflow.org"] == 1 and "cluster.db" in kept["files"]
    assert str(cluster.data / "pods") in kept["leftOut"]
    restored = cluster.json("rowlock", "restore", str(file), "--data-dir", str(tmp_path / "second"), "--json")
    assert restored == {**{name: kept[name] for name in restored}, "dataDirectory": str(tmp_path / "second")}

    ended = cluster.json("rowlock", "down", "--yes", "--json")
    assert ended["result"] == "down" and [job["name"] for job in ended["stoppedJobs"]] == ["sleeps"]
    assert ended["runningPods"] == 0
