"""What the system itself does to an object on its way in: names, ids, generations, deletion marks. Pure.

The rules are kube-apiserver's, and so are the texts of its refusals. Defaults and validation are not here but in
admission; whether a name is taken is the store's question.
"""

from __future__ import annotations

import hashlib
from typing import Any

from rowlock import kinds, objects
from rowlock.errors import BadRequest, Cause, Conflict, Forbidden, conflict, forbidden, invalid
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"
NAMESPACE_MISMATCH_MESSAGE = "the namespace of the provided object does not match the namespace sent on the request"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
SYSTEM_PRIORITY_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own
SUFFIX_LENGTH = 5
_PREFIX_LENGTH = 58  # generateName is cut so that name and suffix fit into 63
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")
_KINDS_CREATED_WITH_STATUS = frozenset({kinds.NODE})  # a kubelet registers its node with a status
_COUNTED_KINDS = (kinds.POD, kinds.BATCH_JOB, kinds.CRON_JOB)
_GENERATION_KINDS = frozenset({*_COUNTED_KINDS, kinds.PRIORITY_CLASS})  # built-in kinds that count generations
_UNSET_REVISIONS = (None, "", "0")


def missing_name_message(name: str) -> str:
    """The refusal of a body that has no name, though its path has one."""
    return f"the name of the object ({name} based on URL) was undeterminable: name must be provided"


def name_mismatch_message(body_name: Any, name: str) -> str:
    """The refusal of a body whose name differs from that of its path."""
    return f"the name of the object ({body_name}) does not match the name on the URL ({name})"


def check_apply_target(kind: Kind, key: Key, obj: Object) -> Object:
    """The object that an apply creates, with the path's namespace. Raises BadRequest, Conflict when it is not what the path names."""
    meta = objects.meta(obj)
    if uid := meta.get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(kind.plural, key.name, why, kind.group)
    if kind.namespaced and meta.get("namespace") not in (None, "", key.namespace):
        raise BadRequest(NAMESPACE_MISMATCH_MESSAGE)
    if meta.get("name") != key.name:
        raise BadRequest(
            name_mismatch_message(meta["name"], key.name) if meta.get("name") else missing_name_message(key.name)
        )
    return {**obj, "metadata": {**meta, "namespace": key.namespace}} if kind.namespaced else obj


def generate_suffix(seed: str) -> str:
    """Five characters for generateName, hashed from any unique text."""
    digest = hashlib.blake2b(seed.encode(), digest_size=SUFFIX_LENGTH).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)


def generate_name(prefix: str, seed: str) -> str:
    """A name that begins as `prefix` does, from any unique text."""
    return str(prefix)[:_PREFIX_LENGTH] + generate_suffix(seed)


