"""rowlock's server over a large real cluster: a real API server with 1,000 pretend nodes and 10,000 pods of 1,250 jobs.

    python -m benchmarks.kube_scale [--nodes 1000] [--pods 10000] [--json]

Memory, the time to be ready, lists, explain, nodes, how soon a change of a pod shows, and how long reads are held up when
the API server is killed and everything has to be listed again. Each line says its goal and whether it was met. What pods are
is written once, and their programs write one line; the server follows as many of their logs as it may, each a stream of its own
(`silent_kubelet.py`). The controller-manager ends before all is filled in: nobody plays the heartbeats of nodes, so it would call
all of them lost after 40 s, and change all pods, while other things are measured. rowlock's own scheduler runs, too (`--scheduler own`).
Needs what `python scripts/real_cluster build` builds; about four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.cluster import BIN, Client
from benchmarks.load import Connection, Times, closed_loop, request
from benchmarks.peers import Peer
from benchmarks.silent_kubelet import address, silent_kubelet

NAMESPACE, RANKS = "runai-scale", 8
JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
PODS, EVENTS, ACCOUNTS = (f"/api/v1/namespaces/{NAMESPACE}/{what}" for what in ("pods", "events", "serviceaccounts"))
WORKLOADS = "/api/v1/workloads"
MERGE = "application/merge-patch+json"
CONNECTIONS = 8
MEMORY_MIB = 350e6 / 2**20
"""The 350 MB that the specification allows (kubernetes-engine.md, 5)."""
_SLICE_S = 0.005


@dataclass
class Line:
    """One measurement against its goal."""

    name: str
    value: float
    unit: str
    goal: float
    note: str = ""

    def __str__(self) -> str:
        word = "met" if self.value <= self.goal else "MISSED"
        return f"{self.name:<66} {self.value:9.1f} {self.unit:<4} goal {self.goal:.4g} {word:<7} {self.note}"


# ---------------------------------------------------------------- what is there


def node(i: int, port: int) -> bytes:
    """A node as a kubelet that listens at `port` would have registered it."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready], **address(port)}
    return _body({"apiVersion": "v1", "kind": "Node", "metadata": {"name": _node_name(i)}, "status": status})


def job(i: int) -> bytes:
    template = {"spec": {"schedulerName": "rowlock-scheduler", "containers": [_container("pytorch")]}}
    replicas = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": RANKS - 1, "template": template},
    }
    meta = {"name": job_name(i), "namespace": NAMESPACE, "labels": {"project": "scale"}}
    return _body({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta,
                  "spec": {"pytorchReplicaSpecs": replicas}})  # fmt: skip


def job_name(i: int) -> str:
    return f"job-{i:05}"


def job_status() -> bytes:
    since = "2026-01-01T00:00:00Z"
    conditions = [{"type": t, "status": "True", "reason": f"PyTorchJob{t}", "lastTransitionTime": since, "lastUpdateTime": since}
                  for t in ("Created", "Running")]  # fmt: skip
    return _body({"status": {"conditions": conditions, "startTime": since}})


