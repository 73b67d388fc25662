"""The planner's live state: counters over a snapshot, and a log that undoes every move.

All plans are made by `move`: a task changes status and place, every counter follows (node, cards, gang, queue and its
ancestors), and the old position goes to the log. `mark()` and `rollback(mark)` make any attempt harmless, so the same
code simulates and decides. The world can also follow a changing cluster (`put_*`, `drop_*`), outside of attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rowlock.scheduling.amounts import UNLIMITED, WHOLE, ZERO, Vector, plus
from rowlock.scheduling.room import NodeState
from rowlock.scheduling.snapshot import (
    Earmark,
    Gang,
    Node,
    Queue,
    Reservation,
    Settings,
    Shape,
    Snapshot,
    Status,
    Task,
)

ACTIVE = frozenset({Status.ALLOCATED, Status.PIPELINED, Status.BOUND, Status.RUNNING})
REAL = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING})
"""Holds its resources; counted against its queue."""
HOLDING = frozenset({Status.ALLOCATED, Status.BOUND, Status.RUNNING, Status.RELEASING})

Place = tuple[str, tuple[int, ...]]
"""A node and the indices of its cards."""


class QueueState:
    """A queue with its running totals; `counted` follows tasks that hold or are promised resources."""

    __slots__ = (
        "children", "counted", "demand", "fair", "fixed", "gangs", "kept", "path", "priorities", "queue", "rank", "running", "share",
        "usage",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.children: list[QueueState] = []
        self.path: tuple[QueueState, ...] = (self,)
        """Itself, its parent, ... its root; empty when a parent is missing or the parents form a circle."""
        self.counted: Vector = ZERO
        self.fixed: Vector = ZERO
        """The non-preemptible part of `counted`."""
        self.demand: Vector = ZERO
        """Counted and pending together."""
        self.fair: Vector = ZERO
        self.share: Vector = ZERO
        """What it may hold without being reclaimable: limit, quota and fair share together."""
        self.gangs: dict[str, GangState] = {}
        self.running: dict[str, GangState] = {}
        """Gangs that had active pods when the cycle began, and those that were placed in it."""
        self.priorities: dict[int, int] = {}
        """How many of them have each priority."""
        self.kept: tuple[tuple[str, Vector, bool], ...] = ()
        """Of its limit (True: and of its quota) this much is kept for those gangs, beside the earmarked nodes."""
        self.rank = 0
        self.usage = queue.usage
        """The part of the cluster it used lately."""

    def enlist(self, state: GangState) -> bool:
        """Count the gang among the running; False when it was there."""
        if state.gang.key in self.running:
            return False
        self.running[state.gang.key] = state
        self.priorities[state.gang.priority] = self.priorities.get(state.gang.priority, 0) + 1
        return True

    def discharge(self, key: str) -> None:
        state = self.running.pop(key, None)
        if state is not None:
            left = self.priorities[state.gang.priority] - 1
            self.priorities[state.gang.priority] = left
            if not left:
                del self.priorities[state.gang.priority]


class SetState:
    """A pod set's counters."""

    __slots__ = ("active", "alive", "done", "minimum", "name", "pending", "real", "tasks")

    def __init__(self, name: str, minimum: int) -> None:
        self.name, self.minimum = name, minimum
        self.tasks: list[TaskState] = []
        self.active = self.real = self.alive = self.pending = self.done = 0

    def count(self, status: Status, sign: int) -> None:
        if status in ACTIVE:
            self.active += sign
            self.alive += sign
            if status in REAL:
                self.real += sign
        elif status is Status.PENDING:
            self.pending += sign
            self.alive += sign
        elif status is Status.SUCCEEDED:
            self.done += sign

    @property
    def missing(self) -> int:
        """How many more must be placed for the minimum. A finished pod has done its part."""
        return self.minimum - self.active - self.done


