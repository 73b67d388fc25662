"""The other engine: one real kube-apiserver with the training operator, and one server of `rowlock up --kubeconfig` over it.

Tests share both. Each begins with a cluster that has no project, node or job (`RealEngine.sweep`), and with a data directory of its own
that leads to the server, so that what a command line remembers is its own, too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.conformance.subjects import real_cluster
from tests.end_to_end.cluster import Cluster, lent

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.errors import AlreadyExists, ApiError, Conflict, NotFound
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object, name, namespace, timestamp
from rowlock.storage import bootstrap
from rowlock.workloads.assets.asset_objects import SHARED_NAMESPACE

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds for what a test waits for here."""
HEARTBEAT_S = 5.0
"""The cluster takes a node for lost after 40 s of silence."""
CONTENTS = (
    kinds.CRON_JOB, *kinds.JOBS, kinds.BATCH_JOB, kinds.POD_GROUP, kinds.POD, kinds.SERVICE, kinds.EVENT, kinds.CONFIG_MAP, kinds.SECRET, kinds.SERVICE_ACCOUNT,
    kinds.PERSISTENT_VOLUME_CLAIM, kinds.RESOURCE_QUOTA, kinds.ROLE, kinds.ROLE_BINDING, kinds.AUTOSCALER,
)  # fmt: skip
"""What may be in a namespace of a test."""
CLUSTERS_MAPS = frozenset({"kube-root-ca.crt", "cluster-info"})
OWN_QUEUES = frozenset({"department-default"})
"""What the server makes once, as it starts."""


