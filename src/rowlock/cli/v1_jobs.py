"""`runai list jobs`, `describe job`, `logs`, `delete`, `suspend`, `resume`: jobs in V1's words and columns.

Scripts read these tables with fixed-width readers: header order and the two blanks between columns are promises.
"""

from __future__ import annotations

from typing import Any

from rowlock.cli import client, jobs
from rowlock.cli.client import Server, pages
from rowlock.cli.grammar import Line, Refused, nearest
from rowlock.cli.jobs import WORKLOADS
from rowlock.cli.logs import pod_name, write
from rowlock.cli.output import number, seconds, show, show_json, since, table
from rowlock.cli.place import project

HEADER = (
    "NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs Allocated (Requested)",
    "PODs Running (Pending)", "SERVICE URL(S)",
)  # fmt: skip
FINISHED = ("Succeeded", "Failed", "Deleted", "Preempted", "TimedOut")
TYPE = "Train"


def index(line: Line) -> int:
    server, where = client.connect(line), project(line)
    query = "" if line.all_projects else f"projectName=={where}"
    found = client.pages(server, WORKLOADS, "workloads", filterBy=query)
    if not found and not line.all_projects:
        jobs.check_project(server, where)
    if not line.all_projects:
        show(f"Showing jobs for project {where}")
    found.sort(key=lambda w: (w["projectName"], w["name"]))
    show(table(HEADER, [_row(w) for w in found]))
    return 0


def _row(workload: dict[str, Any]) -> tuple[str, ...]:
    extra = workload["additionalFields"]
    held = "-" if extra["status"] in FINISHED else number(workload["allocatedResources"]["gpu"])
    return (
        workload["name"],
        extra["status"],
        since(workload["createdAt"]),
        _node(extra["nodes"]),
        extra["image"],
        TYPE,
        workload["projectName"],
        workload["submittedBy"],
        f"{held} ({_requested(workload)})",
        f"{workload['runningPods']} ({extra['pendingPods']})",
        "",
    )


def _node(nodes: list[str]) -> str:
    return "N/A" if not nodes else nodes[0] if len(nodes) == 1 else "<multiple>"


def _requested(workload: dict[str, Any]) -> str:
    return number(workload["workloadRequestedResources"]["gpu"]["request"])


# ---------------------------------------------------------------- describe


def describe(line: Line) -> int:
    name = line.word("name of a job")
    server = client.connect(line)
    workload = jobs.find(server, project(line), name)
    if line.output == "name":
        show(workload["name"])
        return 0
    one = f"{WORKLOADS}/{workload['id']}"
    pods = client.pages(server, f"{one}/pods", "pods")
    if line.output in ("json", "yaml"):
        return _structured(_instance(workload, pods), line.output)
    events = client.pages(server, f"{one}/events", "events", sortOrder="asc")
    show("\n".join(f"{key}: {value}".rstrip() for key, value in facts(workload)))
    show("\nPods:")
    rows = [(p["name"], p["status"].upper(), TYPE.upper(), since(p["createdAt"]), _at(p)) for p in pods]
    show(table(("POD", "STATUS", "TYPE", "AGE", "NODE"), rows))
    show("\nEvents:")
    show(_events(events))
    return 0


def facts(workload: dict[str, Any]) -> list[tuple[str, Any]]:
    """V1's keys, all of them, in their order."""
    extra = workload["additionalFields"]
    return [
        ("NAME", workload["name"]),
        ("NAMESPACE", workload["namespace"]),
        ("TYPE", TYPE),
        ("STATUS", extra["status"]),
        ("TRAINING DURATION", _duration(workload)),
        ("GPUS", number(workload["podsRequestedResources"]["gpu"]["request"])),
        ("TOTAL REQUESTED GPUS", _requested(workload)),
        ("ALLOCATED GPUS", number(workload["allocatedResources"]["gpu"])),
        ("ALLOCATED GPUS MEMORY", workload["allocatedResources"].get("gpuMemory", "")),
        ("RUNNING PODS", workload["runningPods"]),
        ("PENDING PODS", extra["pendingPods"]),
        ("PARALLELISM", workload["requestedPods"]["number"]),
        ("COMPLETIONS", 0),
        ("SUCCEEDED PODS", extra["succeededPods"]),
        ("FAILED PODS", extra["failedPods"]),
        ("IS DISTRIBUTED WORKLOAD", "true"),
        ("CREATED BY CLI", "true" if workload["source"] == "CLI" else "false"),
        ("SERVICE URL(S)", ""),
        ("COMMAND LINE", extra["commandLine"]),
    ]


