"""`runai config`, `project`, `cluster`, `list projects|nodes|clusters`, `login`, `whoami`, `version`: V1's words."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client
from rowlock.cli import projects as own
from rowlock.cli.grammar import Line, Refused, nearest
from rowlock.cli.output import number, show, table
from rowlock.cli.place import project, remember


def config_project(line: Line) -> int:
    name = _select(line)
    show(f"Project {name} has been set as default project")
    return 0


def project_set(line: Line) -> int:
    name = _select(line)
    show(f"project {name} configured successfully")
    return 0


def _select(line: Line) -> str:
    name = line.word("project")
    names = [one["name"] for one in own.every(client.connect(line))]
    if name not in names:
        hint = nearest(name, names)
        raise Refused(
            f"project {name} was not found. Please run 'runai list project' to view all avaliable projects."
            f"{hint} `rowlock project create {name} --gpus 1` makes it."
        )
    remember(line, project=name)
    return name


def projects(line: Line) -> int:
    found, selected = own.every(client.connect(line)), project(line)
    header = ("PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY")
    rows = []
    for one in found:
        quota = one["totalResources"]["gpuQuota"]
        name = one["name"] + (" (default)" if one["name"] == selected else "")
        rows.append((name, one["parent"]["name"], "-" if quota < 0 else number(quota), "-", "-", "-"))
    show(table(header, rows))
    return 0


# ---------------------------------------------------------------- clusters


def _clusters(line: Line) -> list[str]:
    return [str(one["name"]) for one in client.connect(line).get("/api/v1/clusters")]


def clusters(line: Line) -> int:
    show("Configured clusters on this computer are:")
    rows = [(f"{name} (current)", project(line)) for name in _clusters(line)]
    show(table(("CLUSTER", "CURRENT PROJECT"), rows))
    return 0


def config_cluster(line: Line) -> int:
    name = line.word("cluster")
    if name not in _clusters(line):
        raise Refused(f"Cluster {name} does not exist")
    show(f"Set current cluster to {name} ")
    return 0


# ---------------------------------------------------------------- nodes


def nodes(line: Line) -> int:
    server = client.connect(line)
    found = server.get("/api/v1/nodes")["items"]
    pods = server.get("/api/v1/pods", fieldSelector="status.phase!=Succeeded,status.phase!=Failed")["items"]
    show(f"{'GENERAL':<40}{'CPU':<26}{'MEMORY':<30}GPU")
    header = ("NAME", "STATUS", "IP Address", "ROLE", "ALLOCATABLE", "ALLOCATED", "ALLOCATABLE", "ALLOCATED", "TYPE",
              "ALLOCATABLE", "FREE")  # fmt: skip
    show(
        table(
            header, [_node(n, [p for p in pods if p["spec"].get("nodeName") == n["metadata"]["name"]]) for n in found]
        )
    )
    return 0


def _node(node: dict[str, Any], pods: list[dict[str, Any]]) -> tuple[str, ...]:
    have, labels = node["status"].get("allocatable") or {}, node["metadata"].get("labels") or {}
    gpus = float(have.get("nvidia.com/gpu", "0"))
    used = {name: sum(_asked(p, name) for p in pods) for name in ("cpu", "memory")}
    held = sum(_gpus(p) for p in pods)
    return (
        node["metadata"]["name"],
        _ready(node),
        _address(node),
        "<none>",
        str(have.get("cpu", "")),
        number(used["cpu"]),
        str(have.get("memory", "")),
        f"{used['memory'] / 2**20:.0f}Mi",
        labels.get("nvidia.com/gpu.product", "-") if gpus else "-",
        number(gpus),
        number(gpus - held),
    )


def _ready(node: dict[str, Any]) -> str:
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return "Ready" if ready else "NotReady"


def _address(node: dict[str, Any]) -> str:
    addresses = node["status"].get("addresses") or []
    return next((str(a["address"]) for a in addresses if a.get("type") == "InternalIP"), "")


_SUFFIX = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}


def _amount(text: str) -> float:
    for suffix, size in _SUFFIX.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * size
    return float(text or 0)


def _asked(pod: dict[str, Any], resource: str) -> float:
    requests = [(c.get("resources") or {}).get("requests") or {} for c in pod["spec"].get("containers") or []]
    return sum(_amount(str(r.get(resource, "0"))) for r in requests)


def _gpus(pod: dict[str, Any]) -> float:
    notes = pod["metadata"].get("annotations") or {}
    if "gpu-fraction" in notes:
        return float(notes["gpu-fraction"]) * float(notes.get("gpu-fraction-num-devices", "1"))
    return _asked(pod, "nvidia.com/gpu")


def node(line: Line) -> int:
    name, server = line.word("node"), client.connect(line)
    found = {n["metadata"]["name"]: n for n in server.get("/api/v1/nodes")["items"]}
    if name not in found:
        raise Refused(f"node {name} was not found.{nearest(name, list(found))} `runai list nodes` shows them.")
    one = found[name]
    show(f"NAME: {name}")
    show(f"STATUS: {_ready(one)}")
    show(f"IP ADDRESS: {_address(one)}")
    for resource, amount in (one["status"].get("allocatable") or {}).items():
        show(f"{resource.upper()}: {amount}")
    return 0


# ---------------------------------------------------------------- identity


def login(line: Line) -> int:
    """The embedded cluster is its owner's: whoever can read the token is logged in."""
    client.connect(line).get("/api/v1/clusters")
    show("Logged in successfully")
    return 0


def logout(line: Line) -> int:
    raise Refused(
        "there is nobody to log out: the embedded cluster is open to its own user, whoever can read its token file"
    )


def whoami(line: Line) -> int:
    import getpass

    try:
        client.connect(line).get("/api/v1/clusters")
    except Refused:
        show("You are currently not logged in to Run:AI")
        raise
    name = getpass.getuser()
    show(f"User: {name}")
    show(f"Logged in Id: {name}")
    return 0


def version(line: Line) -> int:
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
