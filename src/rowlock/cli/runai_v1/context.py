"""`runai config`, `project`, `cluster`, `list projects|nodes|clusters`, `login`, `whoami`, `version`: V1's words."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli.commands import projects as rowlock_projects
from rowlock.cli.context import project, update_config
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.output import format_number, show, table


def config_project(line: CommandLine) -> int:
    name = _select_project(line)
    show(f"Project {name} has been set as default project")
    return 0


def project_set(line: CommandLine) -> int:
    name = _select_project(line)
    show(f"project {name} configured successfully")
    return 0


def _select_project(line: CommandLine) -> str:
    name = line.word("project")
    names = [item["name"] for item in rowlock_projects.list_projects(client.connect(line))]
    if name not in names:
        hint = suggest_nearest(name, names)
        raise CommandError(
            f"project {name} was not found. Please run 'runai list project' to view all avaliable projects."
            f"{hint} `rowlock project create {name} --gpus 1` makes it."
        )
    update_config(line, project=name)
    return name


def projects(line: CommandLine) -> int:
    all_projects, selected = rowlock_projects.list_projects(client.connect(line)), project(line)
    header = ("PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY")
    rows = []
    for item in all_projects:
        quota = item["totalResources"]["gpuQuota"]
        name = item["name"] + (" (default)" if item["name"] == selected else "")
        rows.append((name, item["parent"]["name"], "-" if quota < 0 else format_number(quota), "-", "-", "-"))
    show(table(header, rows))
    return 0


# ---------------------------------------------------------------- clusters


def _cluster_names(line: CommandLine) -> list[str]:
    return [str(item["name"]) for item in client.connect(line).get("/api/v1/clusters")]


def clusters(line: CommandLine) -> int:
    show("Configured clusters on this computer are:")
    rows = [(f"{name} (current)", project(line)) for name in _cluster_names(line)]
    show(table(("CLUSTER", "CURRENT PROJECT"), rows))
    return 0


def config_cluster(line: CommandLine) -> int:
    name = line.word("cluster")
    if name not in _cluster_names(line):
        raise CommandError(f"Cluster {name} does not exist")
    show(f"Set current cluster to {name} ")
    return 0


# ---------------------------------------------------------------- nodes


def nodes(line: CommandLine) -> int:
    server = client.connect(line)
    node_list = server.get("/api/v1/nodes")["items"]
    pods = server.get("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")["items"]
    show(f"{'GENERAL':<40}{'CPU':<26}{'MEMORY':<30}GPU")
    header = ("NAME", "STATUS", "IP Address", "ROLE", "ALLOCATABLE", "ALLOCATED", "ALLOCATABLE", "ALLOCATED", "TYPE",
              "ALLOCATABLE", "FREE")  # fmt: skip
    show(
        table(
            header,
            [_node_row(n, [p for p in pods if p["spec"].get("nodeName") == n["metadata"]["name"]]) for n in node_list],
        )
    )
    return 0


def _node_row(node: dict[str, Any], pods: list[dict[str, Any]]) -> tuple[str, ...]:
    allocatable, labels = node["status"].get("allocatable") or {}, node["metadata"].get("labels") or {}
    gpus = float(allocatable.get("nvidia.com/gpu", "0"))
    requested = {name: sum(_requested_by_pod(p, name) for p in pods) for name in ("cpu", "memory")}
    used_gpus = sum(_requested_gpus(p) for p in pods)
    return (
        node["metadata"]["name"],
        _node_status(node),
        _internal_ip(node),
        "<none>",
        str(allocatable.get("cpu", "")),
        format_number(requested["cpu"]),
        str(allocatable.get("memory", "")),
        f"{requested['memory'] / 2**20:.0f}Mi",
        labels.get("nvidia.com/gpu.product", "-") if gpus else "-",
        format_number(gpus),
        format_number(gpus - used_gpus),
    )


def _node_status(node: dict[str, Any]) -> str:
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return "Ready" if ready else "NotReady"


def _internal_ip(node: dict[str, Any]) -> str:
    addresses = node["status"].get("addresses") or []
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), "")


_SUFFIX = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}


def _parse_quantity(text: str) -> float:
    for suffix, size in _SUFFIX.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * size
    return float(text or 0)


def _requested_by_pod(pod: dict[str, Any], resource: str) -> float:
    requests = [(c.get("resources") or {}).get("requests") or {} for c in pod["spec"].get("containers") or []]
    return sum(_parse_quantity(str(r.get(resource, "0"))) for r in requests)


def _requested_gpus(pod: dict[str, Any]) -> float:
    annotations = pod["metadata"].get("annotations") or {}
    if "gpu-fraction" in annotations:
        return float(annotations["gpu-fraction"]) * float(annotations.get("gpu-fraction-num-devices", "1"))
    return _requested_by_pod(pod, "nvidia.com/gpu")


def node(line: CommandLine) -> int:
    name, server = line.word("node"), client.connect(line)
    nodes_by_name = {n["metadata"]["name"]: n for n in server.get("/api/v1/nodes")["items"]}
    if name not in nodes_by_name:
        raise CommandError(
            f"node {name} was not found.{suggest_nearest(name, list(nodes_by_name))} `runai list nodes` shows them."
        )
    item = nodes_by_name[name]
    show(f"NAME: {name}")
    show(f"STATUS: {_node_status(item)}")
    show(f"IP ADDRESS: {_internal_ip(item)}")
    for resource, amount in (item["status"].get("allocatable") or {}).items():
        show(f"{resource.upper()}: {amount}")
    return 0


# ---------------------------------------------------------------- identity


def login(line: CommandLine) -> int:
    """The embedded cluster is its owner's: whoever can read the token is logged in."""
    client.connect(line).get("/api/v1/clusters")
    show("Logged in successfully")
    return 0


def logout(line: CommandLine) -> int:
    raise CommandError(
        "there is no session to end: everybody who can read the token file of the embedded cluster is logged in"
    )


def whoami(line: CommandLine) -> int:
    import getpass

    try:
        client.connect(line).get("/api/v1/clusters")
    except CommandError:
        show("You are currently not logged in to Run:AI")
        raise
    name = getpass.getuser()
    show(f"User: {name}")
    show(f"Logged in Id: {name}")
    return 0


def version(line: CommandLine) -> int:
    import platform

    from rowlock import __version__

    if line.short:
        show(__version__)
        return 0
    show(f"Version: {__version__}")
    show("BuildDate: -")
    show("GitCommit: -")
    show("GoVersion: - (rowlock, written in Python)")
    show(f"Compiler: {platform.python_implementation()} {platform.python_version()}")
    show(f"Platform: {platform.system().lower()}/{platform.machine()}")
    return 0
