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
WITHOUT_JSON = frozenset("down|login|move|build|image add|image remove|backup|restore|diff-engines".split("|"))
"""Commands that have no --json yet."""


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
    assert without == OUTPUT_OF_ITS_OWN | WITHOUT_JSON


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