class GangState:
    """A gang, its sets, its queue. While `region` names a label and its value, its pods go to such nodes only; `served`:
    others leave for it in this cycle."""

    __slots__ = ("gang", "queue", "region", "served", "sets")

    def __init__(self, gang: Gang, queue: QueueState | None) -> None:
        self.gang, self.queue = gang, queue
        self.region = ("", "")
        self.served = False
        self.sets: dict[str, SetState] = {p.name: SetState(p.name, p.minimum) for p in gang.pod_sets}

    @property
    def tasks(self) -> Iterator[TaskState]:
        for s in self.sets.values():
            yield from s.tasks

    @property
    def pool(self) -> str:
        """A gang lives in one node pool."""
        return self.gang.tasks[0].shape.pool if self.gang.tasks else ""

    @property
    def active(self) -> int:
        return sum(s.active for s in self.sets.values())

    @property
    def pending(self) -> int:
        return sum(s.pending for s in self.sets.values())

    def tasks_pending(self) -> bool:
        """Some pod still wants a node (or a gate to open)."""
        return any(s.pending for s in self.sets.values()) or any(t.status is Status.GATED for t in self.tasks)

    def elasticity(self) -> int:
        """0 below its minimum, 1 exactly at it, 2 above it."""
        above = False
        for s in self.sets.values():
            if s.missing > 0:
                return 0
            above = above or s.missing < 0
        return 2 if above else 1


class TaskState:
    """A task's present position in the plan. `origin`: it is also still leaving that place (it was evicted there)."""

    __slots__ = ("devices", "gang", "node", "origin", "set", "status", "task")

    def __init__(self, task: Task, gang: GangState) -> None:
        self.task, self.gang = task, gang
        self.set = gang.sets.get(task.pod_set) or gang.sets.setdefault(task.pod_set, SetState(task.pod_set, 0))
        self.status, self.node, self.devices = task.status, task.node, task.devices
        self.origin: Place | None = None


Entry = tuple[TaskState, Status, str, tuple[int, ...], Place | None]


