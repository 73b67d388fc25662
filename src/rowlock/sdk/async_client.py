"""`AsyncClient`: submit a job, follow its logs, ask why, stop it, for programs with an event loop. `client.py` is generated from it."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from rowlock.sdk import calls
from rowlock.sdk.async_sweeps import AsyncSweepHandle
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

if TYPE_CHECKING:
    from rowlock.answers.workloads import UsageHours

T = TypeVar("T")
_LOOK_S = 0.2
"""Seconds between checks of ranks that still run after the master has ended."""


class AsyncClient:
    """A connection to a server. Without arguments: the server of this user's data directory, as its owner.

    `url`, `ca` (the file of its certificate authority) and `token`, or `username` and `password`, or `client_id` and
    `client_secret`, name another server; so do `ROWLOCK_URL`, `ROWLOCK_CA` and `ROWLOCK_TOKEN`. `project`: the default for
    submits. `timeout` is in seconds. Use it in an `async with` statement, or await `close`; one event loop uses it.
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
        self._http = httpx.AsyncClient(**client_options(self.address, timeout))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    # ------------------------------------------------------------ workloads

    async def submit(self, name: str, command: Any = (), **fields: Any) -> AsyncJobHandle:
        """Submit a distributed workload, and return its `AsyncJobHandle` without waiting for it to run.

        `command` is a list of words or one line for `shlex`; without it an image runs its own. Fields: `project`, `image`
        (default: the programs of the server's machine, in this directory), `framework` (PyTorch, TF, MPI, XGBoost, JAX),
        `nnodes` (pods, the master among them), `nproc_per_node`, `gpus` (per pod; below 1: a share), `cpus`, `memory` (`2G`),
        `env`, `secret_env` (variables that are kept in a Secret), `working_dir`, `retries` (restarts of a rank that fails), `spec` (any other field of
        Run:ai's request), `idempotency_key` (for a program that retries by itself). If the answer is lost, the same submit is sent
        again, at most three times, and only one job is created. Raises TypeError for an unknown field."""
        return await self.submit_request(job_request(name=name, command=command, **fields))

    async def submit_request(self, request: JobRequest) -> AsyncJobHandle:
        """Submit a `JobRequest`."""
        call = calls.submit(request.body(self.project), request.key())
        workload = await self.run_call(call)
        return AsyncJobHandle(self, replace(workload, project=request.project or self.project))

    async def submit_function(
        self,
        fn: Callable[..., Any],
        *,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> AsyncJobHandle:
        """Submit a job in which every rank calls `fn(*args, **kwargs)`, with RANK, WORLD_SIZE and MASTER_ADDR in its
        environment. `AsyncJobHandle.results` waits for the return values of the ranks. The function is pickled with its
        closure; functions of modules are imported, so a rank needs those files. Fields: as for `submit`; without a `name`
        the job is named after the function, with a suffix. Raises ClientError when it cannot be pickled."""
        return await self.submit_request(function_request(fn, args, kwargs, fields))

    def workloads(self, project: str = "", *, phase: str = "", search: str = "") -> AsyncIterator[WorkloadInfo]:
        """The workloads that this login may see; optionally only those of a project, in a phase, or with `search` in their name."""
        filters = {"projectName": project, "phase": phase}
        return self._items(lambda offset: calls.workloads(offset, filters, search))

    async def job(self, name: str, project: str = "") -> AsyncJobHandle:
        """The workload with this name (in the client's project if none is given), or with this id. Raises ClientError."""
        filters = {"projectName": project or self.project, "name": name}
        async for workload in self._items(lambda offset: calls.workloads(offset, filters, "")):
            return AsyncJobHandle(self, workload)
        return AsyncJobHandle(self, await self.run_call(calls.workload(name)))

    def projects(self) -> AsyncIterator[ProjectInfo]:
        """The projects that this login may see."""
        return self._items(calls.projects)

    async def create_project(self, name: str, *, gpus: float = 0) -> ProjectInfo:
        """Create a project with a quota of GPUs."""
        return await self.run_call(calls.create_project(name, gpus))

    def runs(self, project: str = "", *, name: str = "", tag: str = "", search: str = "") -> AsyncIterator[RunInfo]:
        """Runs, the newest first, deleted workloads included; `name` may contain `*`, `search` is in their name, note or tags."""
        return self._items(lambda offset: calls.runs(offset, project, name, tag, search))

    async def mark_run(
        self, id: str, *, tags: Iterable[str] | None = None, note: str | None = None, favourite: bool | None = None
    ) -> RunInfo:
        """Write on a run, by its id: its tags, its note, and whether it is kept beyond the retention; None leaves them as they are."""
        marks = {"tags": None if tags is None else list(tags), "note": note, "favourite": favourite}
        return await self.run_call(calls.mark_run(id, marks))

    async def usage(self, by: str = "project", *, since: float = 7 * 86400, project: str = "") -> UsageHours:
        """GPU hours of the last `since` seconds, as the answer of the REST API (`rows`, `total`): held, used, idle, wasted by failures; and how
        long jobs waited. `by`: project, user or job. Optionally only those of a project."""
        return await self.run_call(calls.usage(by, since, project))

    # ------------------------------------------------------------ sweeps

    async def sweep(
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
    ) -> AsyncSweepHandle:
        """Submit a sweep, and return its `AsyncSweepHandle` at once: the server makes the runs, whether this program lives or not.

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
        made = await self.run_call(calls.submit_sweep(request.body(self.project), request.job.key()))
        return AsyncSweepHandle(self, made)

    async def sweeps(self, project: str = "") -> list[SweepInfo]:
        """The sweeps of a project, or of all that this login may see, the newest first."""
        return await self.run_call(calls.sweeps(project))

    async def find_sweep(self, name: str, project: str = "") -> AsyncSweepHandle:
        """The sweep with this name, in the client's project if none is given. Raises ClientError if there is none."""
        found = await self.run_call(calls.sweeps(project or self.project, name))
        if not found:
            raise ClientError(f"there is no sweep {name} in project {project or self.project}")
        return AsyncSweepHandle(self, found[0])

    async def request(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send any other request of the REST API (`/api/v1/…`); return the answer's JSON."""
        return await self.run_call(calls.plain(method, path, query or {}, body))

    # ------------------------------------------------------------ transport

    async def run_call(self, call: ApiCall[T]) -> T:
        """Send the request and read its answer. With a login, an expired token is renewed once."""
        answer = await self._send(call)
        if answer.status_code == 401 and self.address.login is not None:
            self._token = ""
            answer = await self._send(call)
        value = call.read(decode_answer(answer))
        if call.key:
            warn_of(answer)
        return value

    async def _send(self, call: ApiCall[Any]) -> httpx.Response:
        headers, tries = {**await self._authorization(), **call.headers()}, Tries(call)
        while True:
            try:
                answer = await self._http.request(
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
            await asyncio.sleep(pause)

    async def _authorization(self) -> dict[str, str]:
        if not self._token and self.address.login is not None and self.address.login.grant_type == LOCAL:
            self._token = await asyncio.to_thread(self.address.login.ask_socket)
        elif not self._token and self.address.login is not None:
            try:
                answer = await self._http.post("/api/v1/token", json=self.address.login.body())
            except httpx.HTTPError as error:
                raise unreachable(self.address, error) from error
            self._token = str(decode_answer(answer)["accessToken"])
        return {"Authorization": f"Bearer {self._token}"}

    async def stream_lines(self, call: ApiCall[Any]) -> AsyncIterator[bytes]:
        """The lines of a streamed answer as they arrive, without their newlines and without a time limit."""
        splitter, waits = calls.LogLineSplitter(), httpx.Timeout(DEFAULT_TIMEOUT, read=None)
        query, headers = call.parameters(), await self._authorization()
        try:
            async with self._http.stream(
                call.method, call.path, params=query, headers=headers, timeout=waits
            ) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                    decode_answer(answer)
                async for chunk in answer.aiter_bytes():
                    for line in splitter.feed_chunk(chunk):
                        yield line
            for line in splitter.flush():
                yield line
        except httpx.HTTPError as error:
            raise stream_broken(self.address, error, splitter.last_line) from error

    async def _items(self, call_for: Callable[[int], ApiCall[ItemPage[T]]]) -> AsyncIterator[T]:
        offset: int | None = 0
        while offset is not None:
            page = await self.run_call(call_for(offset))
            for item in page.items:
                yield item
            offset = page.next_offset


class AsyncJobHandle:
    """One workload and its operations. `workload` is the last answer of the server; `refresh` updates it."""

    def __init__(self, client: AsyncClient, workload: WorkloadInfo) -> None:
        self._client, self.workload = client, workload

    def __repr__(self) -> str:
        return f"<AsyncJobHandle {self.name} of project {self.workload.project}: {self.workload.phase}>"

    @property
    def id(self) -> str:
        """Its id, which is never reused for another workload."""
        return self.workload.id

    @property
    def name(self) -> str:
        """Its name in its project."""
        return self.workload.name

    async def refresh(self) -> WorkloadInfo:
        """Ask the server for its current state."""
        self.workload = await self._client.run_call(calls.workload(self.id))
        return self.workload

    async def wait(self, phases: Iterable[str] = FINISHED_PHASES, *, timeout: float | None = None) -> WorkloadInfo:
        """Wait until its phase is one of these (`WorkloadInfo.is_in`). Raises TimeoutError after `timeout` seconds."""
        phases = tuple(phases)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = calls.POLL_S if deadline is None else min(calls.POLL_S, max(0.0, deadline - time.monotonic()))
            self.workload = await self._ask_phase(phases, left)
            if self.workload.is_in((*phases, "Deleted")):
                return self.workload
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.name} is {self.workload.phase} after {timeout:g} s. {self.workload.message}")

    async def _ask_phase(self, phases: tuple[str, ...], seconds: float) -> WorkloadInfo:
        try:
            return await self._client.run_call(calls.wait(self.id, phases, seconds))
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
    ) -> AsyncIterator[LogLine]:
        """Lines that its ranks wrote, also after its pods are gone. With `follow`, also new lines until the job ends."""
        call = calls.logs(self.id, rank=rank, follow=follow, tail=tail, attempt=attempt, timestamps=timestamps)
        return (calls.read_log_line(line, rank) async for line in self._client.stream_lines(call))

    async def pods(self) -> list[WorkloadPod]:
        """Its pods, the master first."""
        return await self._client.run_call(calls.pods(self.id))

    async def events(self) -> list[Mapping[str, Any]]:
        """Its events, in the form of Run:ai's API."""
        return await self._client.run_call(calls.events(self.id))

    async def why(self) -> str:
        """What happened to it: which rank failed first and why, or which rank the others wait for."""
        return await self._client.run_call(calls.why(self.id))

    async def explain(self) -> str:
        """Why it is waiting to be scheduled, with numbers, and which jobs hold the GPUs."""
        return await self._client.run_call(calls.explain(self.id))

    async def suspend(self) -> None:
        """Stop its pods, but keep the workload."""
        await self._client.run_call(calls.set_suspended(self.id, suspended=True))

    async def resume(self) -> None:
        """Start it again after `suspend`."""
        await self._client.run_call(calls.set_suspended(self.id, suspended=False))

    async def delete(self) -> None:
        """Delete it; its logs stay in the archive."""
        await self._client.run_call(calls.delete(self.id))

    async def results(self, *, timeout: float | None = None) -> list[Any]:
        """Wait until a submitted function has ended, and return the value of each rank, ordered by rank.
        Raises JobFailed with the reason, TimeoutError."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        await self.wait(timeout=timeout)
        while has_running_ranks(await self.pods()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: a rank still runs after {timeout:g} s")
            await asyncio.sleep(_LOOK_S)
        return read_results(self.workload, [line.text async for line in self.logs()], await self.why())
