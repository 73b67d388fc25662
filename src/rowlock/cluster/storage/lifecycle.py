"""What the system itself does to an object on its way in: names, ids, generations, deletion marks. Pure.

The rules are kube-apiserver's, and so are the texts of its refusals. Defaults and validation are not here but in
admission; whether a name is taken is the store's question.
"""

from __future__ import annotations

import hashlib
from typing import Any

from rowlock import kinds, objects
from rowlock.errors import BadRequest, Cause, Conflict, Forbidden, conflict, invalid
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
ELSEWHERE = "the namespace of the provided object does not match the namespace sent on the request"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
SYSTEM_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own
_PREFIX_LENGTH = 58  # generateName is cut so that name and suffix fit into 63
_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_END = ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEEPS_STATUS = frozenset({kinds.NODE})  # a kubelet registers its node with a status
_GENERATIONS = frozenset({kinds.POD, kinds.PRIORITY_CLASS})  # built-in kinds that count generations
_FINISHED = frozenset({"Succeeded", "Failed"})
_NO_REVISION = (None, "", "0")


def nameless(name: str) -> str:
    """A body without the name that its path has."""
    return f"the name of the object ({name} based on URL) was undeterminable: name must be provided"


def misnamed(given: Any, name: str) -> str:
    """A body with another name than its path has."""
    return f"the name of the object ({given}) does not match the name on the URL ({name})"


def placed(kind: Kind, key: Key, obj: Object) -> Object:
    """What an apply is about to make, if it is what the path names. Raises BadRequest, Conflict."""
    meta = objects.meta(obj)
    if uid := meta.get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(kind.plural, key.name, why, kind.group)
    if kind.namespaced and meta.get("namespace") not in (None, "", key.namespace):
        raise BadRequest(ELSEWHERE)
    if meta.get("name") != key.name:
        raise BadRequest(misnamed(meta["name"], key.name) if meta.get("name") else nameless(key.name))
    return {**obj, "metadata": {**meta, "namespace": key.namespace}} if kind.namespaced else obj


def suffix(seed: str) -> str:
    """Five characters for generateName, from any unique text."""
    digest = hashlib.blake2b(seed.encode(), digest_size=5).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)


