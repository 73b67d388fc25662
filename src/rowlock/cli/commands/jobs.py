"""`list`, `describe`, `wait`, `suspend`, `resume`, `delete`, `explain`: jobs, through the REST API."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import context_flags, project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.history.checkpoint_files import find_directories
from rowlock.cli.lookups import (
    PROJECTS,
    WORKLOADS,
    NoSuchWorkload,
    change_job,
    final_phases,
    find_project,
    find_workload,
    has_reached,
    read_holders,
    wait_for_phase,
)
from rowlock.cli.output import (
    ask,
    format_age,
    format_number,
    parse_duration,
    show,
    show_json,
    table,
    tell,
)
from rowlock.cli.usage.command import describe_usage, read_idle_jobs

if TYPE_CHECKING:
    from rowlock.answers.workloads import AdditionalFields, Event, Pod, Workload, WorkloadDetailed

_PHASES = "Creating Pending Initializing Running Degraded Stopping Stopped Resuming Completed Failed Deleting".split()


def index(line: CommandLine) -> None:
    server, project_name = client.connect(line), project(line)
    phase = _parse_phase(line.phase)
    filters = [] if line.all_projects else [f"projectName=={project_name}"]
    if phase:
        filters.append(f"phase=={phase}")
    workloads = client.list_all(server, WORKLOADS, "workloads", filterBy=",".join(filters))
    if line.json:
        show_json(workloads)
        return
    if not workloads:
        if not line.all_projects:
            find_project(server, project_name)
        show("No jobs." if line.all_projects else f"No jobs in project {project_name}.")
        return
    idle = read_idle_jobs(server) if any(w["phase"] == "Running" for w in workloads) else {}
    header = ("NAME", *(("PROJECT",) if line.all_projects else ()), "FRAMEWORK", "PHASE", "PODS", "GPUS", "AGE", "WHY")
    show(table(header, [_row(w, line.all_projects, idle.get(w["id"])) for w in workloads]))


_DOUBT = "It completed, but"
"""How the server's remark on a doubtful result of a completed job begins."""
_OPERATORS_KINDS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
"""Kinds of the training operator, whose `runPolicy` has a backoffLimit."""


def _parse_phase(word: str | None) -> str:
    """The phase that the flag names. Raises CommandError with the nearest one."""
    phase = (word or "").capitalize()
    if phase and phase not in _PHASES:
        raise CommandError(
            f"there is no phase {word}.{suggest_nearest(phase, _PHASES)} The phases: {', '.join(_PHASES)}.", 2
        )
    return phase


def _row(workload: Workload, with_project: bool, idle: str | None) -> tuple[str, ...]:
    requested_gpus = workload["workloadRequestedResources"]["gpu"]["request"]
    reasons = str(workload.get("phaseMessage") or "").splitlines()
    reasons = reasons or ([idle] if idle else [])
    return (
        workload["name"],
        *((workload["projectName"],) if with_project else ()),
        workload["distributedFramework"],
        workload["phase"],
        f"{workload['runningPods']}/{workload['requestedPods']['number']}",
        format_number(requested_gpus),
        format_age(workload["createdAt"]),
        _shorten(reasons[0]) if reasons and (workload["phase"] != "Completed" or reasons[0].startswith(_DOUBT)) else "",
    )


def _shorten(text: str, width: int = 100) -> str:
    """Cut the text to the width of a terminal; in a pipe it stays whole, because programs search it."""
    return text if len(text) <= width or not sys.stdout.isatty() else text[: width - 1] + "…"


# ---------------------------------------------------------------- describe


