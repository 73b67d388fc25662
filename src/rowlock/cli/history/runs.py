"""`rowlock history`, `show` and `why`: list and show runs, also deleted ones, and say what happened to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.history.checkpoint_files import CheckpointFiles, look_at
from rowlock.cli.history.timeline import draw_timeline, format_span
from rowlock.cli.lookups import WORKLOADS, find_project, find_workload
from rowlock.cli.output import format_age, parse_duration, show, show_json, table, tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import ContainerStop, Run, RunHeader, Runs

RUNS = "/api/v1/runs"
_PHASES = "Pending Running Degraded Stopped Completed Failed Deleted".split()
_MAX_VERDICT = 90
_SHORT_ID = 8


def index(line: CommandLine) -> None:
    """List runs, also deleted ones."""
    server, query = client.connect(line), {}
    if not line.all_projects:
        query["project"] = project(line)
    if line.name:
        query["name"] = line.name
    query |= {name: text for name, text in (("tag", line.tag), ("search", line.search)) if text}
    if line.favourites:
        query["favourite"] = "true"
    if line.status:
        if (word := line.status.capitalize()) not in _PHASES:
            raise CommandError(
                f"there is no status {line.status}.{suggest_nearest(word, _PHASES)} Known: {', '.join(_PHASES)}.", 2
            )
        query["phase"] = word
    if line.since:
        if (
            line.since.replace(".", "").isascii() and line.since.replace(".", "").isdigit()
        ):  # a number without a unit would mean seconds, hardly intended here
            raise CommandError(
                f'invalid argument "{line.since}" for --since: say the unit, for example 7d, 12h or 30m', 2
            )
        query["since"] = str(parse_duration(line.since, "--since"))
    runs, body = _list_runs(server, line.limit, query)
    if line.json:
        show_json(runs)
        return
    if not runs:
        if not line.all_projects:
            find_project(server, project(line))
        show("No runs." if line.all_projects else f"No runs in project {project(line)}.")
    else:
        with_tags = any(run["tags"] or run["favourite"] for run in runs)
        header = (
            "RUN", "ID", *(("PROJECT",) if line.all_projects else ()), "STATUS", "ATTEMPTS", "DURATION", "AGE",
            *(("TAGS",) if with_tags else ()), "VERDICT",
        )  # fmt: skip
        show(table(header, [_row(run, with_project=line.all_projects, with_tags=with_tags) for run in runs]))
    if body.get("next"):
        tell("There are more: --limit N shows them.")
    if body.get("cut"):
        tell(f"The archive removed its oldest runs to keep its limits, last at {body['cut']}.")
    if body.get("problem"):
        tell(f"warning: {body['problem']}")


def _list_runs(server: ServerClient, limit: int, query: dict[str, str]) -> tuple[list[RunHeader], Runs]:
    if limit < 1:
        raise CommandError(f"--limit must be at least 1, but is {limit}", 2)
    runs: list[RunHeader] = []
    while True:
        body: Runs = server.get(RUNS, limit=min(500, limit - len(runs)), offset=len(runs), **query)
        runs += body["runs"]
        if len(runs) >= limit or not body.get("next"):
            return runs, body


def _row(run: RunHeader, *, with_project: bool, with_tags: bool) -> tuple[str, ...]:
    status = run["phase"] + (", deleted" if run["deletedAt"] and run["phase"] != "Deleted" else "")
    verdict = run["verdict"].splitlines()[0] if run["verdict"] else ""
    return (
        run["name"],
        run["id"][:_SHORT_ID],
        *((run["projectName"],) if with_project else ()),
        status,
        str(run["attempts"] or "-"),
        format_span(run["durationSeconds"]) if run["durationSeconds"] is not None else "-",
        format_age(run["createdAt"]),
        *((" ".join(tag_words(run)) or "-",) if with_tags else ()),
        verdict if len(verdict) <= _MAX_VERDICT else verdict[: _MAX_VERDICT - 1] + "…",
    )


def tag_words(run: RunHeader) -> list[str]:
    """The tags of a run, and a word for a favourite."""
    return [*(["(favourite)"] if run["favourite"] else []), *run["tags"]]


def _read_run(server: ServerClient, identity: str) -> Run:
    found: Run = server.get(f"{RUNS}/{identity}")
    return found


def find_run(server: ServerClient, project_name: str, word: str) -> Run:
    """Find a run by its name (the newest; `NAME~1` is the one before), its id, or a prefix of its id. Raises CommandError."""
    name, _, back = word.partition("~")
    if back and not (back.isascii() and back.isdigit()):
        raise CommandError(f"{word}: after ~ stands a number, such as {name}~1 for the run before the newest", 2)
    steps = int(back or 0)
    named = server.get(RUNS, project=project_name, name=name, limit=min(500, steps + 1))["runs"]
    if named and steps < len(named):
        return _read_run(server, named[steps]["id"])
    if named:
        count = "is only 1 run" if len(named) == 1 else f"are only {len(named)} runs"
        raise CommandError(f"there {count} of the name {name}: {name}~{len(named) - 1} is the oldest")
    everything = client.list_all(server, RUNS, "runs")
    by_id = [run for run in everything if len(word) >= 4 and run["id"].startswith(word)]
    if len(by_id) == 1:
        return _read_run(server, by_id[0]["id"])
    if by_id:
        raise CommandError(f"{len(by_id)} runs have ids that begin with {word}: give more of it")
    names = sorted({run["name"] for run in everything if run["projectName"] == project_name})
    raise CommandError(
        f"There is no run {word} in project {project_name}.{suggest_nearest(name, names)} `rowlock history` shows them all;"
        " -p <project> names another project."
    )


# ---------------------------------------------------------------- one run


def show_run(line: CommandLine) -> None:
    """Show one run: its phases, ranks, verdict, command and code."""
    server = client.connect(line)
    run = find_run(server, project(line), line.word("run"))
    if line.json:
        show_json(run)
        return
    for text in _describe(run, look_at(server, run)):
        show(text)


def _describe(run: Run, checkpoints: CheckpointFiles | None) -> Iterator[str]:
    ran = run["ran"]
    yield f"{run['name']}  ({run['id']})"
    yield f"  project:   {run['projectName']}"
    gone = f", deleted {format_age(run['deletedAt'])} ago" if run["deletedAt"] else ""
    took = f" after {format_span(run['durationSeconds'])}" if run["durationSeconds"] is not None else ""
    yield f"  status:    {run['phase']}{took}{gone}"
    yield f"  submitted: {run['createdAt']} ({format_age(run['createdAt'])} ago)"
    if run["verdict"]:
        yield f"  verdict:   {run['verdict']}"
    if words := tag_words(run):
        yield f"  tags:      {' '.join(words)}"
    if run["note"]:
        yield f"  note:      {run['note']}"
    yield from _describe_program(ran)
    if checkpoints:
        yield f"  checkpoints: {checkpoints.describe()}"
    if run["phases"]:
        yield ""
        yield from draw_timeline(run["phases"], run["ranks"])
    if run.get("ends"):
        yield ""
        yield from end_lines(run["ends"])
    yield ""
    yield f"Logs: `rowlock logs {run['name']}`" + (
        f", of an earlier attempt with --attempt N (1 to {run['attempts']})" if run["attempts"] > 1 else ""
    )


def _describe_program(ran: dict[str, Any]) -> Iterator[str]:
    import shlex

    if ran["commandLine"]:
        yield f"  submitted as: {ran['commandLine']}"
    yield f"  command:   {shlex.join(ran['command']) or '(the image’s own)'}"
    yield f"  image:     {ran['image']}"
    if ran["workingDir"]:
        yield f"  directory: {ran['workingDir']}"
    yield f"  replicas:  {', '.join(f'{role} {count}' for role, count in ran['replicas'].items())}"
    yield from _describe_code(ran["code"] or {})
    names = [*ran["environment"], *(f"all of {source}" for source in ran["environmentFrom"])]
    yield f"  variables: {', '.join(names) or 'none'}"


def _describe_code(code: dict[str, Any]) -> Iterator[str]:
    if code.get("commit") or code.get("snapshot"):
        changed = code.get("changedFiles")
        files = f" with {changed} changed {'file' if changed == 1 else 'files'}" if changed else ""
        commit = f"commit {str(code['commit'])[:12]}{files} of " if code.get("commit") else ""
        kept = f" (kept: {str(code['snapshot'])[:12]})" if code.get("snapshot") else ""
        yield f"  code:      {commit}{code.get('source') or code.get('repository')}{kept}"
    if code.get("note"):
        yield f"             {code['note']}"
    if code.get("python"):
        yield f"  python:    {code.get('pythonVersion')}, {code['python']}"


def kept_request(run: Run, again: str) -> dict[str, Any]:
    """The request that created a run. Raises CommandError when there is none (the job was created from a manifest); its message
    says where to apply the manifest instead: `again` is "again" or "there"."""
    body = run["ran"]["request"]
    if not isinstance(body, dict) or not isinstance(body.get("spec"), dict):
        raise CommandError(
            f"{run['name']} was not submitted by rowlock, runai or the REST API, so no request of it was kept: apply its manifest {again}"
            " (`rowlock show --json` has it as `manifest`: … | jq .manifest | kubectl apply -f -)"
        )
    return body


def had_shell_environment(run: Run) -> bool:
    """Whether the run had variables of a shell. Their values are in a Secret, whose name begins with the run's."""
    return any(word.startswith(f"secret/{run['name']}-environment-") for word in run["ran"]["environmentFrom"])


