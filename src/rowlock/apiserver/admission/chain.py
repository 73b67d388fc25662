"""The admission chain: decoding, defaults, pod admission, validation, the operator's webhooks, managedFields, in that order.

The store calls `AdmissionChain.create` and `.update` for every write of any client. Messages are the real API server's.
Admission reads a `View` for the objects that a write refers to (priority classes, service accounts, quotas); without a view
those checks are skipped. Pure except for its clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rowlock import kinds, objects
from rowlock.api import View, WriteOptions
from rowlock.apiserver.admission import gangs as gang_admission
from rowlock.apiserver.admission import pods as pod_admission
from rowlock.apiserver.admission import resource_quota as quota_admission
from rowlock.apiserver.admission.draining import Draining
from rowlock.apiserver.apply import managed_fields
from rowlock.apiserver.apply.managed_fields import FieldManager, SettledManagedFields
from rowlock.apiserver.schema import crd_schema, decoding, types
from rowlock.apiserver.schema.decoding import Walk
from rowlock.apiserver.validation import object_warnings
from rowlock.apiserver.validation import objects as object_validation
from rowlock.documents.schema_rules import keep_secret_names, merge_string_data, rule_causes
from rowlock.errors import (
    ApiError,
    BadRequest,
    Cause,
    Forbidden,
    invalid,
    not_found,
)
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.system import service_addresses
from rowlock.system.unix_accounts import UNRESTRICTED, UnixAccountRules, check_account, restrict_pod
from rowlock.system.volume_claims import add_protection_finalizer, check_not_resized
from rowlock.training.admission.webhooks import denial_message, review_job
from rowlock.training.batch_job.admission.selector import with_generated_selector, with_template_labels
from rowlock.training.model import DEFAULT, Parity

SPEC_REPLICAS_PATHS = {
    kinds.PYTORCHJOB: "spec.pytorchReplicaSpecs.Worker.replicas",
    kinds.PADDLEJOB: "spec.paddleReplicaSpecs.Worker.replicas",
    kinds.JAXJOB: "spec.jaxReplicaSpecs.Worker.replicas",
}


class Webhooks(Protocol):
    """The mutating and validating webhooks for `kinds.TRAINER`."""

    def admit_pod(self, pod: Object, view: View | None, *, has_scheduler: bool) -> Object: ...

    def fill_defaults(self, kind: Kind, old: Object | None, new: Object, now: float) -> Object: ...

    def review(self, kind: Kind, old: Object | None, new: Object, options: WriteOptions, view: View | None) -> None: ...


class AdmissionChain:
    """Implements the `Admission` of `storage/write_verbs.py` like kube-apiserver."""

    def __init__(
        self,
        view: View | None = None,
        clock: Callable[[], float] = time.time,
        *,
        parity: Parity = DEFAULT,
        has_scheduler: bool = True,
        draining: Draining | None = None,
        unix_accounts: UnixAccountRules = UNRESTRICTED,
        webhooks: Webhooks | None = None,
    ) -> None:
        """`view`: the objects including staged writes (`Store.open` passes it). `has_scheduler` False: rowlock does not schedule
        pods here, so there are no warnings about placement."""
        self._view, self._clock, self._parity, self._has_scheduler = view, clock, parity, has_scheduler
        self._draining, self._unix_accounts = draining or Draining(), unix_accounts
        self._webhooks = webhooks

    def create(self, kind: Kind, obj: Object, options: WriteOptions) -> Object:
        self._draining.check_create(kind, obj)
        if options.is_settled:
            return self._create_settled(kind, obj)
        obj, given_fields = _split_managed_fields(obj)
        new = decode_object(kind, obj, options)
        if options.review:
            options.review(None, new)
        gang_admission.check_ownership(kind, None, new, options, self._view)
        if kind is kinds.SECRET:
            new = merge_string_data(new)
        entries = (
            list(given_fields)
            if isinstance(given_fields, SettledManagedFields)
            else self._first_entry(kind, _without_allocated_fields(kind, obj, new), options)
        )
        if kind is kinds.POD:
            new = pod_admission.admit_create(new, self._view)
            if self._webhooks is not None:
                new = self._webhooks.admit_pod(new, self._view, has_scheduler=self._has_scheduler)
            new = self._restrict_pod(new)
        elif kind in kinds.TRAINER and self._webhooks is not None:
            new = self._webhooks.fill_defaults(kind, None, new, self._clock())
        elif kind is kinds.BATCH_JOB:
            new = with_generated_selector(new)
        elif kind is kinds.PERSISTENT_VOLUME_CLAIM:
            new = add_protection_finalizer(new)
        elif kind is kinds.RESOURCE_QUOTA:
            new = {**new, "status": {}}
        elif kind is kinds.SERVICE_ACCOUNT:
            new = keep_secret_names(new)
        elif kind in kinds.JOBS and self._unix_accounts.required and self._view:
            namespace = self._view.get(kinds.NAMESPACE, "", objects.namespace(new))
            check_account(new, kind.plural, namespace, self._unix_accounts)
        self._validate(kind, None, new)
        if kind is kinds.BATCH_JOB:
            new = with_template_labels(new, obj)
        elif kind is kinds.SERVICE:
            new = service_addresses.allocate(None, new, self._view)
            options.warnings.extend(service_addresses.notes(new))
        options.warnings.extend(object_warnings.warnings(kind, new, created=True))
        self._review(kind, None, new, options)
        if kind in gang_admission.REVIEWED_KINDS:
            view = self._view if self._has_scheduler else None
            gang_admission.review(kind, None, new, options, view, now=self._clock())
        if kind.namespaced:
            quota_admission.check_quotas(kind, new, self._view)
        return _with_managed_fields(new, entries)

    def _create_settled(self, kind: Kind, obj: Object) -> Object:
        """Admit an object that the server itself made in final form, such as one of thousands of Events: decoding and checking
        it would cost as much as everything else about it."""
        if causes := object_validation.meta_causes(kind, obj):
            raise invalid(kind.name, objects.name(obj), causes, kind.group)
        quota_admission.check_quotas(kind, obj, self._view)
        return obj

    def _restrict_pod(self, pod: Object) -> Object:
        """The pod, set to run as the Unix account of its project. Raises Forbidden."""
        if self._view is None:
            return pod
        return restrict_pod(pod, self._view.get(kinds.NAMESPACE, "", objects.namespace(pod)), self._unix_accounts)

    def update(self, kind: Kind, old: Object, new: Object, subresource: str, options: WriteOptions) -> Object:
        self._draining.check_update(kind, old, new)
        new, given_fields = _split_managed_fields(new)
        before, old_fields = _split_managed_fields(old)
        is_shared = kind.custom or (subresource == "status" and kind in _SHARED_STATUS_KINDS)
        new = decode_object(kind, new, options, before if is_shared else None)
        if options.review:
            options.review(before, new)
        if not subresource:
            gang_admission.check_ownership(kind, before, new, options, self._view)
        if kind is kinds.SECRET:
            new = merge_string_data(new)
        if kind is kinds.POD and not subresource:
            new = pod_admission.admit_update(new)
        elif kind is kinds.POD and subresource == "ephemeralcontainers":
            new = self._restrict_pod(new)
        from_apply = isinstance(given_fields, SettledManagedFields)
        entries = (
            list(given_fields)
            if from_apply
            else managed_fields.initial_entries(old_fields, None if subresource else given_fields)
        )
        submitted, new = new, keep_secret_names(new) if kind is kinds.SERVICE_ACCOUNT else new
        if kind in kinds.TRAINER and self._webhooks is not None and not subresource:
            new = self._webhooks.fill_defaults(kind, before, new, self._clock())
        if kind is kinds.SERVICE and not subresource:
            new = service_addresses.keep_allocated(before, new)
        if subresource == "scale":
            author = FieldManager(options.manager, objects.timestamp(self._clock()), subresource)
            count = objects.dig(submitted, SPEC_REPLICAS_PATHS[kind], 0) if submitted != before else None
            entries = managed_fields.record_scale(kind, entries, SPEC_REPLICAS_PATHS[kind], author, changed=count)
        if submitted == before and not from_apply and entries == (old_fields or []):
            if not subresource:  # warnings and webhooks apply even to an update without changes
                options.warnings.extend(object_warnings.warnings(kind, new, created=False))
                self._review(kind, old, new, options)
            return old
        if subresource == "status":
            self._validate_status(kind, old, new)
        else:
            self._validate(kind, old, new, subresource)
            if kind is kinds.PERSISTENT_VOLUME_CLAIM:
                check_not_resized(old, new)
            elif kind is kinds.SERVICE:
                new = service_addresses.allocate(before, new, self._view)
                options.warnings.extend(service_addresses.notes(new))
            if not subresource:
                options.warnings.extend(object_warnings.warnings(kind, new, created=False))
            if subresource != "scale":  # webhooks are registered for the jobs themselves
                self._review(kind, old, new, options)
                gang_admission.review(kind, before, new, options, self._view)
        if from_apply or subresource == "scale" or not options.manager:
            return _with_managed_fields(new, entries)
        author = FieldManager(options.manager, objects.timestamp(self._clock()), subresource)
        with_owners = managed_fields.record_update(kind, before, _with_managed_fields(submitted, entries), author)
        return with_owners if submitted is new else _with_managed_fields(new, _split_managed_fields(with_owners)[1])

    def _first_entry(self, kind: Kind, new: Object, options: WriteOptions) -> list[managed_fields.Entry]:
        """The managedFields entry of the creator: what it wrote and the defaults, but not what admission adds."""
        if not options.manager:
            return []
        if "status" in kind.subresources and "status" in new:
            new = {k: v for k, v in new.items() if k != "status"}
        return managed_fields.creation_entries(
            kind, new, FieldManager(options.manager, objects.timestamp(self._clock()))
        )

    def _review(self, kind: Kind, old: Object | None, new: Object, options: WriteOptions) -> None:
        """Call the validating webhooks: the training operator's, and those for `kinds.TRAINER`. Raises Forbidden."""
        if kind in kinds.JOBS:
            verdict = review_job(kind, old, new, self._parity)
            options.warnings.extend(verdict.warnings)
            if verdict.errors:
                raise Forbidden(denial_message(kind, verdict))
        elif kind in kinds.TRAINER and self._webhooks is not None:
            self._webhooks.review(kind, old, new, options, self._view)

    def _validate(self, kind: Kind, old: Object | None, new: Object, subresource: str = "") -> None:
        causes = object_validation.meta_causes(kind, new)
        if old is not None:
            causes += object_validation.meta_update_causes(old, new)
        if kind.custom:
            causes += _schema_causes(kind, old, new)
            causes = crd_schema.add_incomplete_cause(causes) if kind in _KINDS_WITH_RULES else causes
            causes += () if causes else gang_admission.causes(kind, new, self._view)
        else:
            rule_causes = object_validation.object_causes(kind, new)
            if old is None:
                changed = object_validation.object_causes(kind, new, "new")
            else:
                changed = object_validation.update_causes(kind, old, new, subresource)
            first = kind in object_validation.UPDATES_CHECKED_FIRST
            causes += changed + rule_causes if first else rule_causes + changed
        if causes:
            raise invalid(kind.name, objects.name(new), causes, kind.group)

    def _validate_status(self, kind: Kind, old: Object, new: Object) -> None:
        if not kind.custom and old["metadata"] != new["metadata"]:
            builtin_causes = object_validation.meta_causes(kind, new) + object_validation.meta_update_causes(old, new)
        else:
            builtin_causes = []
        builtin_causes += object_validation.object_causes(kind, new, "status")
        builtin_causes += object_validation.status_update_causes(kind, old, new)
        if builtin_causes:
            raise invalid(kind.name, objects.name(new), builtin_causes, kind.group)
        if not kind.custom or "status" not in new:
            return
        node = types.field_schema(types.schema_of(kind), "status") or types.ANYTHING
        causes, lists, incomplete = crd_schema.validate(new["status"], node, at="status")
        has_rules = kind in _KINDS_WITH_RULES and not incomplete
        causes += lists + (rule_causes(None, new["status"], node, types.resolve_ref, "status") if has_rules else [])
        causes = crd_schema.add_incomplete_cause(causes) if kind in _KINDS_WITH_RULES else causes
        if causes:
            raise invalid(kind.name, objects.name(new), causes, kind.group)


