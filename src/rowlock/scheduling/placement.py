"""One task on the best node and cards, or the reason why there is none.

A `Ranking` keeps the feasible nodes of one shape in a heap, best first, and reads from the world's `touched` list which
nodes to look at again: placing a pod costs one node, not all of them. The order is lexicographic where KAI adds tiers
of scores: a promised node, one that is not kept for somebody, a shared card with room, free now, CPU jobs on CPU nodes,
then pack (fullest) or spread (emptiest), then the name.
"""

from __future__ import annotations

import heapq

from rowlock.scheduling.amounts import WHOLE
from rowlock.scheduling.room import NodeState
from rowlock.scheduling.snapshot import Node, Requirement, Shape, Status, Taint, Toleration
from rowlock.scheduling.world import GangState, TaskState, World

Rate = tuple[int, int, int, int, float, int]
Region = tuple[str, str]
EVERYWHERE: Region = ("", "")


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    for t in tolerations:
        if t.effect and t.effect != taint.effect:
            continue
        if t.op == "Exists" and t.key in ("", taint.key):
            return True
        if t.op == "Equal" and t.key == taint.key and t.value == taint.value:
            return True
    return False


def holds(requirement: Requirement, node: Node, labels: dict[str, str]) -> bool:
    have = node.name if requirement.field else labels.get(requirement.key)
    match requirement.op:
        case "In":
            return have in requirement.values
        case "NotIn":
            return have not in requirement.values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
    try:
        number, bound = int(have or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if requirement.op == "Gt" else number < bound


def obstacle(shape: Shape, node: Node) -> str:
    """Why the node is out of the question whatever is free, in the kube-scheduler's words; "" when it is not."""
    if node.unschedulable:
        return "node(s) were unschedulable"
    if not node.ready:
        return "node(s) were not ready"
    if any(t.effect != "PreferNoSchedule" and not tolerated(t, shape.tolerations) for t in node.taints):
        return "node(s) had untolerated taint(s)"
    if shape.pool != node.pool:
        return "node(s) were in another node pool"
    if not shape.selector and not shape.affinity:
        return ""
    labels = dict(node.labels)
    if any(labels.get(k) != v for k, v in shape.selector):
        return "node(s) didn't match Pod's node affinity/selector"
    if shape.affinity and not any(all(holds(r, node, labels) for r in term) for term in shape.affinity):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def could_hold(node: Node, shape: Shape) -> bool:
    """Would the node hold one if it were empty?"""
    extras = dict(node.extras)
    return (
        node.cpu >= shape.cpu
        and node.memory >= shape.memory
        and node.pods >= 1
        and node.gpus >= shape.cards
        and (not shape.gpu_memory or node.gpu_memory >= shape.gpu_memory)
        and all(extras.get(name, 0) >= value for name, value in shape.extras)
    )


def cards(state: NodeState, shape: Shape, *, later: bool, spread: bool) -> tuple[int, ...] | None:
    """The cards the shape would take on this node, now or (`later`) when what is releasing has gone."""
    if not shape.wants_gpu:
        return ()
    if shape.cards > state.node.gpus:
        return None
    if shape.gpus:
        return _whole_cards(state, shape.gpus, later)
    amount = state.amount(shape)
    if amount > WHOLE:
        return None
    shared, empty = [], []
    for d, used in enumerate(state.used):
        back = state.back[d]
        left = used - back
        free = WHOLE - (left if later else max(used, left))
        if left > 0 and free >= amount:
            shared.append((max(used, left) + amount > WHOLE, (left if spread else -left), d))
        elif left == 0 and (later or (used == 0 and back == 0)):
            empty.append((used > 0, d))
    chosen = [d for *_, d in sorted(shared)]
    fresh = [d for *_, d in sorted(empty)]
    found = (fresh + chosen if spread else chosen + fresh)[: shape.devices]
    return tuple(found) if len(found) == shape.devices else None


def _whole_cards(state: NodeState, count: int, later: bool) -> tuple[int, ...] | None:
    """A promise takes cards that are coming back before idle ones: those can start somebody now."""
    idle: list[int] = []
    coming: list[int] = []
    for d, used in enumerate(state.used):
        if used == state.back[d]:
            (coming if used else idle).append(d)
    found = (coming + idle if later else idle)[:count]
    return tuple(found) if len(found) == count else None


def fits(state: NodeState, shape: Shape, *, later: bool) -> bool:
    """CPU, memory, pods and other resources; `later` counts what is releasing, never what is promised."""
    if state.cpu + state.back_cpu < shape.cpu or state.memory + state.back_memory < shape.memory:
        return False
    if state.pods + state.back_pods < 1:
        return False
    if not later and (state.cpu < shape.cpu or state.memory < shape.memory or state.pods < 1):
        return False
    for name, value in shape.extras:
        idle = state.extras.get(name, 0)
        if idle + state.back_extras.get(name, 0) < value or (not later and idle < value):
            return False
    return True


class Ranking:
    """The feasible nodes of one shape, best first; `apart`: without those that are kept for somebody else."""

    __slots__ = (
        "apart", "epoch", "heap", "kept", "region", "seen", "shape", "spread", "spread_cards", "static", "version", "world",
    )  # fmt: skip

    def __init__(self, world: World, shape: Shape, region: Region = EVERYWHERE, *, apart: bool = False) -> None:
        self.world, self.shape, self.region, self.apart = world, shape, region, apart
        self.spread = (world.settings.gpu if shape.wants_gpu else world.settings.cpu) == "spread"
        self.spread_cards = (world.settings.cards or world.settings.gpu) == "spread"
        self._rebuild()

    def _rebuild(self) -> None:
        world = self.world
        self.epoch = world.epoch
        self.seen = len(world.touched)
        self.kept = frozenset(n for mark in world.earmarks for n in mark.nodes)
        self.static = [self._open(s.node) for s in world.order]
        self.version = [0] * len(world.order)
        self.heap: list[tuple[Rate, int, int]] = []
        for state in world.order:
            if self.static[state.index] and (rate := self.rate(state)) is not None:
                self.heap.append((rate, state.index, 0))
        heapq.heapify(self.heap)

    def _open(self, node: Node) -> bool:
        label, value = self.region
        if label and (label, value) not in node.labels:
            return False
        return not obstacle(self.shape, node) and not (self.apart and node.name in self.kept)

    def rate(self, state: NodeState) -> Rate | None:
        """The node's place in the order; None when the shape does not fit even later."""
        shape = self.shape
        if not fits(state, shape, later=True):
            return None
        found = cards(state, shape, later=False, spread=self.spread_cards) if fits(state, shape, later=False) else None
        now = found is not None
        if found is None:
            found = cards(state, shape, later=True, spread=self.spread_cards)
            if found is None:
                return None
        sharing = shape.fractional and not self.spread and any(state.used[d] - state.back[d] > 0 for d in found)
        free = state.free_gpu() if shape.wants_gpu else state.cpu + state.back_cpu
        whole = state.node.gpus * WHOLE if shape.wants_gpu else state.node.cpu
        pack = -free / whole if self.spread and whole else free
        cpu_node = 0 if shape.wants_gpu or not state.node.gpus else 1
        kept = 1 if self.kept and state.node.name in self.kept else 0
        return (kept, 0 if sharing else 1, 0 if now else 1, cpu_node, pack, state.index)

    def possible(self) -> bool:
        """Could any node hold one if it were empty?"""
        if self.epoch != self.world.epoch:
            self._rebuild()
        order = self.world.order
        return any(ok and could_hold(order[i].node, self.shape) for i, ok in enumerate(self.static))

    def best(self) -> NodeState | None:
        world = self.world
        if self.epoch != world.epoch or len(self.heap) > 4 * len(world.order) + 64:
            self._rebuild()
        elif self.seen < len(world.touched):
            self._catch_up()
        while self.heap:
            _, index, version = self.heap[0]
            if version == self.version[index]:
                return world.order[index]
            heapq.heappop(self.heap)
        return None

    def _catch_up(self) -> None:
        world = self.world
        for index in set(world.touched[self.seen :]):
            if not self.static[index]:
                continue
            self.version[index] += 1
            rate = self.rate(world.order[index])
            if rate is not None:
                heapq.heappush(self.heap, (rate, index, self.version[index]))
        self.seen = len(world.touched)


class Placer:
    """Places tasks in a world; keeps a Ranking for every shape it has met."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rankings: dict[Shape, Ranking] = {}
        self.special: dict[tuple[Shape, Region, bool], Ranking] = {}
        """For gangs that must stay in one region or off the nodes kept for another."""

    def ranking(self, shape: Shape) -> Ranking:
        found = self.rankings.get(shape)
        if found is None:
            if len(self.rankings) > 2000:
                self.rankings.clear()
            found = self.rankings[shape] = Ranking(self.world, shape)
        return found

    def ranking_for(self, gang: GangState, shape: Shape) -> Ranking:
        """The ranking of the nodes that this gang may use now."""
        apart = self.apart(gang)
        if not apart and gang.region == EVERYWHERE:
            return self.ranking(shape)
        key = (shape, gang.region, apart)
        found = self.special.get(key)
        if found is None:
            if len(self.special) > 4000:
                self.special.clear()
            found = self.special[key] = Ranking(self.world, shape, gang.region, apart=apart)
        return found

    def apart(self, gang: GangState) -> bool:
        """Must it stay off the nodes that are kept for another? Not who can be evicted, nor who has ended by then."""
        asked = gang.gang
        mark = None if asked.preemptible or not self.world.earmarks else self.world.mark_in(gang.pool)
        if mark is None or asked.key == mark.gang:
            return False
        opens = self.world.opens.get(mark.gang)
        return not (asked.lasts and opens is not None and self.world.now + asked.lasts <= opens)

    def place(self, task: TaskState, *, only_later: bool = False, prefer: str = "") -> bool:
        """Move the task to the best node: Allocated if it fits there now, else Pipelined; False if nowhere."""
        shape = task.task.shape
        if shape.unsupported:
            return False
        ranking = self.ranking_for(task.gang, shape)
        state = self._preferred(ranking, prefer) or ranking.best()
        if state is None:
            return False
        spread = ranking.spread_cards
        if not only_later and fits(state, shape, later=False):
            found = cards(state, shape, later=False, spread=spread)
            if found is not None:
                self.world.move(task, Status.ALLOCATED, state.node.name, found, origin=task.origin)
                return True
        found = cards(state, shape, later=True, spread=spread)
        if found is None:
            return False
        self.world.move(task, Status.PIPELINED, state.node.name, found, origin=task.origin)
        return True

    def _preferred(self, ranking: Ranking, prefer: str) -> NodeState | None:
        state = self.world.nodes.get(prefer) if prefer else None
        if state is None or obstacle(ranking.shape, state.node):
            return None
        return state if ranking.rate(state) is not None else None
