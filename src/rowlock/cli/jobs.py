"""`list`, `describe`, `wait`, `suspend`, `resume`, `delete`, `explain`: jobs, through the REST API."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from rowlock.cli import client
from rowlock.cli.client import Server
from rowlock.cli.grammar import Line, Refused, nearest
from rowlock.cli.output import ask, number, seconds, show, show_json, since, table, tell
from rowlock.cli.place import project

WORKLOADS = "/api/v1/workloads"
_PHASES = "Creating Pending Initializing Running Degraded Stopping Stopped Resuming Completed Failed Deleting".split()
_POLL = 30.0
"""Seconds of one wait request; the server answers earlier when the phase comes."""


def find(server: Server, where: str, name: str) -> dict[str, Any]:
    """The workload of this name in the project. Raises Refused with the nearest name."""
    found = server.get(WORKLOADS, filterBy=f"name=={name},projectName=={where}")["workloads"]
    if found:
        return dict(found[0])
    check_project(server, where)
    names = [w["name"] for w in client.pages(server, WORKLOADS, "workloads", filterBy=f"projectName=={where}")]
    raise Refused(
        f"The job {name} does not exist in project {where}.{nearest(name, names)} "
        "If the job exists in a different project, use -p <project name>."
    )


def check_project(server: Server, where: str) -> None:
    """Raises Refused when there is no such project."""
    names = [p["name"] for p in client.pages(server, "/api/v1/org-unit/projects", "projects")]
    if where not in names:
        raise Refused(
            f"project {where} was not found.{nearest(where, names)} `rowlock project list` shows them, "
            f"`rowlock project create {where}` makes it."
        )


def index(line: Line) -> int:
    server, where = client.connect(line), project(line)
    phase = _phase(line.phase)
    filters = [] if line.all_projects else [f"projectName=={where}"]
    if phase:
        filters.append(f"phase=={phase}")
    found = client.pages(server, WORKLOADS, "workloads", filterBy=",".join(filters))
    if line.json:
        show_json(found)
        return 0
    if not found:
        if not line.all_projects:
            check_project(server, where)
        show("No jobs." if line.all_projects else f"No jobs in project {where}.")
        return 0
    header = ("NAME", *(("PROJECT",) if line.all_projects else ()), "FRAMEWORK", "PHASE", "PODS", "GPUS", "AGE", "WHY")
    show(table(header, [_row(w, line.all_projects) for w in found]))
    return 0


def _phase(word: str | None) -> str:
    """The phase that the flag names. Raises Refused with the nearest one."""
    phase = (word or "").capitalize()
    if phase and phase not in _PHASES:
        raise Refused(f"there is no phase {word}.{nearest(phase, _PHASES)} The phases: {', '.join(_PHASES)}.", 2)
    return phase


def _row(workload: dict[str, Any], with_project: bool) -> tuple[str, ...]:
    asked = workload["workloadRequestedResources"]["gpu"]["request"]
    why = str(workload.get("phaseMessage") or "").splitlines()
    return (
        workload["name"],
        *((workload["projectName"],) if with_project else ()),
        workload["distributedFramework"],
        workload["phase"],
        f"{workload['runningPods']}/{workload['requestedPods']['number']}",
        number(asked),
        since(workload["createdAt"]),
        _short(why[0]) if why and workload["phase"] != "Completed" else "",
    )


def _short(text: str, width: int = 100) -> str:
    """Cut for a screen; a pipe is read by programs, and they search the whole sentence."""
    return text if len(text) <= width or not sys.stdout.isatty() else text[: width - 1] + "…"


# ---------------------------------------------------------------- describe


def describe(line: Line) -> int:
    name = line.word("job")
    server = client.connect(line)
    workload = find(server, project(line), name)
    one = f"{WORKLOADS}/{workload['id']}"
    body = server.get(one)
    pods = client.pages(server, f"{one}/pods", "pods")
    events = client.pages(server, f"{one}/events", "events", sortOrder="asc")
    if line.json:
        show_json({**body, "pods": pods, "events": events})
        return 0
    show(_facts(body))
    if pods:
        show("\nPods:")
        show(table(("POD", "STATUS", "RESTARTS", "AGE", "NODE", "GPUS", "EXIT"), [_pod(p) for p in pods]))
        for pod in pods:
            said = pod["message"] == body.get("phaseMessage")  # of all its pods, above
            if pod["message"] and not said and not pod["ready"] and pod["status"] != "Completed":
                show(f"  {pod['name']}: {pod['message']}")
    show("\nEvents:" if events else "\nNo events.")
    if events:
        show(table(("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), [_event(e) for e in events]))
    return 0


def _facts(body: dict[str, Any]) -> str:
    extra = body["additionalFields"]
    rows = [
        ("Name", body["name"]),
        ("Project", f"{body['projectName']} (namespace {body['namespace']})"),
        ("Id", body["id"]),
        ("Framework", f"{body['distributedFramework']} ({extra['kind']})"),
        ("Phase", body["phase"]),
        ("Why", body.get("phaseMessage") or ""),
        ("Since", since(body["phaseUpdatedAt"])),
        ("Image", ", ".join(body["images"])),
        ("Command", _words(body["command"] + body["arguments"])),
        ("Pods", f"{body['runningPods']} running, {extra['pendingPods']} pending, {extra['succeededPods']} succeeded, "
                 f"{extra['failedPods']} failed, of {body['requestedPods']['number']}"),
        ("GPUs", f"{number(body['allocatedResources']['gpu'])} held, "
                 f"{number(body['workloadRequestedResources']['gpu']['request'])} requested"),
        ("Nodes", ", ".join(extra["nodes"])),
        ("Submitted", f"{since(body['createdAt'])} ago" + (f" by {body['submittedBy']}" if body["submittedBy"] else "")),
        ("Submitted with", extra["commandLine"]),
        ("Finished", f"{since(body['completedAt'])} ago" if body["completedAt"] else ""),
    ]  # fmt: skip
    return "\n".join(f"{name + ':':<15} {value}" for name, value in rows if value)


def _words(words: list[str]) -> str:
    import shlex

    return shlex.join(words)


def _pod(pod: dict[str, Any]) -> tuple[str, ...]:
    code = "" if pod["exitCode"] is None else str(pod["exitCode"])
    gpu = number(pod["requestedResources"]["gpu"]["request"])
    return (pod["name"], pod["status"], str(pod["restarts"]), since(pod["createdAt"]), pod["nodeName"] or "", gpu, code)


def _event(event: dict[str, Any]) -> tuple[str, ...]:
    about = event["involvedObject"]
    times = f" (×{event['count']})" if event["count"] > 1 else ""
    subject = f"{about['kind'].lower()}/{about['name']}"
    message = " ".join(event["message"].split()) + times
    return (since(event["createdAt"]), event["type"], event["reason"], subject, message)


# ---------------------------------------------------------------- wait


def wait(line: Line) -> int:
    limit = seconds(line.timeout, "--timeout") if line.timeout else None
    wanted = getattr(line, "for").capitalize()
    name, where = line.word("job"), project(line)
    server = client.connect(line)
    try:
        workload = find(server, where, name)
    except Refused:
        if wanted != "Deleted":
            raise
        show(f"Job {name} is deleted.")
        return 0
    if workload["phase"] == "Stopped" and wanted != "Deleted":
        tell(f"Job {name} is suspended: `rowlock resume {name}` starts it again")
    body = until(server, workload, wanted, limit)
    if line.json:
        show_json(body)
    phase = body["phase"]
    if phase == wanted:
        if not line.json:
            show(f"Job {name} is {phase.lower()}." if phase != "Deleted" else f"Job {name} is deleted.")
        return 0
    why = f": {body['phaseMessage']}" if body.get("phaseMessage") else ""
    ended = phase in ("Completed", "Failed", "Deleted")
    late = "" if ended else f" after {line.timeout}, not {wanted.lower()}"
    raise Refused(f"Job {name} is {phase.lower()}{late}{why}")


def until(server: Server, workload: dict[str, Any], wanted: str, limit: float | None) -> dict[str, Any]:
    """The workload when it is in the phase, when it can no longer get there, or when the time is over."""
    ends = {"Completed", "Failed", "Deleted"} if wanted != "Deleted" else {"Deleted"}
    deadline = time.monotonic() + limit if limit is not None else None
    while True:
        left = _POLL if deadline is None else max(0.0, min(_POLL, deadline - time.monotonic()))
        path = f"{WORKLOADS}/{workload['id']}/wait"
        try:
            body: dict[str, Any] = server.get(path, **{"for": ",".join({wanted, *ends}), "timeout": f"{left:.3f}"})
        except client.ServerRefused as refusal:
            if refusal.status != 404:
                raise
            return {**workload, "phase": "Deleted", "phaseMessage": ""}
        if body["phase"] in {wanted, *ends} or (deadline is not None and time.monotonic() >= deadline):
            return body


# ---------------------------------------------------------------- verbs on several


def names(line: Line) -> list[str]:
    """The jobs that the line names; with --all every one of the project."""
    everyone = "all" in line.given and line.all
    if not everyone and not line.words:
        raise Refused(f"`{line.program} {line.verb}` needs the name of a job", 2)
    if not everyone:
        return line.words
    found = client.pages(client.connect(line), WORKLOADS, "workloads", filterBy=f"projectName=={project(line)}")
    return [w["name"] for w in found]


def delete(line: Line) -> int:
    chosen = names(line)
    if line.all and chosen and not line.yes and sys.stdin.isatty():
        if ask(f"Delete {len(chosen)} jobs of project {project(line)}? [y/N] ") not in ("y", "yes"):
            raise Refused("Nothing was deleted.")
    return _each(line, chosen, "deleted", lambda server, one: server.delete(f"{WORKLOADS}/distributed/{one}"))


def suspend(line: Line) -> int:
    return _each(
        line, names(line), "suspended", lambda server, one: server.post(f"{WORKLOADS}/distributed/{one}/suspend")
    )


def resume(line: Line) -> int:
    return _each(line, names(line), "resumed", lambda server, one: server.post(f"{WORKLOADS}/distributed/{one}/resume"))


def _each(line: Line, chosen: list[str], word: str, act: Any) -> int:
    """Do it to every one; a refusal is told and the others go on."""
    server = client.connect(line)
    results, failed = [], 0
    for name in chosen:
        try:
            act(server, find(server, project(line), name)["id"])
        except Refused as refusal:
            failed += 1
            results.append({"name": name, "error": refusal.message})
            if not line.json:
                print(refusal.message, file=sys.stderr)
            continue
        results.append({"name": name, "result": word})
        if not line.json:
            show(f"Job {name} {word}.")
    if line.json:
        show_json(results)
    return 1 if failed else 0


def explain(line: Line) -> int:
    if line.what_if:
        from rowlock.cli.scheduler import what_if

        return what_if(line)
    if line.file:
        raise Refused("`--file` goes with `--what-if`; of a job that was submitted only the name is needed", 2)
    name = line.word("job")
    server = client.connect(line)
    workload = find(server, project(line), name)
    body = server.get(f"{WORKLOADS}/{workload['id']}/explain")
    if line.json:
        show_json(body)
        return 0
    show(f"{body['name']} is {body['phase']} (for {since(body['since'])}).")
    if body["message"]:
        reason = f"{body['reason']}: " if body["reason"] and not body["message"].startswith(body["reason"]) else ""
        show(f"{reason}{body['message']}")
    if body["evicted"]:
        gone = body["evicted"]
        show(
            f"It ran until {since(gone['createdAt'])} ago and goes on when there is room: {gone['message'].splitlines()[0]}"
        )
    for name, text in _record(body["record"]):
        show(f"  {name}: {text}")
    for warning in body["warnings"]:
        about = warning["involvedObject"]
        show(f"  {since(warning['createdAt'])} ago, {about['kind'].lower()}/{about['name']}: {warning['message']}")
    if not body["message"] and not body["warnings"]:
        new = body["phase"] in ("Creating", "Pending")
        show("The scheduler has not looked at it yet; ask again." if new else "Nothing is holding it.")
    return 0


def _record(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What the scheduler knows beside its sentence, in lines."""
    if "podsNeeded" in record:
        yield "fits now", f"{record['podsFit']} of {record['podsNeeded']} pods"
    if record.get("requested"):
        yield "asks for", record["requested"]
    for queue in record.get("queue") or ():
        text = "holds {allocated}; quota {quota}, fair share {fairShare}, limit {limit}".format_map(queue)
        yield f"queue {queue['name']}", text
    for holder in record.get("holders") or ():
        yield f"queue {holder['queue']}", f"holds {holder['overQuota']} beyond its quota"
    if record.get("ahead"):
        yield "ahead", f"{record['ahead']} of the same queue"
    if nodes := record.get("nodes"):
        obstacles = [f"{count} {text}" for text, count in nodes["obstacles"].items()]
        best = nodes["best"]
        free = f"{nodes['freeGpus']} GPU{'' if nodes['freeGpus'] == 1 else 's'} free" + (
            f", most on {best['node']} ({best['freeGpus']})" if best["node"] else ""
        )
        yield "nodes", "; ".join([f"{nodes['total']}, {free}", *obstacles])
    if record.get("hint"):
        yield "what helps", record["hint"]
