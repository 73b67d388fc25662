"""Keeps a planner's session in step with a View: changes are noted by key and read when a decision is due.

Only what changed is parsed again. Correctness does not depend on the notes: with an empty cache, after a gap, and every half minute
everything is compared with the View by resourceVersion, so a lost note is repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from rowlock.api import Change, View
from rowlock.kinds import NAMESPACE, NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE, Kind
from rowlock.objects import Key, Object, controller_of, dig, key, meta, name, revision
from rowlock.scheduling.model import from_objects
from rowlock.scheduling.model.scheduler_identity import EMBEDDED, SchedulerIdentity
from rowlock.scheduling.model.session import Session
from rowlock.scheduling.model.snapshot import Gang, Node, Queue, SchedulerSettings, Status, Task
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.volume_topology import STORAGE_CLASS, VOLUME_KINDS, VolumeTopology

KINDS: tuple[Kind, ...] = (POD, POD_GROUP, NODE, QUEUE, NAMESPACE, PRIORITY_CLASS)
RESCAN_INTERVAL = 30.0
ABSORBED_CHANGES = 64
"""From so many noted changes `absorb` applies them; also the number of changes or objects per step between stopwatch checks."""
GANGS_PER_SLICE = 256
"""Maximum of gangs that are rebuilt in one slice: a change of a namespace, priority class or storage class may concern all of them."""
SLICE_S = 0.005
"""Seconds for each of the three parts of a slice: compare with the view, apply changes, rebuild gangs. With ten thousand gangs with volumes
one takes half a millisecond on a busy machine, and the event loop must not be blocked for 50."""


def stands_still() -> float:
    """Default stopwatch: never expires, so only counts end a slice."""
    return 0.0


@dataclass(frozen=True, slots=True)
class _ParsedTask:
    """A cached task: what this revision of its pod was parsed to, for a gang with these pod sets. It keeps no pod in memory: pods of ended
    jobs may be many."""

    revision: int
    pod_sets: frozenset[str]
    classes_epoch: int
    task: Task


@dataclass(slots=True)
class SnapshotTracker:
    """Keeps one planner in step with one cluster."""

    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    identity: SchedulerIdentity = EMBEDDED
    stopwatch: Callable[[], float] = stands_still
    """Returns seconds. Only the length of a slice depends on it, never what is planned."""
    planner: Planner = field(init=False)
    changed_keys: dict[tuple[Kind, Key], int] = field(default_factory=dict)
    """(kind, key) of a changed object → revision of the change."""
    versions: dict[Kind, dict[Key, int]] = field(default_factory=dict)
    view: View | None = None
    revision: int = -1
    scanned_at: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    pods_of_gang: dict[str, set[Key]] = field(default_factory=dict)
    """Key of a gang → keys of its pods."""
    gang_of: dict[Key, str] = field(default_factory=dict)
    """Key of a pod → key of its gang."""
    group_of_owner: dict[tuple[str, str], str] = field(default_factory=dict)
    """(namespace, owner's uid) → PodGroup."""
    owners_of_group: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Key of a gang → its keys in `group_of_owner`."""
    ungrouped_pods: dict[tuple[str, str], set[Key]] = field(default_factory=dict)
    """(namespace, owner's uid or `group/` with the name of a PodGroup) → pods whose PodGroup does not exist (yet)."""
    parsed_tasks: dict[Key, _ParsedTask] = field(default_factory=dict)
    """Key of a pod → its last parsed task."""
    classes_epoch: int = 0
    """Counts changes of storage classes, which invalidate all of `parsed_tasks` at once."""
    volumes: VolumeTopology = field(default_factory=VolumeTopology)
    outdated_gangs: dict[str, None] = field(default_factory=dict)
    """Keys of gangs that must be rebuilt by a later slice."""
    scan: Iterator[None] | None = None
    """The comparison with the view in progress, if any."""
    is_behind: bool = False
    """The last `sync` did not finish, so no plan may be made yet."""
    largest_read: int = 0
    """Number of pods of the largest gang that the last `sync` rebuilt."""

    def __post_init__(self) -> None:
        self.planner = Planner(Session(self.settings))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that it must be notified of."""
        return (*KINDS, *VOLUME_KINDS) if self.identity.plans_volumes else KINDS

    def note_change(self, change: Change) -> None:
        if change.kind is not None:
            changed = (change.kind, key(change.object))
            self.changed_keys[changed] = max(change.revision, self.changed_keys.get(changed, 0))

    def sync(self, view: View, now: float) -> bool:
        """Bring the session one slice closer to the view; sets `is_behind` if more is left. False if nothing relevant changed."""
        has_gap = not self.changed_keys and view.revision != self.revision
        if view is not self.view or view.revision < self.revision:
            self._reset()
        is_due = view is not self.view or has_gap or now - self.scanned_at > RESCAN_INTERVAL or now < self.scanned_at
        if self.scan is None:  # a running one ends first: otherwise none would end in a busy cluster
            self.revision = view.revision
            if is_due:
                self.scan, self.scanned_at = self._scan_view(view), now
        self.view = view
        self.planner.session.now = now
        self._continue_scan()
        self.largest_read = 0
        changed, has_more = self._take_in(view)
        self.is_behind = has_more or self.scan is not None or bool(self.outdated_gangs)
        return changed

    def absorb(self, view: View) -> bool:
        """Apply the changes noted so far, if there are many: a decision after ten thousand changes would block the event loop. A few gangs
        are rebuilt by `sync` alone: one of a thousand pods costs ten milliseconds each time. False if nothing relevant to the planner has
        changed."""
        if len(self.changed_keys) < ABSORBED_CHANGES or (self.view is not None and view is not self.view):
            return False
        self.view = view
        if self.scan is None:
            self.revision = view.revision
        return self._take_in(view, least_gangs=ABSORBED_CHANGES)[0]

    # ------------------------------------------------------------ slices

    def _continue_scan(self) -> None:
        until = self.stopwatch() + SLICE_S
        while self.scan is not None:
            if next(self.scan, self) is self:
                self.scan = None
            if self.stopwatch() >= until:
                return

    def _take_in(self, view: View, *, least_gangs: int = 1) -> tuple[bool, bool]:
        """Apply noted changes and rebuild gangs, if `least_gangs` are outdated, a slice of each. Returns (whether anything relevant changed,
        whether notes are left)."""
        until = self.stopwatch() + SLICE_S
        nodes_changed = queues_changed = has_more = False
        while noted := list(
            islice((e for e, at in self.changed_keys.items() if at <= view.revision), ABSORBED_CHANGES)
        ):
            for entry in noted:
                del self.changed_keys[entry]
            nodes, queues = self._apply_changes(view, noted)
            nodes_changed, queues_changed = nodes_changed or nodes, queues_changed or queues
            if has_more := self.stopwatch() >= until:
                break
        if len(self.outdated_gangs) < least_gangs and not (nodes_changed or queues_changed):
            return False, has_more
        return self._rebuild_gangs(view, nodes_changed=nodes_changed, queues_changed=queues_changed), has_more

    # ------------------------------------------------------------ what changed

    def _reset(self) -> None:
        self.__init__(self.settings, self.identity, self.stopwatch)  # type: ignore[misc]  # begin again as if new

    def _scan_view(self, view: View) -> Iterator[None]:
        """Note all differences from the view, a few objects per step. Changes during the scan are noted as usual, some of them twice."""
        for kind in self.kinds:
            versions = self.versions.setdefault(kind, {})
            present = list(view.keys(kind))
            for number, object_key in enumerate(present):
                metadata = view.metadata(kind, *object_key) if object_key in versions else None
                if metadata is None or versions[object_key] != revision({"metadata": metadata}):
                    self.changed_keys.setdefault((kind, object_key), 0)
                if number % ABSORBED_CHANGES == ABSORBED_CHANGES - 1:
                    yield
            for object_key in versions.keys() - set(present):
                self.changed_keys.setdefault((kind, object_key), 0)
            yield

    def _apply_changes(self, view: View, changed: Iterable[tuple[Kind, Key]]) -> tuple[bool, bool]:
        """Apply changes, and add the gangs concerned to `outdated_gangs`. Returns (whether nodes changed, whether queues changed)."""
        gangs = self.outdated_gangs
        ungrouped: set[Key] = set()
        namespaces: set[str] = set()
        nodes_changed = queues_changed = rebuild_all = False
        updates: list[tuple[Kind, Key, Object | None]] = []
        for kind, object_key in changed:
            obj = self._read_object(view, kind, object_key)
            versions = self.versions.setdefault(kind, {})
            if obj is not None and versions.get(object_key) == revision(obj):
                continue
            if obj is None:
                if versions.pop(object_key, None) is None:
                    continue
            else:
                versions[object_key] = revision(obj)
            updates.append((kind, object_key, obj))
        for kind, object_key, obj in updates:
            if kind is POD_GROUP or kind == POD_GROUP:
                ungrouped |= self._apply_group(object_key, obj, gangs)
            elif kind == NODE:
                nodes_changed = self._apply_node(object_key, obj) or nodes_changed
            elif kind == QUEUE:
                queues_changed = self._apply_queue(object_key, obj) or queues_changed
            elif kind == NAMESPACE:
                namespaces.add(object_key.name)
            elif kind == PRIORITY_CLASS:
                rebuild_all = True
            elif kind in VOLUME_KINDS:
                self._apply_volume(kind, object_key, obj, gangs)
        for kind, object_key, obj in updates:
            if kind == POD:
                self._apply_pod(object_key, obj, gangs)
                ungrouped.discard(object_key)
        for object_key in sorted(ungrouped):
            self._apply_pod(object_key, self._read_object(view, POD, object_key), gangs)
        known = {**self.pods_of_gang, **self.planner.session.gangs} if rebuild_all or namespaces else ()
        gangs.update((gang, None) for gang in known if rebuild_all or gang.partition("/")[0] in namespaces)
        return nodes_changed, queues_changed

    def _read_object(self, view: View, kind: Kind, object_key: Key) -> Object | None:
        """What is noted of an object; of pods and their groups the metadata is enough, except for a pod's volumes."""
        if kind not in (POD, POD_GROUP) or self.identity.plans_volumes:
            return view.get(kind, *object_key)
        metadata = view.metadata(kind, *object_key)
        return None if metadata is None else {"metadata": metadata}

    def _apply_node(self, node_key: Key, obj: Object | None) -> bool:
        old = self.nodes.pop(node_key.name, None)
        new = None if obj is None else from_objects.parse_node(obj)
        if new is not None:
            self.nodes[node_key.name] = new
        return old != new

    def _apply_queue(self, queue_key: Key, obj: Object | None) -> bool:
        old = self.queues.pop(queue_key.name, None)
        new = None if obj is None else from_objects.parse_queue(obj)
        if new is not None:
            self.queues[queue_key.name] = new
        return old != new

    def _apply_group(self, group_key: Key, obj: Object | None, gangs: dict[str, None]) -> set[Key]:
        """Apply a created, changed or deleted PodGroup. Returns the pods of a deleted one: bound ones still hold resources."""
        gang = f"{group_key.namespace}/{group_key.name}"
        gangs[gang] = None
        for old in self.owners_of_group.pop(gang, ()):
            if self.group_of_owner.get(old) == group_key.name:
                del self.group_of_owner[old]
        if obj is None:
            return set(self.pods_of_gang.get(gang, ()))
        controller = controller_of(obj)
        owners = [controller] if controller else list(meta(obj).get("ownerReferences") or ())[:1]
        owner_keys = [(group_key.namespace, str(owner.get("uid"))) for owner in owners]
        self.group_of_owner.update(dict.fromkeys(owner_keys, group_key.name))
        self.owners_of_group[gang] = owner_keys
        for place in (*owner_keys, (group_key.namespace, f"group/{group_key.name}")):
            for pod in self.ungrouped_pods.pop(place, set()) & self.gang_of.keys():
                self._join_gang(pod, gang, gangs)
        return set()

    def _apply_volume(self, kind: Kind, object_key: Key, obj: Object | None, gangs: dict[str, None]) -> None:
        if kind == STORAGE_CLASS:
            self.classes_epoch += 1
            gangs.update((gang, None) for pod in self.volumes.pods_with_claims() if (gang := self.gang_of.get(pod)))
            return
        for pod_key in self.volumes.pods_concerned(kind, object_key, obj):
            self.parsed_tasks.pop(pod_key, None)
            if gang := self.gang_of.get(pod_key):
                gangs[gang] = None

    def _apply_pod(self, pod_key: Key, obj: Object | None, gangs: dict[str, None]) -> None:
        if self.identity.plans_volumes:
            self.volumes.note_pod(pod_key, obj)
        if obj is None:
            self._leave_gang(pod_key, gangs)
            return
        self._join_gang(pod_key, self._gang_name(pod_key, obj), gangs)

    def _gang_name(self, pod_key: Key, pod: Object) -> str:
        group_name = from_objects.pod_group_name(pod)
        if group_name and Key(pod_key.namespace, group_name) in self.versions.get(POD_GROUP, ()):
            return f"{pod_key.namespace}/{group_name}"
        owner = controller_of(pod)
        if group_name:
            self.ungrouped_pods.setdefault((pod_key.namespace, f"group/{group_name}"), set()).add(pod_key)
        elif owner is not None:
            owner_key = (pod_key.namespace, str(owner.get("uid")))
            group = self.group_of_owner.get(owner_key)
            if group:
                return f"{pod_key.namespace}/{group}"
            if from_objects.is_kubeflow_pod(pod):
                self.ungrouped_pods.setdefault(owner_key, set()).add(pod_key)
        return f"{pod_key.namespace}/pod/{pod_key.name}"

    def _join_gang(self, pod_key: Key, gang: str, gangs: dict[str, None]) -> None:
        if self.gang_of.get(pod_key) != gang:
            self._leave_gang(pod_key, gangs)
            self.gang_of[pod_key] = gang
            self.pods_of_gang.setdefault(gang, set()).add(pod_key)
        gangs[gang] = None

    def _leave_gang(self, pod_key: Key, gangs: dict[str, None]) -> None:
        gang = self.gang_of.pop(pod_key, None)
        if gang is None:
            return
        gangs[gang] = None
        self.parsed_tasks.pop(pod_key, None)
        remaining = self.pods_of_gang.get(gang, set())
        remaining.discard(pod_key)
        if not remaining:
            self.pods_of_gang.pop(gang, None)

    # ------------------------------------------------------------ the session

    def _rebuild_gangs(self, view: View, *, nodes_changed: bool, queues_changed: bool) -> bool:
        session, pending_gangs = self.planner.session, self.planner.pending_gangs
        if nodes_changed:
            session.put_nodes(self.nodes.values())
        gangs = list(islice(self.outdated_gangs, GANGS_PER_SLICE))
        priority_classes = self._priority_classes(view) if gangs else {}
        changed = nodes_changed or queues_changed
        until = self.stopwatch() + SLICE_S
        for gang_key in gangs:
            del self.outdated_gangs[gang_key]
            gang = self._read_gang(view, gang_key, priority_classes)
            old = session.gangs.get(gang_key)
            is_equal = gang == (old.gang if old else None)
            changed = changed or not is_equal
            if gang is None:
                session.drop_gang(gang_key)
                pending_gangs.drop_gang(gang_key)
            elif not (is_equal and old and _are_told_the_same(gang, old.gang)):
                pending_gangs.put_gang(session.put_gang(gang))
            if self.stopwatch() >= until:
                break
        if queues_changed:
            session.put_queues(self.queues.values())
            pending_gangs.refill()
        return changed

    def _priority_classes(self, view: View) -> dict[str, int]:
        return {name(o): int(o.get("value") or 0) for o in view.all(PRIORITY_CLASS)}

    def _read_gang(self, view: View, gang_key: str, classes: dict[str, int]) -> Gang | None:
        """The gang's current value; None if it has no pods, all of them have ended, or it must wait for its PodGroup."""
        pod_keys = self.pods_of_gang.get(gang_key, ())
        gang_namespace, _, gang_name = gang_key.partition("/")
        if all(view.has_ended(POD, *pod) for pod in pod_keys):
            for pod in pod_keys:
                self.parsed_tasks.pop(pod, None)
            return None
        self.largest_read = max(self.largest_read, len(pod_keys))
        pods = [p for k in sorted(pod_keys) if (p := view.get(POD, k.namespace, k.name)) is not None]
        namespace_object = view.get(NAMESPACE, "", gang_namespace)
        if gang_name.startswith("pod/"):
            if not pods or self._waits_for_group(pods[0]):
                return None
            queue = from_objects.queue_of(pods[0], None, namespace_object)
            return from_objects.bare_pod_gang(pods[0], queue, classes, self.identity, parse=self._parse_task)
        group = view.get(POD_GROUP, gang_namespace, gang_name)
        if group is not None and from_objects.is_finished(group, pods):
            pods = [
                p for p in pods if dig(p, "spec.nodeName")
            ]  # a pod that starts now would wait for ever for the others
        if group is None or not pods:
            return None
        queue = from_objects.queue_of(group, group, namespace_object)
        return from_objects.pod_group_gang(group, pods, queue, classes, self.identity, parse=self._parse_task)

    def _parse_task(self, pod: Object, pod_sets: frozenset[str]) -> Task:
        """A pod's task, cached: in a gang of a thousand pods only those that changed are parsed."""
        pod_key = key(pod)
        known = self.parsed_tasks.get(pod_key)
        epoch = self.classes_epoch
        if known and known.revision == revision(pod) and known.pod_sets == pod_sets and known.classes_epoch == epoch:
            return known.task
        task = from_objects.parse_task(pod, pod_sets)
        if self.identity.plans_volumes and self.view is not None:
            task = self.volumes.with_volumes(self.view, pod_key, task)
        if known is not None and known.task == task and known.task.verdict == task.verdict:
            task = known.task
        self.parsed_tasks[pod_key] = _ParsedTask(revision(pod), pod_sets, epoch, task)
        return task

    def _waits_for_group(self, pod: Object) -> bool:
        """Whether the pod waits for its PodGroup: without it an unbound pod of a gang is not schedulable; a bound one still counts."""
        needs_group = from_objects.is_kubeflow_pod(pod) or bool(from_objects.pod_group_name(pod))
        return needs_group and from_objects.pod_status(pod) in (Status.PENDING, Status.GATED)


def _are_told_the_same(gang: Gang, other: Gang) -> bool:
    """Whether equal gangs also agree in the fields that `==` ignores."""
    return (gang.started, gang.verdict) == (other.started, other.verdict) and all(
        task is known for task, known in zip(gang.tasks, other.tasks, strict=True)
    )
