"""Sentences about nodes that are kept for a gang, and about pods that must be close together."""

from __future__ import annotations

from typing import Any

from rowlock.objects import timestamp
from rowlock.scheduling.allocate import Failure
from rowlock.scheduling.amounts import GPU, WHOLE, gpus, words
from rowlock.scheduling.order import wanted
from rowlock.scheduling.snapshot import Earmark, Node
from rowlock.scheduling.topology import value
from rowlock.scheduling.world import GangState, World

Sentence = tuple[str, str]
"""(sentence, hint: what change would let it start)."""


def _nodes(count: int) -> str:
    return "1 node is" if count == 1 else f"{count} nodes are"


def shut(node: Node) -> str:
    """Why a node takes no pods, and what opens it."""
    return (
        f"is cordoned (`kubectl uncordon {node.name}`)"
        if node.unschedulable
        else "is not ready (its kubelet is silent)"
    )


def _opens(world: World, mark: Earmark) -> str:
    opens = world.opens.get(mark.gang)
    if opens is None:
        return "when those who run there have ended"
    if opens <= world.now:
        return "as soon as there is room for all of it"
    return f"at {timestamp(opens)} at the latest"


def reserved(world: World, state: GangState, failure: Failure) -> Sentence:
    """For those who must stay off the nodes, or leave what a queue may still hold."""
    mark = world.mark_in(state.pool)
    if failure.shape is None and (q := world.queues.get(failure.queue)) is not None:
        keys = [key for key, *_ in q.kept if key != state.gang.key]
        mark = next((m for m in world.earmarks if m.gang in keys), mark)
    if mark is None:
        return "Reserved: the room is kept for another gang.", "wait"
    hint = "submit it as preemptible, or declare how long it runs (annotation rowlock.dev/max-runtime: 30m)"
    if failure.shape is None:
        what = f"what {failure.queue} may still hold is kept for {mark.gang}"
        return (
            f"Reserved: {what}, which waits since {timestamp(mark.since)} for its nodes.",
            "wait until it has started",
        )
    return f"Reserved: {_nodes(len(mark.nodes))} kept for {mark.gang}, which starts {_opens(world, mark)}.", hint


def kept(world: World, state: GangState) -> tuple[str, dict[str, Any]]:
    """For the gang itself: what to add to its sentence and to its record; ("", {}) when nothing is kept for it."""
    mark = next((m for m in world.earmarks if m.gang == state.gang.key), None)
    if mark is None:
        return "", {}
    record: dict[str, Any] = {"nodes": list(mark.nodes), "since": timestamp(mark.since)}
    opens = world.opens.get(mark.gang)
    if opens is not None and opens > world.now:
        record["opens"] = timestamp(opens)
    return f" {_nodes(len(mark.nodes))} kept for it: it starts {_opens(world, mark)}.", record


def regions_room(world: World, label: str) -> dict[str, int]:
    """All cards of each region, in hundredths."""
    found: dict[str, int] = {}
    for s in world.order:
        if (v := value(s.node, label)) is not None:
            found[v] = found.get(v, 0) + s.node.gpus * WHOLE
    return found


def too_large_for_any_region(world: World, state: GangState) -> bool:
    """It must stay together, and no region could hold it even if it were empty."""
    label = state.gang.required
    if not label:
        return False
    return world.need(wanted(state))[GPU] > max(regions_room(world, label).values(), default=-1)


def topology(world: World, state: GangState, failure: Failure) -> Sentence:
    label, rooms = state.gang.required, regions_room(world, state.gang.required)
    count = len(wanted(state))
    if not rooms:
        return (
            f"TopologyUnsatisfied: its pods must be on nodes with the same label {label}, but no node has that label.",
            f"label the nodes (kubectl label node NODE {label}=VALUE), or require another level",
        )
    need, largest = world.need(wanted(state))[GPU], max(rooms, key=lambda v: (rooms[v], v))
    if need > rooms[largest]:
        return (
            f"TopologyUnsatisfied: its {count} pods need {words(GPU, need)} with the same {label}, "
            f"but the largest, {largest}, has {gpus(rooms[largest])}.",
            f"ask for {words(GPU, rooms[largest])} or less in all, or prefer {label} instead of requiring it",
        )
    return (
        f"TopologyUnsatisfied: {failure.fit} of {count} pods fit now on nodes with the same {label} "
        f"({len(rooms)} of them); elsewhere there would be room for all.",
        f"wait, or prefer {label} instead of requiring it (kai.scheduler/topology-preferred-placement)",
    )
