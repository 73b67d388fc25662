"""Keeps a planner's world in step with a View: changes are noted by key and read when a decision is due.

Only what changed is parsed again. Nothing here is needed for correctness: with an empty cache, after a gap, and every
half minute everything is compared with the View by resourceVersion, so a lost note heals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rowlock.api import Change, View
from rowlock.kinds import NAMESPACE, NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE, Kind
from rowlock.objects import Key, Object, controller_of, key, meta, name, namespace, revision, uid
from rowlock.scheduling import reading
from rowlock.scheduling.planner import Planner
from rowlock.scheduling.snapshot import Gang, Node, Queue, Settings, Status
from rowlock.scheduling.world import World

KINDS: tuple[Kind, ...] = (POD, POD_GROUP, NODE, QUEUE, NAMESPACE, PRIORITY_CLASS)
RESCAN_AFTER = 30.0


@dataclass(slots=True)
class Following:
    """One planner that follows one cluster."""

    settings: Settings = field(default_factory=Settings)
    planner: Planner = field(init=False)
    noted: dict[tuple[Kind, Key], int] = field(default_factory=dict)
    """What changed, and at which revision."""
    versions: dict[Kind, dict[Key, int]] = field(default_factory=dict)
    view: View | None = None
    revision: int = -1
    scanned: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    members: dict[str, set[Key]] = field(default_factory=dict)
    """Gang → its pods."""
    gang_of: dict[Key, str] = field(default_factory=dict)
    """Pod → its gang ("" = it waits for its PodGroup)."""
    owned: dict[tuple[str, str], str] = field(default_factory=dict)
    """(namespace, owner's uid) → PodGroup."""
    orphans: dict[tuple[str, str], set[Key]] = field(default_factory=dict)
    """Pods without a PodGroup (yet), by (namespace, their owner's uid or `group/` and the name they give)."""
    queue_changed: bool = False

    def __post_init__(self) -> None:
        self.planner = Planner(World(self.settings))

    def note(self, change: Change) -> None:
        if change.kind is not None:
            place = (change.kind, key(change.object))
            self.noted[place] = max(change.revision, self.noted.get(place, 0))

    def sync(self, view: View, now: float) -> bool:
        """Bring the world up to the view; False when nothing the planner cares about has changed."""
        gap = not self.noted and view.revision != self.revision
        if view is not self.view or view.revision < self.revision:
            self._forget()
        if view is not self.view or gap or now - self.scanned > RESCAN_AFTER or now < self.scanned:
            self._scan(view)
            self.scanned = now
        self.view, self.revision = view, view.revision
        due = [place for place, at in self.noted.items() if at <= view.revision]
        for place in due:
            del self.noted[place]
        self.planner.world.now = now
        return self._apply(view, due)

    # ------------------------------------------------------------ what changed

    def _forget(self) -> None:
        settings = self.settings
        self.__init__(settings)  # type: ignore[misc]  # begin again as if new

    def _scan(self, view: View) -> None:
        for kind in KINDS:
            known = self.versions.setdefault(kind, {})
            seen = set()
            for obj in view.all(kind):
                at = key(obj)
                seen.add(at)
                if known.get(at) != revision(obj):
                    self.noted[kind, at] = 0
            for at in known.keys() - seen:
                self.noted[kind, at] = 0

    def _apply(self, view: View, due: Iterable[tuple[Kind, Key]]) -> bool:
        gangs: dict[str, None] = {}
        ungrouped: set[Key] = set()
        nodes = queues = everything = False
        fresh: list[tuple[Kind, Key, Object | None]] = []
        for kind, at in due:
            obj = view.get(kind, at.namespace, at.name)
            versions = self.versions.setdefault(kind, {})
            if obj is not None and versions.get(at) == revision(obj):
                continue
            if obj is None:
                if versions.pop(at, None) is None:
                    continue
            else:
                versions[at] = revision(obj)
            fresh.append((kind, at, obj))
        for kind, at, obj in fresh:
            if kind is POD_GROUP or kind == POD_GROUP:
                ungrouped |= self._group(at, obj, gangs)
            elif kind == NODE:
                nodes = self._node(at, obj) or nodes
            elif kind == QUEUE:
                queues = self._queue(at, obj) or queues
            elif kind in (NAMESPACE, PRIORITY_CLASS):
                everything = True
        for kind, at, obj in fresh:
            if kind == POD:
                self._pod(at, obj, gangs)
                ungrouped.discard(at)
        for at in sorted(ungrouped):
            self._pod(at, view.get(POD, at.namespace, at.name), gangs)
        return self._rebuild(view, gangs, nodes=nodes, queues=queues, everything=everything)

    def _node(self, at: Key, obj: Object | None) -> bool:
        old = self.nodes.pop(at.name, None)
        new = None if obj is None else reading.node(obj)
        if new is not None:
            self.nodes[at.name] = new
        return old != new

    def _queue(self, at: Key, obj: Object | None) -> bool:
        old = self.queues.pop(at.name, None)
        new = None if obj is None else reading.queue(obj)
        if new is not None:
            self.queues[at.name] = new
        return old != new

    def _group(self, at: Key, obj: Object | None, gangs: dict[str, None]) -> set[Key]:
        """A PodGroup came, changed or went. Pods that it leaves behind: bound ones still take their room."""
        gang = f"{at.namespace}/{at.name}"
        gangs[gang] = None
        for old in [o for o, group in self.owned.items() if group == at.name and o[0] == at.namespace]:
            del self.owned[old]
        if obj is None:
            return set(self.members.get(gang, ()))
        controller = controller_of(obj)
        owners = [controller] if controller else list(meta(obj).get("ownerReferences") or ())[:1]
        places = [(at.namespace, str(owner.get("uid"))) for owner in owners]
        self.owned.update(dict.fromkeys(places, at.name))
        for place in (*places, (at.namespace, f"group/{at.name}")):
            for pod in self.orphans.pop(place, set()) & self.gang_of.keys():
                self._join(pod, gang, gangs)
        return set()

    def _pod(self, at: Key, obj: Object | None, gangs: dict[str, None]) -> None:
        if obj is None:
            self._leave(at, gangs)
            return
        self._join(at, self._gang_name(at, obj), gangs)

    def _gang_name(self, at: Key, pod: Object) -> str:
        named = reading.group_key(pod)
        if named and Key(at.namespace, named) in self.versions.get(POD_GROUP, ()):
            return f"{at.namespace}/{named}"
        owner = controller_of(pod)
        if named:
            self.orphans.setdefault((at.namespace, f"group/{named}"), set()).add(at)
        elif owner is not None:
            place = (at.namespace, str(owner.get("uid")))
            group = self.owned.get(place)
            if group:
                return f"{at.namespace}/{group}"
            if reading.kubeflow(pod):
                self.orphans.setdefault(place, set()).add(at)
        return f"{at.namespace}/pod/{at.name}"

    def _join(self, pod: Key, gang: str, gangs: dict[str, None]) -> None:
        if self.gang_of.get(pod) != gang:
            self._leave(pod, gangs)
            self.gang_of[pod] = gang
            self.members.setdefault(gang, set()).add(pod)
        gangs[gang] = None

    def _leave(self, pod: Key, gangs: dict[str, None]) -> None:
        gang = self.gang_of.pop(pod, None)
        if gang is None:
            return
        gangs[gang] = None
        left = self.members.get(gang, set())
        left.discard(pod)
        if not left:
            self.members.pop(gang, None)

    # ------------------------------------------------------------ the world

    def _rebuild(self, view: View, gangs: dict[str, None], *, nodes: bool, queues: bool, everything: bool) -> bool:
        world, waiting = self.planner.world, self.planner.waiting
        if nodes:
            world.put_nodes(self.nodes.values())
        if everything:
            gangs.update(dict.fromkeys(self.members))
            gangs.update(dict.fromkeys(world.gangs))
        classes = self._classes(view) if gangs else {}
        changed = nodes or queues
        for gang_key in gangs:
            gang = self._gang(view, gang_key, classes)
            old = world.gangs.get(gang_key)
            changed = changed or gang != (old.gang if old else None)
            if gang is None:
                world.drop_gang(gang_key)
                waiting.drop(gang_key)
            else:
                waiting.put(world.put_gang(gang))
        if queues:
            world.put_queues(self.queues.values())
            waiting.fill()
        return changed

    def _classes(self, view: View) -> dict[str, int]:
        return {name(o): int(o.get("value") or 0) for o in view.all(PRIORITY_CLASS)}

    def _gang(self, view: View, gang: str, classes: dict[str, int]) -> Gang | None:
        """The gang as it is now; None when it has no pods or must wait for its PodGroup."""
        at = self.members.get(gang)
        space, _, rest = gang.partition("/")
        if not at:
            return None
        pods = [p for k in sorted(at) if (p := view.get(POD, k.namespace, k.name)) is not None]
        home = view.get(NAMESPACE, "", space)
        if rest.startswith("pod/"):
            if not pods or self._waits_for_group(pods[0]):
                return None
            return reading.bare_gang(pods[0], reading.queue_of(pods[0], None, home), classes)
        group = view.get(POD_GROUP, space, rest)
        if group is None or not pods:
            return None
        return reading.group_gang(group, pods, reading.queue_of(group, group, home), classes)

    def _waits_for_group(self, pod: Object) -> bool:
        """Without its PodGroup an unbound pod of a gang is not schedulable yet; a bound one still takes its room."""
        member = reading.kubeflow(pod) or bool(reading.group_key(pod))
        return member and reading.status(pod) in (Status.PENDING, Status.GATED)


def place_of(obj: Object) -> tuple[str, str]:
    """(namespace, uid)."""
    return namespace(obj), uid(obj)
