"""A small cluster in which every state of a workload can be seen at once, the same to the last byte in every run.

The store, the admission, the operators, the scheduler and the REST API are the real ones. Controllers take their turns one after the other,
the clock stands still unless a test moves it, and ids are numbers, so that answers can be compared byte for byte.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.rest.conftest import CLUSTER
from tests.rest.served import UsageTable
from tests.waiting import PATIENCE

from rowlock import kinds, objects
from rowlock.accounts.user_accounts import FILE_NAME, UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.api import Change, Controller, DeleteOptions, LogOptions, Record, WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.archive.archive import Archive
from rowlock.controllers.recorder import make_event
from rowlock.controllers.writer import execute_write
from rowlock.diagnostics.event_files import EventFiles
from rowlock.objects import Object
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.inventory import scope_history
from rowlock.rest.run_history import recorder
from rowlock.rest.workload_routes import usage_history
from rowlock.scheduling.controller import Scheduler
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.system import registry as system
from rowlock.training import controller as training
from rowlock.training.batch_job import controller as batch_job
from rowlock.training.jobset.controller import JobSetController
from rowlock.training.jobset.gangs import JobSetGroupController
from rowlock.training.pod_group import PodGroupController
from rowlock.workloads import runai_json

START = 1_767_323_045.0
"""2026-01-02T03:04:05Z."""
ROUNDS = 40
"""Most rounds in which all controllers have their turns before the world must be quiet."""
NAMESPACE = "runai-team-a"


class BusyWorld:
    """The cluster, a client of its REST API, and what a kubelet would do, which the recording plays."""

    client: TestClient

    def __init__(self, directory: Path) -> None:
        self.now = START
        self.logs: dict[str, list[bytes]] = {}
        numbers = count(1)
        self.store = Store.open(
            None,
            admission=lambda view: AdmissionChain(view, self.clock),
            patches=Patcher(self.clock),
            clock=self.clock,
            new_uid=lambda: f"{next(numbers):08d}-0000-4000-8000-000000000000",
            log_source=self._log,
        )
        self.usage = UsageTable()
        self.archive = Archive(directory / "archive", clock=self.clock)
        scheduler = Scheduler()
        settings = RestSettings(
            user="ana", cluster_id=CLUSTER, version="1.0", sweep_key="sealed", accounts=UserAccounts(directory / FILE_NAME, clock=self.clock),
            credentials=UserCredentials(directory / "credentials.json", clock=self.clock), event_files=EventFiles(directory),
        )  # fmt: skip
        self.rest = RestApi(
            self.store,
            settings,
            clock=self.clock,
            archive=self.archive,
            pod_usage=self.usage,
            view=self.store.view,
            take_snapshot=lambda: scheduler.snapshot(self.store.view, self.now),
        )
        self._controllers: list[Controller] = [
            *training.controllers(), *batch_job.controllers(declares_gangs=True), JobSetController(),
            *system.deleting_controllers(), PodGroupController(), JobSetGroupController(), scheduler,
        ]  # fmt: skip
        self._told: set[tuple[str, str, str]] = set()

    def clock(self) -> float:
        return self.now

    async def _log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        for line in self.logs.get(pod, []):
            yield line if options.timestamps else line.partition(b" ")[2]

    # ------------------------------------------------------------ turns

    async def _settle(self) -> None:
        for _ in range(ROUNDS):
            wrote = [await self._turn(controller) for controller in self._controllers]
            if not any(wrote):
                return
        raise AssertionError(f"still busy after {ROUNDS} rounds")

    async def _turn(self, controller: Controller) -> bool:
        """One controller looks at everything that it may care about, in order; whether it wrote."""
        view, keys = self.store.view, set()
        for kind in controller.kinds:
            for obj in view.all(kind):
                keys |= set(controller.keys(view, Change("Added", objects.revision(obj), kind, obj)))
        before = view.revision
        for key in sorted(keys):
            for write in controller.decide(view, key, self.now).writes:
                if isinstance(write, Record):
                    await self._tell(write)
                else:
                    await execute_write(self.store, write)
        return view.revision > before

    async def _tell(self, record: Record) -> None:
        same = (objects.uid(record.regarding), record.reason, record.message)
        if same not in self._told:
            self._told.add(same)
            event = make_event(record, f"{objects.name(record.regarding)}.{len(self._told):04d}", self.now)
            await self.store.create(kinds.EVENT, event, options=WriteOptions(is_settled=True))

    def settle(self, seconds: float = 0) -> None:
        """Let time pass, and let every controller do all that it wants to; the recorder of runs looks before and after."""
        assert self.client.portal is not None
        self.now += seconds
        self.record_runs()
        self.client.portal.call(self._settle)
        self.record_runs()

    def record_runs(self) -> None:
        """Have every run recorded as it is now: a request for it does that."""
        for kind in kinds.WORKLOADS:
            for job in self.store.view.all(kind):
                if objects.controller_of(job) is None:  # else it is a part of another one
                    answer = self.ask("GET", f"/api/v1/runs/{runai_json.workload_id(job)}")
                    assert answer.status_code == 200, answer.text

    # ------------------------------------------------------------ the kubelet, and what else writes

    def create(self, kind: kinds.Kind, obj: Object) -> Object:
        assert self.client.portal is not None
        made: Object = self.client.portal.call(self.store.create, kind, obj)
        return made

    def set_status(self, kind: kinds.Kind, namespace: str, name: str, status: dict[str, Any]) -> None:
        assert self.client.portal is not None
        patch = partial(self.store.patch, type="merge", subresource="status")
        self.client.portal.call(patch, kind, namespace, name, {"status": status})

    def pods_of(self, job: str) -> list[Object]:
        pods = [pod for pod in self.store.view.all(kinds.POD, NAMESPACE) if objects.name(pod).startswith(f"{job}-")]
        return sorted(pods, key=objects.name)

    def report(self, pod: Object, phase: str, state: dict[str, Any], restarts: int = 0) -> None:
        """What a kubelet would say of a pod of one container."""
        container = pod["spec"]["containers"][0]
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        entry = {
            "name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running",
            "restartCount": restarts, "state": state,
        }  # fmt: skip
        status = {
            "phase": phase,
            "hostIP": "10.0.0.1",
            "podIP": "10.0.1.1",
            "conditions": [ready],
            "containerStatuses": [entry],
        }
        self.set_status(kinds.POD, NAMESPACE, objects.name(pod), status)

    def run(self, job: str) -> None:
        for pod in self.pods_of(job):
            self.report(pod, "Running", {"running": {"startedAt": objects.timestamp(self.now)}})
        self.settle(7)

    def end(self, job: str, code: int = 0, pods: int = 9) -> None:
        """The first pods of a job end, the chief last."""
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": objects.timestamp(self.now),
        }
        for pod in reversed(self.pods_of(job)[:pods]):
            state = {"terminated": {**ended, "startedAt": objects.timestamp(self.now - 7)}}
            self.report(pod, "Failed" if code else "Succeeded", state)
        self.settle(11)

    def reap(self, job: str) -> None:
        """The pods of a job that are to go are gone."""
        assert self.client.portal is not None
        for pod in self.pods_of(job):
            if objects.is_deleting(pod):
                gone = DeleteOptions(grace=0, uid=objects.uid(pod))
                self.client.portal.call(
                    partial(self.store.delete, options=gone), kinds.POD, NAMESPACE, objects.name(pod)
                )
        self.settle(10)

    def look(self) -> None:
        """Take the samples of what workloads and nodes hold."""
        assert self.client.portal is not None
        self.client.portal.call(self.rest.usage.look)
        self.client.portal.call(self.rest.scopes.look)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.request(method, path, json=body, headers=headers)

    def made(self, path: str, body: Any) -> dict[str, Any]:
        """The answer to a POST that is accepted. A key makes the id of a submit always the same."""
        answer = self.ask("POST", path, body, **{"Idempotency-Key": "k"})
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        body = answer.json()
        assert isinstance(body, dict)
        return body


@asynccontextmanager
async def _running(world: BusyWorld) -> AsyncIterator[None]:
    for kind, obj in bootstrap.initial_objects():
        await world.store.create(kind, obj)
    running = asyncio.create_task(world.rest.run())
    yield
    running.cancel()
    await asyncio.wait({running})


def busy_world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BusyWorld]:
    """A world whose samples are taken when the recording says, and whose ids and passwords are numbers."""
    numbers = count(1)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=(0xA << 124) + next(numbers)))
    monkeypatch.setattr(usage_history, "INTERVAL_S", 1e6)
    monkeypatch.setattr(scope_history, "INTERVAL_S", 1e6)
    for name in ("_FIRST_LOOK", "_LATEST_LOOK", "_LINGER"):
        monkeypatch.setattr(recorder, name, 1e6)
    monkeypatch.setattr(recorder, "_SETTLE", PATIENCE)
    world = BusyWorld(directory)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with _running(world):
            yield

    with TestClient(Starlette(routes=list(world.rest.routes), lifespan=lifespan)) as client:
        world.client = client
        yield world
