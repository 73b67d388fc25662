"""`why`: what happened to a job, in one sentence, and the evidence for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandLine
from rowlock.cli.lookups import WORKLOADS, find_workload
from rowlock.cli.output import show, show_json

_SHOWN_ENDS = 8


def why(line: CommandLine) -> int:
    """Say in one sentence which rank failed first, or which rank the others wait for."""
    server = client.connect(line)
    workload = find_workload(server, project(line), line.word("job"))
    body = server.get(f"{WORKLOADS}/{workload['id']}/why")
    if line.json:
        show_json(body)
        return 0
    show(body["sentence"])
    ranks = _running_rank_lines(body["ranks"], line.stacks)
    for text in (*_failure_lines(body["incidents"]), *end_lines(body.get("ends") or []), *ranks):
        show(text)
    return 0


def _failure_lines(incidents: list[dict[str, Any]]) -> Iterator[str]:
    """The newest incident, one line per rank, the root cause first; equal lines of repeated failures are merged."""
    texts = Counter(map(_failure_line, incidents[-1]["deaths"] if incidents else ()))
    yield from (f"  {text}" + (f" (×{count})" if count > 1 else "") for text, count in texts.items())
    if len(incidents) > 1:
        yield f"  {len(incidents) - 1} earlier incident{'s' if len(incidents) > 2 else ''}; `--json` shows all"


def end_lines(ends: list[dict[str, Any]]) -> Iterator[str]:
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
