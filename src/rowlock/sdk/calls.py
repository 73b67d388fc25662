"""Every request of both clients: what is sent, and how the answer is parsed. No I/O."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rowlock import submit_fields
from rowlock.sdk.models import FINISHED_PHASES, LogLine, ProjectInfo, RunInfo, WorkloadInfo, WorkloadPod
from rowlock.sdk.sweep_models import SweepInfo, SweepRunInfo, read_runs

if TYPE_CHECKING:
    from rowlock.answers.workloads import UsageHours

T = TypeVar("T")
_WORKLOADS, _PROJECTS, _RUNS, _SWEEPS = (
    "/api/v1/workloads", "/api/v1/org-unit/projects", "/api/v1/runs", "/api/v1/sweeps",
)  # fmt: skip
PAGE = 500
"""Items per page of a list."""
POLL_S = 30.0
"""The longest time in seconds that one request for a phase waits at the server."""


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """A request, and the function (`read`) that turns its decoded JSON into a value."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    key: str = ""
    """The idempotency key, by which the server recognises a retry; only a call with a key may be retried."""

    def headers(self) -> dict[str, str]:
        return {submit_fields.KEY_HEADER: self.key} if self.key else {}

    def parameters(self) -> dict[str, str]:
        """The query parameters as text, without those that are None or ""."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.query.items()
            if value is not None and value != ""
        }


@dataclass(frozen=True, slots=True)
class ItemPage(Generic[T]):
    """One page of a list, and the offset of the next one; None = this is the last."""

    items: list[T]
    next_offset: int | None


def _as_is(body: Any) -> Any:
    return body


def _no_value(_: Any) -> None:
    return None


def _path(identity: str, *more: str) -> str:
    return "/".join([_WORKLOADS, urllib.parse.quote(identity, safe=""), *more])


def _read_page(name: str, read: Callable[[Any], T]) -> Callable[[Any], ItemPage[T]]:
    def read_page(body: Any) -> ItemPage[T]:
        following = body.get("next")
        return ItemPage([read(item) for item in body[name]], None if following is None else int(following))

    return read_page


def plain(method: str, path: str, query: Mapping[str, Any], body: Any) -> ApiCall[Any]:
    """Any other request of the REST API."""
    return ApiCall(method, path, _as_is, query, body)


def submit(body: Mapping[str, Any], key: str) -> ApiCall[WorkloadInfo]:
    """A submit. It is refused if the embedded cluster lacks the image: the job would never start, and `wait` never return."""
    return ApiCall("POST", f"{_WORKLOADS}/distributed", WorkloadInfo.from_submit, {"requireImages": True}, body, key)


def usage(by: str, since: float, project: str) -> ApiCall[UsageHours]:
    """GPU hours; the server's most rows."""
    return ApiCall("GET", "/api/v1/hours", _as_is, {"by": by, "since": since, "project": project, "limit": 10_000})


def workload(identity: str) -> ApiCall[WorkloadInfo]:
    return ApiCall("GET", _path(identity), WorkloadInfo.from_json)


def workloads(offset: int, filters: Mapping[str, str], search: str) -> ApiCall[ItemPage[WorkloadInfo]]:
    """A page of the workloads whose fields (`projectName`, `name`, `phase`, …) have these values; "" = any."""
    conditions = ",".join(f"{name}=={value}" for name, value in filters.items() if value)
    query = {"offset": offset, "limit": PAGE, "filterBy": conditions, "search": search}
    return ApiCall("GET", _WORKLOADS, _read_page("workloads", WorkloadInfo.from_json), query)


def wait(identity: str, phases: Iterable[str] = FINISHED_PHASES, seconds: float = POLL_S) -> ApiCall[WorkloadInfo]:
    query = {"for": ",".join(phases), "timeout": f"{max(0.0, seconds):.3f}"}
    return ApiCall("GET", _path(identity, "wait"), WorkloadInfo.from_json, query)


def pods(identity: str) -> ApiCall[list[WorkloadPod]]:
    def read(body: Any) -> list[WorkloadPod]:
        return [WorkloadPod.from_json(item) for item in body["pods"]]

    return ApiCall("GET", _path(identity, "pods"), read, {"limit": PAGE})


def why(identity: str) -> ApiCall[str]:
    return ApiCall("GET", _path(identity, "why"), lambda body: str(body["sentence"]))


def explain(identity: str) -> ApiCall[str]:
    return ApiCall(
        "GET", _path(identity, "explain"), lambda body: f"{body['message']} {body.get('heldBy') or ''}".strip()
    )


def events(identity: str) -> ApiCall[list[Mapping[str, Any]]]:
    return ApiCall("GET", _path(identity, "events"), lambda body: list(body["events"]), {"limit": PAGE})


