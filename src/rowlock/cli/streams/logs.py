"""`rowlock logs`: prints all ranks of a job in one stream, each line labelled with its rank, or one rank or one pod unlabelled."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from rowlock.cli import client
from rowlock.cli.context import context_flags, project
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.live_lines import TERMINAL
from rowlock.cli.logs.folding import fold_followed, fold_lines
from rowlock.cli.lookups import WORKLOADS, find_workload_or_past
from rowlock.cli.output import parse_duration, tell

if TYPE_CHECKING:
    from rowlock.answers.workloads import Pod, Workload

GONE_CHIEF = "chief"
"""The name by which the server finds the default pod of a job whose pods are gone."""


class _ChosenPod(NamedTuple):
    """A pod by its name, "" if none was chosen. `local_rank`: the chosen one of several ranks that torchrun starts in the pod."""

    name: str
    local_rank: int | None = None


def _lines_of_end(count: int | None) -> int | None:
    """The value of --tail; None for the whole log, which is -1 as in kubectl. Raises CommandError."""
    if count is not None and count < -1:
        raise CommandError(f"--tail must be at least 0, or -1 for all lines, but is {count}", 2)
    return None if count == -1 else count


def logs(line: CommandLine) -> None:
    name, tail = line.word("job"), _lines_of_end(line.tail)
    server = client.connect(line)
    workload = find_workload_or_past(server, project(line), name)
    path = f"{WORKLOADS}/{workload['id']}"
    container = getattr(line, "container", None)
    options = {"follow": line.follow, "timestamps": line.timestamps, "tail": tail, "container": container}
    if line.since:
        options["since"] = parse_duration(line.since, "--since")
    if line.attempt is not None:
        if line.attempt < 1:
            raise CommandError(f"--attempt counts from 1, but is {line.attempt}", 2)
        if line.previous:
            raise CommandError("--previous and --attempt both name an attempt: give one of them", 2)
        options["attempt"] = line.attempt
    chosen = _choose_pod(server, workload, line, gone=True)
    if line.follow and line.program == "rowlock":
        _tell_why_nothing_comes(line, workload)
    if line.fold:
        if chosen.name:
            raise CommandError("--fold is for the log of all ranks: leave it out, or --rank and --pod", 2)
        write_merged(server, f"{path}/logs", previous=line.previous, fold=True, **options)
        return
    if chosen.name:
        counts_here = chosen.local_rank is not None and tail is not None and not line.follow
        if counts_here:
            options["tail"] = None  # the server counts lines of the pod, not of the rank
        own = {**options, "previous": line.previous, "localRank": chosen.local_rank}
        if line.rank is not None and not sys.stdout.isatty():
            own["progress"] = False  # a progress bar becomes one line, as without --rank
        read = server.stream_lines if counts_here else server.stream_pieces
        lines = read(f"{path}/pods/{chosen.name}/logs", **own)
        write_lines(deque(lines, tail) if counts_here else lines)
        return
    write_merged(server, f"{path}/logs", previous=line.previous, **options)


def _tell_why_nothing_comes(line: CommandLine, workload: Workload) -> None:
    """Tell the user why a followed job prints nothing yet."""
    name, phase, reason = workload["name"], workload["phase"], workload.get("phaseMessage")
    if phase == "Stopped":
        tell(f"Job {name} is suspended: `rowlock resume {name}{context_flags(line)}` starts it again")
    elif phase in ("Creating", "Pending") and reason:
        tell(f"Job {name} is {phase.lower()}: {reason}")


def find_pod_name(server: client.ServerClient, workload: Workload, word: str, *, gone: bool = False) -> str:
    """The full name of a pod, from its name or the part after the job's name. With `gone` the pod may be deleted: the server then
    resolves the name. Raises CommandError."""
    names = [p["name"] for p in client.list_all(server, f"{WORKLOADS}/{workload['id']}/pods", "pods")]
    for name in names:
        if word in (name, name.removeprefix(f"{workload['name']}-")):
            return str(name)
    if gone:
        return word if word.startswith(f"{workload['name']}-") else f"{workload['name']}-{word}"
    hint = f" Its pods: {', '.join(names)}." if names else " It has no pods."
    raise CommandError(
        f"Failed to find pod: '{word}' of job: '{workload['name']}'.{suggest_nearest(word, names)}{hint}"
    )


def selected_pod(server: client.ServerClient, workload: Workload, line: CommandLine) -> str:
    """The existing pod that `--pod` or `--rank` names; "" when neither flag is given. Raises CommandError."""
    return _choose_pod(server, workload, line, gone=False).name


def _choose_pod(server: client.ServerClient, workload: Workload, line: CommandLine, *, gone: bool) -> _ChosenPod:
    rank = getattr(line, "rank", None)
    if line.pod and rank is not None:
        raise CommandError("--pod and --rank both name a pod: give one of them", 2)
    if rank is not None and rank < 0:
        raise CommandError(f"--rank counts from 0, but is {rank}", 2)
    if rank is not None:
        return _pod_of_rank(server, workload, rank, gone=gone)
    return _ChosenPod(find_pod_name(server, workload, line.pod, gone=gone) if line.pod else "")


def _pod_of_rank(server: client.ServerClient, workload: Workload, rank: int, *, gone: bool) -> _ChosenPod:
    """The pod that runs this rank of the job. Raises CommandError when there is none."""
    pods = client.list_all(server, f"{WORKLOADS}/{workload['id']}/pods", "pods")
    ranks = {p["rank"]: str(p["name"]) for p in pods}
    if name := ranks.get(f"rank {rank}"):
        return _ChosenPod(name)
    if (chosen := _pod_of_launched_rank(workload, rank, pods)) is not None:
        return chosen
    if gone and (not pods or any(tag.startswith("rank ") for tag in ranks)):
        return _ChosenPod(f"rank-{rank}")
    if not any(tag.startswith("rank ") for tag in ranks):
        raise CommandError(
            f"the pods of {workload['name']} do not have one rank each: choose one with --pod ({', '.join(ranks) or 'none yet'})"
        )
    raise CommandError(f"{workload['name']} has no rank {rank}; it has {', '.join(ranks)}.")


def _pod_of_launched_rank(workload: Workload, rank: int, pods: list[Pod]) -> _ChosenPod | None:
    """The pod in which torchrun starts this rank, the newest if it was recreated. None when it is unknown which ranks torchrun starts.
    Raises CommandError when the job has no such rank."""
    launched = [
        (str(p["name"]), p["launchedRanks"]["first"], p["launchedRanks"]["count"]) for p in pods if p["launchedRanks"]
    ]
    if not launched:
        return None
    found = next((one for one in reversed(launched) if 0 <= rank - one[1] < one[2]), None)
    if found is None:
        last = max(first + count for _, first, count in launched) - 1
        raise CommandError(
            f"{workload['name']} has no rank {rank}; its ranks are 0 to {last}, {launched[0][2]} in each pod."
        )
    name, first, count = found
    tell(
        f"Rank {rank} runs in {name}, with all of ranks {first} to {first + count - 1}: torchrun puts their lines into one log. "
        "Where its environment has PET_TEE=3 it says whose each is, and the others' are left out."
    )
    return _ChosenPod(name, rank - first)


def write_merged(server: client.ServerClient, path: str, *, fold: bool = False, **options: Any) -> None:
    """Print the merged log of all ranks. `fold`: print equal lines of several ranks once. Without it, a terminal shows each rank's
    progress bar below the log, labelled with the rank."""
    if fold:
        fold_all = fold_followed if options.get("follow") else fold_lines
        write_lines(fold_all(server.stream_lines(path, **options), stamped=bool(options.get("timestamps"))))
        return
    live = sys.stdout.isatty()
    write_lines(server.stream_lines(path, progress=live, **options), live=live)


def write_lines(lines: Iterable[bytes], *, live: bool = False) -> None:
    """Write lines, or any pieces of text, to stdout as bytes and flush after each. With `live` the stream contains states of unfinished
    lines."""
    if not live:
        for text in lines:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        return
    try:
        for text in lines:
            TERMINAL.write(text.decode(errors="replace"))
    finally:
        TERMINAL.clear()
