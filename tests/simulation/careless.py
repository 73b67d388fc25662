"""A scheduler with the classic mistake: it binds every pod that fits, and knows nothing of gangs.

It exists to be caught: a simulation that cannot see half a gang deadlock is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.invariants import FINISHED, gpus

from rowlock import objects
from rowlock.api import Bind, Change, Decision, View, Write
from rowlock.kinds import NODE, POD, Kind
from rowlock.objects import Key, Object


class Careless:
    name = "careless"
    kinds: tuple[Kind, ...] = (POD, NODE)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [Key("", "all")]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        writes: list[Write] = []
        free = {objects.name(node): _free(view, node) for node in view.all(NODE)}
        for pod in view.all(POD):
            if objects.dig(pod, "spec.nodeName") or objects.is_deleting(pod):
                continue
            node = next((name for name, cards in free.items() if len(cards) >= gpus(pod)), None)
            if node is not None:
                mine = [free[node].pop(0) for _ in range(gpus(pod))]
                annotations = {"rowlock.dev/devices": ",".join(mine)} if mine else {}
                writes.append(Bind(*objects.key(pod), node, objects.uid(pod), annotations))
        return Decision(tuple(writes))


def _free(view: View, node: Object) -> list[str]:
    cards = [str(n) for n in range(int(node["status"]["allocatable"]["nvidia.com/gpu"]))]
    for pod in view.all(POD):
        if objects.dig(pod, "spec.nodeName") == objects.name(node) and objects.phase(pod) not in FINISHED:
            used = objects.annotations(pod).get("rowlock.dev/devices", "").split(",")
            cards = [card for card in cards if card not in used]
    return cards