def decode_object(kind: Kind, obj: Object, options: WriteOptions, stored: Object | None = None) -> Object:
    """The object decoded by its type, with defaults. Raises DecodingError with the decoder's message. Top-level fields that are
    identical in `stored` are not decoded again."""
    walk = Walk()
    try:
        new = _decode_fields(kind, obj, walk, stored or {})
    except BadRequest as error:
        raise DecodingError(kind, error.message) from None
    if walk.unknown_fields and options.validation != "Ignore":
        problems = [
            f'unknown field "{path}"' for path in (sorted(walk.unknown_fields) if kind.custom else walk.unknown_fields)
        ]
        if options.validation == "Strict":
            raise DecodingError(kind, "strict decoding error: " + ", ".join(problems))
        options.warnings.extend(problems)
    return new


def _decode_fields(kind: Kind, obj: Object, walk: Walk, stored: Object) -> Object:
    """Decode the fields that differ from `stored`. apiVersion and kind come first, so that lists can cut them off the stored
    JSON. In a custom object only the metadata is decoded by a Go type; the rest is pruned."""
    head: Object = {"apiVersion": kind.api_version, "kind": kind.name}
    kept = {k: v for k, v in obj.items() if k not in _HEADER and v is not None and v is stored.get(k)}
    has_same_metadata = bool(kept) and obj.get("metadata") == stored["metadata"]
    if has_same_metadata and not kind.custom:
        kept["metadata"] = stored["metadata"]
    rest = {k: v for k, v in obj.items() if k not in kept} if kept else obj
    if kind.custom:
        head["metadata"] = stored["metadata"] if has_same_metadata else _decode_metadata(obj, walk)
        rest = {k: v for k, v in rest.items() if k != "metadata"}
        new = {**crd_schema.prune(rest, types.schema_of(kind), walk), **head}
    else:
        new = decoding.decode(types.type_name(kind.group, kind.version, kind.name), rest, walk)
    if not kept:
        return {**head, **new}
    return {**head, **{k: kept[k] if k in kept else new[k] for k in (*obj, *new) if k in kept or k in new}}


