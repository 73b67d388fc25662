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
    if pod := meant_pod(server, workload, line):
        write(server.lines(f"{one}/pods/{pod}/logs", previous=line.previous, **asked))
        return 0
    if line.previous:
        raise Refused("--previous needs --rank or --pod: every rank has restarts of its own", 2)
    try:
        write(server.lines(f"{one}/logs", **asked))
    except client.ServerRefused as refusal:
        raise Refused(refusal.message + _kept(server, workload)) from None
    return 0


def _kept(server: client.Server, workload: dict[str, Any]) -> str:
    """Where the logs of a job's pods are that are gone; "" when there are none."""
    import glob
    import os

    logs = os.path.join(server.directory, "logs")
    first = glob.escape(os.path.join(logs, f"{workload['namespace']}_{workload['name']}-"))
    return f" Logs of its earlier pods: {first}*/" if glob.glob(f"{first}*-[0-9]*_*") else ""


def pod_name(server: client.Server, workload: dict[str, Any], word: str) -> str:
    """The pod that a word names: its name, or what comes after the job's."""
    names = [p["name"] for p in client.pages(server, f"{WORKLOADS}/{workload['id']}/pods", "pods")]
    for name in names:
        if word in (name, name.removeprefix(f"{workload['name']}-")):
            return str(name)
    known = f" Its pods: {', '.join(names)}." if names else " It has no pods."
    raise Refused(f"Failed to find pod: '{word}' of job: '{workload['name']}'.{nearest(word, names)}{known}")


def meant_pod(server: client.Server, workload: dict[str, Any], line: Line) -> str:
    """The pod that `--pod` or `--rank` names; "" where neither is given."""
    rank = getattr(line, "rank", None)
    if line.pod and rank is not None:
        raise Refused("--pod and --rank both name a pod: give one of them", 2)
    if rank is not None:
        return _pod_of(server, workload, rank)
    return pod_name(server, workload, line.pod) if line.pod else ""


def _pod_of(server: client.Server, workload: dict[str, Any], rank: int) -> str:
    """The pod that is this rank of the job."""
    pods = client.pages(server, f"{WORKLOADS}/{workload['id']}/pods", "pods")
    ranks = {p["rank"]: str(p["name"]) for p in pods}
    if found := ranks.get(f"rank {rank}"):
        return found
    if not any(tag.startswith("rank ") for tag in ranks):
        raise Refused(
            f"the pods of {workload['name']} are not one rank each: name one with --pod ({', '.join(ranks) or 'none yet'})"
        )
    raise Refused(f"{workload['name']} has no rank {rank}; it has {', '.join(ranks)}.")


def write(lines: Iterable[bytes]) -> None:
    """To stdout as bytes, line by line: a follower sees each at once."""
    for text in lines:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