def set_suspended(identity: str, *, suspended: bool) -> ApiCall[None]:
    return ApiCall("POST", _path("distributed", identity, "suspend" if suspended else "resume"), _no_value)


def delete(identity: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path("distributed", identity), _no_value)


def logs(
    identity: str, *, rank: int | None, follow: bool, tail: int | None, attempt: int | None, timestamps: bool
) -> ApiCall[None]:
    """A stream of lines: of all ranks, or of one."""
    parts = ("logs",) if rank is None else ("pods", f"rank-{rank}", "logs")
    query: dict[str, Any] = {"follow": follow, "tail": tail, "attempt": attempt, "timestamps": timestamps}
    if follow and rank is not None:
        query["progress"] = "false"  # complete lines only; a progress bar becomes a line now and then
    return ApiCall(
        "GET", _path(identity, *parts), _no_value, {k: v for k, v in query.items() if v is not None and v is not False}
    )


def projects(offset: int) -> ApiCall[ItemPage[ProjectInfo]]:
    return ApiCall("GET", _PROJECTS, _read_page("projects", ProjectInfo.from_json), {"offset": offset, "limit": PAGE})


def create_project(name: str, gpus: float) -> ApiCall[ProjectInfo]:
    resources = [{"nodePool": {"name": "default"}, "gpu": {"deserved": gpus}}]
    body = {"name": name, "resources": resources}
    return ApiCall("POST", _PROJECTS, ProjectInfo.from_json, body=body)


def runs(offset: int, project: str, name: str, tag: str, search: str) -> ApiCall[ItemPage[RunInfo]]:
    query = {"offset": offset, "limit": PAGE, "project": project, "name": name, "tag": tag, "search": search}
    return ApiCall("GET", _RUNS, _read_page("runs", RunInfo.from_json), query)


def submit_sweep(body: Mapping[str, Any], key: str) -> ApiCall[SweepInfo]:
    """A new sweep. It is refused if the embedded cluster lacks the image, as a submit is."""
    return ApiCall("POST", _SWEEPS, SweepInfo.from_json, {"requireImages": True}, body, key)


def sweeps(project: str, name: str = "") -> ApiCall[list[SweepInfo]]:
    """The sweeps of a project, or with "" of all; only that of this name, if one is given."""

    def read(body: Any) -> list[SweepInfo]:
        return [SweepInfo.from_json(item) for item in body["sweeps"]]

    return ApiCall("GET", _SWEEPS, read, {"project": project, "name": name})


def sweep(identity: str) -> ApiCall[SweepInfo]:
    return ApiCall("GET", _sweep_path(identity), SweepInfo.from_json)


def sweep_runs(identity: str, metric: str, *, maximize: bool) -> ApiCall[tuple[list[SweepRunInfo], int]]:
    """The runs, and how many of them were not read in the time of one answer."""
    query = {"metric": metric, "order": "max" if maximize else "min"} if metric else {}
    return ApiCall("GET", _sweep_path(identity), read_runs, query)


def set_sweep_stopped(identity: str, *, stopped: bool, now: bool = False) -> ApiCall[None]:
    query = {"now": True} if now else {}
    return ApiCall("POST", _sweep_path(identity, "stop" if stopped else "resume"), _no_value, query)


def delete_sweep(identity: str) -> ApiCall[None]:
    return ApiCall("DELETE", _sweep_path(identity), _no_value)


def _sweep_path(identity: str, *more: str) -> str:
    return "/".join([_SWEEPS, urllib.parse.quote(identity, safe=""), *more])


def mark_run(identity: str, marks: Mapping[str, Any]) -> ApiCall[RunInfo]:
    """Write on a run; fields that are None stay as they are."""
    body = {name: value for name, value in marks.items() if value is not None}
    return ApiCall("PATCH", f"{_RUNS}/{urllib.parse.quote(identity, safe='')}", RunInfo.from_json, body=body)


class LogLineSplitter:
    """Splits chunks of bytes into complete lines without their newlines."""

    def __init__(self) -> None:
        self._rest = b""
        self.last_line = b""
        """The last complete line."""

    def feed_chunk(self, chunk: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.last_line = lines[-1] if lines else self.last_line
        yield from lines

    def flush(self) -> Iterator[bytes]:
        """The rest after the last newline, at the end of the stream."""
        if self._rest:
            yield self._rest
            self._rest = b""


def read_log_line(line: bytes, rank: int | None) -> LogLine:
    """A line of the requested log: the log of a single `rank` has no rank tags."""
    return LogLine.from_line(line) if rank is None else LogLine(f"rank {rank}", line.decode(errors="replace"))