_SHOWN_ENDS = 8


def why(line: CommandLine) -> None:
    server = client.connect(line)
    workload = find_workload(server, project(line), line.word("job"))
    body = server.get(f"{WORKLOADS}/{workload['id']}/why")
    if line.json:
        show_json(body)
        return
    show(body["sentence"])
    ranks = _running_rank_lines(body["ranks"], line.stacks)
    for text in (*_failure_lines(body["incidents"]), *end_lines(body.get("ends") or []), *ranks):
        show(text)


def _failure_lines(incidents: list[dict[str, Any]]) -> Iterator[str]:
    """The newest incident, one line per rank, the root cause first; equal lines of repeated failures are merged."""
    texts = Counter(map(_failure_line, incidents[-1]["deaths"] if incidents else ()))
    yield from (f"  {text}" + (f" (×{count})" if count > 1 else "") for text, count in texts.items())
    if len(incidents) > 1:
        yield f"  {len(incidents) - 1} earlier incident{'s' if len(incidents) > 2 else ''}; `--json` shows all"


def end_lines(ends: list[ContainerStop]) -> Iterator[str]:
    """Why running programs were stopped, and how they ended: the newest `_SHOWN_ENDS`, one line each."""
    if len(ends) > _SHOWN_ENDS:
        yield f"  {len(ends) - _SHOWN_ENDS} earlier stops; `--json` shows all"
    for end in ends[-_SHOWN_ENDS:]:
        yield f"  {end['pod']}: {end['sentence']}" + (f" (×{end['count']})" if end["count"] > 1 else "")


