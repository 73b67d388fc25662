"""The jobs of pods, also of pods whose job has just been deleted: why a pod goes stands in the job."""

from rowlock import kinds
from rowlock.api import Change, View
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.objects import Object, annotations, controller_of, timestamp, uid, with_field
from rowlock.workloads.phase import STOPPED_BY_ANNOTATION

_MOST_DELETED = 256


class Owners:
    """Finds the owner of a pod; remembers the newest deleted ones in which a command has said that it deletes them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._deleted: dict[str, Object] = {}

    def note_change(self, change: Change) -> None:
        """An object has changed: of any kind."""
        if change.type != "Deleted" or STOPPED_BY_ANNOTATION not in annotations(change.object):
            return
        self._deleted[uid(change.object)] = with_field(change.object, "metadata.deletionTimestamp", timestamp(0))
        if len(self._deleted) > _MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def owner_of(self, pod: PodSpec) -> Object | None:
        """The job that made the pod, as it is or as it was when it was deleted; None where it has gone, or there was none."""
        owner = controller_of(pod.object) or {}
        kind = kinds.by_api_version(str(owner.get("apiVersion")), str(owner.get("kind"))) if owner else None
        job = self._view.get(kind, pod.namespace, str(owner.get("name"))) if kind is not None else None
        return job if job and uid(job) == pod.owner_uid else self._deleted.get(pod.owner_uid)
