"""`runai list jobs`, `describe job`, `logs`, `delete`, `suspend`, `resume`, with the first generation's terms and columns.

Scripts parse these tables by width, so the order of headers and the two spaces between columns must not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import list_all
from rowlock.cli.commands import jobs
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandLine, suggest_nearest
from rowlock.cli.lookups import WORKLOADS, change_job, find_project, find_workload
from rowlock.cli.node_usage import SIMULATED
from rowlock.cli.output import format_age, format_number, show, show_json, table, tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import Pod, Workload

HEADER = (
    "NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs Allocated (Requested)",
    "PODs Running (Pending)", "SERVICE URL(S)",
)  # fmt: skip
FINISHED_STATUSES = ("Succeeded", "Failed", "Deleted", "Preempted", "TimedOut")


def list_workloads(line: CommandLine) -> list[Workload]:
    """The workloads of the selected project or of all, sorted by project and name. Raises CommandError for an unknown
    project."""
    server, project_name = client.connect(line), project(line)
    query = "" if line.all_projects else f"projectName=={project_name}"
    workloads = client.list_all(server, WORKLOADS, "workloads", filterBy=query)
    if not workloads and not line.all_projects:
        find_project(server, project_name)
    workloads.sort(key=lambda w: (w["projectName"], w["name"]))
    return workloads


def index(line: CommandLine) -> None:
    workloads = list_workloads(line)
    if not line.all_projects:
        show(f"Showing jobs for project {project(line)}")
    show(table(HEADER, [_row(w) for w in workloads]))


def _row(workload: Workload) -> tuple[str, ...]:
    extra = workload["additionalFields"]
    allocated = "-" if extra["status"] in FINISHED_STATUSES else format_number(workload["allocatedResources"]["gpu"])
    return (
        workload["name"],
        extra["status"],
        format_age(workload["createdAt"]),
        _node_text(extra["nodes"]),
        extra["image"],
        _type_text(workload),
        workload["projectName"],
        workload["submittedBy"],
        f"{allocated} ({_requested_gpus(workload)})",
        f"{workload['runningPods']} ({extra['pendingPods']})",
        "",
    )


def _type_text(workload: Workload) -> str:
    return "Interactive" if workload["category"] == "Build" else "Train"


def _node_text(nodes: list[str]) -> str:
    return "N/A" if not nodes else nodes[0] if len(nodes) == 1 else "<multiple>"


def _requested_gpus(workload: Workload) -> str:
    return format_number(workload["workloadRequestedResources"]["gpu"]["request"])


# ---------------------------------------------------------------- describe


def describe(line: CommandLine) -> int:
    name = line.word("name of a job")
    server = client.connect(line)
    workload = find_workload(server, project(line), name)
    if line.output == "name":
        show(workload["name"])
        return 0
    path = f"{WORKLOADS}/{workload['id']}"
    pods = client.list_all(server, f"{path}/pods", "pods")
    if line.output in ("json", "yaml"):
        return _show_structured(_workload_summary(workload, pods), line.output)
    events = client.list_all(server, f"{path}/events", "events", sortOrder="asc")
    holds_gpus = workload["allocatedResources"]["gpu"]
    holds_simulated = holds_gpus and server.get(path)["additionalFields"].get("gpusSimulated")
    show("\n".join(f"{key}: {value}".rstrip() for key, value in description_rows(workload)))
    if holds_simulated:
        tell(SIMULATED)
    show("\nPods:")
    rows = [
        (p["name"], p["status"].upper(), _type_text(workload).upper(), format_age(p["createdAt"]), _node_and_ip(p))
        for p in pods
    ]
    show(table(("POD", "STATUS", "TYPE", "AGE", "NODE"), rows))
    show("\nEvents:")
    show(_events_table(events))
    return 0


def description_rows(workload: Workload) -> list[tuple[str, Any]]:
    """The rows of `describe job`: all keys of the first generation, in its order."""
    extra = workload["additionalFields"]
    return [
        ("NAME", workload["name"]),
        ("NAMESPACE", workload["namespace"]),
        ("TYPE", _type_text(workload)),
        ("STATUS", extra["status"]),
        ("TRAINING DURATION", _duration(workload)),
        ("GPUS", format_number(workload["podsRequestedResources"]["gpu"]["request"])),
        ("TOTAL REQUESTED GPUS", _requested_gpus(workload)),
        ("ALLOCATED GPUS", format_number(workload["allocatedResources"]["gpu"])),
        ("ALLOCATED GPUS MEMORY", workload["allocatedResources"].get("gpuMemory", "")),
        ("RUNNING PODS", workload["runningPods"]),
        ("PENDING PODS", extra["pendingPods"]),
        ("PARALLELISM", workload["requestedPods"]["number"]),
        ("COMPLETIONS", 0),
        ("SUCCEEDED PODS", extra["succeededPods"]),
        ("FAILED PODS", extra["failedPods"]),
        ("IS DISTRIBUTED WORKLOAD", "true" if workload["type"] == "Distributed" else "false"),
        ("CREATED BY CLI", "true" if workload["source"] == "CLI" else "false"),
        ("SERVICE URL(S)", ""),
        ("COMMAND LINE", extra["commandLine"]),
    ]


def _duration(workload: Workload) -> str:
    started = workload["additionalFields"]["startedAt"]
    return format_age(started, workload["completedAt"]) if started else "0s"


def _node_and_ip(pod: Pod) -> str:
    if not pod["nodeName"]:
        return ""
    return f"{pod['nodeName']}/{pod['hostIp']}" if pod.get("hostIp") else str(pod["nodeName"])


def _events_table(events: list[dict[str, Any]]) -> str:
    """The events as a table, with an empty line between those of different objects."""
    if not events:
        return "No events for resources"
    rows: list[tuple[str, ...]] = [("--------", "----", "---", "-------")]
    sources = [f"{e['involvedObject']['kind'].lower()}/{e['involvedObject']['name']}" for e in events]
    for source in dict.fromkeys(sources):
        if len(rows) > 1:
            rows.append(("", "", "", ""))
        for event, its in zip(events, sources, strict=True):
            if its == source:
                message = f"[{event['reason']}] {' '.join(event['message'].split())}"
                rows.append((source, event["type"], format_age(event["createdAt"]), message))
    return table(("SOURCE", "TYPE", "AGE", "MESSAGE"), rows)


def _workload_summary(workload: Workload, pods: list[Pod]) -> dict[str, Any]:
    extra = workload["additionalFields"]
    return {
        "name": workload["name"],
        "namespace": workload["namespace"],
        "status": extra["status"],
        "duration": _duration(workload),
        "trainer": _type_text(workload).lower(),
        "priority": workload["priorityClassName"],
        "chiefName": extra["chief"],
        "instances": [
            {
                "name": pod["name"],
                "status": pod["status"],
                "age": format_age(pod["createdAt"]),
                "node": _node_and_ip(pod),
                "isChief": pod["name"] == extra["chief"],
            }
            for pod in pods
        ],
        "commandLine": extra["commandLine"],
    }


def _show_structured(value: dict[str, Any], form: str) -> int:
    if form == "json":
        show_json(value)
        return 0
    import yaml

    show(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return 0


# ---------------------------------------------------------------- delete, suspend, resume


def delete_any(line: CommandLine) -> int:
    """`runai delete job A B`, and the older `runai delete A B`."""
    if line.words[:1] in (["job"], ["jobs"]) and (len(line.words) > 1 or line.all or not _is_job(line, line.words[0])):
        line.words = line.words[1:]
    if line.all and not line.yes and (job_names := jobs.selected_job_names(line)):
        jobs.confirm_delete(line, len(job_names))
    return _for_each_job(line, "deleted")


def _is_job(line: CommandLine, name: str) -> bool:
    return bool(_find_named(client.connect(line), name, project(line)))


def _find_named(server: client.ServerClient, name: str, project_name: str) -> list[Any]:
    workloads: list[Any] = server.get(WORKLOADS, filterBy=f"name=={name},projectName=={project_name}")["workloads"]
    return workloads


def suspend(line: CommandLine) -> int:
    return _for_each_job(line, "suspended")


def resume(line: CommandLine) -> int:
    return _for_each_job(line, "resumed")


def _for_each_job(line: CommandLine, word: str) -> int:
    job_names, project_name = jobs.selected_job_names(line), project(line)
    server, failed = client.connect(line), False
    for name in job_names:
        workloads = _find_named(server, name, project_name)
        if not workloads:
            hint = "If the job exists in a different project, use -p <project-name>."
            existing = [
                w["name"] for w in list_all(server, WORKLOADS, "workloads", filterBy=f"projectName=={project_name}")
            ]
            show(f"Job {name} does not exist in project {project_name}.{suggest_nearest(name, existing)} {hint}")
            failed = True
            continue
        try:
            change_job(server, workloads[0]["id"], word)
        except client.StatusError as refusal:
            show(
                f"Failed to {word.removesuffix('d') if word != 'suspended' else 'suspend'} job {name}: {refusal.message}"
            )
            failed = True
            continue
        show(f"Job {name} {word} successfully.")
    return 1 if failed else 0
