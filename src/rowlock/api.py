"""`Api`: the nine verbs that stand between rowlock and any cluster; and what flows through them.

    get  list  watch  create  update  patch  delete  bind  log

Two things implement it: the store of the embedded cluster (`storage/`) and a real API server over HTTPS (`kube/`).
Everything else is written once, against this module. The contract, for both:

 1. Objects are complete JSON dicts with `apiVersion` and `kind`; what is returned is never mutated by anybody.
 2. A returned write is durable: it survives `kill -9` and power loss.
 3. `update` and `patch` with a `resourceVersion` in the object raise Conflict when somebody wrote since.
    Without one they apply to whatever is there.
 4. With `subresource="status"` only `status` changes; without it `status` is kept as it was (kinds that have the
    status subresource). `generation` counts changes of anything but metadata and status.
 5. An update that changes nothing writes nothing: same resourceVersion, no watch event.
 6. `watch(since=N)` yields every change after revision N exactly once, in order; `since=None` begins with the state
    as Added changes, then a bookmark. It raises Expired when N has been compacted: list again, watch again.
 7. A change seen by a watch or a View is durable too.
 8. `delete` of an object with finalizers sets `deletionTimestamp` and returns; the last finalizer's removal deletes.
    A Pod that is bound to a node is deleted gracefully: first marked, removed by its kubelet. Dependents follow the
    propagation policy (background by default).
 9. `bind` puts a pod on a node once; a second bind raises Conflict.
10. `dry_run=True` goes through everything but the write.
11. Every error is an `ApiError` of `errors.py`.

Deciding code never calls these: it reads a `View` and returns `Write`s, which `controllers/writer.py` carries out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

PatchType = Literal["json", "merge", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Ignore", "Warn", "Strict"]


class Change(msgspec.Struct, frozen=True):  # a dataclass would do, and take 15 times as long to make
    """One step of a watch. A Bookmark carries only `revision`: everything up to it has been seen.

    `old` is the object before a Modified or Deleted change where the implementation knows it (selectors need it:
    an object that stops matching is seen as Deleted)."""

    type: Literal["Added", "Modified", "Deleted", "Bookmark"]
    revision: int
    kind: Kind | None = None
    object: Object = {}  # msgspec copies it
    old: Object | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A list at one revision. `token` continues it ("" = complete); `remaining` counts what is left, None = unknown."""

    items: list[Object]
    revision: int
    token: str = ""
    remaining: int | None = None


@dataclass(slots=True)
class WriteSequence:
    """Writes that are issued together but mean one after the other: those behind a refused one are not made, and
    raise `NotTried`. A cluster across the network cannot keep the order of what is under way at once, and need not."""

    refused: bool = False
    failed_commits: int | None = None
    """Commits that had failed when its first write was made: one more, and what was written before is lost."""


class WriteOptions(msgspec.Struct, frozen=True):
    """How to write. `manager` is the field manager recorded in managedFields; "" records none."""

    dry_run: bool = False
    manager: str = ""
    force: bool = False
    """Server-side apply only: take fields over from other managers."""
    validation: FieldValidation = "Ignore"
    """What to do with unknown and duplicate fields."""
    warnings: list[str] = []  # each has its own
    """Filled by the callee: sentences for the Warning header."""
    is_large: bool = False
    """Of a patch: it, or its object, is so large that it is made beside the event loop."""
    sequence: WriteSequence | None = None
    """The run that this write belongs to."""
    review: Callable[[Object | None, Object], None] | None = None
    """Asked with the object before (None = it is created) and after, before anything is admitted; it may raise."""
    may_use_queue: Callable[[str], bool] | None = None
    """Of a writer who is not the owner: whether that user may name a queue that is not the namespace's own."""
    is_settled: bool = False
    """Of a create inside the server: the object is as it would be read from JSON, defaults and all, and only its metadata is
    looked at."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. `grace` in seconds, None = the object's own; `uid`/`revision` are preconditions."""

    propagation: Propagation | None = None
    grace: int | None = None
    uid: str = ""
    revision: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a container's log; the fields are kubectl's. Times are seconds since the epoch."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    start_timeout: float = 0.0
    """Seconds that a container which is on its way may take to start, before the refusal that it is waiting to. Of the
    embedded cluster; its API server sets it."""
    read_size: int = 1 << 18
    """Bytes of a piece at most, where a file is read (a real cluster sends what it likes): who merges many logs holds a piece of each."""
    owner: str = ""
    """The uid of a job: where its pod of that name is gone (or, with `previous`, was made anew), what the last one wrote
    is meant, as long as it is kept, and no other job's. "" = anybody's, of a pod that is gone."""