def _decode_metadata(obj: Object, walk: Walk) -> Object:
    walk.path.append("metadata")
    metadata: Object = decoding.decode(types.META, obj.get("metadata") or {}, walk)
    walk.path.pop()
    return metadata


class DecodingError(BadRequest):
    """The object does not fit its type; `why` is the decoder's message."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')
        self.why = why


_SHARED_STATUS_KINDS = (kinds.POD, kinds.NODE, kinds.BATCH_JOB, kinds.CRON_JOB)
"""Built-in kinds whose status is written often: a status update does not decode their other fields again."""
_KINDS_WITH_RULES = frozenset({*kinds.JOBS, *kinds.TRAINER})
"""Custom kinds whose schemas have validation rules."""
_HEADER = frozenset({"apiVersion", "kind", "metadata"})


def _split_managed_fields(obj: Object) -> tuple[Object, Any]:
    """The object without managedFields, and the managedFields, which are neither decoded nor compared."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj, None
    rest = {k: v for k, v in meta.items() if k != "managedFields"}
    return {**obj, "metadata": rest}, meta["managedFields"]


def _with_managed_fields(obj: Object, entries: list[managed_fields.Entry]) -> Object:
    if not entries:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def _schema_causes(kind: Kind, old: Object | None, new: Object) -> Iterable[Cause]:
    node = types.schema_of(kind)
    body = {k: v for k, v in new.items() if k not in ("apiVersion", "kind", "metadata", "status")}
    causes, lists, incomplete = crd_schema.validate(body, node)
    if kind in SPEC_REPLICAS_PATHS:
        replicas_causes = crd_schema.scale_causes(new, SPEC_REPLICAS_PATHS[kind])
        replicas_fields = [] if incomplete else [cause.field.removeprefix(".") for cause in replicas_causes]
        causes = [cause for cause in causes if cause.field not in replicas_fields] + replicas_causes
    causes = causes + lists
    if incomplete:
        return causes
    return causes + (rule_causes(old, new, node, types.resolve_ref) if kind in _KINDS_WITH_RULES else [])


