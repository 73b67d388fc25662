"""What belongs to a workload: pods, pod groups, and parts, which are the JobSet of a TrainJob and the Jobs of a JobSet.

Only the uids of controlling owners in the same namespace count, not labels or names. A deleted part is kept until its pods and parts
are gone too, because the pods of a deleted workload end later than it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.rest.list_rows.object_facts import group_order, group_owner
from rowlock.training.trainjob.owners import is_part, names_parent, with_replicated_jobs

_LEVELS = 2
"""Most levels of parts below a workload; deeper owner chains are forged."""


def is_replaced(kind: Kind, previous: Object, obj: Object) -> bool:
    """Whether the object of this name is a new one, has other owners, or has become or ceased to be a part."""
    is_new = objects.uid(previous) != objects.uid(obj) or is_part(kind, previous) != is_part(kind, obj)
    return is_new or objects.meta(previous).get("ownerReferences") != objects.meta(obj).get("ownerReferences")


class Parts:
    """The parts, pods and pod groups of one informer cache, by owner; `get` reads them."""

    def __init__(self, get: Callable[[Kind, str, str], Object | None]) -> None:
        self._get = get
        self._parents: dict[str, str] = {}  # uid of a part → uid of its owner
        self._parts: dict[
            str, dict[str, tuple[Kind, Key] | None]
        ] = {}  # uid of the owner → uid → part; None: it was deleted
        self._pods: dict[str, dict[Key, None]] = {}  # uid of the owner → pods
        self._groups: dict[str, dict[Key, None]] = {}

    def add(self, kind: Kind, part: Object) -> None:
        """Add or update a part. A part whose owner is not of the expected kind belongs to no workload."""
        uid, owner = objects.uid(part), objects.controller_of(part) or {}
        is_ours = names_parent(kind, part) and bool(owner.get("uid"))
        before, above = self._parents.get(uid), str(owner.get("uid")) if is_ours else None
        if before is not None and before != above:
            del self._parents[uid]
            self._parts[before].pop(uid, None)
        if above is not None:
            self._parents[uid] = above
            self._parts.setdefault(above, {})[uid] = kind, objects.key(part)

    def drop(self, uid: str) -> None:
        """The part of this uid was deleted."""
        if (parent := self._parents.get(uid)) is not None:
            self._parts[parent][uid] = None
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        """Drop a deleted part if it has no pods and parts left; then likewise its deleted owners."""
        while (parent := self._parents.get(uid)) is not None and not self._parts.get(uid) and uid not in self._pods:
            self._parts.pop(uid, None)
            del self._parents[uid]
            siblings = self._parts[parent]
            siblings.pop(uid, None)
            if siblings:
                return
            del self._parts[parent]
            if self._is_present(parent):
                return
            uid = parent

    def _is_present(self, uid: str) -> bool:
        return self._parts.get(self._parents.get(uid, ""), {}).get(uid) is not None

    def add_pod(self, owner: str, key: Key) -> None:
        """Add a pod of this owner (a uid)."""
        self._pods.setdefault(owner, {})[key] = None

    def drop_pod(self, owner: str, key: Key) -> None:
        """Drop a deleted pod, and with the last one its owner, if that is a deleted part."""
        pods = self._pods.get(owner, {})
        pods.pop(key, None)
        if not pods:
            self._pods.pop(owner, None)
            if not self._is_present(owner):
                self._forget(owner)

    def add_group(self, key: Key, group: Object) -> None:
        """Add or update a pod group."""
        self._groups.setdefault(group_owner(group), {})[key] = None

    def drop_group(self, key: Key, group: Object) -> None:
        """Drop a deleted pod group."""
        groups = self._groups.get(group_owner(group), {})
        groups.pop(key, None)
        if not groups:
            self._groups.pop(group_owner(group), None)

    def workload_uid(self, uid: str) -> str:
        """The uid of the workload that this uid is a part of; the uid itself if it is not a part."""
        for _ in range(_LEVELS):
            uid = self._parents.get(uid, uid)
        return uid

    def members(self, uid: str, levels: int = _LEVELS) -> Iterator[str]:
        """The uids of a workload, which comes first, and of its parts."""
        yield uid
        for part in self._parts.get(uid, ()) if levels else ():
            yield from self.members(part, levels - 1)

    def pods_of(self, uid: str, home: str | None) -> list[Object]:
        """The pods of the workload of this uid, unordered; only those in the namespace `home` unless that is None."""
        return [pod for key in self.pod_keys(uid, home) if (pod := self._get(kinds.POD, *key)) is not None]

    def pod_keys(self, uid: str, home: str | None) -> Iterator[Key]:
        """The keys of `pods_of`."""
        for one in self.members(uid):
            yield from (key for key in self._pods.get(one, ()) if home is None or key.namespace == home)

    def group_of(self, uid: str) -> Object | None:
        """The workload's pod group; of several, the first that has not started; None if there is none."""
        keys = (key for one in self.members(uid) for key in self._groups.get(one, ()))
        groups = (group for key in keys if (group := self._get(kinds.POD_GROUP, *key)) is not None)
        return min(groups, key=group_order, default=None)

    def complete(self, job: Object) -> Object:
        """The job, completed from its parts: the replicated jobs of a TrainJob, and the start time of the first part."""
        parts = self._present_parts(job)
        if job.get("kind") == kinds.TRAIN_JOB.name and parts:
            job = with_replicated_jobs(job, parts[0])
            parts = [one for part in parts for one in self._present_parts(part)]
        began = min((str(one) for part in parts if (one := objects.dig(part, "status.startTime", ""))), default="")
        return {**job, "status": {**(job.get("status") or {}), "startTime": began}} if began else job

    def parts_of(self, job: Object) -> list[Object]:
        """The parts of a workload that exist, each before its own parts: the JobSet of a TrainJob, the Jobs of a set."""
        return [one for part in self._present_parts(job) for one in (part, *self._present_parts(part))]

    def _present_parts(self, job: Object) -> list[Object]:
        found = self._parts.get(objects.uid(job))
        if not found:
            return []
        home = objects.namespace(job)
        parts = (self._get(one[0], *one[1]) for one in found.values() if one is not None and one[1].namespace == home)
        return [part for part in parts if part is not None]
