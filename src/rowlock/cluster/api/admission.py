"""What comes in: decoding, defaults, pod admission, validation, the operator's webhooks, managedFields, in that order.

The store calls `Admission.create` and `.update` for every write, whoever makes it. Texts are the real API server's.
Admission reads a `View` (set by whoever assembles the cluster) for what an object refers to: priority classes,
service accounts, quotas; without one those checks are left out. Pure but for its clock.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.api import View, WriteOptions
from rowlock.cluster.api import (
    custom,
    decoding,
    gang_admission,
    managedfields,
    object_warnings,
    pod_admission,
    quotas,
    types,
    validation,
)
from rowlock.cluster.api.decoding import Walk
from rowlock.cluster.api.managedfields import Applied, Author
from rowlock.cluster.storage import lifecycle
from rowlock.collection import IN_USE
from rowlock.errors import ApiError, BadRequest, Cause, Forbidden, Unsupported, invalid, not_found
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.training.admission import denial, review
from rowlock.training.framework import DEFAULT, Parity

SCALES = {
    kinds.PYTORCHJOB: "spec.pytorchReplicaSpecs.Worker.replicas",
    kinds.PADDLEJOB: "spec.paddleReplicaSpecs.Worker.replicas",
    kinds.JAXJOB: "spec.jaxReplicaSpecs.Worker.replicas",
}


class Admission:
    """Implements what `cluster/storage/core.py` asks of an admission."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.view: View | None = None
        self.parity = DEFAULT
        self.schedules = True
        """False = nobody of ours places pods here: nothing is said about where they could go."""
        self._clock = clock

    def create(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        obj, given = _parted(obj)
        new = decoded(kind, obj, options)
        if kind is kinds.SECRET:
            new = _secret_data(new)
        entries = (
            list(given) if isinstance(given, Applied) else self._first_entry(kind, _asked(kind, obj, new), options)
        )
        if kind is kinds.POD:
            new = pod_admission.admitted(new, self.view)
        elif kind is kinds.SERVICE:
            _only_headless(new)
        elif kind is kinds.PERSISTENT_VOLUME_CLAIM:
            new = _protected(new)
        elif kind is kinds.RESOURCE_QUOTA:
            new = {**new, "status": {}}
        elif kind is kinds.SERVICE_ACCOUNT:
            new = _names_alone(new)
        self._validate(kind, None, new)
        options.warnings.extend(object_warnings.warnings(kind, new, first=True))
        _review(kind, None, new, options, self.parity)
        if kind in gang_admission.GUARDED:
            view = self.view if self.schedules else None
            gang_admission.review(kind, None, new, options, view, now=self._clock())
        if kind.namespaced:
            quotas.check(kind, new, self.view)
        return _joined(new, entries)

    def update(self, kind: Kind, old: Object, new: Object, subresource: str, options: WriteOptions) -> Object:
        new, given = _parted(new)
        before, known = _parted(old)
        new = decoded(kind, new, options)
        if kind is kinds.SECRET:
            new = _secret_data(new)
        if kind is kinds.POD and not subresource:
            new = pod_admission.readmitted(new)
        settled = isinstance(given, Applied)
        entries = list(given) if settled else managedfields.base(known, None if subresource else given)
        asked, new = new, _names_alone(new) if kind is kinds.SERVICE_ACCOUNT else new
        if kind is kinds.SERVICE and not subresource:
            new = _with_addresses(before, new)
        if subresource == "scale":
            author = Author(options.manager, objects.timestamp(self._clock()), subresource)
            count = objects.dig(asked, SCALES[kind], 0) if asked != before else None
            entries = managedfields.scaled(kind, entries, SCALES[kind], author, changed=count)
        if asked == before and not settled and entries == (known or []):
            if not subresource:  # who changes nothing is warned, and a webhook is asked, all the same
                options.warnings.extend(object_warnings.warnings(kind, new, first=False))
                _review(kind, old, new, options, self.parity)
            return old
        if subresource == "status":
            self._validate_status(kind, old, new)
        else:
            self._validate(kind, old, new)
            if kind is kinds.PERSISTENT_VOLUME_CLAIM:
                _not_grown(old, new)
            if not subresource:
                options.warnings.extend(object_warnings.warnings(kind, new, first=False))
            if subresource != "scale":  # webhooks are registered for the jobs themselves
                _review(kind, old, new, options, self.parity)
                gang_admission.review(kind, before, new, options, self.view)
        if settled or subresource == "scale" or not options.manager:
            return _joined(new, entries)
        author = Author(options.manager, objects.timestamp(self._clock()), subresource)
        owned = managedfields.recorded(kind, before, _joined(asked, entries), author)
        return owned if asked is new else _joined(new, _parted(owned)[1])

    def _first_entry(self, kind: Kind, new: Object, options: WriteOptions) -> list[managedfields.Entry]:
        """What the creator owns: what it wrote and its defaults, not what admission adds."""
        if not options.manager:
            return []
        if "status" in kind.subresources and "status" in new:
            new = {k: v for k, v in new.items() if k != "status"}
        return managedfields.first(kind, new, Author(options.manager, objects.timestamp(self._clock())))

    def _validate(self, kind: Kind, old: Object | None, new: Object) -> None:
        causes = list(validation.meta_causes(kind, new))
        if old is not None:
            causes += validation.meta_update_causes(old, new)
        if kind.custom:
            causes += _schema_causes(kind, old, new)
            causes = custom.with_incomplete(causes) if kind in kinds.JOBS else causes
            causes += () if causes else gang_admission.causes(kind, new, self.view)
        else:
            rule, update = validation.RULES.get(kind), validation.UPDATES.get(kind)
            own = list(rule(new)) if rule is not None else []
            if old is None and kind in validation.FIRST:
                own += validation.FIRST[kind](new)
            changed = list(update(old, new)) if old is not None and update is not None else []
            causes += [*changed, *own] if kind in validation.CHANGES_FIRST else [*own, *changed]
        if causes:
            raise invalid(kind.name, objects.name(new), causes, kind.group)

    def _validate_status(self, kind: Kind, old: Object, new: Object) -> None:
        if not kind.custom and old["metadata"] != new["metadata"]:
            found = [*validation.meta_causes(kind, new), *validation.meta_update_causes(old, new)]
        else:
            found = []
        if rule := validation.STATUS.get(kind):
            found += rule(new)
        if found:
            raise invalid(kind.name, objects.name(new), found, kind.group)
        if not kind.custom or "status" not in new:
            return
        node = types.field(types.of(kind), "status") or types.ANYTHING
        causes, lists, _ = custom.validate(new["status"], node, at="status")
        causes += lists
        causes = custom.with_incomplete(causes) if kind in kinds.JOBS else causes
        if causes:
            raise invalid(kind.name, objects.name(new), causes, kind.group)


def decoded(kind: Kind, obj: Object, options: WriteOptions) -> Object:
    """The object as its type has it, with defaults. Raises BadRequest, in the decoder's words."""
    walk = Walk()
    try:
        new = _custom(kind, obj, walk) if kind.custom else _typed(kind, obj, walk)
    except BadRequest as error:
        raise Unreadable(kind, error.message, getattr(error, "converted", "")) from None
    if walk.unknown and options.validation != "Ignore":
        problems = [f'unknown field "{path}"' for path in (sorted(walk.unknown) if kind.custom else walk.unknown)]
        if options.validation == "Strict":
            raise Unreadable(kind, "strict decoding error: " + ", ".join(problems))
        options.warnings.extend(problems)
    return new


def _typed(kind: Kind, obj: Object, walk: Walk) -> Object:
    """What it is comes first: so lists can leave it out without reading it again."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **decoding.decode(_type_name(kind), obj, walk)}


class Unreadable(BadRequest):
    """An object that its type cannot hold; `why` in the words of the decoder, `converted` in those of who converts."""

    def __init__(self, kind: Kind, why: str, converted: str = "") -> None:
        super().__init__(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')
        self.why, self.converted = why, converted or why


def _type_name(kind: Kind) -> str:
    return types.name_of(kind.group, kind.version, kind.name)


def _custom(kind: Kind, obj: Object, walk: Walk) -> Object:
    """A custom object: its metadata is typed, the rest pruned."""
    walk.path.append("metadata")
    meta = decoding.decode(types.META, obj.get("metadata") or {}, walk)
    walk.path.pop()
    rest = {k: v for k, v in obj.items() if k != "metadata"}
    new: Object = custom.prune(rest, types.of(kind), walk)
    return {"apiVersion": new.pop("apiVersion"), "kind": new.pop("kind"), "metadata": meta, **new}


def _parted(obj: Object) -> tuple[Object, Any]:
    """The object without managedFields, and those: they are bookkeeping, not something to decode or compare."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj, None
    rest = {k: v for k, v in meta.items() if k != "managedFields"}
    return {**obj, "metadata": rest}, meta["managedFields"]


def _joined(obj: Object, entries: list[managedfields.Entry]) -> Object:
    if not entries:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def _schema_causes(kind: Kind, old: Object | None, new: Object) -> Iterable[Cause]:
    node = types.of(kind)
    body = {k: v for k, v in new.items() if k not in ("apiVersion", "kind", "metadata", "status")}
    causes, lists, incomplete = custom.validate(body, node)
    if kind in SCALES:
        counted = custom.scale_causes(new, SCALES[kind])
        known = [] if incomplete else [cause.field.removeprefix(".") for cause in counted]
        causes = [cause for cause in causes if cause.field not in known] + counted
    causes = causes + lists
    if incomplete:
        return causes
    if old is not None:
        causes = causes + custom.immutable_causes(old, new, node)
    return causes


def _asked(kind: Kind, given: Object, new: Object) -> Object:
    """The new object without the addresses that a service is given: nobody owns those that nobody asked for."""
    if kind is not kinds.SERVICE or not isinstance(new.get("spec"), dict):
        return new
    asked = given.get("spec") or {}
    own = {k: v for k, v in new["spec"].items() if k in asked or k not in _ALLOCATED}
    return {**new, "spec": own}


_ALLOCATED = frozenset({"clusterIPs", "ipFamilies", "ipFamilyPolicy"})


def _protected(claim: Object) -> Object:
    """A claim stays while pods use it: `rowlock.collection.Claims` takes the finalizer away."""
    own = objects.meta(claim).get("finalizers") or []
    return claim if IN_USE in own else objects.changed(claim, "metadata.finalizers", [*own, IN_USE])


def _not_grown(old: Object, new: Object) -> None:
    """A bound claim would grow if its storage class let it, and there are none here that do. Raises Forbidden."""
    before, after = (parse(objects.dig(claim, "spec.resources.requests.storage", "0")) for claim in (old, new))
    if after > before:
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        raise lifecycle.forbidden(kinds.PERSISTENT_VOLUME_CLAIM, objects.name(new), why)


def _names_alone(account: Object) -> Object:
    """Of the secrets that an account may use, their names count."""
    secrets = account.get("secrets")
    if not secrets:
        return account
    return {**account, "secrets": [{"name": s["name"]} if s.get("name") else {} for s in secrets]}


def _with_addresses(old: Object, new: Object) -> Object:
    """Who changes `clusterIP` alone, as older clients do, changes the list that it begins; who writes none keeps it."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    address = after.get("clusterIP")
    if not address and after.get("type") != "ExternalName":
        kept = {key: before[key] for key in ("clusterIP", "clusterIPs") if key in before and not after.get(key)}
        return {**new, "spec": {**after, **kept}}
    if not address or address == before.get("clusterIP") or after.get("clusterIPs") != before.get("clusterIPs"):
        return new
    return objects.changed(new, "spec.clusterIPs", [address])


def _only_headless(service: Object) -> None:
    spec = service.get("spec") or {}
    if spec.get("clusterIP") == "None":
        return
    causes = [*validation.meta_causes(kinds.SERVICE, service), *validation.RULES[kinds.SERVICE](service)]
    if causes:
        raise invalid("Service", objects.name(service), causes)
    raise Unsupported(
        f'services "{objects.name(service)}": rowlock has names but no virtual addresses:'
        " only headless Services are served, set spec.clusterIP: None"
    )


def no_service(service: Object) -> ApiError:
    """What becomes of a status that is written where there is no service: a real server begins to make one, and stops
    because nobody has given it an address."""
    service, _ = _parted(service)
    new = decoded(kinds.SERVICE, service, WriteOptions())
    causes = [*validation.meta_causes(kinds.SERVICE, new), *validation.RULES[kinds.SERVICE](new)]
    spec, given = new["spec"], service.get("spec") or {}
    if spec.get("clusterIP") and not given.get("clusterIPs"):
        causes.append(Cause("FieldValueRequired", "Required value", "spec.clusterIPs"))
    if causes:
        return invalid("Service", objects.name(new), causes)
    return not_found(kinds.SERVICE.plural, objects.name(new))


def _secret_data(secret: Object) -> Object:
    """`stringData` is written as `data`."""
    if "stringData" not in secret:
        return secret
    texts = secret["stringData"]
    data = {**(secret.get("data") or {}), **{k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}}
    return {**{k: v for k, v in secret.items() if k != "stringData"}, "data": data}


def _review(kind: Kind, old: Object | None, new: Object, options: WriteOptions, parity: Parity) -> None:
    """The training operator's validating webhook."""
    if kind not in kinds.JOBS:
        return
    found = review(kind, old, new, parity)
    options.warnings.extend(found.warnings)
    if found.errors:
        raise Forbidden(denial(kind, found))