def prepare_create(kind: Kind, obj: Object, uid: str, now: float, *, from_post: bool = True) -> Object:
    """The object as it enters admission: named, with uid and creation time, and without system fields that the client set. Created by
    an update or an apply (not `from_post`), it keeps its deletion fields, as on a real server. Raises BadRequest."""
    meta = dict(objects.meta(obj))
    if from_post and meta.get("resourceVersion") not in _UNSET_REVISIONS:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    for name in (*_SYSTEM_FIELDS, "resourceVersion"):
        if from_post or name not in _DELETION_FIELDS:
            meta.pop(name, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generate_name(meta["generateName"], uid)
    if not kind.namespaced:
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        raise BadRequest("an empty namespace may not be set during creation")
    meta["uid"], meta["creationTimestamp"] = uid, objects.timestamp(now)
    if kind.custom or kind in _GENERATION_KINDS:
        meta["generation"] = 1  # a kind without generations keeps the client's value
    obj = {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    if "status" in kind.subresources and kind not in _KINDS_CREATED_WITH_STATUS:
        obj.pop("status", None)
    return _prepare_namespace(obj) if kind is kinds.NAMESPACE else obj


def _prepare_namespace(obj: Object) -> Object:
    labels = {**objects.labels(obj), "kubernetes.io/metadata.name": objects.name(obj)}
    obj = objects.with_field(obj, "metadata.labels", labels)
    if _has_spec(obj):
        own_finalizers = objects.dig(obj, "spec.finalizers") or []
        if (
            isinstance(own_finalizers, list) and "kubernetes" not in own_finalizers
        ):  # admission refuses a value that is not a list
            obj = objects.with_field(obj, "spec.finalizers", [*own_finalizers, "kubernetes"])
    return objects.with_field(obj, "status", {"phase": "Active"})


def _has_spec(obj: Object) -> bool:
    """False for a spec that is not a JSON object: admission refuses it with upstream's message."""
    return isinstance(obj.get("spec") or {}, dict)


def prepare_update(kind: Kind, old: Object, new: Object, subresource: str, *, from_patch: bool = False) -> Object:
    """`new` as it enters admission: `old` with only what this subresource may change, and attempts on uid and deletion fields kept for
    admission to refuse. An update must name the current uid; a patch (`from_patch`) need not. Raises Conflict, Invalid."""
    check_current(kind, old, new, check_uid=not from_patch)
    entries = objects.meta(new).get("managedFields", objects.meta(old).get("managedFields"))
    if subresource == "status" and kind.custom:
        return objects.with_field(
            objects.with_field(old, "metadata.managedFields", entries),
            "status",
            new.get("status") if "status" in new else None,
        )
    if subresource == "finalize":
        return objects.with_field(old, "spec.finalizers", objects.dig(new, "spec.finalizers"))
    if subresource == "ephemeralcontainers":
        kept = objects.with_field(old, "metadata.managedFields", entries)
        return objects.with_field(kept, "spec.ephemeralContainers", objects.dig(new, "spec.ephemeralContainers"))
    meta = dict(objects.meta(new))
    attempted = {
        f: meta[f]
        for f in ("uid", *_DELETION_FIELDS)
        if meta.get(f) and not _same_time(meta[f], objects.meta(old).get(f))
    }
    for name in (*_SYSTEM_FIELDS, "generation", "name", "namespace", "resourceVersion"):
        if name in objects.meta(old):
            meta[name] = objects.meta(old)[name]
        else:
            meta.pop(name, None)
    new = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": {**meta, **attempted}}
    if subresource == "status":
        new = _prepare_status_update(kind, old, new)
    elif "status" in kind.subresources:
        new = objects.with_field(new, "status", old.get("status"))
    if kind is kinds.NAMESPACE and _has_spec(new):
        new = objects.with_field(new, "spec.finalizers", objects.dig(old, "spec.finalizers"))
    _check_no_new_finalizers(kind, old, new)
    return new


def _prepare_status_update(kind: Kind, old: Object, new: Object) -> Object:
    """A status update of a built-in kind: everything but the spec may change, labels and finalizers included."""
    new = objects.with_field(new, "spec", old.get("spec"))
    if kind is kinds.POD:
        new = objects.with_field(new, "metadata.ownerReferences", objects.meta(old).get("ownerReferences"))
    return new


def _same_time(submitted: Any, current: Any) -> bool:
    """Whether two values are the same time, also in different notations (Python's client rewrites times)."""
    if submitted == current or not (isinstance(submitted, str) and isinstance(current, str)):
        return bool(submitted == current)
    try:
        return int(objects.seconds(submitted)) == int(objects.seconds(current))
    except (ValueError, OverflowError):
        return False


def require_revision(kind: Kind, name: str, new: Object) -> None:
    """An update of a custom object or a lease must state a resourceVersion. Raises Invalid."""
    if objects.meta(new).get("resourceVersion") not in _UNSET_REVISIONS or not (kind.custom or kind is kinds.LEASE):
        return
    cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion")
    raise invalid(kind.plural, name, [cause], kind.group)


def check_current(kind: Kind, old: Object, new: Object, *, check_uid: bool = True) -> None:
    """Optimistic concurrency: the uid and resourceVersion that the client states must be current. Raises Conflict, Invalid."""
    meta, current = objects.meta(new), objects.meta(old)
    uid, revision = meta.get("uid"), meta.get("resourceVersion")
    if check_uid and uid and uid != current.get("uid"):
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.get('uid')}"
        raise conflict(kind.plural, objects.name(old), why, kind.group)
    if not check_uid:
        require_revision(kind, objects.name(old), new)
    if revision not in (*_UNSET_REVISIONS, current.get("resourceVersion")):
        raise conflict(kind.plural, objects.name(old), MODIFIED_MESSAGE, kind.group)


def _check_no_new_finalizers(kind: Kind, old: Object, new: Object) -> None:
    if not objects.is_deleting(old):
        return
    known = set(finalizers(old))
    extra = [f for f in finalizers(new) if f not in known]
    if extra:
        quoted = ", ".join(f'"{name}"' for name in extra)
        text = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{quoted}}}"
        )
        cause = Cause("FieldValueForbidden", text, "metadata.finalizers")
        raise invalid(kind.name, objects.name(old), [cause, cause], kind.group)


