"""The command lines against a server in a thread: the real store, API, operators and scheduler; no kubelet.

What a kubelet would report is played by the test (`run_pods`, `finish`), so that every state can be had at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from tests import waiting
from tests.waiting import PATIENCE

from rowlock import controllers, kinds
from rowlock.accounts.user_accounts import UserAccount, UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.api import DeleteOptions, LogOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.cli import main, runai_tree
from rowlock.cli.client import ServerClient
from rowlock.cli.commands import tree as rowlock_tree
from rowlock.cli.context import DATA_DIR, PROJECT
from rowlock.cli.grammar import Flag, Group
from rowlock.errors import Conflict, NotFound, not_found
from rowlock.identity.token_sources import IdentityProvider
from rowlock.kinds import Kind
from rowlock.objects import Object, name, uid
from rowlock.rest.app import RestApi
from rowlock.rest.authentication import Principal
from rowlock.rest.call import AccessToken, RestSettings
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.snapshot import Snapshot
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.system import registry as system
from rowlock.training import controller as training
from rowlock.training.pod_group import PodGroupController
from rowlock.workloads.figures.usage_series import LatestUsage, UsageSeries

T = TypeVar("T")
TOKEN = "sesame"
NOW = "2026-01-02T03:04:05Z"
OWN_NODE = {"rowlock.dev/network": "namespaces"}
"""The annotation of rowlock's own nodes: they have the programs of this machine (the image `host`)."""


def _planned(scheduler: Scheduler, store: Store) -> Snapshot:
    return scheduler.snapshot(store.view, time.time())


class UsageTable(dict[str, LatestUsage]):
    """A sampler that a test plays."""

    def latest(self, pod_uid: str) -> LatestUsage | None:
        return self.get(pod_uid)

    def series(self, pod_uid: str) -> UsageSeries | None:
        return None