def describe(line: CommandLine) -> None:
    name = line.word("job")
    server = client.connect(line)
    workload = find_workload(server, project(line), name)
    path = f"{WORKLOADS}/{workload['id']}"
    body = server.get(path)
    pods = client.list_all(server, f"{path}/pods", "pods")
    events = client.list_all(server, f"{path}/events", "events", sortOrder="asc")
    if line.json:
        show_json({**body, "pods": pods, "events": events})
        return
    used = describe_usage(server, workload["id"]) if body["phase"] == "Running" else ""
    show(_describe_workload(body, used, read_holders(server, body)))
    for title, text in _describe_restarts(server, body):
        show(f"{title + ':':<15} {text}")
    for title, place in find_directories(server, workload["id"]):
        show(f"{title + ':':<15} {place}")
    if pods:
        show("\nPods:")
        show(table(("POD", "STATUS", "RESTARTS", "AGE", "NODE", "GPUS", "EXIT"), [_pod_row(p) for p in pods]))
        for pod in pods:
            already_shown = pod["message"] == body.get("phaseMessage")  # the phase message above says it for all pods
            if pod["message"] and not already_shown and not pod["ready"] and pod["status"] != "Completed":
                show(f"  {pod['name']}: {pod['message']}")
    show("\nEvents:" if events else "\nNo events.")
    if events:
        show(table(("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), [_event_row(e) for e in events]))


def _describe_restarts(server: ServerClient, body: WorkloadDetailed) -> Iterator[tuple[str, str]]:
    """How often the job restarts, what counts, and after which causes; nothing for kinds that have no such limit, or another rule."""
    if body["additionalFields"]["kind"] not in _OPERATORS_KINDS:
        return
    spec = server.get(f"{WORKLOADS}/distributed/{body['id']}")["spec"]
    limit = spec.get("backoffLimit")
    if not limit and spec.get("retryOn"):
        pass  # the rules decide
    elif limit is None:
        yield "Backoff limit", "none: ranks restart for ever, if their restartPolicy says so"
    elif body["source"] == "Other":  # a manifest, whose restarts the operator counts
        yield "Backoff limit", f"{limit} (the operator counts restarts of containers over all pods)"
    else:
        words = "restart" if limit == 1 else "restarts"
        yield "Backoff limit", f"{limit} {words} of the job, however many ranks it has"
    if retries := spec.get("retryOn"):
        yield "Retried on", ", ".join(retries)
    if never := spec.get("neverRetryOn"):
        yield "Never retried on", ", ".join(never)


def _describe_workload(body: WorkloadDetailed, usage: str, holders: str) -> str:
    extra = body["additionalFields"]
    rows = [
        ("Name", body["name"]),
        ("Project", f"{body['projectName']} (namespace {body['namespace']})"),
        ("Id", body["id"]),
        ("Framework", f"{body['distributedFramework']} ({extra['kind']})"),
        ("Made by", f"CronJob {cron_job}" if (cron_job := extra.get("cronJob")) else ""),
        ("Sweep", _describe_sweep(extra)),
        ("Phase", body["phase"]),
        ("Why", f"{body.get('phaseMessage') or ''} {holders}".strip()),
        ("Retries", extra.get("retried") or ""),
        ("Since", format_age(body["phaseUpdatedAt"])),
        ("Image", ", ".join(body["images"])),
        ("Command", _join_command(extra["argv"])),
        ("Pods", f"{body['runningPods']} running, {extra['pendingPods']} pending, {extra['succeededPods']} succeeded, "
                 f"{extra['failedPods']} failed, of {body['requestedPods']['number']}"),
        ("GPUs", f"{format_number(body['allocatedResources']['gpu'])} held, "
                 f"{format_number(body['workloadRequestedResources']['gpu']['request'])} requested"),
        ("Nodes", ", ".join(extra["nodes"])),
        ("Uses", usage),
        ("Submitted", f"{format_age(body['createdAt'])} ago" + (f" by {body['submittedBy']}" if body["submittedBy"] else "")),
        ("Submitted with", extra["commandLine"]),
        ("Finished", f"{format_age(body['completedAt'])} ago" if body["completedAt"] else ""),
    ]  # fmt: skip
    return "\n".join(f"{name + ':':<15} {value}" for name, value in rows if value)


def _describe_sweep(extra: AdditionalFields) -> str:
    """The sweep and the parameters of a run; "" for other workloads."""
    if not (name := extra.get("sweep")):
        return ""
    parameters = ", ".join(f"{key}={value}" for key, value in extra.get("sweepParameters", {}).items())
    return f"{name} ({parameters}): `rowlock sweep show {name}` shows its other runs"


def _join_command(words: list[str]) -> str:
    import shlex

    return shlex.join(words)


def _pod_row(pod: Pod) -> tuple[str, ...]:
    code = "" if pod["exitCode"] is None else str(pod["exitCode"])
    gpu = format_number(pod["requestedResources"]["gpu"]["request"])
    return (
        pod["name"],
        pod["status"],
        str(pod["restarts"]),
        format_age(pod["createdAt"]),
        pod["nodeName"] or "",
        gpu,
        code,
    )


def _event_row(event: Event) -> tuple[str, ...]:
    about = event["involvedObject"]
    times = f" (×{event['count']})" if event["count"] > 1 else ""
    subject = f"{about['kind'].lower()}/{about['name']}"
    message = " ".join(event["message"].split()) + times
    return (format_age(event["createdAt"]), event["type"], event["reason"], subject, message)


# ---------------------------------------------------------------- wait


def wait(line: CommandLine) -> int:
    limit = parse_duration(line.timeout, "--timeout") if line.timeout else None
    target_phase = getattr(line, "for").capitalize()
    name, project_name = line.word("job"), project(line)
    server = client.connect(line)
    try:
        workload = find_workload(server, project_name, name)
    except NoSuchWorkload:
        if target_phase != "Deleted":
            raise
        show(f"Job {name} is deleted.")
        return 0
    if workload["phase"] == "Stopped" and target_phase != "Deleted":
        tell(f"Job {name} is suspended: `rowlock resume {name}{context_flags(line)}` starts it again")
    body = wait_for_phase(server, workload, target_phase, limit)
    if line.json:
        show_json(body)
    phase = body["phase"]
    if has_reached(body, target_phase):
        if not line.json:
            rest = f": {body['phaseMessage']}" if phase != target_phase else "."
            show(f"Job {name} is {target_phase.lower()}{rest}")
        return 0
    reason = f": {body['phaseMessage']}" if body.get("phaseMessage") else ""
    is_final = phase in final_phases(target_phase)
    unit = "s" if line.timeout and line.timeout.isascii() and line.timeout.isdigit() else ""
    timeout_note = "" if is_final else f" after {line.timeout}{unit}, not {target_phase.lower()}"
    raise CommandError(f"Job {name} is {phase.lower()}{timeout_note}{reason}")


# ---------------------------------------------------------------- verbs on several


def selected_job_names(line: CommandLine) -> list[str]:
    """The names on the command line; with --all the names of all jobs of the project."""
    all_jobs = "all" in line.given_flags and line.all
    if not all_jobs and not line.words:
        raise CommandError(f"`{line.program} {line.verb}` needs the name of a job", 2)
    if not all_jobs:
        return line.words
    workloads = client.list_all(client.connect(line), WORKLOADS, "workloads", filterBy=f"projectName=={project(line)}")
    return [w["name"] for w in workloads]


def confirm_delete(line: CommandLine, count: int) -> None:
    """Ask before deleting all jobs of a project. Raises CommandError unless the answer is yes."""
    jobs = f"{count} {'job' if count == 1 else 'jobs'} of project {project(line)}"
    if not sys.stdin.isatty():
        raise CommandError(
            f"Nothing was deleted: --all means {jobs}, and there is no terminal to ask at; --yes deletes without asking."
        )
    if ask(f"Delete {jobs}? [y/N] ") not in ("y", "yes"):
        raise CommandError("Nothing was deleted.")


def delete(line: CommandLine) -> int:
    job_names = selected_job_names(line)
    if line.all and job_names and not line.yes:
        confirm_delete(line, len(job_names))
    return _for_each_job(line, job_names, "deleted")


def suspend(line: CommandLine) -> int:
    return _for_each_job(line, selected_job_names(line), "suspended")


def resume(line: CommandLine) -> int:
    return _for_each_job(line, selected_job_names(line), "resumed")


def _for_each_job(line: CommandLine, job_names: list[str], word: str) -> int:
    """Change every job as `word` says. Print a refusal and go on with the others; the exit code is 1 if one was refused."""
    server = client.connect(line)
    results, failed = [], 0
    for name in job_names:
        try:
            change_job(server, find_workload(server, project(line), name)["id"], word)
        except CommandError as refusal:
            failed += 1
            results.append({"name": name, "error": refusal.message})
            if not line.json:
                tell(refusal.message)
            continue
        results.append({"name": name, "result": word})
        if not line.json:
            show(f"Job {name} {word}.")
    if line.json:
        show_json(results)
    return 1 if failed else 0


def explain(line: CommandLine) -> int:
    if line.what_if:
        from rowlock.cli.commands.scheduler import what_if

        return what_if(line)
    if line.file:
        raise CommandError("`--file` needs `--what-if`; for a submitted job give only its name", 2)
    name = line.word("job")
    server = client.connect(line)
    try:
        workload = find_workload(server, project(line), name)
    except NoSuchWorkload as refusal:
        return _explain_pod(line, server, name, refusal)
    body = server.get(f"{WORKLOADS}/{workload['id']}/explain")
    if line.json:
        show_json(body)
        return 0
    show(f"{body['name']} is {body['phase']} (for {format_age(body['since'])}).")
    if body["message"]:
        reason = f"{body['reason']}: " if body["reason"] and not body["message"].startswith(body["reason"]) else ""
        show(f"{reason}{body['message']}")
    if body["evicted"]:
        eviction = body["evicted"]
        show(
            f"It ran until {format_age(eviction['createdAt'])} ago, and starts again when resources are free: {eviction['message'].splitlines()[0]}"
        )
    if body.get("heldBy"):
        show(body["heldBy"])
    for name, text in _record_lines(body["record"]):
        show(f"  {name}: {text}")
    for warning in body["warnings"]:
        about = warning["involvedObject"]
        show(f"  {format_age(warning['createdAt'])} ago, {about['kind'].lower()}/{about['name']}: {warning['message']}")
    if not body["message"] and not body["warnings"]:
        is_new = body["phase"] in ("Creating", "Pending")
        show("The scheduler has not looked at it yet; ask again." if is_new else "It does not wait for anything.")
    return 0


def _explain_pod(line: CommandLine, server: ServerClient, name: str, refusal: NoSuchWorkload) -> int:
    """Explain the pod of this name; raise `refusal` if there is none."""
    try:
        body = server.get(f"{PROJECTS}/{quote(project(line), safe='')}/pods/{quote(name, safe='')}/explain")
    except client.StatusError as error:
        if error.status not in (403, 404):
            raise
        raise refusal from None
    if body["workloadName"]:
        raise CommandError(f"{name} is a pod of {body['workloadName']}: `rowlock explain {body['workloadName']}`")
    if line.json:
        show_json(body)
        return 0
    show(f"pod {body['name']} is {body['phase']} (for {format_age(body['since'])}).")
    show(body["message"] or "It waits for no node.")
    if body["heldBy"]:
        show(body["heldBy"])
    for title, text in _record_lines(body["record"]):
        show(f"  {title}: {text}")
    return 0


def _record_lines(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The details of the scheduler's record, as lines below its sentence."""
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
        share = [nodes["freeShare"]] if nodes.get("freeShare") else []
        yield "nodes", "; ".join([f"{nodes['total']}, {free}", *share, *obstacles])
    if record.get("hint"):
        yield "what helps", record["hint"]
