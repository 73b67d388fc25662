"""The planner's live state: counters over a snapshot, and a log that undoes every move.

All plans are made by `move_task`: it changes a task's status and place, updates every counter (node, GPUs, gang, queue and its ancestors),
and appends the old position to the log. `checkpoint` and `rollback` undo any attempt, so the same code simulates and decides. Between
attempts the session follows a changing cluster (`put_*`, `drop_*`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rowlock.scheduling.model.gang_state import (
    ACTIVE_STATUSES,
    ALLOCATED_STATUSES,
    HOLDING_STATUSES,
    GangState,
    Placement,
    QueueState,
    TaskState,
)
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.resources import WHOLE_GPU, ZERO, ResourceVector, add, memory_portion
from rowlock.scheduling.model.snapshot import (
    Gang,
    Node,
    NodeReservation,
    PipelinedGang,
    Queue,
    SchedulerSettings,
    Shape,
    Snapshot,
    Status,
)

UndoEntry = tuple[TaskState, Status, str, tuple[int, ...], Placement | None]


class Session:
    """Nodes, queues and gangs with counters; see the module's docstring."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.settings = settings or SchedulerSettings()
        self.now = 0.0
        self.nodes: dict[str, NodeState] = {}
        self.ordered_nodes: list[NodeState] = []
        """Nodes by name; NodeState.index points into it."""
        self.queues: dict[str, QueueState] = {}
        self.gangs: dict[str, GangState] = {}
        self.below_minimum_gangs: dict[str, GangState] = {}
        """Gangs that ran with fewer pods than their minimum when the cycle began, and those marked so."""
        self.gangs_on_lost_nodes: dict[str, GangState] = {}
        """Gangs with pods on nodes that do not exist or are not ready."""
        self.lost_nodes: dict[str, float] = {}
        """Those nodes → since when (seconds since the epoch)."""
        self.reservations: dict[str, PipelinedGang] = {}
        self.node_reservations: tuple[NodeReservation, ...] = ()
        self.reserved_free_at: dict[str, float | None] = {}
        """Key of a gang → when its reserved nodes will be free (seconds since the epoch); None = unknown."""
        self.undo_log: list[UndoEntry] = []
        self.touched_nodes: list[int] = []
        """Indices of nodes whose resources changed, appended within an epoch: each `NodeRanking` reads the part that is new to it."""
        self.nodes_epoch = 0
        """Counts changes of the set of nodes or of their properties."""
        self.smallest_gpu_memory = 100
        self.free_gpu: float = 0
        """Hundredths of all GPUs that are idle or being released, minus what pipelined pods take."""
        self.surplus_memo: object | None = None
        """A cache of `reclaim.py`, valid until a plan changes what queues hold."""
        self.action_memos: dict[str, object] = {}
        """Caches of the actions, valid until one of them succeeds."""
        self.total: ResourceVector = ZERO
        """Schedulable capacity minus what foreign pods hold."""

    # ------------------------------------------------------------ moves

    def move_task(
        self,
        task: TaskState,
        status: Status,
        node: str = "",
        devices: tuple[int, ...] = (),
        *,
        origin: Placement | None = None,
    ) -> None:
        """Change a task's status and place in the plan; undone by `rollback`."""
        self.undo_log.append((task, task.status, task.node, task.devices, task.origin))
        self._set_position(task, status, node, devices, origin)

    def checkpoint(self) -> int:
        return len(self.undo_log)

    def rollback(self, checkpoint: int) -> None:
        while len(self.undo_log) > checkpoint:
            task, status, node, devices, origin = self.undo_log.pop()
            self._set_position(task, status, node, devices, origin)

    def forget_memos(self) -> None:
        """Drop the caches of the actions, because what queues hold has changed."""
        self.surplus_memo = None
        self.action_memos.clear()

    def set_node_reservations(self, node_reservations: tuple[NodeReservation, ...]) -> None:
        """Set the node reservations. A change invalidates all rankings."""
        if node_reservations != self.node_reservations:
            self.node_reservations = node_reservations
            self.nodes_epoch += 1
            self.touched_nodes.clear()

    def node_reservation_in(self, pool: str) -> NodeReservation | None:
        """The node reservation in that pool, if there is one."""
        return next((m for m in self.node_reservations if m.pool == pool), None)

    def trim_touched(self) -> None:
        """Clear a long `touched_nodes`, which invalidates all rankings."""
        if len(self.touched_nodes) > 200_000:
            self.touched_nodes.clear()
            self.nodes_epoch += 1

    def _set_position(
        self, task: TaskState, status: Status, node: str, devices: tuple[int, ...], origin: Placement | None
    ) -> None:
        self._apply_effect(task, -1)
        task.status, task.node, task.devices, task.origin = status, node, devices, origin
        self._apply_effect(task, +1)

    def _apply_effect(self, task: TaskState, sign: int) -> None:
        status, shape = task.status, task.task.shape
        task.pod_set.count_status(status, sign)
        state = self.nodes.get(task.node) if task.node else None
        if state is not None:
            if status is Status.PIPELINED:
                self.free_gpu += state.release(shape, task.devices, -sign)
                self.touched_nodes.append(state.index)
            elif status in HOLDING_STATUSES:
                self.free_gpu -= state.occupy(shape, task.devices, sign)
                if status is Status.RELEASING:
                    self.free_gpu += state.release(shape, task.devices, sign)
                self.touched_nodes.append(state.index)
        if task.origin is not None and (origin_node := self.nodes.get(task.origin[0])) is not None:
            self.free_gpu -= origin_node.occupy(shape, task.origin[1], sign)
            self.free_gpu += origin_node.release(shape, task.origin[1], sign)
            self.touched_nodes.append(origin_node.index)
        if status in ACTIVE_STATUSES or status is Status.PENDING:
            self._account_to_queue(task, status, state, sign)

    def _account_to_queue(self, task: TaskState, status: Status, node: NodeState | None, sign: int) -> None:
        amount = self.resource_cost(task.task.shape, node)
        queue, gang = task.gang.queue, task.gang.gang
        if gang.foreign:
            if node is not None and node.node.ready and not node.node.unschedulable:
                self.total = add(self.total, (-sign * amount[0], -sign * amount[1], -sign * amount[2]))
            return
        if queue is None:
            return
        if sign < 0:
            amount = (-amount[0], -amount[1], -amount[2])
        for q in queue.path:
            q.requested = add(q.requested, amount)
            if status in ACTIVE_STATUSES:
                q.allocated = add(q.allocated, amount)
                if not gang.preemptible:
                    q.allocated_non_preemptible = add(q.allocated_non_preemptible, amount)

    def resource_cost(self, shape: Shape, node: NodeState | None = None) -> ResourceVector:
        """What the shape costs its queue. GPU memory counts as a fraction of the node's GPU, or of the smallest GPU without a node."""
        if shape.gpus:
            return (shape.cpu, shape.memory, shape.gpus * WHOLE_GPU)
        if not shape.devices:
            return (shape.cpu, shape.memory, 0)
        if node is not None and node.node.gpus:
            return (shape.cpu, shape.memory, node.device_portion(shape) * shape.devices)
        portion = shape.portion or min(WHOLE_GPU, memory_portion(shape.gpu_memory, self.smallest_gpu_memory))
        return (shape.cpu, shape.memory, portion * shape.devices)

    def total_cost(self, tasks: Iterable[TaskState]) -> ResourceVector:
        total = ZERO
        for t in tasks:
            total = add(total, self.resource_cost(t.task.shape))
        return total

    # ------------------------------------------------------------ following a cluster

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace all nodes. Every task is removed from the counters and added again, so they stay exact."""
        tasks = [t for g in self.gangs.values() for t in g.tasks]
        for t in tasks:
            self._apply_effect(t, -1)
        self.ordered_nodes = [NodeState(n, i) for i, n in enumerate(sorted(nodes, key=lambda n: n.name))]
        self.nodes = {s.node.name: s for s in self.ordered_nodes}
        self.smallest_gpu_memory = min((s.node.gpu_memory for s in self.ordered_nodes if s.node.gpus), default=100)
        self.total = ZERO
        self.free_gpu = sum(s.node.gpus * WHOLE_GPU for s in self.ordered_nodes)
        for s in self.ordered_nodes:
            if s.node.ready and not s.node.unschedulable:
                self.total = add(self.total, (s.node.cpu, s.node.memory, s.node.gpus * WHOLE_GPU))
        self.nodes_epoch += 1
        self.touched_nodes.clear()
        for t in tasks:
            if not t.devices:  # its node was missing: its GPUs count again from now on
                t.devices = t.task.devices
                t.devices = self._assigned_devices(t)
            self._apply_effect(t, +1)
        self.lost_nodes = {name: since for name, since in self.lost_nodes.items() if self.is_node_lost(name)}
        self.gangs_on_lost_nodes.clear()
        for state in self.gangs.values():
            self._record_lost_nodes(state)

    def is_node_lost(self, node: str) -> bool:
        """Whether the node is missing or not ready."""
        state = self.nodes.get(node)
        return state is None or not state.node.ready

    def _record_lost_nodes(self, state: GangState) -> None:
        """Update `lost_nodes` and `gangs_on_lost_nodes` for the nodes of the gang's running pods."""
        for t in state.tasks:
            if t.node and t.status in ALLOCATED_STATUSES and self.is_node_lost(t.node):
                self.gangs_on_lost_nodes[state.gang.key] = state
                node = self.nodes.get(t.node)
                self.lost_nodes.setdefault(t.node, node.node.unready_since if node else 0.0)
                self.lost_nodes[t.node] = self.lost_nodes[t.node] or self.now

    def put_queues(self, queues: Iterable[Queue]) -> None:
        """Replace all queues, and add all gangs again."""
        gangs = [g.gang for g in self.gangs.values()]
        for gang in gangs:
            self.drop_gang(gang.key)
        ordered = sorted(queues, key=lambda q: (q.created, q.name))
        self.queues = {q.name: QueueState(q) for q in ordered}
        for rank, state in enumerate(self.queues.values()):
            state.rank = rank
            state.path = self._ancestor_path(state)
            parent = self.queues.get(state.queue.parent)
            if parent is not None and state.path:
                parent.children.append(state)
        for gang in gangs:
            self.put_gang(gang)

    def _ancestor_path(self, state: QueueState) -> tuple[QueueState, ...]:
        path: list[QueueState] = []
        ancestor: QueueState | None = state
        while ancestor is not None:
            if ancestor in path:
                return ()
            path.append(ancestor)
            if not ancestor.queue.parent:
                return tuple(path)
            ancestor = self.queues.get(ancestor.queue.parent)
        return ()

    def put_gang(self, gang: Gang) -> GangState:
        self.drop_gang(gang.key)
        queue = None if gang.foreign else self.leaf_queue(gang.queue)
        state = GangState(gang, queue)
        for task in sorted(gang.tasks, key=lambda t: (-t.priority, t.created, t.name, t.uid)):
            t = TaskState(task, state)
            t.devices = self._assigned_devices(t)
            t.pod_set.tasks.append(t)
            self._apply_effect(t, +1)
        self.gangs[gang.key] = state
        self._record_lost_nodes(state)
        if queue is not None:
            queue.gangs[gang.key] = state
            if state.active_count:
                queue.add_running(state)
                if gang.stale or state.elasticity() == 0:
                    self.below_minimum_gangs[gang.key] = state
        return state

    def _assigned_devices(self, t: TaskState) -> tuple[int, ...]:
        """The GPUs of a running pod; a pod bound by hand names none and is counted on the emptiest ones."""
        node, count = self.nodes.get(t.node), t.task.shape.device_count
        if node is None or not count:
            return ()
        named = tuple(d for d in t.devices if d < node.node.gpus)
        if len(named) == count:
            return named
        return tuple(sorted(range(node.node.gpus), key=lambda d: (node.used_per_device[d], d))[:count])

    def drop_gang(self, key: str) -> None:
        state = self.gangs.pop(key, None)
        if state is None:
            return
        self.gangs_on_lost_nodes.pop(key, None)
        for t in state.tasks:
            self._apply_effect(t, -1)
        if state.queue is not None:
            state.queue.gangs.pop(key, None)
            state.queue.remove_running(key)
            self.below_minimum_gangs.pop(key, None)

    def active_gangs(self) -> Iterator[GangState]:
        """All gangs of all queues that had active pods when the cycle began."""
        for q in self.queues.values():
            yield from q.running_gangs.values()

    def leaf_queue(self, name: str) -> QueueState | None:
        """The queue of that name if it is a leaf and all its ancestors exist, so that jobs may run in it; else None."""
        queue = self.queues.get(name)
        return queue if queue is not None and queue.path and not queue.children else None


def open_session(snapshot: Snapshot) -> Session:
    """A new session with the content of a snapshot."""
    session = Session(snapshot.settings)
    session.now = snapshot.now
    session.lost_nodes = dict(snapshot.lost)
    session.put_nodes(snapshot.nodes)
    session.put_queues(snapshot.queues)
    for gang in snapshot.gangs:
        session.put_gang(gang)
    session.reservations = {r.gang: r for r in snapshot.reservations}
    session.set_node_reservations(snapshot.earmarks)
    return session
