"""`runai top nodes|jobs`: resources of nodes and jobs: capacity, allocation and use. A value that is not measured is `-`."""

from __future__ import annotations

from typing import Any

from rowlock.cli import client, node_usage
from rowlock.cli.grammar import CommandLine
from rowlock.cli.output import format_memory, format_number, show, table, tell
from rowlock.cli.runai_v1.context import grouped_table
from rowlock.cli.runai_v1.jobs import list_workloads
from rowlock.cli.usage.command import USAGE, format_bytes, format_cores, format_percent, part_of

_GROUPS = (("GENERAL", 2), ("GPU", 3), ("CPU", 3), ("MEMORY", 3))
_UNMEASURED = "Nobody measures what pods of this cluster use (-); ALLOCATED is what they asked for."
_SIMULATED = "GPU use is - where GPUs are simulated, which do no work, or where the driver does not tell it."


def nodes(line: CommandLine) -> None:
    server = client.connect(line)
    rows, answer = [], server.get(USAGE)
    used = {node["name"]: node for node in answer["nodes"]}
    nodes_found = node_usage.node_rows(server)
    for node in nodes_found:
        cpu, memory, gpu = _utilization(used.get(node["name"]))
        row = [
            node["name"], node["status"], format_number(node["gpus"]), format_number(node["allocatedGpus"]), gpu,
            node["cpu"], format_number(node["allocatedCpu"]), cpu, format_memory(node["memory"]), node["allocatedMemory"], memory,
        ]  # fmt: skip
        if line.details:
            row += [str(node["pods"]), format_number(node["gpus"] - node["allocatedGpus"]), node["gpuType"]]
        rows.append(row)
    details = ["PODS", "FREE GPUs", "GPU TYPE"] if line.details else []
    groups = (*_GROUPS, ("NODE", 3)) if line.details else _GROUPS
    header = ["NAME", "STATUS", *["CAPACITY", "ALLOCATED", "UTILIZATION"] * 3]
    show(grouped_table(groups, [*header, *details], rows))
    node_usage.tell_simulated(nodes_found)
    if not answer["measured"]:
        tell(_UNMEASURED)


def _utilization(node: dict[str, Any] | None) -> tuple[str, str, str]:
    """The use of a node's CPU, memory and GPUs, in percent of what it can allocate."""
    if node is None:
        return "-", "-", "-"
    usage = node["usage"]
    return (
        format_percent(part_of(usage["cpuCores"], node["cpuCores"])),
        format_percent(part_of(usage["memoryBytes"], node["memoryBytes"])),
        format_percent(usage["gpuUtilization"]),
    )


def jobs(line: CommandLine) -> None:
    workloads = list_workloads(line)
    answer = client.connect(line).get(USAGE)
    used = {workload["id"]: workload["usage"] for workload in answer["workloads"]}
    rows = [
        (w["name"], w["projectName"], w["additionalFields"]["status"], format_number(w["allocatedResources"]["gpu"]),
         *_job_columns(used.get(w["id"])))
        for w in workloads
    ]  # fmt: skip
    header = (
        "NAME", "PROJECT", "STATUS", "GPUs ALLOCATED", "GPU UTILIZATION", "GPU MEMORY", "CPU USAGE", "MEMORY USAGE",
    )  # fmt: skip
    show(table(header, rows))
    if not answer["measured"]:
        tell(_UNMEASURED)
    elif any(w["allocatedResources"]["gpu"] and _is_blind(used.get(w["id"])) for w in workloads):
        tell(_SIMULATED)


def _is_blind(usage: dict[str, Any] | None) -> bool:
    """Whether only the CPUs of the job are measured, and its GPUs are not."""
    return usage is not None and usage["cpuCores"] is not None and usage["gpuUtilization"] is None


def _job_columns(usage: dict[str, Any] | None) -> tuple[str, ...]:
    if usage is None:
        return "-", "-", "-", "-"
    return (
        format_percent(usage["gpuUtilization"]),
        format_bytes(usage["gpuMemoryBytes"]),
        format_cores(usage["cpuCores"]),
        format_bytes(usage["memoryBytes"]),
    )