def _failure_line(failure: dict[str, Any]) -> str:
    error = failure["trouble"]
    text = f"exit code {failure['code']}"
    if failure["reason"]:
        text += f", {failure['reason']}"
    if error:
        location = f" ({error['place']})" if error["place"] else ""
        text += f": {error['kind']}{': ' + error['text'] if error['text'] else ''}{location}"
        text += "  [secondary: it lost a peer]" if error["secondary"] else ""
    elif failure["stopped"]:
        text += "  [it was told to end]"
    return f"{failure['rank']}, run {failure['run']}: {text}"


def _running_rank_lines(ranks: list[dict[str, Any]], stacks: bool) -> Iterator[str]:
    for rank in ranks:
        if rank.get("ended") or rank.get("program"):
            yield f"  {rank['rank']}: {'ended with 0' if rank.get('ended') else 'not begun, runs ' + rank['program']}"
            continue
        waits = f"waits in {rank['waits']}" if rank["waits"] else "stopped" if rank["state"] == "T" else "running"
        yield f"  {rank['rank']}: {waits}, {rank['cpu']:.2f} CPUs, silent for {rank['silent']:.0f} s"
        if rank.get("error"):
            yield f"      it has failed and does not end: {rank['error']}"
        if not stacks:
            continue
        if rank["blind"]:
            yield f"      {rank['blind']}"
        yield from (f"      {frame}" for frame in rank["stack"])