def dry_run_result(result: Object, submitted: Object) -> Object:
    """The answer to a dry run: it keeps the submitted selfLink and resourceVersion, which only a real write removes."""
    meta = {**objects.meta(result)}
    for name in ("selfLink", "resourceVersion"):
        if name not in meta and objects.meta(submitted).get(name):
            meta[name] = objects.meta(submitted)[name]
    return result if meta == result["metadata"] else {**result, "metadata": meta}


def is_unchanged(old: Object, new: Object) -> bool:
    """True when nothing changed but the times in managedFields."""
    if old == new:
        return True
    was, now = objects.meta(old), objects.meta(new)
    if "managedFields" not in was or "managedFields" not in now:
        return False
    return _without_times(old) == _without_times(new)


def _without_times(obj: Object) -> Object:
    fields = [{k: v for k, v in item.items() if k != "time"} for item in objects.meta(obj)["managedFields"]]
    return objects.with_field(obj, "metadata.managedFields", fields)


def bump_generation(kind: Kind, old: Object, new: Object) -> Object:
    """Increment the generation when anything but metadata and status changed, in kinds that count; never in a priority class."""
    count = objects.meta(old).get("generation")
    if count is None or not (kind.custom or kind in _COUNTED_KINDS) or _desired_fields(old) == _desired_fields(new):
        return new
    return objects.with_field(new, "metadata.generation", int(count) + 1)


