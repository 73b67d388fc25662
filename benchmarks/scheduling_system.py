"""The whole system at work for the scheduler: pods created over HTTPS until the last one is bound and Running.

    python -m benchmarks.scheduling_system [--nodes 500] [--only fill,gang,…] [--quick] [--json]

The shapes are those that KAI publishes: fill the cluster with single-GPU pods, one large gang, reclaim, a verdict; then
1,000 nodes with 10,000 pending pods in 100 queues, and growth from 100 to 5,000 nodes. The nodes are pretended (`rowlock
up --pretend-nodes`). Where a real control plane with kube-scheduler (and kwok, to play its kubelets) is built, the
fill is measured on it too, in the same run. CPU seconds are the server's own: they hardly depend on who else is at work.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks import peers
from benchmarks.cluster import running
from benchmarks.load import Connection, closed_loop, request
from benchmarks.peers import Peer
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import loads
from rowlock.scheduling.planner import Planner

SPACE, OWN = "bench", "rowlock-scheduler"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
GROUPS = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{SPACE}/podgroups"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
CONNECTIONS = 8
PATIENCE = 600.0
KAI_ELSEWHERE = {"fill": "558 s", "gang": "31–49 s", "reclaim": "40–79 s", "verdict": "0.7–17 s"}
"""KAI on another machine of this kind, from create to all bound (100 nodes, the fill 500): not measured in this run."""


@dataclass
class Line:
    """One measurement; `target` in seconds, 0 = none."""

    name: str
    seconds: float
    target: float = 0.0
    cpu: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        word = "" if not self.target else "ok" if self.seconds <= self.target else "MISSED"
        goal = f"goal {self.target:g} s {word}" if self.target else ""
        facts = ", ".join(f"{k} {v}" for k, v in self.facts.items())
        return f"{self.name:<52} {self.seconds:7.2f} s  {goal:<16} cpu {self.cpu:6.2f} s  {facts}"


def pod(name: str, queue: str, *, group: str = "", gpus: int = 1, scheduler: str = "") -> bytes:
    """A bare pod as KAI's own scale tests make them."""
    limits = {"cpu": "100m", "memory": "100Mi", "nvidia.com/gpu": str(gpus)}
    meta: dict[str, Any] = {"name": name, "namespace": SPACE, "labels": {"kai.scheduler/queue": queue}}
    if group:
        meta["annotations"] = {"pod-group-name": group}
    container = {"name": "main", "image": "host", "resources": {"limits": limits, "requests": limits}}
    spec: dict[str, Any] = {"containers": [container], **({"schedulerName": scheduler} if scheduler else {})}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}).encode()


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    resourceVersion: str = ""
    deletionTimestamp: str = ""


class _Spec(msgspec.Struct, frozen=True):
    nodeName: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod


