"""`list` of projects, clusters, nodes, node pools, departments, claims, workload types; `project create`, `cluster set`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rowlock.cli import client, node_usage
from rowlock.cli.context import project, update_config
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import PROJECTS, find_project, read_projects
from rowlock.cli.output import format_age, format_number, show
from rowlock.cli.runai_v2.tables import Column, fetch_page, is_table, show_list, slice_items

if TYPE_CHECKING:
    from rowlock.answers.cluster import Cluster, Project, WorkloadType

# ---------------------------------------------------------------- projects


def _quota(item: Project) -> float:
    return float(item["totalResources"]["gpuQuota"])


def _allocated_gpus(item: Project) -> float:
    return float(item["status"]["quotaStatus"]["allocated"]["gpu"])


def _ratio(item: Project) -> str:
    quota = _quota(item)
    return f"{100 * _allocated_gpus(item) / quota:.2f}%" if quota > 0 else "-"


PROJECT_COLUMNS: tuple[Column[Project], ...] = (
    Column("name", "Name", lambda p: p["name"]),
    Column("gpuQuota", "GPU Quota", lambda p: f"{_quota(p):.2f}" if _quota(p) >= 0 else "-"),
    Column("allocatedGpus", "Allocated GPUs", lambda p: f"{_allocated_gpus(p):.2f}"),
    Column("allocationRatio", "GPU Allocation Ratio", _ratio),
    Column("department", "Department", lambda p: p["parent"]["name"], 0, False),
    Column("namespace", "Namespace", lambda p: p["status"]["namespace"], 0, False),
    Column("status", "Status", lambda p: p["status"]["phase"], 0, False),
    Column("id", "Id", lambda p: p["id"], 0, False),
)


def list_projects(line: CommandLine) -> int:
    """Projects and their quotas."""
    return show_list(line, PROJECT_COLUMNS, fetch_page(line, client.connect(line), PROJECTS, "projects"))


def create_project(line: CommandLine) -> None:
    """Create a project with its quotas."""
    name = line.word("name")
    body: dict[str, Any] = {"name": name, "resources": [_project_resources(text) for text in line.resources]}
    if line.department != "default":
        body["parentId"] = line.department
    if line.namespace:
        body["requestedNamespace"] = line.namespace
    if line.description:
        body["description"] = line.description
    created = client.connect(line).post(PROJECTS, body)
    show(f"project {created['name']} created successfully")


def _project_resources(text: str) -> dict[str, Any]:
    """`nodepool=default,gpu-deserved=2,gpu-limit=-1,priority=...` as a project's quotas in a node pool."""
    known = {
        "nodepool": "nodePool",
        "gpu-deserved": "deserved",
        "gpu-limit": "limit",
        "gpu-over-quota-weight": "overQuotaWeight",
    }
    pool, gpu = "default", {"deserved": 0.0}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in known or not value:
            hint = suggest_nearest(key, list(known))
            raise CommandError(
                f'invalid argument "{text}" for --resources: it has no {key!r}.{hint} Known: {", ".join(known)}', 2
            )
        if key == "nodepool":
            pool = value
            continue
        try:
            gpu[known[key]] = float(value)
        except ValueError:
            raise CommandError(f'invalid argument "{text}" for --resources: {key} is a number of GPUs', 2) from None
    return {"nodePool": {"id": pool, "name": pool}, "gpu": gpu}


# ---------------------------------------------------------------- clusters, departments


CLUSTER_COLUMNS: tuple[Column[Cluster], ...] = (
    Column("name", "Name", lambda c: c["name"]),
    Column("id", "Id", lambda c: c["uuid"]),
    Column("status", "Status", lambda c: c["status"]["state"]),
    Column("version", "Version", lambda c: c["version"]),
    Column("createdAt", "Creation Time", lambda c: c["createdAt"], 0, False),
)


def list_clusters(line: CommandLine) -> int:
    """The clusters of this server."""
    return show_list(line, CLUSTER_COLUMNS, slice_items(line, client.connect(line).get("/api/v1/clusters")))


def set_cluster(line: CommandLine) -> None:
    """Accept the only cluster, by name or --id; refuse any other."""
    clusters = client.connect(line).get("/api/v1/clusters")
    if not line.words and not line.id:
        raise CommandError("`runai cluster set` needs the name of a cluster, or --id UUID", 2)
    name = line.words[0] if line.words else ""
    cluster = next((c for c in clusters if c["uuid"] == line.id or (name and c["name"] == name)), None)
    if cluster is None:
        names = [c["name"] for c in clusters]
        raise CommandError(
            f"Cluster {name or line.id} does not exist.{suggest_nearest(name, names)} Known: {', '.join(names)}."
        )
    update_config(line, cluster={"name": cluster["name"], "uuid": cluster["uuid"]})
    show(f"cluster {cluster['name']} configured successfully")


DEPARTMENT_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Name", lambda d: d["name"]),
    Column("projects", "Projects", lambda d: d["projects"]),
    Column("gpuQuota", "GPU Quota", lambda d: "-" if d["gpuQuota"] < 0 else f"{d['gpuQuota']:.2f}"),
)


