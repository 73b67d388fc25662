"""`submit(fn)`: a function as the program of every rank. It is pickled into a Secret of the job, and
`rowlock.runtime.function_rank` calls it in each rank; its return value is a line of JSON in the rank's log."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.runtime.function_rank import RESULT, VARIABLE
from rowlock.sdk.client_errors import ClientError, JobFailed
from rowlock.sdk.models import WorkloadInfo, WorkloadPod
from rowlock.sdk.submission_body import JobRequest, job_request

_CHUNK = 96 * 1024
"""Bytes of one environment variable; Linux allows 128 KiB."""
_LIMIT = 400 * 1024
"""The most bytes of the encoded call: it is stored in a Secret, which may have 1 MiB in base64."""


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The return value of one rank: any JSON value."""

    rank: int
    world_size: int
    value: Any


def pickle_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables with the pickled call. Raises ClientError when it cannot be pickled, or is too large."""
    import cloudpickle  # late: scripts that submit commands do not need it

    try:
        pickled = cloudpickle.dumps((fn, args, dict(kwargs)))
    except Exception as error:
        raise ClientError(
            f"{describe_function(fn)} cannot be sent to the ranks ({error}): open files, connections and locks inside of it"
        ) from error
    packed = json.dumps({"path": _module_path(), "call": base64.b64encode(pickled).decode()})
    text = base64.b64encode(zlib.compress(packed.encode())).decode()
    if len(text) > _LIMIT:
        raise ClientError(
            f"{describe_function(fn)} and what goes along with it have {len(text) // 1024} KiB, {_LIMIT // 1024} are allowed:"
            " load data inside of it, from a file or a volume"
        )
    return {f"{VARIABLE}{n}": text[at : at + _CHUNK] for n, at in enumerate(range(0, len(text), _CHUNK))}


def _module_path() -> list[str]:
    """The absolute `sys.path` of this process, from which a rank imports functions of modules."""
    return [os.path.abspath(entry or os.getcwd()) for entry in sys.path if os.path.isdir(entry or ".")]


def describe_function(fn: Callable[..., Any]) -> str:
    """The function's name in messages."""
    return f"function {getattr(fn, '__qualname__', type(fn).__name__)}"


def function_command(nproc_per_node: int) -> list[str]:
    """The command of a pod: this interpreter, with torchrun if a pod has several ranks."""
    launcher = ["-m", "torch.distributed.run"] if nproc_per_node > 1 else []
    return [sys.executable, *launcher, "-m", "rowlock.runtime.function_rank"]


def function_request(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, fields: dict[str, Any]
) -> JobRequest:
    """The job that calls the function in every rank. `fields`: those of `JobRequest` except the command.
    Raises ClientError."""
    nproc = fields.get("nproc_per_node") or 1
    if not isinstance(nproc, int):
        raise ClientError(f"nproc_per_node of a function must be a whole number, but is {nproc!r}")
    if "name" not in fields:
        fields = {**fields, "name": job_name(fn), "name_is_prefix": True}
    spec = {"cleanPodPolicy": "None", **fields.get("spec", {})}  # so that the end of rank 0 does not end the others
    secret = {**fields.get("secret_env", {}), **pickle_call(fn, args, kwargs or {})}
    return job_request(**{**fields, "command": function_command(nproc), "secret_env": secret, "spec": spec})


def job_name(fn: Callable[..., Any]) -> str:
    """A name for the job, derived from the function's."""
    stem = re.sub(r"[^a-z0-9]+", "-", getattr(fn, "__name__", "function").lower()).strip("-")[:40].rstrip("-")
    return stem if stem[:1].isalpha() else f"function-{stem}".rstrip("-")


def has_running_ranks(pods: Iterable[WorkloadPod]) -> bool:
    """Whether a rank still runs and may print its result: the master's end completes a job, but other ranks continue."""
    return any(pod.exit_code is None and pod.status == "Running" for pod in pods)


def read_results(workload: WorkloadInfo, lines: Iterable[str], explanation: str) -> list[Any]:
    """The return value of each rank, ordered by rank; `explanation`: what happened to the job, for errors.
    The last result of a rank counts: earlier ones are from before a restart. Raises JobFailed."""
    if workload.phase != "Completed":
        raise JobFailed(f"{workload.name} is {workload.phase}. {explanation}".rstrip())
    results = {result.rank: result for line in lines if (result := _parse_result(line)) is not None}
    if not results:
        raise JobFailed(f"{workload.name} completed, but no rank told a result: was it submitted as a function?")
    missing = sorted({*range(max(result.world_size for result in results.values()))} - results.keys())
    if missing:  # the master's end completes a job, even if other ranks failed
        ranks = ", ".join(map(str, missing[:10]))
        raise JobFailed(f"{workload.name} completed without a result of rank {ranks}. {explanation}".rstrip())
    return [results[rank].value for rank in sorted(results)]


def _parse_result(line: str) -> FunctionResult | None:
    if not line.startswith(RESULT):
        return None
    try:
        body = json.loads(line.removeprefix(RESULT))
        return FunctionResult(int(body["rank"]), int(body["of"]), body["value"])
    except (ValueError, KeyError, TypeError):
        return None  # a program may print any text with this prefix
