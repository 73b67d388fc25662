"""The API server over HTTPS beside a real kube-apiserver with etcd: same client, same disk, same run, turn by turn.

    python -m benchmarks.api [--pods 10000] [--large] [--rounds 5] [--quick] [--only creates,watches]

`--large` goes on to 100,000 pods, `--quick` is a tenth of everything (to see that it works). Where no real API server
is built, rowlock's figures stand alone and a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks import peers
from benchmarks.load import Connection, Times, closed_loop, news, one, request
from benchmarks.peers import Peer

SPACE = "bench"
CONFIGS = f"/api/v1/namespaces/{SPACE}/configmaps"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
NEWS = f"/api/v1/namespaces/{SPACE}-news/configmaps"
GROWTH = (100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    pods: int
    rounds: int
    creates: int
    watchers: int
    growth: tuple[int, ...]


@dataclass
class Subject:
    """A server under load: its connections, and the figures so far."""

    peer: Peer
    idle: float
    connections: list[Connection] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def connect(self) -> None:
        """16 connections, anew: both servers cut off those that say nothing for half a minute."""
        self.close()
        self.connections = [Connection(self.peer) for _ in range(16)]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def timed(self, name: str, load: Callable[[], Times]) -> None:
        before = self.peer.cpu()
        times = load()
        self.note(f"{name}: server's CPU each, ms", (self.peer.cpu() - before) / len(times.each) * 1e3)
        self.note(f"{name}: per second", times.rate)
        self.note(f"{name}: p50, ms", times.at(0.5))
        self.note(f"{name}: p99, ms", times.at(0.99))

    def get(self, path: str) -> tuple[float, bytes]:
        return one(self.connections[0], request(self.peer, "GET", path))

    def posts(self, path: str, objects: Iterable[dict[str, Any]]) -> list[bytes]:
        return [request(self.peer, "POST", path, json.dumps(obj).encode()) for obj in objects]

    def post(self, path: str, objects: Iterable[dict[str, Any]], clients: int) -> Times:
        return closed_loop(self.connections[:clients], self.posts(path, objects), check=201)


def config(name: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {"app": "bench"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"rank": "0", "text": "x" * 64}}


def pod(index: int) -> dict[str, Any]:
    """A pod of about the size an operator makes, for a scheduler that is not there: nobody starts it."""
    env = [{"name": f"VARIABLE_{n}", "value": f"value-{index}-{n}"} for n in range(6)]
    container = {"name": "pytorch", "image": "train:1", "command": ["python", "train.py"], "env": env}
    labels = {"training.kubeflow.org/job-name": f"job-{index // 8}", "app": "train"}
    spec = {"containers": [container], "restartPolicy": "Never", "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{index:06d}", "labels": labels}, "spec": spec}


# ---------------------------------------------------------------- what is measured


def creates(subjects: Sequence[Subject], scale: Scale) -> None:
    """ConfigMaps by 1 and by 16 clients; turn by turn, so that a busy machine is busy for both."""
    for clients, total in ((1, scale.creates // 4), (16, scale.creates)):
        for turn in range(scale.rounds):
            for subject in subjects:
                subject.connect()
                names = (f"config-{clients}-{turn}-{i}" for i in range(total))
                posts = subject.posts(CONFIGS, map(config, names))
                name = f"creates of ConfigMaps, {clients} client{'s' * (clients > 1)}"
                subject.timed(name, partial(closed_loop, subject.connections[:clients], posts, 201))


def updates(subjects: Sequence[Subject], scale: Scale) -> None:
    """16 clients write 64 ConfigMaps anew: every write supersedes a row, so that compaction has its share."""
    for subject in subjects:
        subject.connect()
        puts = []
        for i in range(scale.creates * 4):
            new = config(f"config-1-0-{i % 64}") | {"data": {"rank": str(i)}}
            puts.append(request(subject.peer, "PUT", f"{CONFIGS}/{new['metadata']['name']}", json.dumps(new).encode()))
        subject.timed("updates of ConfigMaps, 16 clients", partial(closed_loop, subject.connections, puts))


def growth(subjects: Sequence[Subject], scale: Scale) -> None:
    """Pods by 16 clients, more and more of them: creates, one get, one page, memory."""
    for subject in subjects:
        subject.connect()
        there = 0
        for size in scale.growth:
            times = subject.post(PODS, map(pod, range(there, size)), 16)
            there = size
            subject.note(f"creates of pods up to {size:,}, 16 clients: per second", times.rate)
            gets = [subject.get(f"{PODS}/pod-{i:06d}")[0] for i in range(0, size, max(1, size // 200))]
            subject.note(f"get one pod of {size:,}: p50, ms", statistics.median(gets) * 1e3)
            subject.note(f"resident memory with {size:,} pods (and the ConfigMaps), MiB", subject.peer.memory())


def lists(subjects: Sequence[Subject], scale: Scale) -> None:
    pods = scale.growth[-1]
    for _ in range(scale.rounds):
        for subject in subjects:
            subject.connect()
            took, body = subject.get(PODS)
            assert body.count(b'"VARIABLE_0"') >= pods, "the list is short"
            subject.note(f"list of {pods:,} pods, ms", took * 1e3)
            pages = Times([subject.get(f"{PODS}?limit=50")[0] for _ in range(100)])
            subject.note(f"page of 50 of {pods:,} pods: p50, ms", pages.at(0.5))
            subject.note(f"page of 50 of {pods:,} pods: p99, ms", pages.at(0.99))


def watches(subjects: Sequence[Subject], scale: Scale) -> None:
    """One create after the other, each until every watcher has read it; turn by turn. The client's own share grows with
    the watchers."""
    for watchers in dict.fromkeys((1, 100, scale.watchers)):
        name = f"create → event read, {watchers:,} watcher{'s' * (watchers > 1)}"
        for turn in range(scale.rounds):
            for subject in subjects:
                subject.connect()
                total = 100 if watchers == 1 else 20 if watchers == 100 else 10
                before = subject.peer.memory()
                waits = _watched(subject, watchers, [f"news-{watchers}-{turn}-{i}" for i in range(total)])
                subject.note(f"{name}: p50, ms", waits.at(0.5))
                subject.note(f"{name}: p99, ms", waits.at(0.99))
                held = (subject.figures.pop("held")[-1] - before) * 1024 / watchers
                if turn == 0 and watchers == scale.watchers:
                    subject.note("memory of one watcher with its TLS connection, KiB", held)


def _watched(subject: Subject, watchers: int, names: Sequence[str]) -> Times:
    since = json.loads(_plain(subject.get(NEWS + "?limit=1")[1]))["metadata"]["resourceVersion"]
    asked = request(subject.peer, "GET", f"{NEWS}?watch=1&resourceVersion={since}")
    open_ = [Connection(subject.peer) for _ in range(watchers)]
    try:
        for connection in open_:
            connection.send(asked)
        _begun(open_)
        subject.note("held", subject.peer.memory())
        writes = [request(subject.peer, "POST", NEWS, json.dumps(config(name)).encode()) for name in names]
        return Times(news(open_, subject.connections[0], writes, lambda piece: piece.count(b'"name":"news-')))
    finally:
        for connection in open_:
            connection.close()


def _begun(connections: list[Connection]) -> None:
    """Every watch has answered its head."""
    deadline = time.monotonic() + 60
    for connection in connections:
        while b"\r\n\r\n" not in connection.arrived():
            if time.monotonic() > deadline:
                raise RuntimeError("a watch did not begin in 60 s")
            time.sleep(0.001)


def _plain(body: bytes) -> bytes:
    """A body without the lengths of its chunks, if it came in one chunk."""
    return body[body.index(b"{") : body.rindex(b"}") + 1]


# ---------------------------------------------------------------- the report


def table(subjects: Sequence[Subject]) -> Iterator[str]:
    """One line a figure: ours, the real one's, and by how much ours is better (more per second, less of all else)."""
    ours, *others = subjects
    head = [f"{'':58}", f"{ours.peer.name:>12}", *(f"{other.peer.name:>23}" for other in others)]
    yield "  ".join([*head, "better by"] if others else head)
    for name, values in ours.figures.items():
        mine = statistics.median(values)
        cells = [f"{name:58}", f"{mine:12.4g}"]
        for other in others:
            theirs = statistics.median(other.figures[name])
            ratio = mine / theirs if name.endswith("per second") else theirs / mine
            cells += [
                f"{theirs:23.4g}",
                f"{ratio:8.2f}×" if ratio > 0 else f"{'–':>9}",
            ]  # collected meanwhile: no figure
        yield "  ".join(cells)


