"""`runai config`, `project`, `cluster`, `list projects|nodes|clusters`, `login`, `whoami`, `version` of the first generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.cli import client, node_usage
from rowlock.cli.context import project, update_config
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import read_projects
from rowlock.cli.output import format_number, show, table, tell


def config_project(line: CommandLine) -> None:
    name = _select_project(line)
    show(f"Project {name} has been set as default project")


def project_set(line: CommandLine) -> None:
    name = _select_project(line)
    show(f"project {name} configured successfully")


def _select_project(line: CommandLine) -> str:
    name = line.word("project")
    names = [item["name"] for item in read_projects(client.connect(line))]
    if name not in names:
        hint = suggest_nearest(name, names)
        raise CommandError(
            f"project {name} was not found. Please run 'runai list project' to view all avaliable projects."
            f"{hint} `rowlock project create {name} --gpus 1` makes it."
        )
    update_config(line, project=name)
    return name


def projects(line: CommandLine) -> None:
    all_projects, selected = read_projects(client.connect(line)), project(line)
    header = ("PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY")
    rows = []
    for item in all_projects:
        quota = item["totalResources"]["gpuQuota"]
        name = item["name"] + (" (default)" if item["name"] == selected else "")
        rows.append((name, item["parent"]["name"], "-" if quota < 0 else format_number(quota), "-", "-", "-"))
    show(table(header, rows))


# ---------------------------------------------------------------- clusters


def _cluster_names(line: CommandLine) -> list[str]:
    return [str(item["name"]) for item in client.connect(line).get("/api/v1/clusters")]


def clusters(line: CommandLine) -> None:
    show("Configured clusters on this computer are:")
    rows = [(f"{name} (current)", project(line)) for name in _cluster_names(line)]
    show(table(("CLUSTER", "CURRENT PROJECT"), rows))


def config_cluster(line: CommandLine) -> None:
    name = line.word("cluster")
    if name not in _cluster_names(line):
        raise CommandError(f"Cluster {name} does not exist")
    show(f"Set current cluster to {name} ")


# ---------------------------------------------------------------- nodes


_NODE_GROUPS = (("GENERAL", 4), ("CPU", 2), ("MEMORY", 2), ("GPU", 3))
"""Titles above the header of the node table, and how many columns each spans."""


def nodes(line: CommandLine) -> None:
    header = ("NAME", "STATUS", "IP Address", "ROLE", "ALLOCATABLE", "ALLOCATED", "ALLOCATABLE", "ALLOCATED", "TYPE",
              "ALLOCATABLE", "FREE")  # fmt: skip
    found = node_usage.node_rows(client.connect(line))
    rows = [
        (
            node["name"], node["status"], node["address"], "<none>", node["cpu"], format_number(node["allocatedCpu"]),
            node["memory"], node["allocatedMemory"], node["gpuType"], format_number(node["gpus"]),
            format_number(node["gpus"] - node["allocatedGpus"]),
        )
        for node in found
    ]  # fmt: skip
    show(grouped_table(_NODE_GROUPS, header, rows))
    node_usage.tell_simulated(found)


def grouped_table(groups: Sequence[tuple[str, int]], header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table with titles above groups of columns."""
    titles = [word for title, count in groups for word in (title, *[""] * (count - 1))]
    return table(titles, [header, *rows])


def node(line: CommandLine) -> None:
    name, server = line.word("node"), client.connect(line)
    nodes_by_name = {n["metadata"]["name"]: n for n in server.get("/api/v1/nodes")["items"]}
    if name not in nodes_by_name:
        raise CommandError(
            f"node {name} was not found.{suggest_nearest(name, list(nodes_by_name))} `runai list nodes` shows them."
        )
    item = nodes_by_name[name]
    show(f"NAME: {name}")
    show(f"STATUS: {node_usage.node_status(item)}")
    show(f"IP ADDRESS: {node_usage.internal_ip(item)}")
    for resource, amount in (item["status"].get("allocatable") or {}).items():
        show(f"{resource.upper()}: {amount}")
    labels = item["metadata"].get("labels") or {}
    for title, label, unit in (
        ("GPU TYPE", "nvidia.com/gpu.product", ""),
        ("GPU MEMORY", "nvidia.com/gpu.memory", "Mi"),
    ):
        if value := labels.get(label):
            show(f"{title}: {value}{unit}")
    if node_usage.has_simulated_gpus(item):
        tell(node_usage.SIMULATED)


# ---------------------------------------------------------------- templates


def templates(line: CommandLine) -> None:
    from rowlock.cli.runai_v2.assets import assets_of

    found = assets_of(client.connect(line), "template", project(line))
    show(table(("NAME", "DESCRIPTION"), [(one["meta"]["name"], one["meta"]["description"] or "-") for one in found]))


# ---------------------------------------------------------------- identity


def version(line: CommandLine) -> None:
    import platform

    from rowlock import __version__

    if line.short:
        show(__version__)
        return
    show(f"Version: {__version__}")
    show("BuildDate: -")
    show("GitCommit: -")
    show("GoVersion: - (rowlock, written in Python)")
    show(f"Compiler: {platform.python_implementation()} {platform.python_version()}")
    show(f"Platform: {platform.system().lower()}/{platform.machine()}")
