"""`Api`: the nine verbs between rowlock and any cluster, and their arguments and results.

    get  list  watch  create  update  patch  delete  bind  log

Two things implement it: the store of the embedded cluster (`storage/`) and a real API server over HTTPS (`kube/`).
Everything else is written once, against this module. The contract, for both:

 1. Objects are complete JSON dicts with `apiVersion` and `kind`; returned objects are never mutated.
 2. A returned write is durable: it survives `kill -9` and power loss.
 3. `update` and `patch` with a `resourceVersion` in the object raise Conflict when the object has changed since.
    Without one they apply to the current object.
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
10. `dry_run=True` does everything except the write.
11. Every error is an `ApiError` of `errors.py`.

Deciding code never calls the verbs: it reads a `View` and returns `Write`s, which `controllers/writer.py` carries out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

PatchType = Literal["json", "merge", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Ignore", "Warn", "Strict"]


class Change(msgspec.Struct, frozen=True):  # not a dataclass: creating one takes 15 times as long
    """One event of a watch. A Bookmark carries only `revision`: all changes up to it have been delivered.

    `old` is the object before a Modified or Deleted change, if the implementation knows it (selectors need it:
    an object that stops matching is reported as Deleted)."""

    type: Literal["Added", "Modified", "Deleted", "Bookmark"]
    revision: int
    kind: Kind | None = None
    object: Object = {}  # msgspec copies it
    old: Object | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A list at one revision. `token` continues it ("" = complete); `remaining` counts what is left, None = unknown."""

    items: Sequence[Object]
    revision: int
    token: str = ""
    remaining: int | None = None


@dataclass(slots=True)
class WriteSequence:
    """Writes that are issued concurrently but take effect in order: those after a refused one are not made, and
    raise `NotTried`. A remote cluster cannot keep the order of concurrent requests, and ignores this."""

    refused: bool = False
    failed_commits: int | None = None
    """The store's number of failed commits at the first write: if it has grown, earlier writes of the sequence are lost."""


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of a write. `manager`: the field manager recorded in managedFields; "" records none."""

    dry_run: bool = False
    manager: str = ""
    force: bool = False
    """Server-side apply only: take over fields of other managers."""
    validation: FieldValidation = "Ignore"
    """What to do with unknown and duplicate fields."""
    warnings: list[str] = []  # msgspec copies it for each instance
    """Filled by the callee: sentences for the Warning header."""
    sequence: WriteSequence | None = None
    """The sequence that this write belongs to."""
    review: Callable[[Object | None, Object], None] | None = None
    """Called before admission with the old object (None = it is created) and the new one; it may raise to refuse the write."""
    may_use_queue: Callable[[str], bool] | None = None
    """For a user other than the owner: whether this user may name a queue other than that of the namespace."""
    is_settled: bool = False
    """For a create inside the server: the object is already in its final form, including defaults, so admission only
    processes its metadata."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a delete. `grace`: seconds, None = the object's own grace period. `uid` and `revision` are preconditions."""

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
    """Seconds to wait for a container to start before the request is refused because it is still waiting. Used by the
    embedded cluster only; its API server sets it."""
    read_size: int = 1 << 18
    """The most bytes of a chunk read from a file (a real cluster chooses its own): merging many logs keeps one chunk of each in memory."""
    owner: str = ""
    """The uid of a job: if the pod is gone (or, with `previous`, was recreated), return the kept log of the last pod of that name
    of this job only. "" = of any job, if the pod is gone."""


LARGE_WRITE = 64 * 1024
"""Bytes of JSON from which a write is checked beside the event loop: admission takes up to 0.5 ms per KiB."""


def is_large(obj: object) -> bool:
    """Whether an object or a patch has more than `LARGE_WRITE` bytes as JSON."""
    try:
        return len(_encode(obj)) > LARGE_WRITE
    except UnicodeEncodeError:  # half characters: admission refuses or replaces them
        return False


_encode = msgspec.json.Encoder().encode
WRITE = WriteOptions()
DELETE = DeleteOptions()
LOG = LogOptions()