def list_departments(line: CommandLine) -> int:
    """List departments, which are the parent queues of the projects' queues."""
    server = client.connect(line)
    projects = read_projects(server)
    queues = server.get("/apis/scheduling.run.ai/v2/queues")["items"]
    items = []
    for queue in queues:
        name = queue["metadata"]["name"]
        if name.startswith("department-"):
            gpu = ((queue["spec"].get("resources") or {}).get("gpu") or {}).get("quota", -1)
            label = queue["spec"].get("displayName") or name.removeprefix("department-")
            count = sum(1 for p in projects if p["parent"]["name"] == name.removeprefix("department-"))
            items.append({"name": label, "projects": count, "gpuQuota": gpu})
    return show_list(line, DEPARTMENT_COLUMNS, slice_items(line, items))


# ---------------------------------------------------------------- nodes


NODE_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Node", lambda n: n["name"]),
    Column("status", "Status", lambda n: n["status"]),
    Column("nodePool", "Node Pool", lambda n: n["nodePool"]),
    Column("gpuType", "GPU Type", lambda n: n["gpuType"]),
    Column("gpus", "GPU Devices", lambda n: format_number(n["gpus"])),
    Column("allocatedGpus", "Allocated GPUs", lambda n: f"{n['allocatedGpus']:.2f}"),
    Column("cpu", "CPU (Cores)", lambda n: n["cpu"]),
    Column("allocatedCpu", "Allocated CPU", lambda n: format_number(n["allocatedCpu"])),
    Column("memory", "CPU Memory", lambda n: n["memory"]),
    Column("allocatedMemory", "Allocated CPU Memory", lambda n: n["allocatedMemory"]),
    Column("age", "Age", lambda n: format_age(n["createdAt"]), 0, False),
)


def list_nodes(line: CommandLine) -> int:
    """Nodes, and what is allocated on them."""
    nodes = slice_items(line, node_usage.node_rows(client.connect(line)))
    return _show_gpus(line, NODE_COLUMNS, nodes, nodes)


def _show_gpus(
    line: CommandLine,
    columns: Sequence[Column[dict[str, Any]]],
    items: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
) -> int:
    """Show a list of items with GPUs. With a table, also say on stderr if GPUs of `nodes` are simulated; other formats have a field."""
    code = show_list(line, columns, items)
    if is_table(line):
        node_usage.tell_simulated(nodes)
    return code


POOL_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Node Pool", lambda p: p["name"]),
    Column("nodes", "Nodes", lambda p: p["nodes"]),
    Column("gpus", "Total GPU Devices", lambda p: format_number(p["gpus"])),
    Column("allocatedGpus", "Allocated GPUs", lambda p: f"{p['allocatedGpus']:.2f}"),
    Column("labelKey", "Label Key", lambda p: p["labelKey"], 0, False),
    Column("labelValue", "Label Value", lambda p: p["labelValue"], 0, False),
)


def list_node_pools(line: CommandLine) -> int:
    """Node pools, made of their nodes."""
    pools: dict[str, dict[str, Any]] = {}
    nodes = node_usage.node_rows(client.connect(line))
    for node in nodes:
        name = node["nodePool"]
        pool = pools.setdefault(
            name,
            {
                "name": name,
                "labelKey": node_usage.NODE_POOL_LABEL,
                "labelValue": "" if name == "default" else name,
                "nodes": 0,
                "gpus": 0.0,
                "gpusSimulated": False,
                "allocatedGpus": 0.0,
            },
        )
        pool["nodes"] += 1
        pool["gpus"] += node["gpus"]
        pool["gpusSimulated"] |= bool(node.get("gpusSimulated"))
        pool["allocatedGpus"] += node["allocatedGpus"]
    return _show_gpus(
        line, POOL_COLUMNS, slice_items(line, sorted(pools.values(), key=lambda p: str(p["name"]))), nodes
    )


# ---------------------------------------------------------------- claims, types


CLAIM_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "Name", lambda c: c["metadata"]["name"]),
    Column("status", "Status", lambda c: (c.get("status") or {}).get("phase", "Pending")),
    Column("size", "Size", lambda c: c["spec"]["resources"]["requests"]["storage"]),
    Column("storageClass", "Storage Class", lambda c: c["spec"].get("storageClassName") or ""),
    Column("createdAt", "Creation Time", lambda c: c["metadata"]["creationTimestamp"]),
)


def list_claims(line: CommandLine) -> int:
    server = client.connect(line)
    spaces = {p["name"]: p["status"]["namespace"] for p in read_projects(server)}
    claims = server.get("/api/v1/persistentvolumeclaims")["items"]
    wanted = set(spaces.values()) if line.all else {find_project(server, project(line))["status"]["namespace"]}
    items = [c for c in claims if c["metadata"]["namespace"] in wanted]
    return show_list(line, CLAIM_COLUMNS, slice_items(line, items))


TYPE_COLUMNS: tuple[Column[WorkloadType], ...] = (
    Column("name", "Name", lambda t: t["name"]),
    Column("category", "Category", lambda t: t["category"]),
)


def list_types(line: CommandLine) -> int:
    """The types of workloads that can be submitted."""
    return show_list(line, TYPE_COLUMNS, slice_items(line, client.connect(line).get("/api/v1/workload-types")["types"]))
