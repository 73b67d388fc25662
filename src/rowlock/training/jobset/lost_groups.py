"""PodGroups that have outlived their job (`kubectl delete --cascade=orphan`): deleted when no pod is in them any more.

The garbage collector takes the owner of such a group away and never looks at it again. Its pods go on, and those that still wait need it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.api import NOTHING, Change, Decision, Delete, DeleteOptions, View
from rowlock.kinds import POD, POD_GROUP, Kind
from rowlock.objects import FINAL_PHASES, Key, Object, is_deleting, key, meta, name, namespace, phase, uid
from rowlock.objects import annotations as annotations_of
from rowlock.training.jobset.gangs import GROUP_ANNOTATION
from rowlock.training.pod_group import OWNER_ANNOTATION


class LostGroupController:
    """Deletes PodGroups of jobs that have gone without them. It keeps no state."""

    name = "lost-podgroups"
    kinds: tuple[Kind, ...] = (POD_GROUP, POD)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """A group that has no owner; the one that a pod has left, or in which it has ended."""
        if change.kind is POD_GROUP:
            return (key(change.object),) if _is_lost(change.object) else ()
        before = change.object if change.type == "Deleted" else change.old
        if before is None or (change.type != "Deleted" and _is_member_of(change.object, _group_of(before))):
            return ()
        group = view.get(POD_GROUP, namespace(before), _group_of(before)) if _group_of(before) else None
        return (key(group),) if group is not None and _is_lost(group) else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Delete the group if no pod is left that it could start."""
        group = view.get(POD_GROUP, key.namespace, key.name)
        if group is None or not _is_lost(group):
            return NOTHING
        if any(_is_member_of(pod, name(group)) for pod in view.all(POD, key.namespace)):
            return NOTHING
        return Decision((Delete(POD_GROUP, key.namespace, key.name, DeleteOptions(uid=uid(group))),))


def _is_lost(group: Object) -> bool:
    """Whether a job of this cluster had the group, and nobody has it now. A group that a user has made is never lost."""
    is_of_job = name(group).startswith("pg-") and OWNER_ANNOTATION in annotations_of(group)
    return is_of_job and not meta(group).get("ownerReferences") and not is_deleting(group)


def _group_of(pod: Object) -> str:
    return str(annotations_of(pod).get(GROUP_ANNOTATION) or "")


def _is_member_of(pod: Object, group: str) -> bool:
    return phase(pod) not in FINAL_PHASES and _group_of(pod) == group