class Api(Protocol):
    """The interface of a cluster. See the module's docstring for the contract."""

    keeps_order: bool
    """Whether concurrent writes take effect in the order of the calls, and creates and updates honour `WriteOptions.sequence`."""

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
    """A consistent, read-only view of the cluster's committed objects, on which controllers decide.

    It does not change during one call of a deciding function; iteration order is (namespace, name)."""

    @property
    def revision(self) -> int: ...

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None: ...

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's metadata: all of it, or only `name`, `namespace`, `uid`, `resourceVersion`, `creationTimestamp`, `ownerReferences`,
        `labels`, `annotations`, `finalizers` and `deletionTimestamp`, each left out or None if there is none. None if there is no such
        object. Cheaper than `get`, which may have to decode all of it."""
        ...

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        """Whether this is a pod or a job that has ended; decodes nothing."""
        ...

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        """Every object of the kind, in one namespace or ("") in all."""
        ...

    def keys(self, kind: Kind, namespace: str = "") -> Iterable[Key]:
        """The keys of `all`, without a look at the objects."""
        ...

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        """Objects of the kind that name `uid` in any of their ownerReferences; indexed."""
        ...

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        """Objects of the kind in one namespace with `label` = `value`; indexed for the labels in `INDEXED`."""
        ...


class ObservedView(View, Protocol):
    """A View that calls observers for each committed change, in the same turn of the event loop in which readers see it."""

    def observe(self, kinds: Iterable[Kind], observer: Callable[[Change], None]) -> None: ...

    def all_unfinished(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        """Those pods or jobs of `all` that have not ended, without a look at the many that have."""
        ...


INDEXED: frozenset[str] = frozenset(
    {"training.kubeflow.org/job-name", "batch.kubernetes.io/controller-uid", "pod-group-name"}
)
"""Labels that every View keeps an index of (any other works, by scanning the namespace)."""


# ---------------------------------------------------------------- writes, as data


@dataclass(frozen=True, slots=True)
class Record:
    """An Event on `regarding`. Equal ones (same object, field path, type, reason, message, source) are counted, not repeated."""

    regarding: Object
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    source: str
    field_path: str = ""
    """The field that it is about, such as `spec.containers{main}`; "" = the whole object."""
    longest_error: int = 0
    """How many characters of the API's message stand for `{error}`; 0 = as many as an Event may have."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. If the API refuses, `failure_records` are recorded, with `{error}` replaced by the API's message. `manager`: as of
    WriteOptions."""

    kind: Kind
    object: Object
    failure_records: tuple[Record, ...] = ()
    manager: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """Replace the whole object; it carries the resourceVersion that the decision was based on. `failure_records`: as of Create, but none for
    a Conflict, after which the decision is made again. `manager`: as of WriteOptions."""

    kind: Kind
    object: Object
    subresource: str = ""
    failure_records: tuple[Record, ...] = ()
    manager: str = ""


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
    """Delete an object; one that is already gone counts as deleted."""

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
    """The writes to make, in this order, and when to reconcile again (seconds from now, None = only after a change).

    A write that fails ends the turn, and the key is requeued with backoff; Conflict and AlreadyExists are not
    logged, because the view was stale. `requeue` also requeues the key with backoff: the controller could not do everything,
    and no change that wakes it may ever come. `settle`: seconds for which changes of the key are collected before the next decision, where
    a decision is dear, as that of a job of a thousand pods, of which each changes several times."""

    writes: tuple[Write, ...] = ()
    requeue_after: float | None = None
    requeue: bool = False
    settle: float = 0.0


NOTHING = Decision()


class Controller(Protocol):
    """A controller. One instance serves a whole cluster; it may cache, but must survive losing its cache."""

    name: str
    kinds: tuple[Kind, ...]
    """Kinds whose changes are passed to `keys`."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        """The keys to reconcile after a change. Controllers for the whole cluster return one constant key."""
        ...

    def decide(self, view: View, key: Key, now: float) -> Decision:
        """Decide what to do about `key`. Pure except for caches: the same view, key and `now` give the same decision."""
        ...
