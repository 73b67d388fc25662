"""How long after its start a workload cannot lose its GPUs: the minimum runtimes of the queues, as in KAI.

`preemptMinRuntime` protects from gangs of the same queue: the nearest setting upward from it counts. `reclaimMinRuntime` protects from
other queues: the nearest setting counts, upward from the child of the common ancestor on the workload's side. The guarantee against
all other gangs is the minimum of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rowlock import objects
from rowlock.objects import Object
from rowlock.quantity import parse_duration
from rowlock.scheduling.model.from_objects import LAST_START_ANNOTATION


class RuntimeGuarantees:
    """The guaranteed seconds of every queue, for a given state of the Queues; computed lazily and cached."""

    def __init__(self, queues: Iterable[Object]) -> None:
        self._queues = objects.by_name(queues)
        self._children = Counter(_parent(queue) for queue in self._queues.values())
        self._known: dict[str, float] = {}

    def seconds(self, queue: str) -> float:
        """Seconds after its start for which a preemptible gang of this queue is protected; 0 if it is not."""
        if queue not in self._known:
            path = self._path(queue)
            rivals = [n for n, one in enumerate(path) if self._children[_parent(one)] > 1]
            bounds = [
                _nearest(path, "preemptMinRuntime"),
                *(_nearest(path[n:], "reclaimMinRuntime") for n in rivals),
            ]
            self._known[queue] = min(bounds)
        return self._known[queue]

    def _path(self, name: str) -> list[Object]:
        """The queue and its ancestors."""
        path: list[Object] = []
        queue = self._queues.get(name)
        while queue is not None and queue not in path:
            path.append(queue)
            queue = self._queues.get(_parent(queue))
        return path


def _parent(queue: Object) -> str:
    return str(objects.dig(queue, "spec.parentQueue") or "")


def _nearest(path: Sequence[Object], field: str) -> float:
    for queue in path:
        if (found := parse_duration(objects.dig(queue, f"spec.{field}"))) is not None:
            return found
    return 0.0


def started_at(group: Object | None) -> float:
    """When all pods of a gang were running (Unix seconds), as recorded by its scheduler; 0 before that."""
    if group is None:
        return 0.0
    text = objects.dig(group, "status.startTime") or objects.annotations(group).get(LAST_START_ANNOTATION)
    try:
        return objects.seconds(str(text or ""))
    except ValueError:
        return 0.0  # users can write annotations