def _duration(workload: dict[str, Any]) -> str:
    started = workload["additionalFields"]["startedAt"]
    return since(started, workload["completedAt"]) if started else "0s"


def _at(pod: dict[str, Any]) -> str:
    if not pod["nodeName"]:
        return ""
    return f"{pod['nodeName']}/{pod['hostIp']}" if pod.get("hostIp") else str(pod["nodeName"])


def _events(events: list[dict[str, Any]]) -> str:
    """An empty line between the events of different objects."""
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
                rows.append((source, event["type"], since(event["createdAt"]), message))
    return table(("SOURCE", "TYPE", "AGE", "MESSAGE"), rows)


def _instance(workload: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, Any]:
    extra = workload["additionalFields"]
    return {
        "name": workload["name"],
        "namespace": workload["namespace"],
        "status": extra["status"],
        "duration": _duration(workload),
        "trainer": TYPE.lower(),
        "priority": workload["priorityClassName"],
        "chiefName": extra["chief"],
        "instances": [
            {
                "name": pod["name"],
                "status": pod["status"],
                "age": since(pod["createdAt"]),
                "node": _at(pod),
                "isChief": pod["name"] == extra["chief"],
            }
            for pod in pods
        ],
        "commandLine": extra["commandLine"],
    }


def _structured(value: dict[str, Any], form: str) -> int:
    if form == "json":
        show_json(value)
        return 0
    import yaml

    show(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    return 0


# ---------------------------------------------------------------- logs


def logs(line: Line) -> int:
    name = line.word("job")
    server = client.connect(line)
    workload = jobs.find(server, project(line), name)
    pod = pod_name(server, workload, line.pod) if line.pod else _chief(server, workload, line.follow)
    asked: dict[str, Any] = {"follow": line.follow, "timestamps": line.timestamps, "sinceTime": line.since_time}
    if line.tail >= 0:
        asked["tail"] = line.tail
    if line.since:
        asked["since"] = seconds(line.since, "--since")
    write(server.lines(f"{WORKLOADS}/{workload['id']}/pods/{pod}/logs", **asked))
    return 0


def _chief(server: Server, workload: dict[str, Any], follow: bool) -> str:
    """The pod meant when none is named; a follower waits for it to be made."""
    while True:
        chief = str(workload["additionalFields"]["chief"])
        if chief:
            return chief
        if not follow or workload["phase"] in ("Completed", "Failed", "Deleted"):
            why = workload.get("phaseMessage") or f"it is {workload['phase']}"
            raise Refused(f"The job {workload['name']} has no pods: {why}")
        path = f"{WORKLOADS}/{workload['id']}/wait"
        workload = server.get(path, **{"for": "Pending,Initializing,Running,Degraded,Completed,Failed", "timeout": 5})


# ---------------------------------------------------------------- delete, suspend, resume


def delete_any(line: Line) -> int:
    """`runai delete job A B`, and the older `runai delete A B`."""
    if line.words[:1] in (["job"], ["jobs"]) and (len(line.words) > 1 or line.all):
        line.words = line.words[1:]
    return _each(line, "deleted", lambda server, one: server.delete(f"{WORKLOADS}/distributed/{one}"))


def suspend(line: Line) -> int:
    return _each(line, "suspended", lambda server, one: server.post(f"{WORKLOADS}/distributed/{one}/suspend"))


def resume(line: Line) -> int:
    return _each(line, "resumed", lambda server, one: server.post(f"{WORKLOADS}/distributed/{one}/resume"))


def _each(line: Line, word: str, act: Any) -> int:
    chosen, where = jobs.names(line), project(line)
    server, failed = client.connect(line), False
    for name in chosen:
        found = server.get(WORKLOADS, filterBy=f"name=={name},projectName=={where}")["workloads"]
        if not found:
            hint = "If the job exists in a different project, use -p <project-name>."
            known = [w["name"] for w in pages(server, WORKLOADS, "workloads", filterBy=f"projectName=={where}")]
            show(f"Job {name} does not exist in project {where}.{nearest(name, known)} {hint}")
            failed = True
            continue
        try:
            act(server, found[0]["id"])
        except client.ServerRefused as refusal:
            show(
                f"Failed to {word.removesuffix('d') if word != 'suspended' else 'suspend'} job {name}: {refusal.message}"
            )
            failed = True
            continue
        show(f"Job {name} {word} successfully.")
    return 1 if failed else 0