WRITE = WriteOptions()
DELETE = DeleteOptions()
LOG = LogOptions()


class Api(Protocol):
    """The seam. See the module's docstring for the contract."""

    keeps_order: bool
    """Whether writes that are issued together are made in their order, and creates and updates follow `WriteOptions.sequence`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object: ...

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        limit: int = 0,
        token: str = "",
    ) -> Page: ...

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        since: int | None = None,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        bookmarks: bool = False,
    ) -> AsyncIterator[Change]: ...

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object: ...

    async def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE
    ) -> Object: ...

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object: ...

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object: ...

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None: ...

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]: ...


class View(Protocol):
    """A consistent, read-only look at the world, for deciding. Holds committed objects only.

    It does not change during one call of a deciding function; iteration order is (namespace, name)."""

    @property
    def revision(self) -> int: ...

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None: ...

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        """Every object of the kind, in one namespace or ("") in all."""
        ...

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        """Objects of the kind that name `uid` in any of their ownerReferences; indexed."""
        ...

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        """Objects of the kind in one namespace with `label` = `value`; indexed for the labels in `INDEXED`."""
        ...


class ObservedView(View, Protocol):
    """A View that tells of each change once it is committed, in the turn of the event loop in which readers see it."""

    def observe(self, kinds: Iterable[Kind], observer: Callable[[Change], None]) -> None: ...


INDEXED: frozenset[str] = frozenset(
    {"training.kubeflow.org/job-name", "batch.kubernetes.io/controller-uid", "pod-group-name"}
)
"""Labels that every View keeps an index of (any other works, by scanning the namespace)."""


# ---------------------------------------------------------------- writes, as data


@dataclass(frozen=True, slots=True)
class Record:
    """An Event on `regarding`. Equal ones (same object, part, type, reason, message, source) are counted, not repeated."""

    regarding: Object
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    source: str
    field_path: str = ""
    """The field it is about, such as `spec.containers{main}`; "" = all of the object."""


@dataclass(frozen=True, slots=True)
class Create:
    """`failure_records` is recorded when the API refuses, with `{error}` in messages replaced by the API's sentence."""

    kind: Kind
    object: Object
    failure_records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """The whole object, with the resourceVersion it was decided on."""

    kind: Kind
    object: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    kind: Kind
    namespace: str
    name: str
    patch: Any
    type: PatchType = "merge"
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """An object that is already gone counts as deleted."""

    kind: Kind
    namespace: str
    name: str
    options: DeleteOptions = DELETE
    failure_records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    namespace: str
    pod: str
    node: str
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


Write = Create | Update | Patch | Delete | Bind | Record


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, in this order; and when to look again (seconds from now, None = only when something changes).

    A write that fails with Conflict or AlreadyExists ends the turn: the controller looks again. Any other ApiError
    ends it too, and the key is tried again with back-off. So is one whose controller is `requeue`: it could not do all
    that it should, and nothing that wakes it may ever change."""

    writes: tuple[Write, ...] = ()
    requeue_after: float | None = None
    requeue: bool = False


NOTHING = Decision()


class Controller(Protocol):
    """Something that decides. One instance serves a whole cluster; it may cache, but must survive losing its cache."""

    name: str
    kinds: tuple[Kind, ...]
    """Changes of these kinds wake it."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """Whom to look at after a change. Controllers that look at the whole cluster return one constant key."""
        ...

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """What to do about `key`. Pure but for caches: same view, key and now, same decision."""
        ...
