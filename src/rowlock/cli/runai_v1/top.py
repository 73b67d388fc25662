"""`runai top nodes|jobs`: what nodes have and jobs hold. What nobody measures is `-`, not a guess."""

from __future__ import annotations

from rowlock.cli import client, node_usage
from rowlock.cli.grammar import CommandLine
from rowlock.cli.output import format_memory, format_number, show, table, tell
from rowlock.cli.runai_v1.context import grouped_table
from rowlock.cli.runai_v1.jobs import list_workloads

_UNMEASURED = (
    "Utilization (-) is not measured; ALLOCATED is what pods asked for. `rowlock why JOB` shows what ranks do."
)
_GROUPS = (("GENERAL", 2), ("GPU", 3), ("CPU", 3), ("MEMORY", 3))


def nodes(line: CommandLine) -> int:
    header = ["NAME", "STATUS", *["CAPACITY", "ALLOCATED", "UTILIZATION"] * 3]
    rows = []
    for node in node_usage.node_rows(client.connect(line)):
        row = [
            node["name"], node["status"], format_number(node["gpus"]), format_number(node["allocatedGpus"]), "-",
            node["cpu"], format_number(node["allocatedCpu"]), "-", format_memory(node["memory"]), node["allocatedMemory"], "-",
        ]  # fmt: skip
        if line.details:
            row += [str(node["pods"]), format_number(node["gpus"] - node["allocatedGpus"]), node["gpuType"]]
        rows.append(row)
    details = ["PODS", "FREE GPUs", "GPU TYPE"] if line.details else []
    groups = (*_GROUPS, ("NODE", 3)) if line.details else _GROUPS
    show(grouped_table(groups, [*header, *details], rows))
    tell(_UNMEASURED)
    return 0


def jobs(line: CommandLine) -> int:
    rows = [
        (w["name"], w["projectName"], w["additionalFields"]["status"], format_number(w["allocatedResources"]["gpu"]), "-",
         w["allocatedResources"].get("gpuMemory") or "-", "-", "-")
        for w in list_workloads(line)
    ]  # fmt: skip
    header = (
        "NAME",
        "PROJECT",
        "STATUS",
        "GPUs ALLOCATED",
        "GPU UTILIZATION",
        "GPU MEMORY",
        "CPU USAGE",
        "MEMORY USAGE",
    )
    show(table(header, rows))
    tell(_UNMEASURED)
    return 0
