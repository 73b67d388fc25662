"""The request of `rowlock run`: one job whose master and workers run the same command."""

from __future__ import annotations

import math
import os
from typing import Any, cast

from rowlock.cli.context import project, typed_command
from rowlock.cli.grammar import CommandError, CommandLine, is_digits, suggest_nearest
from rowlock.cli.output import parse_duration
from rowlock.cli.run.console import CONSOLE_FIELDS, Console
from rowlock.training.frameworks.torchrun import is_torchrun, launched_ranks

HOST_IMAGE = "rowlock.dev/host"


def submission(
    line: CommandLine, command: list[str], name: str, shell: dict[str, str], console: Console
) -> dict[str, Any]:
    """The request body: one master and N-1 workers with the same spec. `shell` is the shell environment that is sent
    along."""
    from rowlock.cli.compute_flags import compute_request

    roles = console.role_fields()
    spec: dict[str, Any] = {
        "image": line.image,
        "distributedFramework": "PyTorch",
        **({"numWorkers": line.nnodes - 1} if line.nnodes > 1 else {"noWorkers": True}),
        **_program(line, command),
        "nprocPerNode": processes_per_pod(line, command),
        "compute": compute_request(line),
        **({} if line.backoff_limit is None else {"backoffLimit": line.backoff_limit}),
        **({"retryOn": line.retry_on} if line.retry_on else {}),
        **({"neverRetryOn": line.never_retry_on} if line.never_retry_on else {}),
        **({"category": "Build", "priorityClass": "high"} if line.interactive else {}),
        **({"restartPolicy": "OnFailure"} if line.backoff_limit != 0 else {}),
        "environmentVariables": [*_rank_variables(line, command), *environment_variables(line.env)],
        **({"terminationGracePeriodSeconds": whole_seconds(line.grace, "--grace", 0)} if line.grace else {}),
        **(roles if line.nnodes == 1 or console.rank else {}),
    }
    master = {name: name in roles and not console.rank for name in CONSOLE_FIELDS} if roles and line.nnodes > 1 else {}
    return {
        "name": name,
        "projectId": project(line),
        "spec": spec,
        **({"masterSpec": master} if master else {}),
        "submitCommand": typed_command(line),
        **({"maxTimeSeconds": whole_seconds(line.max_time, "--max-time", 1)} if line.max_time else {}),
        **({"tags": line.tag} if line.tag else {}),
        **({"note": line.note} if line.note else {}),
        **({"shellEnvironment": shell} if shell else {}),
    }


def whole_seconds(text: str, flag: str, least: int) -> int:
    """A duration such as `2h` in seconds, rounded up. Raises CommandError for less than `least`."""
    seconds = math.ceil(parse_duration(text, flag))
    if seconds < least:
        raise CommandError(f"{flag} must be at least {least}s, but is {text}", 2)
    return seconds


def _rank_variables(line: CommandLine, command: list[str]) -> list[dict[str, str]]:
    """The variables that torchrun would set for the only rank of a pod. The node adds GROUP_RANK, which equals the rank.

    A job of one process gets them only with an explicit --nproc-per-node 1: a program that starts its own ranks (Lightning's
    Trainer) takes LOCAL_RANK as a sign that a launcher has started them, and would wait for the other ranks forever."""
    if line.nproc_per_node != 1 or (command and is_torchrun(command)):
        return []
    if line.nnodes == 1 and "nproc_per_node" not in line.given_flags:
        return []
    given = {item.partition("=")[0] for item in line.env}
    alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return [{"name": name, "value": value} for name, value in alone.items() if name not in given]


def _program(line: CommandLine, command: list[str]) -> dict[str, Any]:
    """Command and working directory of the pods. An image may have its own; programs of this machine run in this
    directory."""
    program: dict[str, Any] = {}
    if are_arguments(line, command):
        program["args"] = [_escape_dollars(word) for word in command]
    elif command:
        program["command"] = [_escape_dollars(word) for word in launch_command(command, line.nproc_per_node)]
    if line.image == HOST_IMAGE:
        program["workingDir"] = os.path.abspath(line.working_dir or os.getcwd())
    elif line.working_dir:
        program["workingDir"] = line.working_dir
    return program


def are_arguments(line: CommandLine, command: list[str]) -> bool:
    """Whether the words are arguments for the image's ENTRYPOINT: the first one is a flag, which cannot name a program."""
    return bool(line.image != HOST_IMAGE and command and command[0].startswith("-"))


def _escape_dollars(word: str) -> str:
    """Write `$$` as `$$$$`, because Kubernetes replaces `$$` by `$` in commands."""
    return word.replace("$$", "$$$$")


def launch_command(command: list[str], nproc: int | str) -> list[str]:
    """The command each pod runs: as it is, or under torchrun when a pod holds several ranks. torchrun takes the number
    of nodes, this node's rank and the master's address from the environment (`PET_*`)."""
    if nproc == 1 or is_torchrun(command):
        return command
    if not os.path.basename(command[0]).startswith("python"):
        return ["torchrun", "--no-python", *command]
    launcher = [command[0], "-m", "torch.distributed.run"]
    script = command[1:2] and command[1].endswith(".py")
    return [*launcher, *command[1:]] if script else [*launcher, "--no-python", *command]


def parse_processes(text: str, gpus: float | None) -> int | str:
    """The value of `--nproc-per-node` for torchrun: a number, or a word that torchrun resolves in the pod. `gpus`: the number that
    the pod requests; when it is known, `gpu` and `auto` become that number. Raises CommandError."""
    words = ["auto", "cpu", "gpu"]
    if is_digits(text) and int(text) > 0:
        return int(text)
    if text not in words:
        nearest = suggest_nearest(text, words)
        raise CommandError(f"--nproc-per-node takes a number from 1, auto, cpu or gpu, not {text}.{nearest}", 2)
    if text == "gpu" and not gpus:
        raise CommandError(
            "--nproc-per-node gpu means one process for each GPU, and the pods ask for none: add -g N, or say cpu", 2
        )
    return max(1, int(gpus)) if gpus and text != "cpu" else text


def processes_per_pod(line: CommandLine, command: list[str]) -> int | str:
    """Ranks per pod: `--nproc-per-node` of `rowlock run`, or of torchrun when the command is torchrun. Raises CommandError when both
    are given and differ."""
    own = launched_ranks(command)
    if own and "nproc_per_node" in line.given_flags and line.nproc_per_node != own:
        raise CommandError(
            f"--nproc-per-node is {line.nproc_per_node}, and torchrun's own is {own}: leave one of them out", 2
        )
    return own or cast("int | str", line.nproc_per_node)


def environment_variables(entries: list[str]) -> list[dict[str, str]]:
    """Parse `NAME=VALUE`, or `NAME` for the value in this process's environment. Raises CommandError for an unset NAME."""
    variables = []
    for item in entries:
        name, equals, value = item.partition("=")
        if not equals:
            if name not in os.environ:
                raise CommandError(f"--env {name}: you have no variable {name}; write --env {name}=VALUE", 2)
            value = os.environ[name]
        variables.append({"name": name, "value": value})
    return variables