def born(kind: Kind, obj: Object, uid: str, now: float, *, posted: bool = True) -> Object:
    """The object as it enters admission: named, with an identity and without anything the client made up. One that is
    not posted, but comes of an update or an apply, keeps the end that it was given: so does a real server's."""
    meta = dict(objects.meta(obj))
    if posted and meta.get("resourceVersion") not in _NO_REVISION:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    for name in (*_SYSTEM, "resourceVersion"):
        if posted or name not in _END:
            meta.pop(name, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = str(meta["generateName"])[:_PREFIX_LENGTH] + suffix(uid)
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        raise BadRequest("an empty namespace may not be set during creation")
    meta["uid"], meta["creationTimestamp"] = uid, objects.timestamp(now)
    if kind.custom or kind in _GENERATIONS:
        meta["generation"] = 1  # a kind that does not count keeps what it is given
    obj = {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    if "status" in kind.subresources and kind not in _KEEPS_STATUS:
        obj.pop("status", None)
    return _born_namespace(obj) if kind is kinds.NAMESPACE else obj


def _born_namespace(obj: Object) -> Object:
    labels = {**objects.labels(obj), "kubernetes.io/metadata.name": objects.name(obj)}
    obj = objects.changed(obj, "metadata.labels", labels)
    if _has_spec(obj):
        own = objects.dig(obj, "spec.finalizers") or []
        if isinstance(own, list) and "kubernetes" not in own:  # what is no list is admission's to refuse
            obj = objects.changed(obj, "spec.finalizers", [*own, "kubernetes"])
    return objects.changed(obj, "status", {"phase": "Active"})


def _has_spec(obj: Object) -> bool:
    """False for one that is no object: admission has the words for that."""
    return isinstance(obj.get("spec") or {}, dict)


def updated(kind: Kind, old: Object, new: Object, subresource: str, *, patched: bool = False) -> Object:
    """`new` as it enters admission: only what this door may change differs from `old`, and what nobody may change, for
    admission to refuse. An update means the object with its uid; a patch would give it another. Raises Conflict, Invalid."""
    check_current(kind, old, new, named=not patched)
    if subresource == "status" and kind.custom:
        entries = objects.meta(new).get("managedFields", objects.meta(old).get("managedFields"))
        return objects.changed(
            objects.changed(old, "metadata.managedFields", entries),
            "status",
            new.get("status") if "status" in new else None,
        )
    if subresource == "finalize":
        return objects.changed(old, "spec.finalizers", objects.dig(new, "spec.finalizers"))
    meta = dict(objects.meta(new))
    kept = {f: meta[f] for f in ("uid", *_END) if meta.get(f) and not _same_end(meta[f], objects.meta(old).get(f))}
    for name in (*_SYSTEM, "generation", "name", "namespace", "resourceVersion"):
        if name in objects.meta(old):
            meta[name] = objects.meta(old)[name]
        else:
            meta.pop(name, None)
    new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": {**meta, **kept}}
    if subresource == "status":
        new = _of_status(kind, old, new)
    elif "status" in kind.subresources:
        new = objects.changed(new, "status", old.get("status"))
    if kind is kinds.NAMESPACE and _has_spec(new):
        new = objects.changed(new, "spec.finalizers", objects.dig(old, "spec.finalizers"))
    _no_new_finalizers(kind, old, new)
    return new


def _of_status(kind: Kind, old: Object, new: Object) -> Object:
    """What the status of a built-in kind is updated with: all but its spec, labels and finalizers included."""
    new = objects.changed(new, "spec", old.get("spec"))
    if kind is kinds.POD:
        new = objects.changed(new, "metadata.ownerReferences", objects.meta(old).get("ownerReferences"))
    return new


def _same_end(given: Any, have: Any) -> bool:
    """Also a time that is written in another way, as Python's client does."""
    if given == have or not (isinstance(given, str) and isinstance(have, str)):
        return bool(given == have)
    try:
        return int(objects.seconds(given)) == int(objects.seconds(have))
    except (ValueError, OverflowError):
        return False


def check_conditional(kind: Kind, name: str, new: Object) -> None:
    """Custom objects and leases change by those alone who say which revision they know. Raises Invalid."""
    if objects.meta(new).get("resourceVersion") not in _NO_REVISION or not (kind.custom or kind is kinds.LEASE):
        return
    cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion")
    raise invalid(kind.plural, name, [cause], kind.group)


def check_current(kind: Kind, old: Object, new: Object, *, named: bool = True) -> None:
    """Optimistic concurrency: what the client states about the object must be true."""
    meta, have = objects.meta(new), objects.meta(old)
    uid, revision = meta.get("uid"), meta.get("resourceVersion")
    if named and uid and uid != have.get("uid"):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {have.get('uid')}"
        raise conflict(kind.plural, objects.name(old), why, kind.group)
    if not named:
        check_conditional(kind, objects.name(old), new)
    if revision not in (*_NO_REVISION, have.get("resourceVersion")):
        raise conflict(kind.plural, objects.name(old), MODIFIED, kind.group)


def _no_new_finalizers(kind: Kind, old: Object, new: Object) -> None:
    if not objects.deleting(old):
        return
    extra = [f for f in finalizers(new) if f not in finalizers(old)]
    if extra:
        found = ", ".join(f'"{name}"' for name in extra)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{found}}}"
        )
        cause = Cause("FieldValueForbidden", text, "metadata.finalizers")
        raise invalid(kind.name, objects.name(old), [cause, cause], kind.group)


def unwritten(made: Object, given: Object) -> Object:
    """What a dry run answers: with the words that only writing takes away."""
    meta = {**objects.meta(made)}
    for name in ("selfLink", "resourceVersion"):
        if name not in meta and objects.meta(given).get(name):
            meta[name] = objects.meta(given)[name]
    return made if meta == made["metadata"] else {**made, "metadata": meta}


def same(old: Object, new: Object) -> bool:
    """True when nothing changed but the times in managedFields."""
    if old == new:
        return True
    was, now = objects.meta(old), objects.meta(new)
    if "managedFields" not in was or "managedFields" not in now:
        return False
    return _timeless(old) == _timeless(new)


def _timeless(obj: Object) -> Object:
    fields = [{k: v for k, v in item.items() if k != "time"} for item in objects.meta(obj)["managedFields"]]
    return objects.changed(obj, "metadata.managedFields", fields)


def next_generation(kind: Kind, old: Object, new: Object) -> Object:
    """Count a change of anything but metadata and status, in kinds that count; a priority class is for ever the first."""
    count = objects.meta(old).get("generation")
    if count is None or not (kind.custom or kind is kinds.POD) or _desired(old) == _desired(new):
        return new
    return objects.changed(new, "metadata.generation", int(count) + 1)