def pod(i: int, uid: str, nodes: int) -> bytes:
    """A rank as the training operator makes it, on its node already."""
    name, rank = job_name(i // RANKS), i % RANKS
    role, index = ("worker", rank - 1) if rank else ("master", 0)
    labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": "pytorchjob-controller",
              "training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}  # fmt: skip
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": uid, "controller": True}
    meta = {"name": pod_name(i), "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    spec = {"schedulerName": "rowlock-scheduler", "nodeName": _node_name(i % nodes), "containers": [_container("pytorch")],
            "tolerations": [{"operator": "Exists"}]}  # fmt: skip
    return _body({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def _container(name: str) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{n}", "value": f"value-{n}"} for n in range(10)]
    return {"name": name, "image": "x", "env": env, "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def running_status(i: int) -> bytes:
    """The status of a pod whose container runs."""
    since = "2026-01-01T00:00:00Z"
    conditions = [{"type": t, "status": "True", "lastTransitionTime": since}
                  for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]  # fmt: skip
    container = {"name": "pytorch", "image": "x", "imageID": "x@sha256:0", "ready": True, "restartCount": 0,
                 "state": {"running": {"startedAt": since}}}  # fmt: skip
    return _body({"status": {"phase": "Running", "podIP": f"10.1.{i // 250}.{i % 250}", "startTime": since,
                             "conditions": conditions, "containerStatuses": [container]}})  # fmt: skip


def event(i: int) -> bytes:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": pod_name(i)}
    text = f"Successfully assigned {NAMESPACE}/{pod_name(i)} to somewhere"
    return _body({"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e-{i:06}", "namespace": NAMESPACE},
                  "involvedObject": about, "reason": "Scheduled", "message": text, "type": "Normal", "count": 1,
                  "source": {"component": "rowlock-scheduler"}, "firstTimestamp": "2026-01-01T00:00:00Z"})  # fmt: skip


def pod_name(i: int) -> str:
    rank = i % RANKS
    return f"job-{i // RANKS:05}-" + (f"worker-{rank - 1}" if rank else "master-0")


def _node_name(i: int) -> str:
    return f"pretend-{i:04}"


def _body(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def fill(peer: Peer, nodes: int, pods: int, port: int) -> float:
    """All of it, over several connections, with kubelets at `port`; seconds."""
    began = time.monotonic()
    with _connections(peer) as connections:

        def send(verb: str, path: str, bodies: Iterator[bytes] | list[bytes], media: str = "application/json") -> None:
            closed_loop(connections, (request(peer, verb, path, body, media) for body in bodies))

        jobs = -(-pods // RANKS)
        send("POST", "/api/v1/nodes", [node(i, port) for i in range(nodes)])
        send("POST", JOBS, [job(i) for i in range(jobs)])
        closed_loop(connections, (request(peer, "PATCH", f"{JOBS}/{job_name(i)}/status", job_status(), MERGE)
                                  for i in range(jobs)))  # fmt: skip
        uids = {j["metadata"]["name"]: j["metadata"]["uid"] for j in call(peer, JOBS)["items"]}
        send("POST", PODS, (pod(i, uids[job_name(i // RANKS)], nodes) for i in range(pods)))
        closed_loop(connections, (request(peer, "PATCH", f"{PODS}/{pod_name(i)}/status", running_status(i), MERGE)
                                  for i in range(pods)))  # fmt: skip
        send("POST", EVENTS, (event(i) for i in range(pods)))
    return time.monotonic() - began


@contextmanager
def _connections(peer: Peer, count: int = CONNECTIONS) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        made = [Connection(peer) for _ in range(count)]
        for connection in made:
            stack.callback(connection.close)
        yield made


def call(peer: Peer, path: str) -> Any:
    """A GET on a connection of its own."""
    asked = urllib.request.Request(
        f"https://{peer.host}:{peer.port}{path}", headers={"Authorization": f"Bearer {peer.token}"}
    )
    with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=str(peer.authority))) as response:
        return json.loads(response.read())


# ---------------------------------------------------------------- our server


class Served:
    """`rowlock up --kubeconfig` with one data directory; `start` and `stop` as often as one likes."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        self._config = peers.write_kubeconfig(peer, directory / "kubeconfig")
        self.data = directory / "data"
        self.env = {**os.environ, "ROWLOCK_DATA_DIR": str(self.data), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def start(self) -> float:
        """Seconds until it says that it is ready: the whole cluster is read."""
        began = time.monotonic()
        self.run("rowlock", "up", "-d", "--kubeconfig", str(self._config), "--scheduler", "own", "--install-crds")
        while True:
            try:
                self.get("/readyz")
                return time.monotonic() - began
            except OSError:  # 503, or not yet listening
                if time.monotonic() - began > 120:
                    raise
                time.sleep(0.02)

    def peer(self) -> Peer:
        return peers.ours(Client(self.data))

    def get(self, path: str) -> bytes:
        peer = self.peer()
        asked = urllib.request.Request(
            f"https://{peer.host}:{peer.port}{path}", headers={"Authorization": f"Bearer {peer.token}"}
        )
        with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=str(peer.authority))) as response:
            return bytes(response.read())

    def run(self, *argv: str) -> float:
        """A command line; its seconds."""
        began = time.monotonic()
        subprocess.run(argv, env=self.env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began


def ask(connection: Connection, wire: bytes) -> bytes:
    """One request on a kept connection; the body. Raises RuntimeError on a refusal."""
    connection.send(wire)
    while True:
        select.select([connection], [], [], 60)
        if found := connection.answer():
            if found[0] >= 300:
                raise RuntimeError(f"{wire[:100]!r}: {found[0]} {found[1][:300]!r}")
            return found[1]


def timed(peer: Peer, path: str, count: int) -> Times:
    """So many GETs, one after the other."""
    with _connections(peer, 1) as connections:
        closed_loop(connections, [request(peer, "GET", path)] * 3)  # what is loaded for the first one
        return closed_loop(connections, [request(peer, "GET", path)] * count)


class Reader:
    """Reads a path again and again in a thread of its own, and knows how long each answer took, in milliseconds."""

    def __init__(self, peer: Peer, path: str) -> None:
        self._peer, self._path, self._is_over = peer, path, False
        self.times: list[float] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(30)

    def _read(self) -> None:
        wire = request(self._peer, "GET", self._path)
        with _connections(self._peer, 1) as (connection,):
            while not self._is_over:
                began = time.perf_counter()
                ask(connection, wire)
                self.times.append((time.perf_counter() - began) * 1e3)
                time.sleep(_SLICE_S)


def changes(real: Peer, ours: Peer, ids: dict[str, str], pods: int) -> list[float]:
    """Milliseconds from the acknowledged write of a pod until REST shows it: one pod of each job of `ids`, the first ones by name."""
    took = []
    with _connections(real, 1) as (writer,), _connections(ours, 1) as (reader,):
        for n in range(len(ids)):
            i = n * RANKS + n % min(RANKS, pods - n * RANKS)  # the last job may have fewer pods than the others
            body = _body({"status": {"phase": "Succeeded"}})
            ask(writer, request(real, "PATCH", f"{PODS}/{pod_name(i)}/status", body, MERGE))
            began = time.perf_counter()
            wire = request(ours, "GET", f"{WORKLOADS}/{ids[f'job-{i // RANKS:05}']}/pods")
            while True:
                shown = {p["name"]: p for p in json.loads(ask(reader, wire))["pods"]}
                if "Succeeded" in json.dumps(shown[pod_name(i)]):
                    break
            took.append((time.perf_counter() - began) * 1e3)
    return sorted(took)


def end_controllers(peer: Peer) -> None:
    """End the controller-manager once it has made what pods of the namespace need: it declares nodes lost whose heartbeats nobody
    plays."""
    deadline = time.monotonic() + 30
    while not any(a["metadata"]["name"] == "default" for a in call(peer, ACCOUNTS)["items"]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the namespace {NAMESPACE} has no service account after 30 s")
        time.sleep(0.1)
    process = next(p for p in peer.processes() if "controller-m" in p.name())
    process.terminate()
    process.wait(30)


@contextmanager
def restarted_api_server(peer: Peer) -> Iterator[Callable[[], None]]:
    """Kill the API server with -9 and start it as it was started; it is ended at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def restart() -> None:
        old = next(p for p in peer.processes() if "kube-apiserver" in p.name())
        command, place = old.cmdline(), old.cwd()
        old.kill()
        old.wait(30)
        started.append(subprocess.Popen(command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while True:
            try:
                call(peer, "/readyz?verbose")
            except ValueError:
                return  # it is ready, and its answer is no JSON
            except OSError:
                time.sleep(0.1)

    try:
        yield restart
    finally:
        for process in started:  # with -9: watches that are open would keep it for a minute
            process.kill()
            process.wait(30)


def lines(nodes: int, pods: int) -> Iterator[Line]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        real = stack.enter_context(peers.real("--crds"))
        served = Served(real, scratch)
        served.start()
        stack.callback(served.run, "rowlock", "down", "--yes")
        served.run("rowlock", "project", "create", "scale")
        empty = served.peer().memory()
        served.run("rowlock", "down", "--yes")
        port = stack.enter_context(silent_kubelet(real.authority.parent))
        end_controllers(real)
        seconds = fill(real, nodes, pods, port)
        print(f"filled in {seconds:.0f} s; an empty cluster takes {empty:.0f} MiB", flush=True)
        yield Line(f"cold start until ready: {nodes} nodes, {pods} pods", served.start(), "s", 10)
        ours = served.peer()
        calm(ours)
        yield Line("resident memory when ready", ours.memory(), "MiB", MEMORY_MIB)
        yield from reads(served, ours)
        listed = json.loads(served.get(f"{WORKLOADS}?limit=200&sortBy=name"))["workloads"]
        ids = {w["name"]: w["id"] for w in listed}
        count = len(ids)
        took = changes(real, ours, ids, pods)
        yield Line(f"a pod is written → REST shows it, p99 of {count}", took[int(count * 0.99)], "ms", 100,
                   f"p50 {took[count // 2]:.1f} ms")  # fmt: skip
        yield from relist(real, ours, served, stack)
        yield from steady(ours)


def reads(served: Served, ours: Peer) -> Iterator[Line]:
    first = json.loads(served.get(f"{WORKLOADS}?limit=1"))["workloads"][0]["id"]
    for what, path, goal in (
        ("a page of 50 workloads", f"{WORKLOADS}?limit=50", 50),
        ("explain of a workload", f"{WORKLOADS}/{first}/explain", 30),
        ("events of a workload", f"{WORKLOADS}/{first}/events", 30),
    ):
        times = timed(ours, path, 100)
        yield Line(f"{what}, p99 of 100", times.at(0.99), "ms", goal, f"p50 {times.at(0.5):.1f} ms")
    yield Line("runai list nodes", served.run("runai", "list", "nodes"), "s", 2)
    yield Line("rowlock status", served.run("rowlock", "status"), "s", 2)


def calm(ours: Peer, seconds: float = 120.0) -> None:
    """Until the server has written what it had to: PodGroups of jobs that came while it was down, statuses of queues."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = ours.cpu()
        time.sleep(1.0)
        if ours.cpu() - before < 0.1:
            return


def relist(real: Peer, ours: Peer, served: Served, stack: ExitStack) -> Iterator[Line]:
    """Everything is listed again, because the API server has forgotten what it was asked to tell. While it starts it takes all
    processors of a small machine: an answer without data, asked for beside, shows how much of a slow read that is."""
    restart = stack.enter_context(restarted_api_server(real))
    log = served.data / "server.log"
    logged = log.stat().st_size
    with Reader(ours, f"{WORKLOADS}?limit=50") as reader, Reader(ours, "/livez") as floor:
        restart()
        time.sleep(15)
    yield Line("the API server is killed and comes back: slowest read meanwhile", max(reader.times), "ms", 200,
               f"{len(reader.times)} reads; without data {max(floor.times):.0f} ms")  # fmt: skip
    held = re.findall(r"held up for (.*)", log.read_text()[logged:])
    yield Line("… longest turn of our event loop (those above 50 ms are logged)", max(map(_milliseconds, held), default=0), "ms", 50,
               f"{len(held)} logged{'; the longest: ' + max(held, key=_milliseconds) if held else ''}")  # fmt: skip
    yield Line("… resident memory after that", ours.memory(), "MiB", MEMORY_MIB)


def _milliseconds(held: str) -> int:
    return int(held.split(" ")[0])


def steady(ours: Peer) -> Iterator[Line]:
    before = ours.cpu()
    time.sleep(10)
    yield Line("CPU while nothing happens, of one core", (ours.cpu() - before) * 10, "%", 5)


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=_positive, default=1000)
    parser.add_argument("--pods", type=_positive, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if missing := peers.missing():
        print(missing)
        return 1
    print(f"load before the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    missed = False
    for line in lines(options.nodes, options.pods):
        print(json.dumps(asdict(line)) if options.json else line, flush=True)
        missed = missed or line.value > line.goal
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