def _without_allocated_fields(kind: Kind, submitted: Object, new: Object) -> Object:
    """The new object without the address fields of a Service that the client did not submit: no manager owns them."""
    if kind is not kinds.SERVICE or not isinstance(new.get("spec"), dict):
        return new
    submitted_spec = submitted.get("spec") or {}
    own = {k: v for k, v in new["spec"].items() if k in submitted_spec or k not in _ALLOCATED_FIELDS}
    return {**new, "spec": own}


_ALLOCATED_FIELDS = frozenset({"clusterIPs", "ipFamilies", "ipFamilyPolicy"})


def _service_causes(service: Object) -> list[Cause]:
    causes = object_validation.meta_causes(kinds.SERVICE, service)
    return causes + object_validation.object_causes(kinds.SERVICE, service)


def missing_service_error(service: Object) -> ApiError:
    """The error for a status update of a missing Service: a real server begins to create it, and fails because it has no
    cluster IP."""
    service, _ = _split_managed_fields(service)
    new = decode_object(kinds.SERVICE, service, WriteOptions())
    causes = _service_causes(new)
    spec, submitted_spec = new["spec"], service.get("spec") or {}
    if spec.get("clusterIP") and not submitted_spec.get("clusterIPs"):
        causes.append(Cause("FieldValueRequired", "Required value", "spec.clusterIPs"))
    if causes:
        return invalid("Service", objects.name(new), causes)
    return not_found(kinds.SERVICE.plural, objects.name(new))
