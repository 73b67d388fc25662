"""Places one task on the best node and GPUs, or says why there is none.

A `NodeRanking` keeps the feasible nodes of one shape in a heap, best first, and rescores only the session's `touched_nodes`: placing a pod
costs one node, not all. The order is lexicographic where KAI adds tiers of scores: a nominated node, not reserved, a shared GPU with room,
free now, CPU jobs on CPU nodes, then pack (fullest) or spread (emptiest), then the name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rowlock.scheduling.model.gang_state import GangState, TaskState
from rowlock.scheduling.model.host_ports import unlisted_amount
from rowlock.scheduling.model.node_state import NodeState
from rowlock.scheduling.model.pod_requests import replica_portion, replicas_of
from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Node, Requirement, Shape, Status, Taint, Toleration

NodeScore = tuple[int, int, int, int, float, int]
TopologyDomain = tuple[str, str]
WHOLE_CLUSTER: TopologyDomain = ("", "")


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the tolerations matches the taint (`v1.Toleration.ToleratesTaint`)."""
    for t in tolerations:
        if t.effect and t.effect != taint.effect:
            continue
        if t.op == "Exists" and t.key in ("", taint.key):
            return True
        if t.op == "Equal" and t.key == taint.key and t.value == taint.value:
            return True
    return False


def matches_requirement(requirement: Requirement, node: Node, labels: dict[str, str]) -> bool:
    """Whether the node meets one `NodeSelectorRequirement`; `Gt` and `Lt` compare whole numbers, and fail for other values."""
    value = node.name if requirement.field else labels.get(requirement.key)
    match requirement.op:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        number, bound = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if requirement.op == "Gt" else number < bound