def fsync() -> float:
    """Milliseconds that this disk needs to make 4 KiB durable: the floor of one client's create."""
    with tempfile.NamedTemporaryFile() as file:
        took = []
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


STEPS: dict[str, Callable[[Sequence[Subject], Scale], None]] = {
    "creates": creates, "updates": updates, "growth": growth, "lists": lists, "watches": watches,
}  # fmt: skip


def measure(subjects: Sequence[Subject], scale: Scale, only: Collection[str]) -> None:
    for subject in subjects:
        subject.connect()
        for name in (SPACE, f"{SPACE}-news"):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            subject.post("/api/v1/namespaces", iter([space]), 1)
        subject.note("resident memory, idle, MiB", subject.idle)
        _until(lambda found=subject: found.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"))  # type: ignore[misc]  # bound at once
    for step in (step for name, step in STEPS.items() if name in only):
        print(f"… {step.__name__}", file=sys.stderr, flush=True)
        for subject in subjects:
            subject.connect()
        step(subjects, scale)


def _until(ask: Callable[[], object]) -> None:
    """A pod is admitted only when its namespace has an account."""
    deadline = time.monotonic() + 30
    while True:
        try:
            ask()
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> int:
    options = _arguments()
    part = 10 if options.quick else 1
    sizes = tuple(size // part for size in GROWTH if size <= (100_000 if options.large else options.pods))
    scale = Scale(options.pods // part, 2 if options.quick else options.rounds, 4_000 // part, 1_000 // part, sizes)
    absent = peers.missing()
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        opened = [peers.embedded] if absent or options.alone else [peers.embedded, peers.real]
        found = [stack.enter_context(make()) for make in opened]
        time.sleep(3.0)  # idle means idle: start-up's work is done
        subjects = [Subject(peer, peer.memory()) for peer in found]
        for subject in subjects:
            stack.callback(subject.close)
        measure(subjects, scale, options.only)
        print("\n".join(table(subjects)))
    print(f"\nfdatasync of 4 KiB on this disk: {fsync():.2f} ms; load before the start {load:.1f}")
    if absent:
        print(absent)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true", help="on to 100,000 pods")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--alone", action="store_true", help="without the real API server")
    parser.add_argument("--only", type=_steps, default=frozenset(STEPS), help=f"of {', '.join(STEPS)}; default all")
    return parser.parse_args()


def _steps(text: str) -> frozenset[str]:
    if unknown := set(text.split(",")) - set(STEPS):
        raise argparse.ArgumentTypeError(f"--only knows {', '.join(STEPS)}, not {', '.join(sorted(unknown))}")
    return frozenset(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