def _desired_fields(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


# ---------------------------------------------------------------- deletion


def finalizers(obj: Object) -> list[str]:
    """The finalizers; empty when the client did not write a list of strings, which admission refuses later."""
    value = objects.meta(obj).get("finalizers")
    texts = ["" if text is None else text for text in value] if isinstance(value, list) else []
    return texts if all(isinstance(text, str) for text in texts) else []


def can_remove(kind: Kind, obj: Object) -> bool:
    """True when an object that is marked for deletion has nothing left to wait for."""
    if not objects.is_deleting(obj) or finalizers(obj) or objects.meta(obj).get("deletionGracePeriodSeconds"):
        return False
    return kind is not kinds.NAMESPACE or not objects.dig(obj, "spec.finalizers")


def check_deletable(kind: Kind, obj: Object, uid: str, revision: int | None) -> None:
    """Preconditions of a delete. Raises Conflict, Forbidden; messages name the kind, as a real server's do."""
    name, current = objects.name(obj), objects.meta(obj)
    if uid and uid != current.get("uid"):
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({current.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.name, name, why, kind.group)
    if revision is not None and revision != objects.revision(obj):
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({current.get('resourceVersion')}). The object might have been modified"
        )
        raise conflict(kind.name, name, why, kind.group)
    if kind is kinds.NAMESPACE and name in PROTECTED_NAMESPACES:
        raise forbidden(kind.plural, name, "this namespace may not be deleted")
    if kind is kinds.PRIORITY_CLASS and name in SYSTEM_PRIORITY_CLASSES:
        raise forbidden(kind.plural, name, "this is a system priority class and cannot be deleted", kind.group)
    if kind is kinds.NAMESPACE and objects.is_deleting(obj) and objects.dig(obj, "spec.finalizers"):
        why = (
            "The system is ensuring all content is removed from this namespace.  "
            "Upon completion, this namespace will automatically be purged by the system."
        )
        raise conflict(kind.plural, name, why, kind.group)


def with_propagation(obj: Object, propagation: str | None) -> Object:
    """The object with the finalizer that a propagation policy asks for; None keeps what is there."""
    if propagation is None:
        return obj
    result = [f for f in finalizers(obj) if f not in (FOREGROUND, ORPHAN)]
    if propagation != "Background":
        result.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
    return obj if result == finalizers(obj) else objects.with_field(obj, "metadata.finalizers", result or None)


def grace_period(kind: Kind, obj: Object, requested: int | None) -> int:
    """Grace period in seconds: 0 for everything but a pod that is bound to a node and has not finished."""
    if kind is not kinds.POD or not objects.dig(obj, "spec.nodeName") or objects.phase(obj) in objects.FINAL_PHASES:
        return 0
    own = objects.dig(obj, "spec.terminationGracePeriodSeconds")
    grace = requested if requested is not None else 30 if own is None else int(own)
    return 1 if grace < 0 else grace


def mark_deleted(kind: Kind, obj: Object, grace: int, now: float) -> Object:
    """The object with its deletion mark. A second, shorter grace shortens; a longer one changes nothing."""
    meta = dict(objects.meta(obj))
    if objects.is_deleting(obj):
        previous_grace = int(meta.get("deletionGracePeriodSeconds") or 0)
        if grace >= previous_grace:
            return obj
        requested_at = objects.seconds(meta["deletionTimestamp"]) - previous_grace
        meta["deletionTimestamp"] = objects.timestamp(requested_at + grace)
    else:
        meta["deletionTimestamp"] = objects.timestamp(now + grace)
        if "generation" in meta:
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = grace
    if kind is kinds.NAMESPACE:
        obj = objects.with_field(obj, "status.phase", "Terminating")
        meta.pop("deletionGracePeriodSeconds")
    return {**obj, "metadata": meta}


# ---------------------------------------------------------------- refusals and bindings


def namespace_terminating_error(kind: Kind, name: str, namespace: str) -> Forbidden:
    """403 for a create in a namespace that is being deleted, with the cause `NamespaceTerminating`."""
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(kind.plural, name, why, kind.group, (cause,))


def bind_pod(pod: Object, node: str, annotations: dict[str, str], now: float) -> Object:
    """The pod bound to `node`. Raises Conflict when it is bound already, or being deleted."""
    name, current_node = objects.name(pod), objects.dig(pod, "spec.nodeName")
    if objects.is_deleting(pod):
        raise _bind_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current_node:
        raise _bind_conflict(name, f'pod {name} is already assigned to node "{current_node}"')
    pod = objects.with_field(pod, "spec.nodeName", node)
    if annotations:
        pod = objects.with_field(pod, "metadata.annotations", {**objects.annotations(pod), **annotations})
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": objects.timestamp(now),
    }
    other_conditions = [c for c in objects.dig(pod, "status.conditions", ()) if c.get("type") != "PodScheduled"]
    return objects.with_field(pod, "status.conditions", [*other_conditions, scheduled])


def _bind_conflict(name: str, why: str) -> Conflict:
    return conflict("pods/binding", name, why)
