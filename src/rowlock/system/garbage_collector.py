"""What nobody needs any more goes: five small controllers, pure.

`GarbageCollector` removes dependents of owners that are gone and carries out foreground and orphaning deletions. `NamespaceDeleter`
empties namespaces that are being deleted. `EventExpiry` removes old Events. `PodGarbageCollector` removes pods bound to nodes that do
not exist. `ClaimProtection` lets a volume claim go when no pod uses it. The rules are those of Kubernetes' own controllers; time
to live after a job's finish is the job operator's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Change, Controller, Decision, Delete, DeleteOptions, Patch, Update, View, Write
from rowlock.kinds import EVENT, KINDS, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, Kind
from rowlock.objects import Key, Object

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
"""The finalizer that every claim is born with."""
EVENT_TTL = 3_600.0  # seconds
QUARANTINE = 40.0  # seconds that a node may be missing before its pods are given up
_REPORT_INTERVAL = 1.0  # seconds between two reports of what holds a namespace
_SWEEP_INTERVAL = 60.0  # seconds between two looks at all Events
_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
_NOTHING = Decision()


def controllers() -> tuple[Controller, ...]:
    return (GarbageCollector(), NamespaceDeleter(), EventExpiry(), PodGarbageCollector(), ClaimProtection())


# ---------------------------------------------------------------- owners


class GarbageCollector:
    """One key per owner: its namespace and `resource/name/uid`, because an owner may be gone already."""

    name = "garbage-collector"
    kinds: tuple[Kind, ...] = KINDS

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        obj, kind = change.object, change.kind
        if kind is None:
            return []
        own_keys = (
            [_owner_key(kind, obj)]
            if change.type == "Deleted" or (objects.is_deleting(obj) and _deletion_policy(obj))
            else []
        )
        references = _references(obj)
        # A modified object concerns its owners only when it changed hands or began to leave.
        if change.type == "Modified" and change.old is not None and references == _references(change.old):
            return own_keys
        return own_keys + [
            owner_key for reference in references if (owner_key := _reference_key(obj, reference)) is not None
        ]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        resource, name, uid = key.name.split("/")
        owner = view.get(kinds.by_resource(resource), key.namespace, name)
        dependents = [
            (kind, obj)
            for kind in KINDS
            for obj in view.by_owner(kind, uid)
            if key.namespace in ("", objects.namespace(obj))
        ]
        if owner is None or objects.uid(owner) != uid:
            return Decision(
                tuple(w for kind, obj in dependents if (w := _delete_or_remove_owner(view, kind, obj, uid)))
            )
        policy = _deletion_policy(owner) if objects.is_deleting(owner) else ""
        if policy == ORPHAN:
            release = _remove_finalizer(kinds.by_resource(resource), owner, ORPHAN)
            return Decision((*(_remove_owners(kind, obj, {uid}) for kind, obj in dependents), release))
        if policy == FOREGROUND:
            return Decision(_delete_in_foreground(view, kinds.by_resource(resource), owner, dependents))
        return _NOTHING


def _delete_in_foreground(
    view: View, kind: Kind, owner: Object, dependents: list[tuple[Kind, Object]]
) -> tuple[Write, ...]:
    """Dependents go first; those that block hold the owner."""
    uid = objects.uid(owner)
    writes = tuple(w for k, obj in dependents if (w := _delete_or_remove_owner(view, k, obj, uid, "Foreground")))
    blocking = any(
        reference.get("uid") == uid and reference.get("blockOwnerDeletion")
        for _, obj in dependents
        for reference in _references(obj)
    )
    return writes if blocking else (*writes, _remove_finalizer(kind, owner, FOREGROUND))


def _delete_or_remove_owner(view: View, kind: Kind, obj: Object, uid: str, propagation: str = "") -> Write | None:
    """What becomes of a dependent that loses the owner `uid`: it stays if another one holds it."""
    if objects.is_deleting(obj):
        return None
    dangling = {str(r.get("uid")) for r in _references(obj) if not _is_solid_reference(view, obj, r)}
    if len(dangling) < len(_references(obj)):
        # An owner that waits for its dependents is still there; its name is taken off when it is gone.
        return None if propagation else _remove_owners(kind, obj, dangling | {uid})
    if propagation and not any(True for k in KINDS for _ in view.by_owner(k, objects.uid(obj))):
        propagation = ""
    options = DeleteOptions(
        propagation="Foreground" if propagation else None if _deletion_policy(obj) else "Background",
        uid=objects.uid(obj),
        revision=objects.revision(obj),
    )
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


def _is_solid_reference(view: View, obj: Object, reference: dict[str, Any]) -> bool:
    """True when an owner exists and does not wait for its dependents to go."""
    owner_key = _reference_key(obj, reference)
    if owner_key is None:
        return True  # of a kind that lives elsewhere: not ours to judge
    resource, name, uid = owner_key.name.split("/")
    owner = view.get(kinds.by_resource(resource), owner_key.namespace, name)
    if owner is None or objects.uid(owner) != uid:
        return False
    return not (objects.is_deleting(owner) and _deletion_policy(owner) == FOREGROUND)


def _remove_owners(kind: Kind, obj: Object, uids: set[str]) -> Write:
    remaining = [r for r in _references(obj) if r.get("uid") not in uids]
    return _patch_metadata(kind, obj, {"ownerReferences": remaining or None})


def _remove_finalizer(kind: Kind, obj: Object, name: str) -> Write:
    remaining = [f for f in _finalizers(obj) if f != name]
    return _patch_metadata(kind, obj, {"finalizers": remaining or None})


def _patch_metadata(kind: Kind, obj: Object, meta: dict[str, Any]) -> Write:
    checks = {"uid": objects.uid(obj), "resourceVersion": objects.meta(obj).get("resourceVersion")}
    return Patch(kind, objects.namespace(obj), objects.name(obj), {"metadata": checks | meta})


def _references(obj: Object) -> list[dict[str, Any]]:
    return objects.meta(obj).get("ownerReferences") or []


def _finalizers(obj: Object) -> list[str]:
    return objects.meta(obj).get("finalizers") or []


def _deletion_policy(obj: Object) -> str:
    finalizers = _finalizers(obj)
    return FOREGROUND if FOREGROUND in finalizers else ORPHAN if ORPHAN in finalizers else ""


def _owner_key(kind: Kind, obj: Object) -> Key:
    return Key(objects.namespace(obj), f"{kind.resource}/{objects.name(obj)}/{objects.uid(obj)}")


def _reference_key(obj: Object, reference: dict[str, Any]) -> Key | None:
    """Where an owner lives; None for a kind outside the fence, and where it could not be found."""
    kind = kinds.by_api_version(str(reference.get("apiVersion")), str(reference.get("kind")))
    if kind is None or (kind.namespaced and not objects.namespace(obj)):  # nor can it lie in some namespace
        return None
    namespace = objects.namespace(obj) if kind.namespaced else ""
    return Key(namespace, f"{kind.resource}/{reference.get('name')}/{reference.get('uid')}")


# ---------------------------------------------------------------- namespaces


class NamespaceDeleter:
    """One key per namespace: when it is being deleted, everything in it is; then it may go. What takes long is said in its
    status, as kube-controller-manager does."""

    name = "namespace-controller"
    kinds: tuple[Kind, ...] = KINDS

    def __init__(self) -> None:
        self._next_report: dict[str, float] = {}
        """Namespace → when its status may be written again, in seconds since the epoch."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NAMESPACE:
            return [Key("", objects.name(change.object))] if objects.is_deleting(change.object) else []
        namespace_name = objects.namespace(change.object)
        if not namespace_name or change.type == "Modified":
            return []
        namespace = view.get(NAMESPACE, "", namespace_name)
        return [Key("", namespace_name)] if namespace is not None and objects.is_deleting(namespace) else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        namespace = view.get(NAMESPACE, "", key.name)
        if namespace is None or not objects.is_deleting(namespace):
            self._next_report.pop(key.name, None)
            return _NOTHING
        contents = [(kind, obj) for kind in KINDS if kind.namespaced for obj in view.all(kind, key.name)]
        if contents:
            deletes = tuple(_delete_object(kind, obj) for kind, obj in contents if not objects.is_deleting(obj))
            return Decision((*deletes, *self._report(namespace, contents, now)), requeue_after=_REPORT_INTERVAL)
        remaining = [f for f in objects.dig(namespace, "spec.finalizers", ()) if f != "kubernetes"]
        if remaining == objects.dig(namespace, "spec.finalizers", ()):
            return _NOTHING
        return Decision((Update(NAMESPACE, objects.with_field(namespace, "spec.finalizers", remaining), "finalize"),))

    def _report(self, namespace: Object, contents: list[tuple[Kind, Object]], now: float) -> Iterable[Write]:
        """What holds the namespace: objects that stay though they were told to go. Written once an interval, for each
        object that leaves would change the count."""
        name = objects.name(namespace)
        leaving = [(kind, obj) for kind, obj in contents if objects.is_deleting(obj)]
        if not leaving or now < self._next_report.get(name, 0.0):
            return
        self._next_report[name] = now + _REPORT_INTERVAL
        conditions = namespace_conditions(objects.dig(namespace, "status.conditions", ()), leaving, now)
        if conditions != objects.dig(namespace, "status.conditions"):
            yield Patch(NAMESPACE, "", name, {"status": {"conditions": conditions}}, "merge", "status")