def obstacle(shape: Shape, node: Node) -> str:
    """Why the shape can never run on the node, in kube-scheduler's words (taints, affinity, readiness); "" when it can."""
    if node.unschedulable:
        return "node(s) were unschedulable"
    if not node.ready:
        return "node(s) were not ready"
    if any(t.effect != "PreferNoSchedule" and not is_tolerated(t, shape.tolerations) for t in node.taints):
        return "node(s) had untolerated taint(s)"
    if shape.pool != node.pool:
        return "node(s) were in another node pool"
    if not (shape.selector or shape.affinity or shape.volumes or shape.new_volumes):
        return ""
    labels = dict(node.labels)
    if any(labels.get(k) != v for k, v in shape.selector):
        return "node(s) didn't match Pod's node affinity/selector"
    if shape.affinity and not _matches_any(shape.affinity, node, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    if not all(_matches_any(alternatives, node, labels) for alternatives in shape.volumes):
        return "node(s) didn't match PersistentVolume's node affinity"
    if not all(_matches_any(alternatives, node, labels) for alternatives in shape.new_volumes):
        return "node(s) didn't find available persistent volumes to bind"
    return ""


def _matches_any(alternatives: Iterable[Iterable[Requirement]], node: Node, labels: dict[str, str]) -> bool:
    """Whether all requirements of one of the alternatives hold on the node."""
    return any(all(matches_requirement(r, node, labels) for r in term) for term in alternatives)


def could_hold(node: Node, shape: Shape) -> bool:
    """Whether the node could hold a pod of this shape if it were empty."""
    return has_amounts(node, shape) and (not shape.wants_gpu or _gives_such_gpus(node, shape))


def has_amounts(node: Node, shape: Shape) -> bool:
    """Whether the empty node has enough of every resource for the shape, without regard to how its GPUs are divided."""
    extras = dict(node.extras)
    return (
        node.cpu >= shape.cpu
        and node.memory >= shape.memory
        and node.pods >= 1
        and node.gpus >= shape.device_count
        and (not shape.gpu_memory or node.gpu_memory >= shape.gpu_memory)
        and all(extras.get(name, unlisted_amount(name)) >= value for name, value in shape.extras)
    )


def _gives_such_gpus(node: Node, shape: Shape) -> bool:
    """Whether the node's GPUs are undivided, or divided into replicas that are large enough for the shape."""
    replicas = replicas_of(dict(node.labels))
    return replicas == 1 or (not shape.gpus and shape.portion <= replica_portion(replicas))


def find_devices(state: NodeState, shape: Shape, *, with_releasing: bool, spread: bool) -> tuple[int, ...] | None:
    """The GPUs (indices) for the shape on this node now or (`with_releasing`) once releasing pods have ended; None if it does not fit."""
    if not shape.wants_gpu:
        return ()
    if shape.device_count > state.node.gpus:
        return None
    if shape.gpus:
        if state.replicas > 1:  # no whole GPUs there
            return None
        return _find_whole_devices(state, shape.gpus, with_releasing)
    amount = state.device_portion(shape)
    if amount > WHOLE_GPU:
        return None
    shared, empty = [], []
    for d, used in enumerate(state.used_per_device):
        releasing = state.releasing_per_device[d]
        remaining_used = used - releasing
        free = WHOLE_GPU - remaining_used if with_releasing else free_portion(state, d)
        if remaining_used > 0 and free >= amount:
            shared.append(
                (max(used, remaining_used) + amount > WHOLE_GPU, (remaining_used if spread else -remaining_used), d)
            )
        elif remaining_used == 0 and (with_releasing or (used == 0 and releasing == 0)):
            empty.append((used > 0, d))
    shared_devices = [d for *_, d in sorted(shared)]
    empty_devices = [d for *_, d in sorted(empty)]
    devices = (empty_devices + shared_devices if spread else shared_devices + empty_devices)[: shape.devices]
    return tuple(devices) if len(devices) == shape.devices else None


def free_portion(state: NodeState, device: int) -> float:
    """Hundredths of a GPU that are free now, without what is releasing or pipelined."""
    used = state.used_per_device[device]
    return WHOLE_GPU - max(used, used - state.releasing_per_device[device])


def _find_whole_devices(state: NodeState, count: int, with_releasing: bool) -> tuple[int, ...] | None:
    """`count` whole GPUs (indices), or None. A pipelined pod takes releasing GPUs first: idle ones can serve another pod now."""
    idle: list[int] = []
    releasing: list[int] = []
    for d, used in enumerate(state.used_per_device):
        if used == state.releasing_per_device[d]:
            (releasing if used else idle).append(d)
    devices = (releasing + idle if with_releasing else idle)[:count]
    return tuple(devices) if len(devices) == count else None


def fits_resources(state: NodeState, shape: Shape, *, with_releasing: bool) -> bool:
    """Whether CPU, memory, pods and other resources suffice. `with_releasing` adds releasing resources, minus pipelined ones."""
    if state.idle_cpu + state.releasing_cpu < shape.cpu or state.idle_memory + state.releasing_memory < shape.memory:
        return False
    if state.idle_pods + state.releasing_pods < 1:
        return False
    if not with_releasing and (state.idle_cpu < shape.cpu or state.idle_memory < shape.memory or state.idle_pods < 1):
        return False
    for name, value in shape.extras:
        idle = state.idle_extras.get(name, unlisted_amount(name))
        if idle + state.releasing_extras.get(name, 0) < value or (not with_releasing and idle < value):
            return False
    return True


class NodeRanking:
    """The feasible nodes of one shape, best first. `avoid_reserved`: without nodes reserved for other gangs."""

    __slots__ = (
        "avoid_reserved",
        "domain",
        "eligible",
        "epoch",
        "heap",
        "reserved_nodes",
        "session",
        "shape",
        "spread",
        "spread_devices",
        "touched_offset",
        "versions",
    )  # fmt: skip

    def __init__(
        self, session: Session, shape: Shape, domain: TopologyDomain = WHOLE_CLUSTER, *, avoid_reserved: bool = False
    ) -> None:
        self.session, self.shape, self.domain, self.avoid_reserved = session, shape, domain, avoid_reserved
        self.spread = (session.settings.gpu if shape.wants_gpu else session.settings.cpu) == "spread"
        self.spread_devices = (session.settings.cards or session.settings.gpu) == "spread"
        self._rebuild()

    def _rebuild(self) -> None:
        session = self.session
        self.epoch = session.nodes_epoch
        self.touched_offset = len(session.touched_nodes)
        self.reserved_nodes = frozenset(n for reservation in session.node_reservations for n in reservation.nodes)
        self.eligible = [self._is_eligible(s.node) for s in session.ordered_nodes]
        self.versions = [0] * len(session.ordered_nodes)
        self.heap: list[tuple[NodeScore, int, int]] = []
        for state in session.ordered_nodes:
            if self.eligible[state.index] and (score := self.score(state)) is not None:
                self.heap.append((score, state.index, 0))
        heapq.heapify(self.heap)

    def _is_eligible(self, node: Node) -> bool:
        label, value = self.domain
        if label and (label, value) not in node.labels:
            return False
        return not obstacle(self.shape, node) and not (self.avoid_reserved and node.name in self.reserved_nodes)

    def score(self, state: NodeState) -> NodeScore | None:
        """The node's sort key, smallest first; None if the shape does not fit even once releasing pods have ended."""
        shape = self.shape
        if not fits_resources(state, shape, with_releasing=True):
            return None
        devices = (
            find_devices(state, shape, with_releasing=False, spread=self.spread_devices)
            if fits_resources(state, shape, with_releasing=False)
            else None
        )
        fits_now = devices is not None
        if devices is None:
            devices = find_devices(state, shape, with_releasing=True, spread=self.spread_devices)
            if devices is None:
                return None
        shares_device = (
            shape.is_fractional
            and not self.spread
            and any(state.used_per_device[d] - state.releasing_per_device[d] > 0 for d in devices)
        )
        free = state.free_gpu() if shape.wants_gpu else state.idle_cpu + state.releasing_cpu
        capacity = state.node.gpus * WHOLE_GPU if shape.wants_gpu else state.node.cpu
        pack = -free / capacity if self.spread and capacity else free
        cpu_node = 0 if shape.wants_gpu or not state.node.gpus else 1
        is_reserved = 1 if self.reserved_nodes and state.node.name in self.reserved_nodes else 0
        return (is_reserved, 0 if shares_device else 1, 0 if fits_now else 1, cpu_node, pack, state.index)

    def has_feasible_node(self) -> bool:
        """Whether any eligible node could hold a pod of the shape if the node were empty."""
        if self.epoch != self.session.nodes_epoch:
            self._rebuild()
        order = self.session.ordered_nodes
        return any(ok and could_hold(order[i].node, self.shape) for i, ok in enumerate(self.eligible))

    def best_node(self) -> NodeState | None:
        session = self.session
        if self.epoch != session.nodes_epoch or len(self.heap) > 4 * len(session.ordered_nodes) + 64:
            self._rebuild()
        elif self.touched_offset < len(session.touched_nodes):
            self._rescore_touched()
        while self.heap:
            _, index, version = self.heap[0]
            if version == self.versions[index]:
                return session.ordered_nodes[index]
            heapq.heappop(self.heap)
        return None

    def _rescore_touched(self) -> None:
        session = self.session
        for index in set(session.touched_nodes[self.touched_offset :]):
            if not self.eligible[index]:
                continue
            self.versions[index] += 1
            score = self.score(session.ordered_nodes[index])
            if score is not None:
                heapq.heappush(self.heap, (score, index, self.versions[index]))
        self.touched_offset = len(session.touched_nodes)


class Placer:
    """Places tasks in a session; caches a `NodeRanking` for every shape."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rankings: dict[Shape, NodeRanking] = {}
        self.restricted_rankings: dict[tuple[Shape, TopologyDomain, bool], NodeRanking] = {}
        """Rankings for gangs that must stay in one domain or avoid reserved nodes."""

    def node_ranking(self, shape: Shape) -> NodeRanking:
        ranking = self.rankings.get(shape)
        if ranking is None:
            if len(self.rankings) > 2000:
                self.rankings.clear()
            ranking = self.rankings[shape] = NodeRanking(self.session, shape)
        return ranking

    def ranking_for(self, gang: GangState, shape: Shape) -> NodeRanking:
        """The ranking of the nodes that this gang may use now."""
        avoid_reserved = self.must_avoid_reserved(gang)
        if not avoid_reserved and gang.domain == WHOLE_CLUSTER:
            return self.node_ranking(shape)
        key = (shape, gang.domain, avoid_reserved)
        ranking = self.restricted_rankings.get(key)
        if ranking is None:
            if len(self.restricted_rankings) > 4000:
                self.restricted_rankings.clear()
            ranking = self.restricted_rankings[key] = NodeRanking(
                self.session, shape, gang.domain, avoid_reserved=avoid_reserved
            )
        return ranking

    def must_avoid_reserved(self, gang: GangState) -> bool:
        """Whether the gang must avoid nodes reserved for another: true unless it is preemptible or declares to end before they are free."""
        spec = gang.gang
        reservation = (
            None
            if spec.preemptible or not self.session.node_reservations
            else self.session.node_reservation_in(gang.pool)
        )
        if reservation is None or spec.key == reservation.gang:
            return False
        free_at = self.session.reserved_free_at.get(reservation.gang)
        return not (spec.lasts and free_at is not None and self.session.now + spec.lasts <= free_at)

    def place_task(self, task: TaskState, *, pipeline_only: bool = False, preferred_node: str = "") -> bool:
        """Place the task on the best node: Allocated if it fits there now, else Pipelined. False when no node fits even later."""
        shape = task.task.shape
        if shape.held_back:
            return False
        ranking = self.ranking_for(task.gang, shape)
        state = self._feasible_preferred(ranking, preferred_node) or ranking.best_node()
        if state is None:
            return False
        spread_devices = ranking.spread_devices
        if not pipeline_only and fits_resources(state, shape, with_releasing=False):
            devices = find_devices(state, shape, with_releasing=False, spread=spread_devices)
            if devices is not None:
                self.session.move_task(task, Status.ALLOCATED, state.node.name, devices, origin=task.origin)
                return True
        devices = find_devices(state, shape, with_releasing=True, spread=spread_devices)
        if devices is None:
            return False
        self.session.move_task(task, Status.PIPELINED, state.node.name, devices, origin=task.origin)
        return True

    def _feasible_preferred(self, ranking: NodeRanking, preferred_node: str) -> NodeState | None:
        state = self.session.nodes.get(preferred_node) if preferred_node else None
        if state is None or obstacle(ranking.shape, state.node):
            return None
        return state if ranking.score(state) is not None else None
