"""Acceptance 4: a storm of submits and reads, compared with the API, while something is hurt. No accepted job is lost, none is made twice,
each refused one is accepted when it is tried again, readers are told within ten seconds that what they see is old, and it is
healed within ninety.

`ROWLOCK_STORM=long` (`make storm`) stops etcd for 20 and for 80 seconds, and keeps the other faults for longer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.kube.acceptance.real_plane import ACCOUNTS, RealPlane, make_account, make_token, write_kubeconfig
from tests.kube.acceptance.storm import Storm
from tests.kube.acceptance.wire import Wire

from rowlock import objects
from rowlock.kinds import PYTORCHJOB
from rowlock.workloads.objects import WORKLOAD_ID

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
IS_LONG = os.environ.get("ROWLOCK_STORM") == "long"
PROJECT = "storm"
TOLD_S, HEALED_S = 10.0, 90.0
TOKEN_CACHE_S = 10.0
"""Seconds for which an API server takes a token for good that it has seen before."""
RETRIABLE = {0, 202, 429, 500, 503, 504}
"""What a submit may be answered, 0 for no answer at all: a client sees that it shall try again."""
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@dataclass
class World:
    """Our server, with the rights of an account whose token lies in a file, behind a wire."""

    plane: RealPlane
    served: Cluster
    wire: Wire
    token: Path
    up: tuple[str, ...]

    def stop_etcd(self) -> None:
        psutil.Process(self.plane.pid("etcd")).send_signal(signal.SIGSTOP)

    def resume_etcd(self) -> None:
        psutil.Process(self.plane.pid("etcd")).send_signal(signal.SIGCONT)

    def restart_server(self) -> None:
        os.kill(self.served.pid, signal.SIGKILL)
        self.served.up(*self.up)

    def revoke_token(self) -> None:
        """An account that is made again is another one: tokens of the first count no longer."""
        self.plane.send("DELETE", f"{ACCOUNTS}/storm")

    def renew_token(self) -> None:
        self.plane.send("POST", ACCOUNTS, {"metadata": {"name": "storm"}})
        self.token.write_text(asyncio.run(self.new_token()))

    async def new_token(self) -> str:
        async with self.plane.connect() as kube:
            return await make_token(kube, "storm")

    def jobs(self) -> dict[str, str]:
        """Name → id of every job of the project, from the API itself."""
        return asyncio.run(self._jobs())

    async def _jobs(self) -> dict[str, str]:
        async with self.plane.connect() as kube:
            items = (await kube.list(PYTORCHJOB, f"runai-{PROJECT}")).items
        return {objects.name(job): objects.labels(job)[WORKLOAD_ID] for job in items}

    def delete(self, name: str) -> None:
        self.plane.send("DELETE", f"/apis/kubeflow.org/v1/namespaces/runai-{PROJECT}/pytorchjobs/{name}")


@pytest.fixture(scope="module")
def world(plane: RealPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    token = plane.directory / "storm.token"
    asyncio.run(make_account(plane, "storm", EVERYTHING))
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(plane.address, plane.directory / "keys"))
        kubeconfig = write_kubeconfig(plane, "storm", {"tokenFile": str(token)}, wire.url)
        up = ("--kubeconfig", str(kubeconfig), "--install-crds")
        made = World(plane, stack.enter_context(lent(tmp_path_factory.mktemp("storm"))), wire, token, up)
        token.write_text(asyncio.run(made.new_token()))
        made.served.up(*made.up)
        made.served.run("rowlock", "project", "create", PROJECT)
        yield made


@dataclass(frozen=True)
class Fault:
    """What is hurt and mended. `told_after`: seconds until a reader must be told; None where he need not be: it is over at once."""

    begin: Callable[[World], object]
    end: Callable[[World], object]
    told_after: float | None = TOLD_S
    seconds: float = 0.0
    """For how long at least."""


FAULTS = {
    "api-server-killed": Fault(lambda w: w.plane.api_server.restart(), lambda w: None, None),
    "etcd-stopped": Fault(World.stop_etcd, World.resume_etcd),
    "black-hole": Fault(lambda w: w.wire.swallow(), lambda w: w.wire.pass_on(), seconds=30 if IS_LONG else 0),
    "too-many-requests": Fault(lambda w: w.wire.throttle(), lambda w: w.wire.pass_on(), seconds=20 if IS_LONG else 0),
    "token-revoked": Fault(World.revoke_token, World.renew_token, TOLD_S + TOKEN_CACHE_S),
    "our-server-killed": Fault(World.restart_server, lambda w: None, None),
    **(
        {
            "etcd-stopped-20-s": Fault(World.stop_etcd, World.resume_etcd, seconds=20),
            "etcd-stopped-80-s": Fault(World.stop_etcd, World.resume_etcd, seconds=80),
        }
        if IS_LONG
        else {}
    ),
}


def hold(fault: Fault, storm: Storm, began: float) -> None:
    """Until a reader was told, and for as long as the fault is to last."""
    if fault.told_after is not None:
        while not storm.is_told_since(began):
            assert time.monotonic() - began < fault.told_after, f"nobody was told within {fault.told_after:.0f} s"
            threading.Event().wait(0.05)
    threading.Event().wait(max(0.0, began + fault.seconds - time.monotonic()))


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_or_made_twice(world: World, name: str) -> None:
    fault, before = FAULTS[name], world.jobs()
    projects = world.served.api("GET", "/api/v1/org-unit/projects")["projects"]
    ids = {
        "projectId": next(one["id"] for one in projects if one["name"] == PROJECT),
        "clusterId": world.served.api("GET", "/api/v1/clusters")[0]["uuid"],
    }
    with Storm(world.served.data, ids, name) as storm:
        world.served.until(lambda: len(storm.accepted) >= 5, "the storm has begun")
        began = time.monotonic()
        fault.begin(world)
        try:
            hold(fault, storm, began)
        finally:
            fault.end(world)
        ended, had = time.monotonic(), len(storm.accepted)
        world.served.until(lambda: len(storm.accepted) >= had + 5, "submits are accepted again", HEALED_S)
        assert storm.finish(HEALED_S), f"each submit is accepted at last; the last refusal was {storm.last_refusal}"
    assert not storm.codes.keys() - RETRIABLE, f"{storm.codes}: {storm.last_refusal}"
    made = {job: identity for job, identity in world.jobs().items() if job not in before}
    assert sorted(made.values()) == sorted(storm.accepted.values()), "what was accepted is there, and nothing else"
    prefixes = [job.rpartition("-")[0] for job in made]
    assert sorted(prefixes) == sorted(storm.accepted), "nothing was made twice"
    compare(world, storm, ended)
    print(f"{name}: {len(made)} jobs; submits {dict(storm.codes)}, reads {dict(storm.reads)}")


def compare(world: World, storm: Storm, ended: float) -> None:
    """What the server lists is what the API has, also of what changes after the fault."""
    victim = next(iter(world.jobs()))
    world.delete(victim)

    def agrees() -> bool:
        with suppress(httpx.HTTPError):
            return storm.listed() == set(world.jobs())
        return False

    world.served.until(agrees, "the lists agree", max(5.0, HEALED_S - (time.monotonic() - ended)))
