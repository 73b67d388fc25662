"""`why`: what happened to a job, in one sentence, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock.cli import client
from rowlock.cli.grammar import Line
from rowlock.cli.jobs import WORKLOADS, find
from rowlock.cli.output import show, show_json
from rowlock.cli.place import project


def why(line: Line) -> int:
    server = client.connect(line)
    workload = find(server, project(line), line.word("job"))
    body = server.get(f"{WORKLOADS}/{workload['id']}/why")
    if line.json:
        show_json(body)
        return 0
    show(body["sentence"])
    for text in (*_deaths(body["incidents"]), *_living(body["ranks"], line.stacks)):
        show(text)
    return 0


def _deaths(incidents: list[dict[str, Any]]) -> Iterator[str]:
    """The last incident, a line a rank, the cause first."""
    for death in incidents[-1]["deaths"] if incidents else ():
        trouble = death["trouble"]
        said = f"exit code {death['code']}"
        if death["reason"]:
            said += f", {death['reason']}"
        if trouble:
            where = f" ({trouble['place']})" if trouble["place"] else ""
            said += f": {trouble['kind']}{': ' + trouble['text'] if trouble['text'] else ''}{where}"
            said += "  [an echo: it lost a peer]" if trouble["secondary"] else ""
        elif death["stopped"]:
            said += "  [it was asked to end]"
        yield f"  {death['rank']}, run {death['run']}: {said}"
    if len(incidents) > 1:
        yield f"  {len(incidents) - 1} earlier incident{'s' if len(incidents) > 2 else ''}; `--json` shows all"


def _living(ranks: list[dict[str, Any]], stacks: bool) -> Iterator[str]:
    for rank in ranks:
        waits = f"waits in {rank['waits']}" if rank["waits"] else "stopped" if rank["state"] == "T" else "at work"
        yield f"  {rank['rank']}: {waits}, {rank['cpu']:.2f} CPUs, silent for {rank['silent']:.0f} s"
        if not stacks:
            continue
        if rank["blind"]:
            yield f"      {rank['blind']}"
        yield from (f"      {frame}" for frame in rank["stack"])
