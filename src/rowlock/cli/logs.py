"""`rowlock logs`: all ranks of a job in one stream, each line under its rank; or one pod's log as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rowlock.cli import client
from rowlock.cli.grammar import Line, Refused, nearest
from rowlock.cli.jobs import WORKLOADS, find
from rowlock.cli.output import seconds
from rowlock.cli.place import project


def logs(line: Line) -> int:
    name = line.word("job")
    server = client.connect(line)
    workload = find(server, project(line), name)
    one = f"{WORKLOADS}/{workload['id']}"
    asked = {"follow": line.follow, "timestamps": line.timestamps, "tail": line.tail}
    if line.since:
        asked["since"] = seconds(line.since, "--since")
    if line.pod:
        pod = pod_name(server, workload, line.pod)
        write(server.lines(f"{one}/pods/{pod}/logs", previous=line.previous, **asked))
        return 0
    if line.previous:
        raise Refused("--previous needs --pod: every rank has restarts of its own", 2)
    write(server.lines(f"{one}/logs", **asked))
    return 0


def pod_name(server: client.Server, workload: dict[str, Any], word: str) -> str:
    """The pod that a word names: its name, or what comes after the job's."""
    names = [p["name"] for p in client.pages(server, f"{WORKLOADS}/{workload['id']}/pods", "pods")]
    for name in names:
        if word in (name, name.removeprefix(f"{workload['name']}-")):
            return str(name)
    known = f" Its pods: {', '.join(names)}." if names else " It has no pods."
    raise Refused(f"Failed to find pod: '{word}' of job: '{workload['name']}'.{nearest(word, names)}{known}")


def write(lines: Iterable[bytes]) -> None:
    """To stdout as bytes, line by line: a follower sees each at once."""
    for text in lines:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
