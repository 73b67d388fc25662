"""What nobody needs any more goes: five small controllers, pure.

`Garbage` removes dependents of owners that are gone and carries out foreground and orphaning deletions. `Emptying`
empties namespaces that are being deleted. `Expiry` removes old Events. `LostPods` removes pods bound to nodes that do
not exist. `Claims` lets a volume claim go when no pod uses it. The rules are those of Kubernetes' own controllers; time
to live after a job's finish is the job operator's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import Change, Controller, Decision, Delete, DeleteOptions, Patch, Update, View, Write
from rowlock.kinds import EVENT, KINDS, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, Kind
from rowlock.objects import Key, Object

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
IN_USE = "kubernetes.io/pvc-protection"
"""The finalizer that every claim is born with."""
EVENT_LIFE = 3_600.0  # seconds
QUARANTINE = 40.0  # seconds that a node may be missing before its pods are given up
_SWEEP = 60.0  # seconds between two looks at all Events
_FINISHED = frozenset({"Succeeded", "Failed"})
_NOTHING = Decision()


def controllers() -> tuple[Controller, ...]:
    return (Garbage(), Emptying(), Expiry(), LostPods(), Claims())


# ---------------------------------------------------------------- owners


class Garbage:
    """One key per owner: its namespace and `resource/name/uid`, because an owner may be gone already."""

    name = "garbage-collector"
    kinds: tuple[Kind, ...] = KINDS

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        obj, kind = change.object, change.kind
        if kind is None:
            return []
        own = [_key(kind, obj)] if change.type == "Deleted" or (objects.deleting(obj) and _policy(obj)) else []
        references = _references(obj)
        # A modified object concerns its owners only when it changed hands or began to leave.
        if change.type == "Modified" and change.old is not None and references == _references(change.old):
            return own
        return own + [place for reference in references if (place := _place(obj, reference)) is not None]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        resource, name, uid = key.name.split("/")
        owner = view.get(kinds.by_resource(resource), key.namespace, name)
        dependents = [
            (kind, obj)
            for kind in KINDS
            for obj in view.owned(kind, uid)
            if key.namespace in ("", objects.namespace(obj))
        ]
        if owner is None or objects.uid(owner) != uid:
            return Decision(tuple(w for kind, obj in dependents if (w := _abandoned(view, kind, obj, uid))))
        policy = _policy(owner) if objects.deleting(owner) else ""
        if policy == ORPHAN:
            release = _without_finalizer(kinds.by_resource(resource), owner, ORPHAN)
            return Decision((*(_disowned(kind, obj, {uid}) for kind, obj in dependents), release))
        if policy == FOREGROUND:
            return Decision(_foreground(view, kinds.by_resource(resource), owner, dependents))
        return _NOTHING


def _foreground(view: View, kind: Kind, owner: Object, dependents: list[tuple[Kind, Object]]) -> tuple[Write, ...]:
    """Dependents go first; those that block hold the owner."""
    uid = objects.uid(owner)
    writes = tuple(w for k, obj in dependents if (w := _abandoned(view, k, obj, uid, "Foreground")))
    blocking = any(
        reference.get("uid") == uid and reference.get("blockOwnerDeletion")
        for _, obj in dependents
        for reference in _references(obj)
    )
    return writes if blocking else (*writes, _without_finalizer(kind, owner, FOREGROUND))


def _abandoned(view: View, kind: Kind, obj: Object, uid: str, wish: str = "") -> Write | None:
    """What becomes of a dependent that loses the owner `uid`: it stays if another one holds it."""
    if objects.deleting(obj):
        return None
    gone = {str(r.get("uid")) for r in _references(obj) if not _holds(view, obj, r)}
    if len(gone) < len(_references(obj)):
        # An owner that waits for its dependents is still there; its name is taken off when it is gone.
        return None if wish else _disowned(kind, obj, gone | {uid})
    if wish and not any(True for k in KINDS for _ in view.owned(k, objects.uid(obj))):
        wish = ""
    options = DeleteOptions(
        propagation="Foreground" if wish else None if _policy(obj) else "Background",
        uid=objects.uid(obj),
        revision=objects.revision(obj),
    )
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


def _holds(view: View, obj: Object, reference: dict[str, Any]) -> bool:
    """True when an owner exists and does not wait for its dependents to go."""
    place = _place(obj, reference)
    if place is None:
        return True  # of a kind that lives elsewhere: not ours to judge
    resource, name, uid = place.name.split("/")
    owner = view.get(kinds.by_resource(resource), place.namespace, name)
    if owner is None or objects.uid(owner) != uid:
        return False
    return not (objects.deleting(owner) and _policy(owner) == FOREGROUND)


def _disowned(kind: Kind, obj: Object, uids: set[str]) -> Write:
    left = [r for r in _references(obj) if r.get("uid") not in uids]
    return _patched(kind, obj, {"ownerReferences": left or None})


def _without_finalizer(kind: Kind, obj: Object, name: str) -> Write:
    left = [f for f in _finalizers(obj) if f != name]
    return _patched(kind, obj, {"finalizers": left or None})


def _patched(kind: Kind, obj: Object, meta: dict[str, Any]) -> Write:
    checks = {"uid": objects.uid(obj), "resourceVersion": objects.meta(obj).get("resourceVersion")}
    return Patch(kind, objects.namespace(obj), objects.name(obj), {"metadata": checks | meta})


def _references(obj: Object) -> list[dict[str, Any]]:
    return objects.meta(obj).get("ownerReferences") or []


def _finalizers(obj: Object) -> list[str]:
    return objects.meta(obj).get("finalizers") or []


def _policy(obj: Object) -> str:
    finalizers = _finalizers(obj)
    return FOREGROUND if FOREGROUND in finalizers else ORPHAN if ORPHAN in finalizers else ""


def _key(kind: Kind, obj: Object) -> Key:
    return Key(objects.namespace(obj), f"{kind.resource}/{objects.name(obj)}/{objects.uid(obj)}")


def _place(obj: Object, reference: dict[str, Any]) -> Key | None:
    """Where an owner lives; None for a kind outside the fence, and where it could not be found."""
    kind = kinds.by_api_version(str(reference.get("apiVersion")), str(reference.get("kind")))
    if kind is None or (kind.namespaced and not objects.namespace(obj)):  # nor can it lie in some namespace
        return None
    namespace = objects.namespace(obj) if kind.namespaced else ""
    return Key(namespace, f"{kind.resource}/{reference.get('name')}/{reference.get('uid')}")


# ---------------------------------------------------------------- namespaces


class Emptying:
    """One key per namespace: when it is being deleted, everything in it is; then it may go."""

    name = "namespace-controller"
    kinds: tuple[Kind, ...] = KINDS

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NAMESPACE:
            return [Key("", objects.name(change.object))] if objects.deleting(change.object) else []
        space = objects.namespace(change.object)
        if not space or change.type == "Modified":
            return []
        there = view.get(NAMESPACE, "", space)
        return [Key("", space)] if there is not None and objects.deleting(there) else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        space = view.get(NAMESPACE, "", key.name)
        if space is None or not objects.deleting(space):
            return _NOTHING
        inside = [(kind, obj) for kind in KINDS if kind.namespaced for obj in view.all(kind, key.name)]
        if inside:
            return Decision(tuple(_leaving(kind, obj) for kind, obj in inside if not objects.deleting(obj)))
        left = [f for f in objects.dig(space, "spec.finalizers", ()) if f != "kubernetes"]
        if left == objects.dig(space, "spec.finalizers", ()):
            return _NOTHING
        return Decision((Update(NAMESPACE, objects.changed(space, "spec.finalizers", left), "finalize"),))


def _leaving(kind: Kind, obj: Object) -> Write:
    options = DeleteOptions(propagation="Background", uid=objects.uid(obj))
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


# ---------------------------------------------------------------- events


class Expiry:
    """Events live an hour after they were last seen. One key; looks at all of them at most once a minute."""

    name = "event-expiry"
    kinds: tuple[Kind, ...] = (EVENT,)

    def __init__(self) -> None:
        self._next = 0.0

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return [Key("", "events")] if change.type == "Added" else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        if now < self._next:
            return Decision(again=self._next - now)
        old: list[Write] = []
        soonest = now + EVENT_LIFE
        for event in view.all(EVENT):
            expires = _seen(event) + EVENT_LIFE
            if expires <= now:
                old.append(Delete(EVENT, objects.namespace(event), objects.name(event)))
            else:
                soonest = min(soonest, expires)
        self._next = max(soonest, now + _SWEEP)
        return Decision(tuple(old), again=self._next - now)


def _seen(event: Object) -> float:
    """Not before it was written: who reports late is heard all the same."""
    when = event.get("lastTimestamp") or objects.dig(event, "series.lastObservedTime") or event.get("eventTime")
    written = objects.seconds(objects.meta(event)["creationTimestamp"])
    return max(written, objects.seconds(when)) if when else written


# ---------------------------------------------------------------- pods without a node


class LostPods:
    """One key per node. A node that stays away takes its pods with it: they fail, then they go."""

    name = "pod-garbage-collector"
    kinds: tuple[Kind, ...] = (NODE, POD)

    def __init__(self, quarantine: float = QUARANTINE) -> None:
        self._quarantine = quarantine
        self._missing: dict[str, float] = {}
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
            self._missing.pop(key.name, None)
            return _NOTHING
        left = self._missing.setdefault(key.name, now) + self._quarantine - now
        if left > 0:
            return Decision(again=left)
        return Decision(tuple(write for pod in pods for write in _given_up(pod, now)))


def _pods_on(view: View, node: str) -> list[Object]:
    return [pod for pod in view.all(POD) if objects.dig(pod, "spec.nodeName") == node]


def _given_up(pod: Object, now: float) -> Iterable[Write]:
    place = objects.key(pod)
    if objects.phase(pod) not in _FINISHED:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
            "lastTransitionTime": objects.timestamp(now),
        }
        others = [c for c in objects.dig(pod, "status.conditions", ()) if c.get("type") != "DisruptionTarget"]
        status = {"phase": "Failed", "conditions": [*others, condition]}
        yield Patch(POD, *place, {"metadata": {"uid": objects.uid(pod)}, "status": status}, "merge", "status")
    yield Delete(POD, *place, DeleteOptions(grace=0, uid=objects.uid(pod)))


# ---------------------------------------------------------------- claims


class Claims:
    """One key per claim that is being deleted: it stays for the pods that are placed and not over. One that has lost its
    finalizer before that gets it back."""

    name = "pvc-protection-controller"
    kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, POD)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is PERSISTENT_VOLUME_CLAIM:
            claim = change.object
            return [objects.key(claim)] if objects.deleting(claim) != (IN_USE not in _finalizers(claim)) else []
        if change.type != "Deleted" and objects.phase(change.object) not in _FINISHED:
            return []
        space = objects.namespace(change.object)
        return [Key(space, name) for name in claims_of(change.object)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        claim = view.get(PERSISTENT_VOLUME_CLAIM, *key)
        if claim is None or objects.deleting(claim) == (IN_USE not in _finalizers(claim)):
            return _NOTHING
        if not objects.deleting(claim):
            wanted = {"finalizers": [*_finalizers(claim), IN_USE]}
            return Decision((_patched(PERSISTENT_VOLUME_CLAIM, claim, wanted),))
        users = (pod for pod in view.all(POD, key.namespace) if key.name in claims_of(pod))
        if any(objects.dig(pod, "spec.nodeName") and objects.phase(pod) not in _FINISHED for pod in users):
            return _NOTHING
        return Decision((_without_finalizer(PERSISTENT_VOLUME_CLAIM, claim, IN_USE),))


def claims_of(pod: Object) -> set[str]:
    """The names of the claims that a pod mounts."""
    volumes = objects.dig(pod, "spec.volumes", ())
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
