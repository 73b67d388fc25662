"""`queue list`, `queue move`, `scheduler snapshot`, `scheduler replay`, `simulate` and `explain --what-if`: query or simulate the scheduler.

`queue`, `snapshot` and `--what-if` use the server. `replay` and `simulate` need no server: they run the real planner
on this machine.


`check` says whether the operator would admit a manifest, and warns about fields with surprising effects. It writes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import WORKLOADS, find_project, find_workload
from rowlock.cli.output import format_age, format_number, show, show_json, table

if TYPE_CHECKING:
    from rowlock.answers.cluster import MovedGang

_API = "/api/v1/scheduler"
_PHASES_THAT_WAIT = ("Pending", "Degraded")
"""Degraded: an elastic job that runs with its minimum, while further pods wait."""


def queue(line: CommandLine) -> None:
    """Print the jobs that wait for nodes, in the order in which the scheduler tries them. Raises CommandError where another one decides."""
    server, project_name = client.connect(line), project(line)
    if not line.all_projects:
        find_project(server, project_name)
    order = server.get(f"{_API}/queue")
    if not order["isOrdered"]:
        raise CommandError(
            "another scheduler than rowlock's places the pods of this cluster, and does not say in which order:"
            " `rowlock explain JOB` says why a job waits"
        )
    listed = {
        job["id"]: job
        for phase in _PHASES_THAT_WAIT
        for job in client.list_all(server, WORKLOADS, "workloads", filterBy=f"phase=={phase}")
    }
    waiting = [
        _queue_json(gang, listed[gang["workloadId"]])
        for gang in order["waiting"]
        if gang["workloadId"] in listed and (line.all_projects or gang["projectName"] == project_name)
    ]  # the others have started, or are gone, since the order was asked
    if line.json:
        show_json({"total": order["total"], "waiting": waiting})
        return
    if not waiting:
        show("No job waits for nodes." if line.all_projects else f"No job of project {project_name} waits for nodes.")
        return
    header = ("POSITION", "NAME", *(("PROJECT",) if line.all_projects else ()), "PRIORITY", "GPUS", "AGE", "WHY")
    show(table(header, [_queue_row(job, with_project=line.all_projects) for job in waiting]))


def _queue_json(gang: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    requested = job["workloadRequestedResources"]["gpu"]["request"]
    told = {"priorityClassName": job["priorityClassName"], "requestedGpus": requested, "createdAt": job["createdAt"]}
    return {**gang, **told, "message": job.get("phaseMessage") or ""}


def _queue_row(job: dict[str, Any], *, with_project: bool) -> tuple[str, ...]:
    return (
        str(job["position"]),
        job["name"],
        *((job["projectName"],) if with_project else ()),
        job["priorityClassName"],
        format_number(job["requestedGpus"]),
        format_age(job["createdAt"]),
        next(iter(job["message"].splitlines()), ""),
    )


def move(line: CommandLine) -> None:
    """`queue move`. Raises CommandError."""
    name, server, project_name = line.word("job"), client.connect(line), project(line)
    given = {flag: getattr(line, flag) for flag in ("first", "last", "before", "after") if getattr(line, flag)}
    if len(given) != 1:
        raise CommandError("say where to: one of --first, --last, --before JOB, --after JOB", 2)
    ((where, value),) = given.items()
    to = {"place": where} if value is True else {where: find_workload(server, project_name, value)["id"]}
    moved_id = find_workload(server, project_name, name)["id"]
    answer: MovedGang = server.post(f"{_API}/queue/move", {"workloadId": moved_id, **to})
    if line.json:
        show_json(answer)
    else:
        names = ", ".join(answer["order"])
        show(f"Project {answer['projectName']} starts those of its priority in this order: {names}")


def snapshot(line: CommandLine) -> None:
    """Print what the scheduler would plan from now."""
    body = client.connect(line).get(f"{_API}/snapshot")
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"
    if not line.output:
        sys.stdout.write(text)
        return
    with open(line.output, "w", encoding="utf-8") as file:
        file.write(text)
    show(f"{line.output}: {len(body['nodes'])} nodes, {len(body['queues'])} queues, {len(body['gangs'])} gangs")


def replay(line: CommandLine) -> int:
    return _exec_module("replay", line, *(["--json"] if line.json else []), "--", line.word("snapshot file"))


def simulate(line: CommandLine) -> int:
    """Play a trace of jobs on fake nodes."""
    if len(line.words) > 1:
        raise CommandError(f"`{line.program} simulate` takes one trace, but {len(line.words)} were given", 2)
    flags = [f"--{name}={getattr(line, name)}" for name in ("nodes", "gpus", "grace")]
    flags += [f"--reserve-after={line.reserve_after}"]
    options = {"generate": line.generate, "svg": line.svg, "half-life": line.half_life}
    flags += [f"--{name}={value}" for name, value in options.items() if value]
    return _exec_module("simulate", line, *flags, *(["--json"] if line.json else []), "--", *line.words)


def _exec_module(module: str, line: CommandLine, *argv: str) -> int:
    sys.stdout.flush()
    program = f"{line.program} {line.verb}"
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"rowlock.simulator.{module}", "--program", program, *argv])


# ---------------------------------------------------------------- what if


def what_if(line: CommandLine) -> int:
    """`explain --what-if -f FILE`."""
    if line.words:
        raise CommandError(f"`--what-if` needs a file, not the job `{line.words[0]}`: leave out one of the two", 2)
    if not line.file:
        raise CommandError(
            "`--what-if` needs the file that would be submitted: `rowlock explain --what-if -f job.yaml`", 2
        )
    body = {"objects": load_manifests(line.file), "project": project(line)}
    response = client.connect(line).call("POST", f"{_API}/what-if", body=body)
    if line.json:
        show_json(response)
    for outcome in [] if line.json else response["outcomes"]:
        show(outcome["message"])
        for change in outcome["changes"]:
            show(f"  it would start now: {change}")
        if (hint := outcome["record"].get("hint")) and not outcome["changes"]:
            show(f"  what helps: {hint}")
    return 0


def load_manifests(path: str) -> list[dict[str, Any]]:
    """The objects of a YAML (or JSON) file; `-` reads stdin; a List counts as its items."""
    import yaml

    try:
        text = sys.stdin.read() if path == "-" else read_text(path)
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f" in line {mark.line + 1}" if mark else ""
        raise CommandError(f"{path} is not YAML{position}: {getattr(error, 'problem', None) or error}") from None
    items: list[dict[str, Any]] = []
    for document in documents:
        if not isinstance(document, dict):
            raise CommandError(f"{path} holds {type(document).__name__} where an object with `kind` should be")
        items += _list_items(document)
    if not items:
        raise CommandError(f"{path} holds no object")
    return items


def _list_items(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of one document. Items of a typed list such as `PodList` get the kind that the list implies."""
    kind = str(document.get("kind", ""))
    if not kind.endswith("List"):
        return [document]
    head = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    return [{**head, **item} if isinstance(item, dict) else item for item in document.get("items") or []]


def read_text(path: str) -> str:
    """The text of a file, or of stdin for `-`. Raises CommandError when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not text: UTF-8 is expected") from None


def check(line: CommandLine) -> int:
    """Check the manifests; the exit code is 0 when all of them would be admitted, else 1."""
    if not line.file:
        raise CommandError("`rowlock check` needs the file that would be submitted: `rowlock check -f job.yaml`", 2)
    body = {"objects": load_manifests(line.file), "project": project(line)}
    response = client.connect(line).call("POST", "/api/v1/check", body=body)
    if line.json:
        show_json(response)
    else:
        for result in response["results"]:
            _show_result(result)
    return int(any(result["refused"] for result in response["results"]))


def _show_result(result: dict[str, Any]) -> None:
    title = f"{result['kind']} {result['name']}".strip()
    if not result["refused"]:
        show(f"{title}: admitted")
    else:
        show(f"{title}: refused: {result['refused']}")
    if result["hint"]:
        show(f"  what helps: {result['hint']}")
    for remark in result["remarks"]:
        show(f"  note: {remark}")
