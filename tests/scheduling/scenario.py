"""Plays a scenario file: a few lines say which nodes, queues and gangs there are; `cycle` lines are followed by what
the planner decides. The file is its own golden output: what is indented below `cycle` is compared, word for word.

    python tests/scheduling/scenario.py FILES...     writes the decisions into the files, to be read before committing
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rowlock.scheduling.actions.stale_gangs import is_below_minimum
from rowlock.scheduling.explain.explanations import Explainer
from rowlock.scheduling.model.session import open_session
from rowlock.scheduling.model.snapshot import (
    Gang,
    Node,
    NodeReservation,
    PipelinedGang,
    PodSet,
    Queue,
    SchedulerSettings,
    Shape,
    Snapshot,
    Status,
    Taint,
    Task,
)
from rowlock.scheduling.planner import Planner

GB = 10**9


@dataclass
class Scenario:
    """The little cluster of a scenario."""

    now: float = 1000.0
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    reservations: tuple[PipelinedGang, ...] = ()
    earmarks: tuple[NodeReservation, ...] = ()
    lost: tuple[tuple[str, float], ...] = ()

    def play(self, text: str) -> str:
        """The scenario again, with today's decisions below each `cycle`."""
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith("  "):
                continue
            out.append(line)
            words = line.partition("#")[0].split()
            if words:
                out += [f"  {found}" for found in self.step(words[0], words[1:])]
        return "\n".join(out) + "\n"

    def step(self, verb: str, words: list[str]) -> Iterator[str]:
        names = [w for w in words if "=" not in w]
        options = dict(w.split("=", 1) for w in words if "=" in w)
        match verb:
            case "node":
                self._node(names[0], set(names[1:]), options)
            case "queue":
                self._queue(names[0], options)
            case "gang":
                self._gang(names[0], set(names[1:]), options)
            case "settings":
                self._settings(options)
            case "advance":
                self.now += float(names[0])
            case "finish":
                self._status(names, Status.SUCCEEDED)
            case "fail":
                self._status(names, Status.FAILED)
            case "delete":
                for name in names:
                    del self.gangs[name]
            case "remove":
                for name in names:
                    del self.nodes[name]
            case "leave":
                self._leave()
            case "restart":  # what only the scheduler's memory held is gone
                self.reservations, self.earmarks, self.lost = (), (), ()
            case "cycle":
                yield from self._cycle()
            case _:
                raise AssertionError(f"{verb}: no such line in a scenario")

    # ------------------------------------------------------------ given

    def _node(self, name: str, flags: set[str], o: dict[str, str]) -> None:
        taints = tuple(Taint(o["taint"], "", "NoSchedule") for _ in [0] if "taint" in o)
        self.nodes[name] = Node(
            name,
            cpu=int(float(o.get("cpu", "64")) * 1000),
            memory=int(float(o.get("memory", "512")) * GB),
            gpus=int(o.get("gpus", "0")),
            gpu_memory=int(o.get("card", "100")),
            labels=tuple(tuple(p.split(":", 1)) for p in o.get("labels", "").split(",") if p),  # type: ignore[misc]  # pairs
            taints=taints,
            unschedulable="cordoned" in flags,
            ready="down" not in flags,
            pool=o.get("pool", ""),
        )

    def _queue(self, name: str, o: dict[str, str]) -> None:
        def amount(key: str, absent: int, unit: int) -> int:
            value = float(o.get(key, absent))
            return -1 if value < 0 else round(value * unit)

        self.queues[name] = Queue(
            name,
            o.get("parent", ""),
            quota=(amount("cpu", -1, 1000), amount("memory", -1, GB), amount("quota", 0, 100)),
            limit=(amount("cpulimit", -1, 1000), -1, amount("limit", -1, 100)),
            weight=(1.0, 1.0, float(o.get("weight", 1))),
            priority=int(o.get("priority", 100)),
            created=self.queues[name].created if name in self.queues else float(len(self.queues)),
            usage=(0.0, 0.0, float(o.get("usage", 0))),
            preempt_min_runtime=float(o["preemptmin"]) if "preemptmin" in o else None,
            reclaim_min_runtime=float(o["reclaimmin"]) if "reclaimmin" in o else None,
        )

    def _gang(self, name: str, flags: set[str], o: dict[str, str]) -> None:
        sets = [s.split(":") for s in o["sets"].split(",")] if "sets" in o else [["", o.get("pods", "1"), ""]]
        minimum = o.get("min", o.get("pods", "1"))
        pod_sets = tuple(PodSet(s[0], int(s[2] or minimum)) for s in sets)
        places = [p for p in o.get("on", "").split(",") if p]
        priority = int(o.get("priority", 50))
        names = [(s[0], i) for s in sets for i in range(int(s[1]))]
        tasks = []
        for at, (pod_set, i) in enumerate(names):
            pod = f"{name}-{pod_set}-{i}" if pod_set else f"{name}-{i}"
            node, _, card = (places[at] if at < len(places) else "").partition(":")
            status = Status.RUNNING if node else Status.GATED if "gated" in flags else Status.PENDING
            cards = tuple(int(c) for c in card.split("+") if c)
            tasks.append(Task(pod, "t", pod, self._shape(o), status, pod_set, node, cards, created=float(at)))
        created = self.now - float(o["age"]) if "age" in o else self.now + len(self.gangs) * 0.001
        self.gangs[name] = Gang(
            "t",
            name,
            name,
            o.get("queue", "a"),
            tuple(tasks[: int(o.get("exist", len(tasks)))]),
            pod_sets,
            priority,
            "nonpreemptible" not in flags if flags & {"preemptible", "nonpreemptible"} else priority < 100,
            created,
            started=self.now - float(o.get("ran", "3600")) if places else 0.0,
            stale=self.now - float(o["stale"]) if "stale" in o else 0.0,
            delay=float(o.get("delay", "0")),
            lasts=float(o.get("lasts", "0")),
            required=o.get("required", ""),
            preferred=o.get("preferred", ""),
        )

    def _shape(self, o: dict[str, str]) -> Shape:
        fraction = "portion" in o or "gpumem" in o
        return Shape(
            cpu=int(float(o.get("cpu", "1")) * 1000),
            memory=int(float(o.get("memory", "1")) * GB),
            gpus=0 if fraction else int(o.get("gpus", "1")),
            portion=int(o.get("portion", "0")),
            gpu_memory=int(o.get("gpumem", "0")),
            devices=int(o.get("devices", "1")) if fraction else 0,
            selector=tuple(tuple(p.split(":", 1)) for p in o.get("selector", "").split(",") if p),  # type: ignore[misc]  # pairs
            pool=o.get("pool", ""),
            unsupported=o.get("unsupported", "").replace("-", " "),
        )

    def _settings(self, o: dict[str, str]) -> None:
        values: dict[str, object] = {k: v for k, v in o.items() if k in ("gpu", "cpu", "cards")}
        if "consolidated" in o:
            values["max_consolidated"] = int(o["consolidated"])
        if "grace" in o:
            values["stale_grace"] = float(o["grace"])
        if "reserve" in o:
            values["reserve_after"] = float(o["reserve"])
        self.settings = replace(self.settings, **values)  # type: ignore[arg-type]  # checked by the keys above

    # ------------------------------------------------------------ when

    def _status(self, names: list[str], status: Status) -> None:
        """Of gangs or single pods; a gang that finished leaves."""
        for name in names:
            if name in self.gangs and status is Status.SUCCEEDED:
                del self.gangs[name]
                continue
            for key, gang in list(self.gangs.items()):
                tasks = tuple(replace(t, status=status) if name in (t.name, key) else t for t in gang.tasks)
                self.gangs[key] = replace(gang, tasks=tasks)

    def _leave(self) -> None:
        """What was evicted or failed has gone, and its pods are made again."""
        for key, gang in list(self.gangs.items()):
            tasks = tuple(
                replace(t, status=Status.PENDING, node="", devices=())
                if t.status in (Status.RELEASING, Status.FAILED)
                else t
                for t in gang.tasks
            )
            self.gangs[key] = replace(gang, tasks=tasks)

    # ------------------------------------------------------------ then

    def _cycle(self) -> Iterator[str]:
        snapshot = Snapshot(
            self.now,
            tuple(self.nodes.values()),
            tuple(self.queues.values()),
            tuple(self.gangs.values()),
            self.reservations,
            self.settings,
            self.earmarks,
            self.lost,
        )
        planner = Planner(open_session(snapshot))
        plan = planner.run_cycle(keep_plan=True)
        explainer = Explainer(planner.session)
        words = [(h.gang.partition("/")[2], explainer.explain(h)) for h in planner.holds()]
        planner.reset()
        self.reservations = plan.reservations
        for mark in plan.node_reservations:
            if mark not in self.earmarks:
                yield f"keep {','.join(mark.nodes)} for {mark.gang.partition('/')[2]}"
        self.earmarks, self.lost = plan.node_reservations, tuple(planner.session.lost_nodes.items())
        for b in plan.binds:
            cards = f" cards {','.join(map(str, b.devices))}" if b.devices else ""
            yield f"bind {b.pod} to {b.node}{cards}"
            self._change(b.gang, b.pod, Status.RUNNING, b.node, b.devices)
        for e in plan.evictions:
            for_whom = f" for {e.preemptor.partition('/')[2]}" if e.preemptor else ""
            moves = f", moves to {e.moves_to}" if e.moves_to else ""
            yield f"evict {e.pod}: {e.action}{for_whom}{moves}"
            self._change(e.gang, e.pod, Status.RELEASING)
        self._note_stale()
        for name, why in words:
            if why is not None:
                yield f"hold {name} [{why.reason}] {why.message}"
        if not (plan.binds or plan.evictions or words):
            yield "nothing"

    def _note_stale(self) -> None:
        """As the controller does: since when a gang runs below its minimum."""
        world = open_session(
            Snapshot(self.now, tuple(self.nodes.values()), tuple(self.queues.values()), tuple(self.gangs.values()))
        )
        for state in world.gangs.values():
            gang, below = state.gang, is_below_minimum(state)
            if below != bool(gang.stale):
                self.gangs[gang.name] = replace(gang, stale=self.now if below else 0.0)

    def _change(self, gang: str, pod: str, status: Status, node: str = "", cards: tuple[int, ...] = ()) -> None:
        key = gang.partition("/")[2]
        old = self.gangs[key]
        tasks = tuple(
            (replace(t, status=status, node=node, devices=cards) if node else replace(t, status=status))
            if t.name == pod
            else t
            for t in old.tasks
        )
        self.gangs[key] = replace(old, tasks=tasks, started=self.now)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(Scenario().play(path.read_text()))
