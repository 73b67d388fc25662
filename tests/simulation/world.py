"""The whole cluster on one thread, from a seed: one step at a time, one write at a time, with everything that can go wrong.

The store, the operator, the scheduler and the collectors are the real ones; the kubelet is a pretence that keeps its
facts "on disk". Each controller sees the world through a view of its own that lags; it may crash between any two
writes and then begins anew, without its cache. After a while the faults stop, and everything must settle.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from tests.simulation.kubelet import Disk, Kubelet

from rowlock import kinds, objects
from rowlock.api import (
    Bind,
    Change,
    Controller,
    Create,
    Decision,
    Delete,
    Patch,
    Record,
    Update,
    View,
    Write,
    WriteOptions,
)
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.validation.objects import meta_update_causes
from rowlock.controllers.recorder import make_event
from rowlock.controllers.view.state import State, StoredChange
from rowlock.errors import ApiError, Conflict, NotFound, invalid
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.storage.write_verbs import Admission, AlwaysAdmit
from rowlock.system.event_expiry import EventExpiry
from rowlock.system.garbage_collector import GarbageCollector
from rowlock.system.namespace_deletion import NamespaceDeleter
from rowlock.system.pod_garbage_collector import PodGarbageCollector
from rowlock.system.volume_claims import ClaimProtection

START = 1_700_000_000.0
CALM = 6_000
"""Steps after which a calm world must have settled; looks that change nothing while time passes do not count."""


@dataclass(eq=False)
class Actor:
    """One controller as a process: its view, its queues, and the writes it has begun."""

    make: Callable[[], Controller]
    controller: Controller
    view: State = field(default_factory=State)
    seen: int = 0
    """How much of the world's log its view shows. As in the real loop it is told of all that before it decides."""
    dirty: dict[Key, None] = field(default_factory=dict)
    timers: dict[Key, float] = field(default_factory=dict)
    flights: dict[Key, deque[Write]] = field(default_factory=dict)
    written: dict[Key, int] = field(default_factory=dict)

    interests: frozenset[Kind] = frozenset()

    def __post_init__(self) -> None:
        self.interests = frozenset(self.controller.kinds)

    @property
    def name(self) -> str:
        return self.controller.name


class Broken(AssertionError):
    """An invariant does not hold, or the world does not settle; carries the story."""


class SameObjects(AlwaysAdmit):
    """Admission that refuses what each API server refuses, whatever the kind: a patch that names the uid of an earlier object of its name."""

    def update(self, kind: Kind, old: Object, new: Object, subresource: str, options: WriteOptions) -> Object:
        if causes := meta_update_causes(old, new):
            raise invalid(kind.name, objects.name(old), causes)
        return new