def _desired(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


# ---------------------------------------------------------------- deletion


def finalizers(obj: Object) -> list[str]:
    """None where a client wrote something else: admission, which comes later, says what."""
    found = objects.meta(obj).get("finalizers")
    texts = ["" if text is None else text for text in found] if isinstance(found, list) else []
    return texts if all(isinstance(text, str) for text in texts) else []


def removable(kind: Kind, obj: Object) -> bool:
    """True when an object that is marked for deletion has nothing left to wait for."""
    if not objects.deleting(obj) or finalizers(obj) or objects.meta(obj).get("deletionGracePeriodSeconds"):
        return False
    return kind is not kinds.NAMESPACE or not objects.dig(obj, "spec.finalizers")


def check_deletable(kind: Kind, obj: Object, uid: str, revision: int | None) -> None:
    """Preconditions of a delete; the subject of the message is the kind, as the real server has it."""
    name, have = objects.name(obj), objects.meta(obj)
    if uid and uid != have.get("uid"):
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({have.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.name, name, why, kind.group)
    if revision is not None and revision != objects.revision(obj):
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({have.get('resourceVersion')}). The object might have been modified"
        )
        raise conflict(kind.name, name, why, kind.group)
    if kind is kinds.NAMESPACE and name in IMMORTAL:
        raise forbidden(kind, name, "this namespace may not be deleted")
    if kind is kinds.PRIORITY_CLASS and name in SYSTEM_CLASSES:
        raise forbidden(kind, name, "this is a system priority class and cannot be deleted")
    if kind is kinds.NAMESPACE and objects.deleting(obj) and objects.dig(obj, "spec.finalizers"):
        why = (
            "The system is ensuring all content is removed from this namespace.  "
            "Upon completion, this namespace will automatically be purged by the system."
        )
        raise conflict(kind.plural, name, why, kind.group)


def with_propagation(obj: Object, propagation: str | None) -> Object:
    """The finalizers that a propagation policy asks for; None keeps what is there."""
    if propagation is None:
        return obj
    wanted = [f for f in finalizers(obj) if f not in (FOREGROUND, ORPHAN)]
    if propagation != "Background":
        wanted.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
    return obj if wanted == finalizers(obj) else objects.changed(obj, "metadata.finalizers", wanted or None)


def grace_of(kind: Kind, obj: Object, wanted: int | None) -> int:
    """Seconds that a deletion leaves: only a pod that runs somewhere needs any."""
    if kind is not kinds.POD or not objects.dig(obj, "spec.nodeName") or objects.phase(obj) in _FINISHED:
        return 0
    own = objects.dig(obj, "spec.terminationGracePeriodSeconds")
    grace = wanted if wanted is not None else 30 if own is None else int(own)
    return 1 if grace < 0 else grace


def marked(kind: Kind, obj: Object, grace: int, now: float) -> Object:
    """The object with its deletion mark. A second, shorter grace shortens; a longer one changes nothing."""
    meta = dict(objects.meta(obj))
    if objects.deleting(obj):
        before = int(meta.get("deletionGracePeriodSeconds") or 0)
        if grace >= before:
            return obj
        began = objects.seconds(meta["deletionTimestamp"]) - before
        meta["deletionTimestamp"] = objects.timestamp(began + grace)
    else:
        meta["deletionTimestamp"] = objects.timestamp(now + grace)
        if "generation" in meta:
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = grace
    if kind is kinds.NAMESPACE:
        obj = objects.changed(obj, "status.phase", "Terminating")
        meta.pop("deletionGracePeriodSeconds")
    return {**obj, "metadata": meta}


# ---------------------------------------------------------------- refusals and bindings


def forbidden(kind: Kind, name: str, why: str, causes: tuple[Cause, ...] = ()) -> Forbidden:
    details: dict[str, Any] = {"name": name, "kind": kind.plural, **({"group": kind.group} if kind.group else {})}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details, causes=causes)


def terminating(kind: Kind, name: str, namespace: str) -> Forbidden:
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(kind, name, why, (cause,))


def bound(pod: Object, node: str, annotations: dict[str, str], now: float) -> Object:
    """The pod on its node. Raises Conflict when it is on one already, or going away."""
    name, there = objects.name(pod), objects.dig(pod, "spec.nodeName")
    if objects.deleting(pod):
        raise _not_bound(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if there:
        raise _not_bound(name, f'pod {name} is already assigned to node "{there}"')
    pod = objects.changed(pod, "spec.nodeName", node)
    if annotations:
        pod = objects.changed(pod, "metadata.annotations", {**objects.annotations(pod), **annotations})
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": objects.timestamp(now),
    }
    others = [c for c in objects.dig(pod, "status.conditions", ()) if c.get("type") != "PodScheduled"]
    return objects.changed(pod, "status.conditions", [*others, scheduled])


def _not_bound(name: str, why: str) -> Conflict:
    return conflict("pods/binding", name, why)