class Served:
    """A server whose pods' kubelets a test plays, and the two programs, called in this process. Its engine is `EmbeddedServed` here,
    or that of a real cluster (`tests/engines/real_served.py`)."""

    store: Any
    """The nine verbs of `Api`, for coroutines of `do`, and `view`, from which a test may read in its own thread while nothing of that kind
    is created or deleted; else with `all_of`."""
    kubelet_address: Mapping[str, Any] = {}
    """What nodes say of where their kubelets listen, a part of their status."""
    patience = PATIENCE
    """Seconds for what a test waits for."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data, self.capsys = data, capsys
        self.loop = asyncio.new_event_loop()
        self.logs: dict[str, list[str]] = {}
        """What pods wrote: lines that begin with their time."""
        self.endless: set[str] = set()
        """Pods whose followed log does not end: their program runs."""

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function in the server's loop."""

        async def wrapped() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(self.patience)

    # ------------------------------------------------------------ the world

    def heartbeat(self) -> dict[str, Any]:
        """When the kubelet of a new node was heard of, as a part of its condition: nobody asks here."""
        return {}

    def node(self, called: str, gpus: int = 0, card_memory: int = 0) -> None:
        labels = {"nvidia.com/gpu.memory": str(card_memory)} if card_memory else {}
        amounts = {"cpu": "16", "memory": "32Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": NOW, **self.heartbeat(),
        }  # fmt: skip
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        obj = {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": called, "labels": labels, "annotations": OWN_NODE}, "spec": {},
            "status": {**status, **self.kubelet_address},
        }  # fmt: skip

        async def make() -> None:
            await self.store.create(kinds.NODE, obj)
            await self.store.patch(
                kinds.NODE, "", called, {"status": obj["status"]}, type="merge", subresource="status"
            )

        self.do(make)

    def all_of(self, kind: Kind, namespace: str = "") -> list[Object]:
        """All objects of a kind, while some may come and go."""
        return list(self.store.view.all(kind, namespace))

    def pods(self, namespace: str = "runai-default") -> dict[str, Object]:
        return {name(p): p for p in self.all_of(kinds.POD, namespace)}

    def until(self, holds: Callable[[], bool]) -> None:
        """Poll a condition with a deadline, from the test's thread: the condition may call the server."""
        waiting.until(holds, seconds=self.patience, every=0.005)

    def bound(self, count: int, namespace: str = "runai-default") -> None:
        """Wait until the scheduler has placed that many pods."""
        self.until(lambda: sum(1 for p in self.pods(namespace).values() if p["spec"].get("nodeName")) >= count)

    def report(self, namespace: str, pod: str, phase: str, state: dict[str, Any], restarts: int = 0) -> None:
        """What a kubelet would write."""

        async def write() -> None:
            current = await self.store.get(kinds.POD, namespace, pod)
            container = current["spec"]["containers"][0]
            status = {
                "phase": phase,
                "containerStatuses": [
                    {
                        "name": container["name"],
                        "image": container["image"],
                        "imageID": "",
                        "ready": phase == "Running",
                        "restartCount": restarts,
                        "state": state,
                    }
                ],
            }
            await self.store.patch(kinds.POD, namespace, pod, {"status": status}, type="merge", subresource="status")

        self.do(write)

    def run_pods(self, namespace: str = "runai-default") -> None:
        for pod in self.pods(namespace):
            self.report(namespace, pod, "Running", {"running": {"startedAt": NOW}})

    def finish(self, code: int = 0, namespace: str = "runai-default") -> None:
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": NOW}}
        for pod in sorted(
            self.pods(namespace), reverse=True
        ):  # a job's master, whose end may be that of its workers, is the last
            self.report(namespace, pod, "Failed" if code else "Succeeded", ended)

    def reap(self) -> bool:
        """Remove the pods that are to go, as a kubelet does; True when none is left."""
        leaving = [pod for pod in self.all_of(kinds.POD) if pod["metadata"].get("deletionTimestamp")]

        async def remove() -> None:
            for pod in leaving:
                gone = DeleteOptions(grace=0, uid=uid(pod))
                with suppress(NotFound, Conflict):  # somebody else was faster
                    await self.store.delete(kinds.POD, pod["metadata"]["namespace"], name(pod), options=gone)

        self.do(remove)
        return not self.all_of(kinds.POD)

    # ------------------------------------------------------------ the programs

    def run(self, line: str | list[str]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `rowlock …` or `runai …`."""
        program, *argv = line.split() if isinstance(line, str) else line
        return call(program, argv, self.data, self.capsys)

    def get(self, path: str) -> Any:
        """A request of the REST API, as the owner."""
        with self._client() as client:
            return client.get(path)

    def post(self, path: str, body: Any) -> Any:
        """The same with a body."""
        with self._client() as client:
            return client.post(path, body)

    @contextmanager
    def _client(self) -> Iterator[ServerClient]:
        with closing(
            ServerClient(json.loads((self.data / "server.json").read_text())["url"], str(self.data))
        ) as client:
            yield client

    def ok(self, line: str | list[str]) -> str:
        code, out, err = self.run(line)
        assert code == 0, f"{line}: {code}\n{out}{err}"
        return out


class EmbeddedServed(Served):
    """A server in a thread, over a store in memory."""

    def __init__(
        self, data: Path, capsys: pytest.CaptureFixture[str], provider: IdentityProvider | None = None
    ) -> None:
        super().__init__(data, capsys)
        self._provider = provider
        self.store: Store = Store.open(
            None, admission=lambda _: AdmissionChain(), patches=Patcher(), log_source=self._log
        )
        self.usage = UsageTable()
        """What pods use, by their uid."""
        self.accounts = UserAccounts(data / "accounts.json")
        self.principals = {TOKEN: Principal("")}
        """Who comes with which token."""
        self.token_seconds = 3600
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="served")

    def all_of(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Read in the server's loop: in another thread a name may be listed before its object can be read."""

        async def read() -> list[Object]:
            return list(self.store.view.all(kind, namespace))

        return self.do(read)

    async def _log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        if options.previous and pod not in self.logs:
            raise not_found("pods", pod)
        for line in self.logs.get(pod, []):
            yield (line if options.timestamps else line.partition(" ")[2]).encode() + b"\n"
        if options.follow and pod in self.endless:
            await asyncio.Event().wait()

    # ------------------------------------------------------------ the server

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    def _settings(self) -> RestSettings:
        """The owner's token opens it, and those of people and applications that log in; each may do everything."""

        async def issue_to_user(account: UserAccount) -> AccessToken:
            return self._issue(account.name)

        async def issue(name: str, secret: str) -> AccessToken | None:
            return self._issue(f"app:{name}") if secret == f"secret of {name}" else None

        return RestSettings(
            token=TOKEN, user="ana", version="1.0", sweep_key="sealed", accounts=self.accounts,
            credentials=UserCredentials.open(self.data), issue_user_token=issue_to_user, issue_token=issue,
            authenticate_token=lambda token, _: self._find_principal(token),
            oidc=self._provider.logins if self._provider else None, look_up_token=self._provider.tokens.look_up if self._provider else None,
        )  # fmt: skip

    def _find_principal(self, token: str) -> Principal | None:
        user = self._provider.tokens.find_user(token) if self._provider else None
        return Principal(user.name) if user else self.principals.get(token)

    def _issue(self, name: str) -> AccessToken:
        token = f"token {len(self.principals)}"
        self.principals[token] = Principal(name)
        return AccessToken(token, self.token_seconds)

    async def _serve(self) -> None:
        for kind, obj in bootstrap.initial_objects():
            await self.store.create(kind, obj)
        scheduler = Scheduler()
        planned = partial(_planned, scheduler, self.store)
        face = RestApi(self.store, self._settings(), take_snapshot=planned, pod_usage=self.usage, view=self.store.view)
        app = application.application(face.routes, self.store, ApiServerSettings(token=TOKEN))
        web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        web.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # a thread may not have any
        made = [*training.controllers(), *system.deleting_controllers(), PodGroupController(), scheduler]
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(face.run()),
                *((tasks.create_task(self._provider.run()),) if self._provider else ()),
                tasks.create_task(controllers.run(self.store, self.store.view, made, self.store.changes())),
            ]
            serving = tasks.create_task(web.serve())
            while not web.started:
                await asyncio.sleep(0.005)
            port = web.servers[0].sockets[0].getsockname()[1]
            state = {"pid": os.getpid(), "url": f"http://127.0.0.1:{port}", "version": "1.0"}
            (self.data / "server.json").write_text(json.dumps(state))
            (self.data / "token").write_text(TOKEN)
            self._ready.set()
            await self._stop.wait()
            web.should_exit = True
            await serving
            for task in work:
                task.cancel()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the server did not come up"

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)


def call(program: str, argv: list[str], data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """One command line in this process, with `data` as its data directory."""
    root: Group = rowlock_tree.ROOT if program == "rowlock" else runai_tree.ROOT
    shared: tuple[Flag, ...] = (DATA_DIR, PROJECT) if program == "rowlock" else runai_tree.SHARED
    before = os.environ.get("ROWLOCK_DATA_DIR")
    os.environ["ROWLOCK_DATA_DIR"] = str(data)
    capsys.readouterr()
    try:
        code = main.run(root, argv, shared)
    finally:
        os.environ.pop("ROWLOCK_DATA_DIR")
        if before is not None:
            os.environ["ROWLOCK_DATA_DIR"] = before
    out, err = capsys.readouterr()
    return code, out, err


@contextmanager
def serving(
    data: Path, capsys: pytest.CaptureFixture[str], provider: IdentityProvider | None = None
) -> Iterator[EmbeddedServed]:
    server = EmbeddedServed(data, capsys, provider)
    server.start()
    try:
        yield server
    finally:
        server.stop()
