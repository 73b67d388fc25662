"""`describe` of every family: a workload in sections, or as JSON or YAML. Scripts look for the line that begins with
`Phase:`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.cli import client
from rowlock.cli.grammar import CommandLine
from rowlock.cli.lookups import WORKLOADS, read_holders
from rowlock.cli.node_usage import SIMULATED
from rowlock.cli.output import format_number, show, show_json, table, tell
from rowlock.cli.runai_v2.tables import show_yaml
from rowlock.cli.runai_v2.workloads import format_pods, named_workload

if TYPE_CHECKING:
    from rowlock.answers.workloads import Pod, WorkloadDetailed

T = TypeVar("T")


def describe(line: CommandLine) -> None:
    server, workload = named_workload(line)
    path = f"{WORKLOADS}/{workload['id']}"
    body: WorkloadDetailed = server.get(path)
    pods: list[Pod] = client.list_all(server, f"{path}/pods", "pods")
    events = client.list_all(server, f"{path}/events", "events", sortOrder=line.sortEvents)
    shown_pods, shown_events = _first(pods, line.pod_limit), _first(events, line.event_limit)
    if line.output != "table":
        whole = {**body, "pods": shown_pods, "events": shown_events}
        (show_json if line.output == "json" else show_yaml)(whole)
        return
    sections: list[tuple[bool, Callable[[], str]]] = [
        (line.general, lambda: _lines(_general_rows(body, read_holders(server, body)))),
        (line.compute, lambda: "Compute Resources\n" + _compute_table(body)),
        (line.pods, lambda: f"Pods ({format_pods(body)} running)\n" + _pod_table(shown_pods, len(pods))),
        (line.containers, lambda: "Containers\n" + _container_table(shown_pods)),
        (line.networks, lambda: _network_section(pods)),
        (line.storage, lambda: _storage_section(server, body)),
        (line.events, lambda: "Events\n" + _event_table(shown_events, len(events))),
    ]
    show("\n\n".join(text for wanted, make in sections if wanted and (text := make())))
    if line.compute and body["allocatedResources"]["gpu"] and body["additionalFields"].get("gpusSimulated"):
        tell(SIMULATED)


def _first(items: list[T], limit: int) -> list[T]:
    return items if limit < 0 else items[:limit]


def _lines(rows: Iterator[tuple[str, Any]]) -> str:
    return "\n".join(f"{key + ':':<19} {value}".rstrip() for key, value in rows)


def _general_rows(body: WorkloadDetailed, holders: str) -> Iterator[tuple[str, Any]]:
    extra = body["additionalFields"]
    yield "Name", body["name"]
    yield "Namespace", body["namespace"]
    yield "Type", body["type"]
    yield "Framework", body["distributedFramework"]
    if cron_job := extra.get("cronJob"):
        yield "CronJob", cron_job
    yield "Phase", body["phase"]
    if body.get("phaseMessage"):
        yield "Reason", " ".join([*body["phaseMessage"].split(), *holders.split()])
    yield "Project", body["projectName"]
    yield "Cluster", body["clusterId"]
    yield "Id", body["id"]
    yield "Priority", body["priorityClassName"]
    yield "Preemptible", "Yes" if body["preemptible"] else "No"
    yield "Node pools", ", ".join(body["requestedNodePools"])
    yield "Nodes", ", ".join(extra["nodes"])
    yield "Image", ", ".join(body["images"])
    yield "Command", body["command"]
    yield "Arguments", body["arguments"]
    yield "Submitted with", extra["commandLine"]
    yield "Created by", body["submittedBy"]
    yield "Created at", body["createdAt"]
    yield "Ended at", body["completedAt"] or ""


def _compute_table(body: WorkloadDetailed) -> str:
    requested, allocated = body["workloadRequestedResources"], body["allocatedResources"]
    rows = [("GPU Compute", f"{requested['gpu']['request']:.2f}", f"{allocated['gpu']:.2f}")]
    if "gpuMemory" in allocated:
        rows.append(
            ("GPU Memory", str((requested.get("gpuMemory") or {}).get("request") or ""), str(allocated["gpuMemory"]))
        )
    return table(("Resource", "Requested", "Allocated"), rows, gap=3)


def _pod_table(pods: list[Pod], total: int) -> str:
    if not pods:
        return "No pods" if not total else f"{total} pods are not shown (--pod-limit)"
    rows = [
        (p["name"], p["k8sPhase"], p["status"], p["nodeName"] or "", p["currentNodePool"], str(p["restarts"]),
         format_number(p["requestedResources"]["gpu"]["request"]), "" if p["exitCode"] is None else str(p["exitCode"]),
         p["createdAt"], p["completedAt"] or "")
        for p in pods
    ]  # fmt: skip
    header = (
        "Name",
        "Phase",
        "Status",
        "Node",
        "Node Pool",
        "Restarts",
        "GPUs",
        "Exit Code",
        "Created At",
        "Completed At",
    )
    return table(header, rows) + _rest_note(len(pods), total, "--pod-limit")


def _rest_note(shown: int, total: int, flag: str) -> str:
    return f"\n{total - shown} more ({flag} -1 shows all)" if shown < total else ""


def _container_table(pods: list[Pod]) -> str:
    rows = [(p["name"], c["name"], c["image"], c["startedAt"] or "") for p in pods for c in p["containers"]]
    return table(("Pod", "Container", "Image", "Started At"), rows) if rows else "No containers"


def _network_section(pods: list[Pod]) -> str:
    rows = [(p["name"], p["ip"]) for p in pods if p["ip"]]
    return "Networks\n" + table(("Pod", "Address"), rows) if rows else ""


def _storage_section(server: client.ServerClient, body: WorkloadDetailed) -> str:
    """The volumes that the submit asked for; "" when there are none."""
    spec = server.get(f"{WORKLOADS}/distributed/{body['id']}").get("spec") or {}
    rows = []
    for kind, items in (spec.get("storage") or {}).items():
        for item in items:
            source = next((str(item[k]) for k in ("claimName", "configMap", "secret", "repository") if item.get(k)), "")
            target = str(item.get("mountPath") or item.get("path") or "")
            rows.append((kind, source or str(item.get("path") or ""), target))
    return "Storage\n" + table(("Kind", "Source", "Path"), rows) if rows else ""


def _event_table(events: list[dict[str, Any]], total: int) -> str:
    if not events:
        return "No events" if not total else f"{total} events are not shown (--event-limit)"
    rows = [
        (e["createdAt"], e["type"], e["reason"], f"{e['involvedObject']['kind'].lower()}/{e['involvedObject']['name']}",
         " ".join(e["message"].split()))
        for e in events
    ]  # fmt: skip
    return table(("Time", "Type", "Reason", "Object", "Message"), rows) + _rest_note(
        len(events), total, "--event-limit"
    )