class World:
    """A cluster, its actors, and the dice."""

    calm_steps = CALM

    def __init__(
        self,
        seed: int,
        makers: Iterable[Callable[[], Controller]],
        check: Callable[[World, StoredChange], None],
        *,
        admission: Callable[[Callable[[], float], View], Admission] | None = None,
    ) -> None:
        """`admission` makes what checks each write, of a clock and a view; without one writes pass as they are."""
        self.seed, self.dice = seed, random.Random(seed)
        self.now = START
        numbers: Iterator[int] = count(1)
        patches = Patcher(self.clock)
        admit = partial(admission, self.clock) if admission else lambda _: SameObjects()
        self.store = Store.open(
            admission=admit, patches=patches, clock=self.clock, new_uid=lambda: f"uid-{next(numbers)}", window=64
        )
        self.core, self.view = self.store.core, self.store.view
        self.log: list[StoredChange] = []
        self.story: list[str] = []
        self.disk = Disk(seed)
        self.faults = True
        self.contested = False
        """Two teams with small quotas and jobs of several priorities: the scheduler takes pods back."""
        self._check = check
        self._told: set[tuple[str, str, str]] = set()
        self.actors: list[Actor] = []
        for make in [*makers, self.kubelet]:
            self.actors.append(Actor(make, make()))

    def kubelet(self) -> Controller:
        return Kubelet(self.disk)

    def clock(self) -> float:
        return self.now

    # ------------------------------------------------------------ writing

    def write(self, who: str, call: Callable[[], object]) -> ApiError | None:
        """One write of somebody, made durable, logged and checked. The error, if it was refused."""
        try:
            call()
        except ApiError as error:
            self.core.take_staged()
            self.story.append(f"{who}: refused: {error.message}")
            return error
        batch = self.core.take_staged()
        self.core.apply_committed(batch)
        for change in batch:
            kind, key = change.kind_and_key
            self.log.append(change)
            self.story.append(f"@{change.revision} {who}: {change.type} {kind.plural} {key.name} {_what(change)}")
            self._check(self, change)
        return None

    def _do(self, actor: Actor, write: Write) -> ApiError | None:
        core = self.core
        call: Callable[[], object]
        match write:
            case Record():
                self._tell(actor, write)
                return None
            case Create():
                call = lambda: core.create(write.kind, write.object)  # noqa: E731
            case Update():
                call = lambda: core.update(write.kind, write.object, write.subresource)  # noqa: E731
            case Patch():
                key = Key(write.namespace, write.name)
                call = lambda: core.patch(  # noqa: E731
                    write.kind, key, write.patch, type=write.type, subresource=write.subresource
                )
            case Delete():
                call = lambda: core.delete(write.kind, write.namespace, write.name, write.options)  # noqa: E731
            case Bind():
                call = lambda: core.bind(write.namespace, write.pod, write.node, write.annotations, write.uid)  # noqa: E731
        error = self.write(actor.name, call)
        gone = isinstance(error, NotFound) and isinstance(write, Delete)
        return None if gone else error

    def _tell(self, actor: Actor, record: Record) -> None:
        """Events, without counting: the first of each sort."""
        same = (objects.uid(record.regarding), record.reason, record.message)
        if same not in self._told:
            self._told.add(same)
            made = make_event(record, f"e{len(self._told):06d}", self.now)
            self.write(actor.name, lambda: self.core.create(kinds.EVENT, made))

    # ------------------------------------------------------------ steps

    def step(self) -> bool:
        """Let one actor do one thing. False when nobody has anything to do at this time."""
        first = self.dice.randrange(len(self.actors))
        for actor in (*self.actors[first:], *self.actors[:first]):
            possible = self._possible(actor)
            if possible:
                break
        else:
            return False
        self.dice.choice(possible)(actor)
        if self.faults and self.dice.random() < 0.04:
            self.crash(self.dice.choice(self.actors))
        return True

    def _possible(self, actor: Actor) -> list[Callable[[Actor], None]]:
        found: list[Callable[[Actor], None]] = []
        if actor.seen < len(self.log):
            found.append(self._look)
        if actor.flights:
            found += [self._fly, self._fly]  # writes are quick
        if self._ready(actor):
            found.append(self._decide)
        return found

    def _ready(self, actor: Actor) -> list[Key]:
        revision = actor.view.revision
        return [k for k in actor.dirty if k not in actor.flights and actor.written.get(k, 0) <= revision]

    def _look(self, actor: Actor) -> None:
        """The view is told the next few changes."""
        upto = min(len(self.log), actor.seen + self.dice.choice((1, 2, 5, 50)))
        news, actor.seen = self.log[actor.seen : upto], upto
        for change in news:
            actor.view.apply(change)
        for change in news:
            self._wake(actor, change)

    def _wake(self, actor: Actor, change: Change) -> None:
        if change.kind in actor.interests:
            for key in actor.controller.keys(actor.view, change):
                actor.dirty[key] = None

    def _decide(self, actor: Actor) -> None:
        key = self.dice.choice(self._ready(actor))
        del actor.dirty[key]
        actor.timers.pop(key, None)
        decision: Decision = actor.controller.decide(actor.view, key, self.now)
        if decision.requeue_after is not None:
            actor.timers[key] = self.now + max(decision.requeue_after, 0.001)
        elif decision.requeue:
            actor.timers[key] = self.now + 1.0
        if decision.writes:
            actor.flights[key] = deque(decision.writes)

    def _fly(self, actor: Actor) -> None:
        """The next write of a decision; a refusal drops the rest and looks again."""
        key = self.dice.choice(list(actor.flights))
        flight = actor.flights[key]
        write = flight.popleft()
        error = self._do(actor, write)
        actor.written[key] = self.core.revision
        if error is not None:
            flight.clear()
            # Like the loop: at once when the view was old (it waits for newer), else after a back-off.
            actor.timers[key] = self.now + (0.01 if isinstance(error, Conflict | NotFound) else 1.0)
        if not flight:
            del actor.flights[key]

    def crash(self, actor: Actor) -> None:
        """The process dies between two writes and comes back: no cache, no queue, a list instead of its view."""
        self.story.append(f"{actor.name}: crashes")
        fresh = Actor(actor.make, actor.make())
        for kind in kinds.KINDS:
            for obj in self.view.all(kind):
                fresh.view.apply(Change("Added", objects.revision(obj), kind, obj))
        fresh.view.advance_revision(self.view.revision)
        for kind in kinds.KINDS:
            for obj in self.view.all(kind):
                self._wake(fresh, Change("Added", objects.revision(obj), kind, obj))
        fresh.seen = len(self.log)
        self.actors[self.actors.index(actor)] = fresh

    # ------------------------------------------------------------ time

    def pass_time(self, horizon: float) -> bool:
        """Jump to the next timer before `horizon`; False when there is none."""
        timers = [when for actor in self.actors for when in actor.timers.values()]
        if not timers or min(timers) > horizon:
            return False
        self.now = max(self.now, min(timers))
        for actor in self.actors:
            for key in [k for k, when in actor.timers.items() if when <= self.now]:
                del actor.timers[key]
                actor.dirty[key] = None
        return True

    def nudge(self, obj: Object) -> None:
        """Something outside happened to an object: wake the kubelet."""
        for actor in self.actors:
            if isinstance(actor.controller, Kubelet):
                actor.dirty[objects.key(obj)] = None

    def settle(self, seconds: float) -> None:
        """Calm: no more faults. Everything that can happen within `seconds` happens. Raises Broken on a livelock."""
        self.faults = False
        horizon = self.now + seconds
        steps = counted = 0
        written = len(self.log)
        most = self.calm_steps * (5 if self.contested else 1)
        while steps < most:
            if self.step():
                steps += 1
                continue
            if not self.pass_time(horizon):
                return
            counted = counted if len(self.log) == written else steps
            steps, written = counted, len(self.log)
        raise Broken(f"still busy after {most} calm steps")


def _what(change: StoredChange) -> str:
    obj: Object = change.object
    return " ".join(filter(None, (objects.phase(obj), objects.dig(obj, "spec.nodeName"), _mark(obj), _why(obj))))


def _mark(obj: Object) -> str:
    return "deleting" if objects.is_deleting(obj) else ""


def _why(obj: Object) -> str:
    last = (objects.dig(obj, "status.conditions") or [{}])[-1]
    return f"{last.get('type', '')}={last.get('status', '')}" if last else str(obj.get("message") or "")


def collectors() -> list[Callable[[], Controller]]:
    return [
        GarbageCollector,
        NamespaceDeleter,
        EventExpiry,
        lambda: PodGarbageCollector(quarantine=5.0),
        ClaimProtection,
    ]