class RealView:
    """What a test reads in its own thread, from the API server."""

    def __init__(self, engine: RealEngine) -> None:
        self._engine = engine

    def all(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Of this namespace, or of all that are a project's."""
        items = self._engine.do(lambda: self._engine.kube.list(kind, namespace)).items
        return [one for one in items if not kind.namespaced or namespace or is_projects(one)]

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            found: Object = self._engine.do(lambda: self._engine.kube.get(kind, namespace, name))
            return found
        except NotFound:
            return None


def now_heard_of() -> dict[str, Any]:
    """A part of a node's condition. Each node needs one from the beginning: the cluster remembers an earlier node of the same name, and takes
    a new one that says the same, which is nothing, for the old one that has been silent since."""
    return {"lastHeartbeatTime": timestamp(time.time())}


def is_projects(obj: Object) -> bool:
    return namespace(obj).startswith("runai-")


class RealEngine:
    """A control plane, a server over it, and the administrator's client of the cluster, in a loop of its own."""

    keeps_nodes = False
    """Whether nodes are the cluster's own and not a test's."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self.cluster, self.kubeconfig = cluster, kubeconfig
        self.kube: Any = None
        self.view = RealView(self)
        self.loop = asyncio.new_event_loop()
        self._stop, self._ready = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._main, name="administrator", daemon=True)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._work())
        self.loop.close()

    async def _work(self) -> None:
        async with Kube.connect(self.kubeconfig, limits=Limits(qps=0)) as kube:
            kube.view = self.view  # type: ignore[attr-defined] # as a Store has one
            self.kube = kube
            for kind, obj in bootstrap.initial_objects():  # as `rowlock manifests | kubectl apply` makes them
                if kind is kinds.PRIORITY_CLASS and not name(obj).startswith("system-"):
                    with suppress(AlreadyExists):
                        await kube.create(kind, obj)
            beating = asyncio.create_task(self._beat())
            self._ready.set()
            await self._stop.wait()
            beating.cancel()
            await asyncio.wait({beating})

    async def _beat(self) -> None:
        """Nodes of tests are alive until they are deleted."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self.keeps_nodes:
                continue
            with suppress(ApiError):
                for node in (await self.kube.list(kinds.NODE)).items:
                    beat = {"type": "Ready", **now_heard_of()}
                    patch = {"status": {"conditions": [beat]}}
                    await self.kube.patch(kinds.NODE, "", name(node), patch, type="strategic", subresource="status")

    @contextmanager
    def running(self) -> Iterator[RealEngine]:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the cluster does not answer"
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE)

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function of the administrator's client."""

        async def wrapped() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(PATIENCE)

    # ------------------------------------------------------------ one test after the other

    def lend_directory(self, data: Path) -> Path:
        """Make a directory lead to the server, as the server's own does."""
        data.mkdir(mode=0o700, exist_ok=True)
        for word in ("token", "ca.crt"):
            shutil.copy2(self.cluster.data / word, data / word)
        facts = json.loads((self.cluster.data / "server.json").read_text())
        del facts["directory"]  # it would say that this is a copy
        (data / "server.json").write_text(json.dumps(facts))
        return data

    @property
    def nodes_path(self) -> str:
        """Of the nodes as the REST API has them: `/api/v1/nodes` is the cluster's."""
        return f"/api/v1/clusters/{self.cluster.api('GET', '/api/v1/clusters')[0]['uuid']}/nodes"

    def await_node(self, called: str) -> None:
        """Wait until the server shows this node, and its scheduler knows that the cluster has taken it in."""

        def is_in() -> bool:
            known = {one["name"]: one for one in self.cluster.api("GET", "/api/v1/scheduler/snapshot")["nodes"]}
            shown = [one["name"] for one in self.cluster.api("GET", self.nodes_path)["nodes"]]
            is_known = called in shown and called in known
            return is_known and known[called].get("ready", True) and not known[called].get("taints")

        self.cluster.until(is_in, f"the server knows of the node {called}", PATIENCE)

    def sweep(self) -> None:
        """Delete what a test has made, and wait until the server shows nothing of it."""
        had_shared_maps = bool(self.do(self._shared_maps))
        self.do(self._sweep)
        if had_shared_maps:
            self._await_maps()
        empty = (
            ("/api/v1/workloads", "workloads"),
            ("/api/v1/org-unit/projects", "projects"),
            ("/api/v1/workloads/pods", "pods"),
            *(() if self.keeps_nodes else ((self.nodes_path, "nodes"),)),
        )
        for path, rows in empty:
            self.cluster.until(lambda p=path, r=rows: not self.cluster.api("GET", p)[r], f"{path} is empty", PATIENCE)  # type: ignore[misc]

    def _await_maps(self) -> None:
        """Until the server knows that shared maps have gone: it knows of a new one when it answers, and is told in order."""
        meta = {"name": "last", "scope": "tenant"}
        made = self.cluster.api("POST", "/api/v1/asset/compute", {"meta": meta, "spec": {"cpuCoreRequest": 1}})
        self.cluster.api("DELETE", f"/api/v1/asset/compute/{made['meta']['id']}")

    async def _sweep(self) -> None:
        gone = DeleteOptions(grace=0, propagation="Background")
        spaces = [name(one) for one in (await self.kube.list(kinds.NAMESPACE)).items if name(one).startswith("runai-")]
        nodes = [] if self.keeps_nodes else [(kinds.NODE, one) for one in (await self.kube.list(kinds.NODE)).items]
        queues = [
            (kinds.QUEUE, one) for one in (await self.kube.list(kinds.QUEUE)).items if name(one) not in OWN_QUEUES
        ]
        await self._delete([*nodes, *queues, *[(kinds.CONFIG_MAP, one) for one in await self._shared_maps()]], gone)
        await asyncio.gather(*(self._remove_namespace(space, gone) for space in spaces))

    async def _shared_maps(self) -> list[Object]:
        """Assets, policies and the like that are of no project."""
        found = [
            (await self.kube.list(kinds.CONFIG_MAP, space)).items for space in (SYSTEM_NAMESPACE, SHARED_NAMESPACE)
        ]
        return [one for items in found for one in items if name(one) not in CLUSTERS_MAPS]

    async def _remove_namespace(self, space: str, gone: DeleteOptions) -> None:
        """As its controller does, which begins five seconds later: nothing new can be made in it, what is there goes, and then itself."""
        with suppress(NotFound, Conflict):
            await self.kube.delete(kinds.NAMESPACE, "", space, options=gone)
        while any(await asyncio.gather(*(self._empty(kind, space, gone) for kind in CONTENTS))):
            await asyncio.sleep(0.02)  # polled: others remove finalizers
        with suppress(NotFound, Conflict):
            obj = await self.kube.get(kinds.NAMESPACE, "", space)
            await self.kube.update(kinds.NAMESPACE, {**obj, "spec": {"finalizers": []}}, subresource="finalize")

    async def _empty(self, kind: Kind, space: str, gone: DeleteOptions) -> bool:
        """Delete all of a kind; whether there was any."""
        found = (await self.kube.list(kind, space)).items
        await self._delete([(kind, one) for one in found], gone)
        return bool(found)

    async def _delete(self, found: Iterable[tuple[Kind, Object]], options: DeleteOptions) -> None:
        async def one(kind: Kind, obj: Object) -> None:
            with suppress(NotFound, Conflict):
                await self.kube.delete(kind, namespace(obj), name(obj), options=options)

        await asyncio.gather(*(one(kind, obj) for kind, obj in found))


@contextmanager
def real_engine(directory: Path) -> Iterator[RealEngine]:
    """Started once for all tests of a run."""
    (directory / "home").mkdir()
    with real_cluster(directory / "plane", "--operator") as kubeconfig, lent(directory / "home") as cluster:
        cluster.env["LOGNAME"] = "ana"  # as in the embedded engine of the same tests
        cluster.up("--kubeconfig", str(kubeconfig), "--scheduler", "own", "--install-crds")
        cluster.until(lambda: f"_{cluster.pid}_" in cluster.run("rowlock", "status"), "its scheduler leads", PATIENCE)
        with RealEngine(cluster, kubeconfig).running() as engine:
            engine.sweep()
            yield engine