class Door:
    """Plain requests to one API server, on a connection of its own."""

    def __init__(self, peer: Peer) -> None:
        self._peer, self._tls = peer, ssl.create_default_context(cafile=str(peer.authority))
        self._kept = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._peer.host, self._peer.port, context=self._tls, timeout=PATIENCE)

    def _ask(
        self, connection: http.client.HTTPSConnection, verb: str, path: str, body: Any = None
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._peer.token}", "Content-Type": "application/json"}
        connection.request(verb, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def call(self, verb: str, path: str, body: Any = None) -> Any:
        answer = self._ask(self._kept, verb, path, body)
        raw = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{verb} {path}: {answer.status} {raw[:300]!r}")
        return json.loads(raw)

    @contextmanager
    def stream(self, path: str) -> Iterator[http.client.HTTPResponse]:
        connection = self._connect()
        try:
            yield self._ask(connection, "GET", path)
        finally:
            connection.close()

    def close(self) -> None:
        self._kept.close()


class Observer:
    """Watches all pods in a thread of its own and knows when each was bound, running, told to leave."""

    def __init__(self, peer: Peer) -> None:
        self.bound: dict[str, float] = {}
        self.ran: dict[str, float] = {}
        self.evicted: dict[str, float] = {}
        self._peer = peer
        self._over = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        self._ready.wait(30)
        return self

    def __exit__(self, *what: object) -> None:
        self._over = True
        self._thread.join(0.1)  # it ends with the server

    def _look(self) -> None:
        door = Door(self._peer)
        since = door.call("GET", PODS + "?limit=1")["metadata"]["resourceVersion"]
        door.close()
        decoder = msgspec.json.Decoder(_Event)
        while not self._over:  # a real API server hangs up on a watcher that is too slow for it
            with door.stream(f"{PODS}?watch=1&resourceVersion={since}&timeoutSeconds=1800") as response:
                self._ready.set()
                while line := response.readline():
                    event = decoder.decode(line)
                    if event.type == "ERROR":
                        raise RuntimeError(f"the watch broke: {line[:300]!r}")
                    since = event.object.metadata.resourceVersion
                    self._note(event.object)

    def _note(self, seen: _Pod) -> None:
        now, name = time.monotonic(), seen.metadata.name
        if seen.spec.nodeName:
            self.bound.setdefault(name, now)
        if seen.status.phase == "Running":
            self.ran.setdefault(name, now)
        if seen.metadata.deletionTimestamp:
            self.evicted.setdefault(name, now)

    def until(self, what: dict[str, float], names: Sequence[str]) -> float:
        """The moment at which the last of them was there."""
        deadline = time.monotonic() + PATIENCE
        while not all(n in what for n in names):
            if time.monotonic() > deadline:
                missing = [n for n in names if n not in what]
                raise RuntimeError(f"{len(missing)} of {len(names)} pods are not there after {PATIENCE:.0f} s")
            time.sleep(0.01)
        return max(what[n] for n in names)


@dataclass
class Bench:
    """One cluster under measurement."""

    client: Door
    peer: Peer
    connections: list[Connection]

    def post(self, path: str, bodies: Iterable[bytes]) -> float:
        """All of them, over all connections; seconds."""
        return closed_loop(self.connections, [request(self.peer, "POST", path, b) for b in bodies]).whole

    def queue(self, name: str, gpus: float, parent: str = "") -> None:
        """A queue with this quota of GPUs."""
        spec: dict[str, Any] = {"resources": {"gpu": {"quota": gpus}}, **({"parentQueue": parent} if parent else {})}
        meta = {"name": name}
        self.client.call(
            "POST", QUEUES, {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta, "spec": spec}
        )

    def requota(self, name: str, gpus: float) -> None:
        found = self.client.call("GET", f"{QUEUES}/{name}")
        found["spec"]["resources"]["gpu"]["quota"] = gpus
        self.client.call("PUT", f"{QUEUES}/{name}", found)

    def group(self, name: str, queue: str, members: int) -> None:
        spec = {"minMember": members, "queue": queue}
        meta = {"name": name, "namespace": SPACE}
        self.client.call(
            "POST",
            GROUPS,
            {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec},
        )

    def revision(self) -> int:
        return int(self.client.call("GET", PODS + "?limit=1")["metadata"]["resourceVersion"])

    def plan_cost(self) -> tuple[float, float]:
        """Milliseconds to build the planner's world from nothing and of one cycle, from a snapshot of now."""
        snapshot = loads(json.dumps(self.client.call("GET", "/api/v1/scheduler/snapshot")))
        began = time.process_time()
        planner = Planner(open_session(snapshot))
        planner.run_cycle(keep_plan=True)
        planner.reset()
        middle = time.process_time()
        planner.run_cycle(keep_plan=True)
        planner.reset()
        return (middle - began) * 1e3, (time.process_time() - middle) * 1e3


@contextmanager
def cluster(nodes: int) -> Iterator[Bench]:
    flags = ("--pretend-nodes", str(nodes), "--simulated-gpus", "8", "--without", "kubelet")
    with ExitStack() as stack:
        peer = peers.ours(stack.enter_context(running(*flags)))
        client = Door(peer)
        stack.callback(client.close)
        client.call(
            "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        )
        connections = [Connection(peer) for _ in range(CONNECTIONS)]
        for connection in connections:
            stack.callback(connection.close)
        yield Bench(client, peer, connections)


def measured(b: Bench, name: str, target: float, act: Callable[[], float], pods: int) -> Line:
    """`act` returns the moment at which all was over."""
    cpu, revision, began = b.peer.cpu(), b.revision(), time.monotonic()
    over = act()
    line = Line(name, over - began, target, b.peer.cpu() - cpu)
    time.sleep(0.5)  # what is written afterwards (events, statuses) counts as well
    line.facts["writes/pod"] = f"{(b.revision() - revision) / pods:.2f}"
    line.facts["pods/s"] = f"{pods / line.seconds:.0f}"
    line.facts["ms cpu/pod"] = f"{line.cpu / pods * 1e3:.2f}"
    return line


def fill(b: Bench, nodes: int, queue: str = "q0", target: float = 20.0) -> Line:
    """Every card gets a single-GPU pod."""
    names = [f"fill-{i:05}" for i in range(nodes * 8)]
    b.queue(queue, -1)
    created = 0.0

    def act() -> float:
        nonlocal created
        with Observer(b.peer) as seen:
            created = b.post(PODS, (pod(n, queue) for n in names))
            seen.until(seen.bound, names)
            return seen.until(seen.ran, names)

    line = measured(b, f"fill {len(names)} pods, {nodes} nodes × 8", target, act, len(names))
    line.facts["creating"] = f"{created:.1f} s"
    line.facts["MiB"] = f"{b.peer.memory():.0f}"
    first, again = b.plan_cost()
    line.facts["cycle"] = f"{again:.1f} ms (from nothing {first:.0f})"
    return line


def gang(b: Bench, size: int, target: float = 3.0) -> Line:
    """One gang, all or nothing."""
    b.queue("gangs", -1)
    names = [f"gang-{i:04}" for i in range(size)]

    def act() -> float:
        with Observer(b.peer) as seen:
            b.group("big", "gangs", size)
            b.post(PODS, (pod(n, "gangs", group="big") for n in names))
            seen.until(seen.bound, names)
            return seen.until(seen.ran, names)

    return measured(b, f"one gang of {size} pods", target, act, size)


def reclaim(b: Bench, size: int, target: float = 5.0) -> Line:
    """The cluster is full of q0's pods; a queue within its quota takes some back for a gang."""
    b.requota("q0", 0)
    b.queue("owner", size)
    names = [f"owner-{i:04}" for i in range(size)]
    first = 0.0

    def act() -> float:
        nonlocal first
        began = time.monotonic()
        with Observer(b.peer) as seen:
            b.group("owner", "owner", size)
            b.post(PODS, (pod(n, "owner", group="owner") for n in names))
            seen.until(seen.bound, names)
            first = min(seen.evicted.values(), default=began) - began
            over = seen.until(seen.ran, names)
            if len(seen.evicted) != size:
                raise RuntimeError(f"{len(seen.evicted)} pods were evicted for {size}")
            return over

    line = measured(b, f"reclaim {size} pods for a gang of {size}", target, act, size)
    line.facts["first eviction"] = f"{first:.2f} s"
    return line


def verdict(b: Bench, target: float = 2.0) -> Line:
    """A gang of 10 × 8 GPUs on a full cluster: until its PodGroup says why it waits."""
    b.group("wide", "q0", 10)
    cpu, began = b.peer.cpu(), time.monotonic()
    b.post(PODS, (pod(f"wide-{i}", "q0", group="wide", gpus=8) for i in range(10)))
    while True:
        found = b.client.call("GET", f"{GROUPS}/wide").get("status", {}).get("schedulingConditions")
        if found:
            break
        if time.monotonic() - began > PATIENCE:
            raise RuntimeError("no verdict")
        time.sleep(0.02)
    line = Line("verdict on a gang of 10 × 8 GPUs, full cluster", time.monotonic() - began, target, b.peer.cpu() - cpu)
    line.facts["says"] = found[0]["message"][:60] + "…"
    return line


def crowd(nodes: int, pending: int, queues: int) -> Iterator[Line]:
    """A full cluster, ten thousand wait in a hundred queues; then one pod ends."""
    with cluster(nodes) as b:
        for i in range(queues):
            b.queue(f"crowd-{i:03}", nodes * 8 / queues)
        names = [f"run-{i:05}" for i in range(nodes * 8)]

        def full() -> float:
            with Observer(b.peer) as seen:
                b.post(PODS, (pod(n, f"crowd-{i % queues:03}") for i, n in enumerate(names)))
                return seen.until(seen.ran, names)

        yield measured(b, f"fill {len(names)} pods of {queues} queues, {nodes} nodes", 0.0, full, len(names))
        cpu, began = b.peer.cpu(), time.monotonic()
        b.post(PODS, (pod(f"wait-{i:05}", f"crowd-{i % queues:03}") for i in range(pending)))
        took = time.monotonic() - began
        yield Line(
            f"create {pending} more that must wait", took, 0.0, b.peer.cpu() - cpu, {"MiB": f"{b.peer.memory():.0f}"}
        )
        _calm(b)
        yield _one_ends(b, names[17])
        first, again = b.plan_cost()
        yield Line(
            "a cycle of the planner on that state",
            again / 1e3,
            0.02,
            again / 1e3,
            {"cycle": f"{again:.1f} ms", "from nothing": f"{first:.0f} ms"},
        )


def _calm(b: Bench) -> None:
    """Until the server has said all it wanted to say."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before = b.peer.cpu()
        time.sleep(1.0)
        if b.peer.cpu() - before < 0.1:
            return


def _one_ends(b: Bench, name: str) -> Line:
    """A running pod is deleted; until one that waited runs in its place."""
    with Observer(b.peer) as seen:
        cpu, began = b.peer.cpu(), time.monotonic()
        b.client.call("DELETE", f"{PODS}/{name}")
        while not any(n.startswith("wait-") for n in seen.ran):
            if time.monotonic() - began > PATIENCE:
                raise RuntimeError("nobody took the free card")
            time.sleep(0.002)
        took = min(t for n, t in seen.ran.items() if n.startswith("wait-")) - began
    return Line("one pod is deleted → the next one runs", took, 0.0, b.peer.cpu() - cpu)


def growth(sizes: Sequence[int]) -> Iterator[Line]:
    """400 pods on clusters of different sizes: what a node costs that has nothing to do with it."""
    for nodes in sizes:
        with cluster(nodes) as b:
            b.queue("few", -1)
            names = [f"few-{i:04}" for i in range(400)]

            def act(b: Bench = b, names: list[str] = names) -> float:
                with Observer(b.peer) as seen:
                    b.post(PODS, (pod(n, "few") for n in names))
                    return seen.until(seen.ran, names)

            line = measured(b, f"400 pods on {nodes} nodes", 0.0, act, len(names))
            line.facts["MiB"] = f"{b.peer.memory():.0f}"
            line.facts["cycle"] = f"{b.plan_cost()[1]:.1f} ms"
            yield line


# ---------------------------------------------------------------- kube-scheduler beside it

STAGES = Path(__file__).with_name("kwok-stages.yaml")


def real_parts() -> tuple[Path, str]:
    """(the directory of the binaries, what is missing of them)."""
    done = subprocess.run([sys.executable, str(peers.SCRIPT), "where"], capture_output=True, text=True, check=True)
    place = Path(done.stdout.strip())
    lacking = [n for n in ("kube-apiserver", "etcd", "kube-scheduler", "kwok") if not (place / n).exists()]
    return place, ", ".join(lacking)


def real_fill(nodes: int, *, own: bool) -> Iterator[Line]:
    """The same fill on etcd, kube-apiserver, controller-manager and kwok, by kube-scheduler or (`own`) by `rowlock up --kubeconfig`.

    Clients' limits are out of the way: at its default of 50 requests a second kube-scheduler would bind 50 pods a second.
    """
    with ExitStack() as stack:
        peer, kwok, connections = stack.enter_context(_real(nodes, own=own))
        ours = stack.enter_context(_own_scheduler(peer)) if own else None
        time.sleep(8)  # service accounts are made, nodes are seen, taints of new nodes go
        names = [f"fill-{i:05}" for i in range(nodes * 8)]
        cpu, own_cpu, began = peer.cpu() + _cpu(kwok), ours.cpu() if ours else 0.0, time.monotonic()
        seen = stack.enter_context(Observer(peer))
        made = _create(peer, connections, names, own=own)
        bound = seen.until(seen.bound, names)
        over = seen.until(seen.ran, names)
        used = peer.cpu() + _cpu(kwok) - cpu
        facts = {"creating": f"{made:.1f} s", "pods/s": f"{len(names) / (over - began):.0f}",
                 "ms cpu/pod": f"{used / len(names) * 1e3:.2f}", "MiB": f"{peer.memory():.0f}", "binds/s": f"{len(names) / (bound - began):.0f}"}  # fmt: skip
        if ours:
            facts |= {
                "rowlock's ms cpu/pod": f"{(ours.cpu() - own_cpu) / len(names) * 1e3:.2f}",
                "rowlock's MiB": f"{ours.memory():.0f}",
            }
        yield Line(f"{_who(own)}: fill {len(names)} pods, {nodes} nodes", over - began, 0.0, used, facts)


def real_pace(nodes: int, *, own: bool) -> Iterator[Line]:
    """From the first bind to the last of pods that all wait already, so that not their creation is measured: kube-scheduler is
    suspended meanwhile, ours is started afterwards."""
    with ExitStack() as stack:
        peer, _, connections = stack.enter_context(_real(nodes, own=own))
        time.sleep(8)
        names = [f"fill-{i:05}" for i in range(nodes * 8)]
        suspended = [p for p in peer.processes() if p.name() == "kube-scheduler"]
        for process in suspended:
            process.suspend()
        seen = stack.enter_context(Observer(peer))
        _create(peer, connections, names, own=own)
        for process in suspended:
            process.resume()
        ours = stack.enter_context(_own_scheduler(peer)) if own else None
        seen.until(seen.bound, names)
        moments = sorted(seen.bound.values())
        took = moments[-1] - moments[0]
        facts = {"binds/s": f"{len(names) / took:.0f}"}
        if ours:
            facts["rowlock's ms cpu/pod, its start included"] = f"{ours.cpu() / len(names) * 1e3:.2f}"
        target = len(names) / BINDS_PER_SECOND if own else 0.0
        yield Line(f"{_who(own)}: bind {len(names)} pods that wait, {nodes} nodes", took, target, 0.0, facts)


def real_bind_floor(nodes: int) -> Iterator[Line]:
    """The API server's own pace: a client that decides nothing sends the same bindings as fast as they are answered, while kwok plays the
    same kubelets."""
    with ExitStack() as stack:
        peer, _, connections = stack.enter_context(_real(nodes, own=True))
        time.sleep(8)
        names = [f"fill-{i:05}" for i in range(nodes * 8)]
        seen = stack.enter_context(Observer(peer))
        _create(peer, connections, names, own=True)
        bindings = []
        for i, name in enumerate(names):
            target = {"apiVersion": "v1", "kind": "Node", "name": f"pretend-{i % nodes:04}"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            bindings.append(request(peer, "POST", f"{PODS}/{name}/binding", json.dumps(body).encode()))
        closed_loop(connections, bindings)
        seen.until(seen.bound, names)
        moments = sorted(seen.bound.values())
        took = moments[-1] - moments[0]
        facts = {"binds/s": f"{len(names) / took:.0f}", "connections": str(len(connections))}
        yield Line(f"a bare client: bind {len(names)} pods that wait, {nodes} nodes", took, 0.0, 0.0, facts)


BINDS_PER_SECOND = 400


def _who(own: bool) -> str:
    return "rowlock on a real cluster" if own else "kube-scheduler"


def _create(peer: Peer, connections: list[Connection], names: Sequence[str], *, own: bool) -> float:
    bodies = (pod(n, "none", scheduler=OWN if own else "") for n in names)
    return closed_loop(connections, [request(peer, "POST", PODS, body) for body in bodies]).whole


@contextmanager
def _real(nodes: int, *, own: bool) -> Iterator[tuple[Peer, psutil.Process, list[Connection]]]:
    """A real control plane with these nodes, whose kubelets kwok plays, and without `own` kube-scheduler."""
    with ExitStack() as stack:
        parts = ("--crds",) if own else ("--scheduler", "--scheduler-qps", str(peers.SCHEDULER_QPS))
        peer = stack.enter_context(peers.real(*parts))
        kwok = stack.enter_context(_kwok(real_parts()[0], peer))
        connections = [Connection(peer) for _ in range(CONNECTIONS)]
        for connection in connections:
            stack.callback(connection.close)
        closed_loop(connections, [request(peer, "POST", "/api/v1/nodes", _node(i)) for i in range(nodes)])
        space = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}).encode()
        closed_loop(connections[:1], [request(peer, "POST", "/api/v1/namespaces", space)])
        yield peer, kwok, connections


@contextmanager
def _own_scheduler(peer: Peer) -> Iterator[Peer]:
    """`rowlock up --kubeconfig … --scheduler own` for the API server of a peer, with a queue."""
    with tempfile.TemporaryDirectory() as scratch:
        path = peers.write_kubeconfig(peer, Path(scratch) / "kubeconfig")
        with running("--kubeconfig", str(path), "--scheduler", "own", "--install-crds") as client:
            door = Door(peer)
            queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "none"}}
            door.call("POST", QUEUES, {**queue, "spec": {"resources": {"gpu": {"quota": -1}}}})
            door.close()
            yield peers.ours(client)


def _node(i: int) -> bytes:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    meta = {"name": f"pretend-{i:04}", "labels": {"type": "kwok"}, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    status = {"capacity": room, "allocatable": room}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}).encode()


@contextmanager
def _kwok(place: Path, peer: Peer) -> Iterator[psutil.Process]:
    """kwok plays the kubelets of all nodes. Raises RuntimeError when it does not stay up."""
    config = next(p for d in peer.authority.parents[:2] if (p := d / "kubeconfig").exists())
    argv = [str(place / "kwok"), "--kubeconfig", str(config), "--manage-all-nodes=true", "--config", str(STAGES)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        if process.poll() is not None:
            raise RuntimeError(f"kwok ended at once with code {process.returncode}")
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


# ---------------------------------------------------------------- all of it

PARTS = ("fill", "gang", "reclaim", "verdict", "crowd", "growth", "real")


def lines(nodes: int, parts: Sequence[str], quick: bool) -> Iterator[Line]:
    size = 10 if quick else 1
    if {"fill", "reclaim", "verdict"} & set(parts):
        with cluster(nodes) as b:
            yield fill(b, nodes)
            if "verdict" in parts:
                yield verdict(b)
            if "reclaim" in parts:
                yield reclaim(b, 250 // size)
    if "gang" in parts:
        with cluster(nodes) as b:
            yield gang(b, 512 // size)
    if "crowd" in parts:
        yield from crowd(nodes * 2, 10_000 // size, 100)
    if "growth" in parts:
        yield from growth((100, 1000) if quick else (100, 1000, 5000))
    if "real" in parts:
        if lacking := real_parts()[1]:
            print(f"no real cluster: {lacking} not built here (`python scripts/real_cluster build --kwok`)")
            return
        for measure in (real_fill, real_pace):
            yield from measure(nodes, own=False)
            yield from measure(nodes, own=True)
        yield from real_bind_floor(nodes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to see that it works")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only takes {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    nodes = options.nodes // 10 if options.quick else options.nodes
    if not options.json:
        print(f"load before the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        elsewhere = ", ".join(f"{what} {seconds}" for what, seconds in KAI_ELSEWHERE.items())
        print(f"measured elsewhere, on another machine and another day: KAI {elsewhere}", flush=True)
    for line in lines(nodes, parts, options.quick):
        print(json.dumps(asdict(line)) if options.json else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
