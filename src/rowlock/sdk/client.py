"""`Client`: rowlock from Python. `make docs` writes this file from `async_client.py`: change that one."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from rowlock.sdk import calls
from rowlock.sdk.calls import ApiCall, ItemPage
from rowlock.sdk.client_errors import ClientError, RequestRefused
from rowlock.sdk.function_calls import function_request, has_running_ranks, read_results
from rowlock.sdk.http_answers import (
    DEFAULT_TIMEOUT,
    Tries,
    client_options,
    decode_answer,
    stream_broken,
    unreachable,
    warn_of,
)
from rowlock.sdk.models import FINISHED_PHASES, LogLine, ProjectInfo, RunInfo, WorkloadInfo, WorkloadPod
from rowlock.sdk.server_address import LOCAL, ServerAddress, choose_login, find_server
from rowlock.sdk.submission_body import JobRequest, job_request
from rowlock.sdk.sweep_models import SweepInfo
from rowlock.sdk.sweep_request import Space, sweep_request
from rowlock.sdk.sweeps import SweepHandle

if TYPE_CHECKING:
    from rowlock.answers.workloads import UsageHours

T = TypeVar("T")
_LOOK_S = 0.2
"""Seconds between checks of ranks that still run after the master has ended."""


class Client:
    """A connection to a server. Without arguments: the server of this user's data directory, as its owner.

    `url`, `ca` (the file of its certificate authority) and `token`, or `username` and `password`, or `client_id` and
    `client_secret`, name another server; so do `ROWLOCK_URL`, `ROWLOCK_CA` and `ROWLOCK_TOKEN`. `project`: the default for
    submits. `timeout` is in seconds. Use it in a `with` statement, or call `close`. Threads may share it.
    Methods raise RequestRefused with the server's sentence, and ServerUnreachable."""

    def __init__(
        self,
        url: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        token: str | None = None,
        username: str | None = None,
        password: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        project: str = "default",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        login = choose_login(username, password, client_id, client_secret)
        self.address: ServerAddress = find_server(url, data_dir=data_dir, ca=ca, token=token, login=login)
        self.project = project
        self._token = self.address.token
        self._http = httpx.Client(**client_options(self.address, timeout))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    # ------------------------------------------------------------ workloads

    def submit(self, name: str, command: Any = (), **fields: Any) -> JobHandle:
        """Submit a distributed workload, and return its `JobHandle` without waiting for it to run.

        `command` is a list of words or one line for `shlex`; without it an image runs its own. Fields: `project`, `image`
        (default: the programs of the server's machine, in this directory), `framework` (PyTorch, TF, MPI, XGBoost, JAX),
        `nnodes` (pods, the master among them), `nproc_per_node`, `gpus` (per pod; below 1: a share), `cpus`, `memory` (`2G`),
        `env`, `secret_env` (variables that are kept in a Secret), `working_dir`, `retries` (restarts of a rank that fails), `spec` (any other field of
        Run:ai's request), `idempotency_key` (for a program that retries by itself). If the answer is lost, the same submit is sent
        again, at most three times, and only one job is created. Raises TypeError for an unknown field."""
        return self.submit_request(job_request(name=name, command=command, **fields))

    def submit_request(self, request: JobRequest) -> JobHandle:
        """Submit a `JobRequest`."""
        call = calls.submit(request.body(self.project), request.key())
        workload = self.run_call(call)
        return JobHandle(self, replace(workload, project=request.project or self.project))

    def submit_function(
        self,
        fn: Callable[..., Any],
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> JobHandle:
        """Submit a job in which every rank calls `fn(*args, **kwargs)`, with RANK, WORLD_SIZE and MASTER_ADDR in its
        environment. `JobHandle.results` waits for the return values of the ranks. The function is pickled with its
        closure; functions of modules are imported, so a rank needs those files. Fields: as for `submit`; without a `name`
        the job is named after the function, with a suffix. Raises ClientError when it cannot be pickled."""
        return self.submit_request(function_request(fn, args, kwargs, fields))

    def workloads(self, project: str = "", *, phase: str = "", search: str = "") -> Iterator[WorkloadInfo]:
        """The workloads that this login may see; optionally only those of a project, in a phase, or with `search` in their name."""
        filters = {"projectName": project, "phase": phase}
        return self._items(lambda offset: calls.workloads(offset, filters, search))

    def job(self, name: str, project: str = "") -> JobHandle:
        """The workload with this name (in the client's project if none is given), or with this id. Raises ClientError."""
        filters = {"projectName": project or self.project, "name": name}
        for workload in self._items(lambda offset: calls.workloads(offset, filters, "")):
            return JobHandle(self, workload)
        return JobHandle(self, self.run_call(calls.workload(name)))

    def projects(self) -> Iterator[ProjectInfo]:
        """The projects that this login may see."""
        return self._items(calls.projects)

    def create_project(self, name: str, *, gpus: float = 0) -> ProjectInfo:
        """Create a project with a quota of GPUs."""
        return self.run_call(calls.create_project(name, gpus))

    def runs(self, project: str = "", *, name: str = "", tag: str = "", search: str = "") -> Iterator[RunInfo]:
        """Runs, the newest first, deleted workloads included; `name` may contain `*`, `search` is in their name, note or tags."""
        return self._items(lambda offset: calls.runs(offset, project, name, tag, search))

    def mark_run(
        self, id: str, *, tags: Iterable[str] | None = None, note: str | None = None, favourite: bool | None = None
    ) -> RunInfo:
        """Write on a run, by its id: its tags, its note, and whether it is kept beyond the retention; None leaves them as they are."""
        marks = {"tags": None if tags is None else list(tags), "note": note, "favourite": favourite}
        return self.run_call(calls.mark_run(id, marks))

    def usage(self, by: str = "project", *, since: float = 7 * 86400, project: str = "") -> UsageHours:
        """GPU hours of the last `since` seconds, as the answer of the REST API (`rows`, `total`): held, used, idle, wasted by failures; and how
        long jobs waited. `by`: project, user or job. Optionally only those of a project."""
        return self.run_call(calls.usage(by, since, project))

    # ------------------------------------------------------------ sweeps

    def sweep(
        self,
        program: Any,
        space: Space,
        *,
        name: str = "",
        search: str | None = None,
        samples: int | None = None,
        seed: int | None = None,
        max_parallel: int | None = None,
        metric: str | None = None,
        maximize: bool = False,
        stop: str | None = None,
        stop_after: int | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> SweepHandle:
        """Submit a sweep, and return its `SweepHandle` at once: the server makes the runs, whether this program lives or not.

        `program` is a function, which gets its parameters by name, or a command with `{name}` for a parameter. `space`: parameter → a
        list of values, or a text as for `rowlock sweep --param`: `1..5`, and for a random search `uniform(0,1)`, `loguniform(1e-5,1e-2)`.
        `search`: "grid" (the default: every combination), "random" with the number of `samples` and a `seed`, or "tpe", which draws as many
        from what earlier runs reached by `metric` (Optuna; the lowest value is the best, with `maximize` the highest). `stop`: "asha"
        stops runs whose metric falls behind, first after `stop_after` values of it. At most `max_parallel` runs are unfinished at a time.
        Fields, `args` and `kwargs`: as for `submit` and `submit_function`, for each run."""
        searched = {
            "search": search, "samples": samples, "seed": seed, "maxParallel": max_parallel, "metric": metric,
            "order": "max" if maximize else None, "stop": stop, "stopAfter": stop_after,
        }  # fmt: skip
        request = sweep_request(program, space, name=name, search=searched, args=args, kwargs=kwargs, fields=fields)
        made = self.run_call(calls.submit_sweep(request.body(self.project), request.job.key()))
        return SweepHandle(self, made)

    def sweeps(self, project: str = "") -> list[SweepInfo]:
        """The sweeps of a project, or of all that this login may see, the newest first."""
        return self.run_call(calls.sweeps(project))

    def find_sweep(self, name: str, project: str = "") -> SweepHandle:
        """The sweep with this name, in the client's project if none is given. Raises ClientError if there is none."""
        found = self.run_call(calls.sweeps(project or self.project, name))
        if not found:
            raise ClientError(f"there is no sweep {name} in project {project or self.project}")
        return SweepHandle(self, found[0])

    def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send any other request of the REST API (`/api/v1/…`); return the answer's JSON."""
        return self.run_call(calls.plain(method, path, query or {}, body))

    # ------------------------------------------------------------ transport

    def run_call(self, call: ApiCall[T]) -> T:
        """Send the request and read its answer. With a login, an expired token is renewed once."""
        answer = self._send(call)
        if answer.status_code == 401 and self.address.login is not None:
            self._token = ""
            answer = self._send(call)
        value = call.read(decode_answer(answer))
        if call.key:
            warn_of(answer)
        return value

    def _send(self, call: ApiCall[Any]) -> httpx.Response:
        headers, tries = {**self._authorization(), **call.headers()}, Tries(call)
        while True:
            try:
                answer = self._http.request(
                    call.method, call.path, params=call.parameters(), json=call.body, headers=headers
                )
            except httpx.HTTPError as error:
                pause = tries.pause_after(error)
                if pause is None:
                    raise unreachable(self.address, error) from error
            else:
                pause = tries.pause_after(answer)
                if pause is None:
                    return answer
            time.sleep(pause)

    def _authorization(self) -> dict[str, str]:
        if not self._token and self.address.login is not None and self.address.login.grant_type == LOCAL:
            self._token = self.address.login.ask_socket()
        elif not self._token and self.address.login is not None:
            try:
                answer = self._http.post("/api/v1/token", json=self.address.login.body())
            except httpx.HTTPError as error:
                raise unreachable(self.address, error) from error
            self._token = str(decode_answer(answer)["accessToken"])
        return {"Authorization": f"Bearer {self._token}"}

    def stream_lines(self, call: ApiCall[Any]) -> Iterator[bytes]:
        """The lines of a streamed answer as they arrive, without their newlines and without a time limit."""
        splitter, waits = calls.LogLineSplitter(), httpx.Timeout(DEFAULT_TIMEOUT, read=None)
        query, headers = call.parameters(), self._authorization()
        try:
            with self._http.stream(call.method, call.path, params=query, headers=headers, timeout=waits) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    decode_answer(answer)
                for chunk in answer.iter_bytes():
                    for line in splitter.feed_chunk(chunk):
                        yield line
            for line in splitter.flush():
                yield line
        except httpx.HTTPError as error:
            raise stream_broken(self.address, error, splitter.last_line) from error

    def _items(self, call_for: Callable[[int], ApiCall[ItemPage[T]]]) -> Iterator[T]:
        offset: int | None = 0
        while offset is not None:
            page = self.run_call(call_for(offset))
            yield from page.items
            offset = page.next_offset


class JobHandle:
    """One workload and its operations. `workload` is the last answer of the server; `refresh` updates it."""

    def __init__(self, client: Client, workload: WorkloadInfo) -> None:
        self._client, self.workload = client, workload

    def __repr__(self) -> str:
        return f"<JobHandle {self.name} of project {self.workload.project}: {self.workload.phase}>"

    @property
    def id(self) -> str:
        """Its id, which is never reused for another workload."""
        return self.workload.id

    @property
    def name(self) -> str:
        """Its name in its project."""
        return self.workload.name

    def refresh(self) -> WorkloadInfo:
        """Ask the server for its current state."""
        self.workload = self._client.run_call(calls.workload(self.id))
        return self.workload

    def wait(self, phases: Iterable[str] = FINISHED_PHASES, *, timeout: float | None = None) -> WorkloadInfo:
        """Wait until its phase is one of these (`WorkloadInfo.is_in`). Raises TimeoutError after `timeout` seconds."""
        phases = tuple(phases)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = calls.POLL_S if deadline is None else min(calls.POLL_S, max(0.0, deadline - time.monotonic()))
            self.workload = self._ask_phase(phases, left)
            if self.workload.is_in((*phases, "Deleted")):
                return self.workload
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.name} is {self.workload.phase} after {timeout:g} s. {self.workload.message}")

    def _ask_phase(self, phases: tuple[str, ...], seconds: float) -> WorkloadInfo:
        try:
            return self._client.run_call(calls.wait(self.id, phases, seconds))
        except RequestRefused as refusal:
            if refusal.status != 404:
                raise
            return replace(self.workload, phase="Deleted", message="")  # it existed, since the server gave this id

    def logs(
        self,
        *,
        rank: int | None = None,
        follow: bool = False,
        tail: int | None = None,
        attempt: int | None = None,
        timestamps: bool = False,
    ) -> Iterator[LogLine]:
        """Lines that its ranks wrote, also after its pods are gone. With `follow`, also new lines until the job ends."""
        call = calls.logs(self.id, rank=rank, follow=follow, tail=tail, attempt=attempt, timestamps=timestamps)
        return (calls.read_log_line(line, rank) for line in self._client.stream_lines(call))

    def pods(self) -> list[WorkloadPod]:
        """Its pods, the master first."""
        return self._client.run_call(calls.pods(self.id))

    def events(self) -> list[Mapping[str, Any]]:
        """Its events, in the form of Run:ai's API."""
        return self._client.run_call(calls.events(self.id))

    def why(self) -> str:
        """What happened to it: which rank failed first and why, or which rank the others wait for."""
        return self._client.run_call(calls.why(self.id))

    def explain(self) -> str:
        """Why it is waiting to be scheduled, with numbers, and which jobs hold the GPUs."""
        return self._client.run_call(calls.explain(self.id))

    def suspend(self) -> None:
        """Stop its pods, but keep the workload."""
        self._client.run_call(calls.set_suspended(self.id, suspended=True))

    def resume(self) -> None:
        """Start it again after `suspend`."""
        self._client.run_call(calls.set_suspended(self.id, suspended=False))

    def delete(self) -> None:
        """Delete it; its logs stay in the archive."""
        self._client.run_call(calls.delete(self.id))

    def results(self, *, timeout: float | None = None) -> list[Any]:
        """Wait until a submitted function has ended, and return the value of each rank, ordered by rank.
        Raises JobFailed with the reason, TimeoutError."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.wait(timeout=timeout)
        while has_running_ranks(self.pods()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: a rank still runs after {timeout:g} s")
            time.sleep(_LOOK_S)
        return read_results(self.workload, (line.text for line in self.logs()), self.why())
