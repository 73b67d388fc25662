"""The jobs of pods, including jobs just deleted: a job's object says why its pods are stopped."""

from rowlock.api import Change, View
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import Object, annotations, timestamp, uid, with_field
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

    def owner_of(self, pod: PodSpec) -> Object | None:
        """The pod's job, as stored or as remembered from its deletion; None if it is neither, or the pod has none."""
        found = owner_of(self._view, pod.object)
        return found[1] if found is not None else self._deleted.get(pod.owner_uid)