class World:
    """Nodes, queues and gangs with counters; see the module's docstring."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.now = 0.0
        self.nodes: dict[str, NodeState] = {}
        self.order: list[NodeState] = []
        """Nodes by name; NodeState.index points into it."""
        self.queues: dict[str, QueueState] = {}
        self.gangs: dict[str, GangState] = {}
        self.partial: dict[str, GangState] = {}
        """Gangs that ran with less than their minimum when the cycle began, and those marked so."""
        self.stray: dict[str, GangState] = {}
        """Gangs with pods on nodes that are not there, or not ready."""
        self.lost: dict[str, float] = {}
        """Those nodes, and since when."""
        self.reservations: dict[str, Reservation] = {}
        self.earmarks: tuple[Earmark, ...] = ()
        self.opens: dict[str, float | None] = {}
        """When the nodes earmarked for a gang will be free; None = nobody knows."""
        self.log: list[Entry] = []
        self.touched: list[int] = []
        """Indices of nodes whose room changed, ever growing within an epoch: placement reads the tail."""
        self.epoch = 0
        """Counts changes of the set of nodes or of their properties."""
        self.smallest_gpu = 100
        self.free_gpu = 0
        """Hundredths of all cards that are idle or coming back, less what is promised."""
        self.surplus: object | None = None
        """A memo of `reclaim.py`, valid until a plan changes what queues hold."""
        self.shared: dict[str, object] = {}
        """Memos of the acts, valid until one of them succeeds."""
        self.total: Vector = ZERO
        """Schedulable capacity less what foreign pods hold."""

    # ------------------------------------------------------------ moves

    def move(
        self,
        task: TaskState,
        status: Status,
        node: str = "",
        devices: tuple[int, ...] = (),
        *,
        origin: Place | None = None,
    ) -> None:
        """Put a task somewhere else in the plan; undone by `rollback`."""
        self.log.append((task, task.status, task.node, task.devices, task.origin))
        self._set(task, status, node, devices, origin)

    def mark(self) -> int:
        return len(self.log)

    def rollback(self, mark: int) -> None:
        while len(self.log) > mark:
            task, status, node, devices, origin = self.log.pop()
            self._set(task, status, node, devices, origin)

    def forget(self) -> None:
        """Drop the memos of the acts: what queues hold has changed."""
        self.surplus = None
        self.shared.clear()

    def keep(self, earmarks: tuple[Earmark, ...]) -> None:
        """Keep nodes for gangs, or none; rankings begin again when that changes."""
        if earmarks != self.earmarks:
            self.earmarks = earmarks
            self.epoch += 1
            self.touched.clear()

    def mark_in(self, pool: str) -> Earmark | None:
        """The nodes that are kept for a gang in that pool."""
        return next((m for m in self.earmarks if m.pool == pool), None)

    def trim(self) -> None:
        """Forget a long tail of touched nodes; rankings begin again."""
        if len(self.touched) > 200_000:
            self.touched.clear()
            self.epoch += 1

    def _set(self, task: TaskState, status: Status, node: str, devices: tuple[int, ...], origin: Place | None) -> None:
        self._effect(task, -1)
        task.status, task.node, task.devices, task.origin = status, node, devices, origin
        self._effect(task, +1)

    def _effect(self, task: TaskState, sign: int) -> None:
        status, shape = task.status, task.task.shape
        task.set.count(status, sign)
        state = self.nodes.get(task.node) if task.node else None
        if state is not None:
            if status is Status.PIPELINED:
                self.free_gpu += state.release(shape, task.devices, -sign)
                self.touched.append(state.index)
            elif status in HOLDING:
                self.free_gpu -= state.occupy(shape, task.devices, sign)
                if status is Status.RELEASING:
                    self.free_gpu += state.release(shape, task.devices, sign)
                self.touched.append(state.index)
        if task.origin is not None and (old := self.nodes.get(task.origin[0])) is not None:
            self.free_gpu -= old.occupy(shape, task.origin[1], sign)
            self.free_gpu += old.release(shape, task.origin[1], sign)
            self.touched.append(old.index)
        if status in ACTIVE or status is Status.PENDING:
            self._account(task, status, state, sign)

    def _account(self, task: TaskState, status: Status, node: NodeState | None, sign: int) -> None:
        amount = self.vector(task.task.shape, node)
        queue, gang = task.gang.queue, task.gang.gang
        if gang.foreign:
            if node is not None and node.node.ready and not node.node.unschedulable:
                self.total = plus(self.total, [-sign * v for v in amount])
            return
        if queue is None:
            return
        if sign < 0:
            amount = (-amount[0], -amount[1], -amount[2])
        for q in queue.path:
            q.demand = plus(q.demand, amount)
            if status in ACTIVE:
                q.counted = plus(q.counted, amount)
                if not gang.preemptible:
                    q.fixed = plus(q.fixed, amount)

    def vector(self, shape: Shape, node: NodeState | None = None) -> Vector:
        """What the shape costs its queue; memory of a card counts by the card it sits on, unplaced by the smallest."""
        if shape.gpus:
            return (shape.cpu, shape.memory, shape.gpus * WHOLE)
        if not shape.devices:
            return (shape.cpu, shape.memory, 0)
        if node is not None and node.node.gpus:
            return (shape.cpu, shape.memory, node.amount(shape) * shape.devices)
        portion = shape.portion or min(WHOLE, -(-shape.gpu_memory * 100 // max(1, self.smallest_gpu)))
        return (shape.cpu, shape.memory, portion * shape.devices)

    def need(self, tasks: Iterable[TaskState]) -> Vector:
        total = ZERO
        for t in tasks:
            total = plus(total, self.vector(t.task.shape))
        return total

    # ------------------------------------------------------------ following a cluster

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """The whole set of nodes. Every task's effect is taken off and put back, so counters stay exact."""
        tasks = [t for g in self.gangs.values() for t in g.tasks]
        for t in tasks:
            self._effect(t, -1)
        self.order = [NodeState(n, i) for i, n in enumerate(sorted(nodes, key=lambda n: n.name))]
        self.nodes = {s.node.name: s for s in self.order}
        self.smallest_gpu = min((s.node.gpu_memory for s in self.order if s.node.gpus), default=100)
        self.total = ZERO
        self.free_gpu = sum(s.node.gpus * WHOLE for s in self.order)
        for s in self.order:
            if s.node.ready and not s.node.unschedulable:
                self.total = plus(self.total, (s.node.cpu, s.node.memory, s.node.gpus * WHOLE))
        self.epoch += 1
        self.touched.clear()
        for t in tasks:
            if not t.devices:  # its node was away: the cards it holds count again from now on
                t.devices = t.task.devices
                t.devices = self._cards(t)
            self._effect(t, +1)
        self.lost = {name: since for name, since in self.lost.items() if self.gone(name)}
        self.stray.clear()
        for state in self.gangs.values():
            self._miss(state)

    def gone(self, node: str) -> bool:
        """Can nothing be heard of pods there?"""
        state = self.nodes.get(node)
        return state is None or not state.node.ready

    def _miss(self, state: GangState) -> None:
        """Note the nodes that the gang's running pods have lost."""
        for t in state.tasks:
            if t.node and t.status in REAL and self.gone(t.node):
                self.stray[state.gang.key] = state
                there = self.nodes.get(t.node)
                self.lost.setdefault(t.node, there.node.unready_since if there else 0.0)
                self.lost[t.node] = self.lost[t.node] or self.now

    def put_queues(self, queues: Iterable[Queue]) -> None:
        """The whole set of queues; gangs find their queue again."""
        gangs = [g.gang for g in self.gangs.values()]
        for gang in gangs:
            self.drop_gang(gang.key)
        ordered = sorted(queues, key=lambda q: (q.created, q.name))
        self.queues = {q.name: QueueState(q) for q in ordered}
        for rank, state in enumerate(self.queues.values()):
            state.rank = rank
            state.path = self._path(state)
            parent = self.queues.get(state.queue.parent)
            if parent is not None and state.path:
                parent.children.append(state)
        for gang in gangs:
            self.put_gang(gang)

    def _path(self, state: QueueState) -> tuple[QueueState, ...]:
        path: list[QueueState] = []
        at: QueueState | None = state
        while at is not None:
            if at in path:
                return ()
            path.append(at)
            if not at.queue.parent:
                return tuple(path)
            at = self.queues.get(at.queue.parent)
        return ()

    def put_gang(self, gang: Gang) -> GangState:
        self.drop_gang(gang.key)
        queue = None if gang.foreign else self.leaf(gang.queue)
        state = GangState(gang, queue)
        for task in sorted(gang.tasks, key=lambda t: (-t.priority, t.created, t.name, t.uid)):
            t = TaskState(task, state)
            t.devices = self._cards(t)
            t.set.tasks.append(t)
            self._effect(t, +1)
        self.gangs[gang.key] = state
        self._miss(state)
        if queue is not None:
            queue.gangs[gang.key] = state
            if state.active:
                queue.enlist(state)
                if gang.stale or state.elasticity() == 0:
                    self.partial[gang.key] = state
        return state

    def _cards(self, t: TaskState) -> tuple[int, ...]:
        """The cards of a running pod; one bound by hand names none, then it counts on the emptiest."""
        node, count = self.nodes.get(t.node), t.task.shape.cards
        if node is None or not count:
            return ()
        known = tuple(d for d in t.devices if d < node.node.gpus)
        if len(known) == count:
            return known
        return tuple(sorted(range(node.node.gpus), key=lambda d: (node.used[d], d))[:count])

    def drop_gang(self, key: str) -> None:
        state = self.gangs.pop(key, None)
        if state is None:
            return
        self.stray.pop(key, None)
        for t in state.tasks:
            self._effect(t, -1)
        if state.queue is not None:
            state.queue.gangs.pop(key, None)
            state.queue.discharge(key)
            self.partial.pop(key, None)

    def active_gangs(self) -> Iterator[GangState]:
        """All gangs of all queues that had active pods when the cycle began."""
        for q in self.queues.values():
            yield from q.running.values()

    def leaf(self, name: str) -> QueueState | None:
        """The queue of that name if jobs may run in it: it is a leaf and all its ancestors exist."""
        queue = self.queues.get(name)
        return queue if queue is not None and queue.path and not queue.children else None


def build(snapshot: Snapshot) -> World:
    """A world from scratch."""
    world = World(snapshot.settings)
    world.now = snapshot.now
    world.lost = dict(snapshot.lost)
    world.put_nodes(snapshot.nodes)
    world.put_queues(snapshot.queues)
    for gang in snapshot.gangs:
        world.put_gang(gang)
    world.reservations = {r.gang: r for r in snapshot.reservations}
    world.keep(snapshot.earmarks)
    return world


def unlimited(vector: Vector) -> bool:
    return all(v == UNLIMITED for v in vector)
