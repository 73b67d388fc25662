"""The jobs of pods, including jobs just deleted: a job's object says why its pods are stopped."""

from rowlock import kinds
from rowlock.api import Change, View
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import Object, annotations, controller_of, timestamp, uid, with_field
from rowlock.training.trainjob.owners import owner_of
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION

_MOST_DELETED = 256


class Owners:
    """Finds a pod's owner; remembers the newest deleted owners that carry the mark of the command that deleted them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._deleted: dict[str, Object] = {}

    def note_change(self, change: Change) -> None:
        """Remembers a deleted object if a command has marked it; ignores all other changes."""
        if change.type != "Deleted" or STOPPED_BY_ANNOTATION not in annotations(change.object):
            return
        self._deleted[uid(change.object)] = with_field(change.object, "metadata.deletionTimestamp", timestamp(0))
        if len(self._deleted) > _MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def owners_of(self, pod: PodSpec, workload: str) -> tuple[Object, ...]:
        """The pod's job and what that is a part of, the nearest first: as stored, or as remembered from its deletion. `workload`: the
        uid of the last of them, which is known when those between are gone."""
        owners: list[Object] = []
        below, kind = pod.object, None
        while (found := owner_of(self._view, below)) is not None and (
            kind is None or found[0] is kinds.PARENTS.get(kind)
        ):
            kind, below = found
            owners.append(below)
        for gone in dict.fromkeys((str((controller_of(below) or {}).get("uid") or ""), workload)):
            if gone in self._deleted:
                owners.append(self._deleted[gone])
                break
        return tuple(owners)