def namespace_conditions(
    previous: Iterable[dict[str, Any]], leaving: Iterable[tuple[Kind, Object]], now: float
) -> list[dict[str, Any]]:
    """The conditions of a namespace that is being deleted, as `NamespacedResourcesDeleter` writes them; one that says the
    same as before keeps its time."""
    resources: Counter[str] = Counter()
    finalizers: Counter[str] = Counter()
    for kind, obj in leaving:
        resources[f"{kind.plural}.{kind.group}"] += 1
        finalizers.update(_finalizers(obj))
    counts = ", ".join(f"{resource} has {count} resource instances" for resource, count in sorted(resources.items()))
    holders = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    rows = [
        ("DeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("DeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        (
            "DeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("ContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {counts}")
        if resources
        else ("ContentRemaining", "ContentRemoved", "All content successfully removed"),
        (
            "FinalizersRemaining",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {holders}",
        )
        if finalizers
        else ("FinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    ]
    old = {condition["type"]: condition for condition in previous}
    conditions = []
    for type_, reason, message in rows:
        status = "True" if reason.startswith("Some") else "False"
        said = {"type": f"Namespace{type_}", "status": status, "reason": reason, "message": message}
        before = old.get(said["type"], {})
        unchanged = all(before.get(field) == value for field, value in said.items())
        time = before.get("lastTransitionTime") if unchanged else objects.timestamp(now)
        conditions.append({**said, "lastTransitionTime": time})
    return conditions


def _delete_object(kind: Kind, obj: Object) -> Write:
    options = DeleteOptions(propagation="Background", uid=objects.uid(obj))
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


# ---------------------------------------------------------------- events


class EventExpiry:
    """Events live an hour after they were last seen. One key; looks at all of them at most once a minute."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self) -> None:
        self._next_sweep = 0.0

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [Key("", "events")] if change.type == "Added" else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if now < self._next_sweep:
            return Decision(requeue_after=self._next_sweep - now)
        deletes: list[Write] = []
        soonest = now + EVENT_TTL
        for event in view.all(EVENT):
            expires = _last_seen(event) + EVENT_TTL
            if expires <= now:
                deletes.append(Delete(EVENT, objects.namespace(event), objects.name(event)))
            else:
                soonest = min(soonest, expires)
        self._next_sweep = max(soonest, now + _SWEEP_INTERVAL)
        return Decision(tuple(deletes), requeue_after=self._next_sweep - now)


def _last_seen(event: Object) -> float:
    """Not before it was written: who reports late is heard all the same."""
    reported = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    created = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(created, objects.seconds(reported)) if reported else created


# ---------------------------------------------------------------- pods without a node


class PodGarbageCollector:
    """One key per node. A node that stays away takes its pods with it: they fail, then they go."""

    name = "pod-garbage-collector"
    kinds: tuple[Kind, ...] = (NODE, POD)

    def __init__(self, quarantine: float = QUARANTINE) -> None:
        self._quarantine = quarantine
        self._missing_since: dict[str, float] = {}
        """Since when; forgotten at a restart, which gives a node more time, never less."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NODE:
            return [Key("", objects.name(change.object))] if change.type != "Modified" else []
        node = objects.dig(change.object, "spec.nodeName")
        if change.type == "Deleted" or not node or view.get(NODE, "", node) is not None:
            return []
        return [Key("", node)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pods = [] if view.get(NODE, "", key.name) is not None else _pods_on(view, key.name)
        if not pods:
            self._missing_since.pop(key.name, None)
            return _NOTHING
        remaining = self._missing_since.setdefault(key.name, now) + self._quarantine - now
        if remaining > 0:
            return Decision(requeue_after=remaining)
        return Decision(tuple(write for pod in pods for write in _fail_and_delete(pod, now)))


def _pods_on(view: View, node: str) -> list[Object]:
    return [pod for pod in view.all(POD) if objects.dig(pod, "spec.nodeName") == node]


def _fail_and_delete(pod: Object, now: float) -> Iterable[Write]:
    pod_key = objects.key(pod)
    if objects.phase(pod) not in _FINISHED_PHASES:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": objects.timestamp(now),
        }
        other_conditions = [c for c in objects.dig(pod, "status.conditions", ()) if c.get("type") != "DisruptionTarget"]
        status = {"phase": "Failed", "conditions": [*other_conditions, condition]}
        yield Patch(POD, *pod_key, {"metadata": {"uid": objects.uid(pod)}, "status": status}, "merge", "status")
    yield Delete(POD, *pod_key, DeleteOptions(grace=0, uid=objects.uid(pod)))


# ---------------------------------------------------------------- claims


class ClaimProtection:
    """One key per claim that is being deleted: it stays for the pods that are placed and not over. One that has lost its
    finalizer before that gets it back."""

    name = "pvc-protection-controller"
    kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, POD)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is PERSISTENT_VOLUME_CLAIM:
            claim = change.object
            return (
                [objects.key(claim)]
                if objects.is_deleting(claim) != (PVC_PROTECTION_FINALIZER not in _finalizers(claim))
                else []
            )
        if change.type != "Deleted" and objects.phase(change.object) not in _FINISHED_PHASES:
            return []
        namespace = objects.namespace(change.object)
        return [Key(namespace, name) for name in claims_of(change.object)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        claim = view.get(PERSISTENT_VOLUME_CLAIM, *key)
        if claim is None or objects.is_deleting(claim) == (PVC_PROTECTION_FINALIZER not in _finalizers(claim)):
            return _NOTHING
        if not objects.is_deleting(claim):
            metadata = {"finalizers": [*_finalizers(claim), PVC_PROTECTION_FINALIZER]}
            return Decision((_patch_metadata(PERSISTENT_VOLUME_CLAIM, claim, metadata),))
        mounting_pods = (pod for pod in view.all(POD, key.namespace) if key.name in claims_of(pod))
        if any(
            objects.dig(pod, "spec.nodeName") and objects.phase(pod) not in _FINISHED_PHASES for pod in mounting_pods
        ):
            return _NOTHING
        return Decision((_remove_finalizer(PERSISTENT_VOLUME_CLAIM, claim, PVC_PROTECTION_FINALIZER),))


def claims_of(pod: Object) -> set[str]:
    """The names of the claims that a pod mounts."""
    volumes = objects.dig(pod, "spec.volumes", ())
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
