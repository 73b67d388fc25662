"""Validation of every object (names, labels, annotations, owners) and of each built-in kind.

A kind's rules are the rows of its type in `rules.txt`: `Pod`, `Pod new` for a create, `Pod status` for its status.
Immutable fields are in `_UPDATE_RULES`. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.schema import json_errors, types
from rowlock.apiserver.validation import resource_quotas, services, volumes  # noqa: F401  registers rules
from rowlock.apiserver.validation.batch_jobs import job_status_causes, job_update_causes
from rowlock.apiserver.validation.ephemeral_containers import ephemeral_update_causes
from rowlock.apiserver.validation.pods import pod_update_causes
from rowlock.apiserver.validation.rules import Scope, check_struct, quick_rule, rows_name, rule, validate
from rowlock.documents.field_errors import (
    Causes,
    are_config_keys,
    config_key_problems,
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    immutable_field,
    invalid_value,
    invalid_values,
    label_key_problems,
    not_supported,
    path_segment_problems,
    required_value,
    service_name_problems,
    subdomain_problems,
    too_long,
)
from rowlock.errors import Cause
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.selectors import from_label_selector

ANNOTATION_BYTES = 256 * 1024
DATA_BYTES = 1024 * 1024
_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_FIXED_META = ("name", "namespace", "uid", "creationTimestamp")
_DELETION_META = ("deletionTimestamp", "deletionGracePeriodSeconds")


def object_causes(kind: Kind, obj: Object, stage: str = "") -> list[Cause]:
    """The causes from the rows of a built-in kind; `stage`: "new" for the rules of creates only, "status" for a status."""
    name = rows_name(types.type_name(kind.group, kind.version, kind.name))
    return validate(f"{name} {stage}" if stage else name, obj)


def status_update_causes(kind: Kind, old: Object, new: Object) -> list[Cause]:
    """The forbidden changes in a status update of a built-in kind."""
    return job_status_causes(old, new) if kind is kinds.BATCH_JOB else []


# ---------------------------------------------------------------- metadata


def name_problems(kind: Kind, name: str) -> list[str]:
    """What is wrong with an object's name, by the rules of its kind."""
    if kind in kinds.RBAC:
        return path_segment_problems(name)
    if kind is kinds.NAMESPACE:
        return ["must not contain dots"] if "." in name and not subdomain_problems(name) else dns_label_problems(name)
    return service_name_problems(name) if kind is kinds.SERVICE else subdomain_problems(name)


def meta_causes(kind: Kind, obj: Object) -> list[Cause]:
    """The causes from the rules of `metadata`, in the real server's order."""
    meta = obj.get("metadata") or {}
    name, prefix, causes = meta.get("name") or "", meta.get("generateName"), []
    if prefix:
        stem = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        causes += invalid_values("metadata.generateName", prefix, name_problems(kind, stem))
    if name:
        causes += invalid_values("metadata.name", name, name_problems(kind, name))
    else:
        causes.append(required_value("metadata.name", "name or generateName is required"))
    return causes + validate("meta.v1.ObjectMeta", meta, "metadata")


@rule
def annotation_map(texts: dict[str, str], _: Scope) -> Causes:
    for key in texts:
        yield from invalid_values("", key, label_key_problems(key.lower()))
    if sum(len(k.encode()) + len(v.encode()) for k, v in texts.items()) > ANNOTATION_BYTES:
        yield too_long("", ANNOTATION_BYTES)


@rule
def one_controller(owner: dict[str, Any], scope: Scope) -> Causes:
    if not owner.get("controller"):
        return
    controllers = scope.notes.setdefault("controllers", [])
    controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) == 2:
        text = f'Only one reference can have Controller set to true. Found "true" in references for {" and ".join(controllers)}'
        order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
        yield invalid_value("", [{k: o[k] for k in order if k in o} for o in scope.struct["ownerReferences"]], text)


@rule
def finalizer(name: str, _: Scope) -> Causes:
    if "/" not in name and name not in _FINALIZERS:
        yield invalid_value("", name, "name is neither a standard finalizer name nor is it fully qualified")


@quick_rule(finalizer)
def are_finalizers(names: list[str]) -> bool:
    return all("/" in name or name in _FINALIZERS for name in names)


def meta_update_causes(old: Object, new: Object) -> list[Cause]:
    """Causes for changed immutable `metadata`. (A real server checks it twice, also per kind, so its causes come twice.)"""
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    fixed = [key for key in _FIXED_META if key in after and key in before and after[key] != before[key]]
    fixed += [key for key in _DELETION_META if key in after and after[key] != before.get(key)]  # set by deletes
    return [immutable_field(f"metadata.{key}", after[key]) for key in fixed]


# ---------------------------------------------------------------- kinds


@rule
def data_keys(data: dict[str, str], _: Scope) -> Causes:
    if are_config_keys(data):
        return
    for key in data:
        yield from invalid_values(f"[{key}]", key, config_key_problems(key))


@rule
def data_size(obj: dict[str, Any], _: Scope) -> Causes:
    if sum(len(k) + len(v) for f in ("data", "binaryData") for k, v in (obj.get(f) or {}).items()) > DATA_BYTES:
        yield too_long("", DATA_BYTES)


@rule
def binary_data(config: dict[str, Any], _: Scope) -> Causes:
    for key in config.get("binaryData") or ():
        if key in (config.get("data") or ()):
            yield invalid_value(f".data[{key}]", key, "duplicate of key present in binaryData")


@rule
def secret_type(secret: dict[str, Any], _: Scope) -> Causes:
    kind, data = str(secret.get("type")).removeprefix("kubernetes.io/"), secret.get("data") or {}
    if kind == "basic-auth" and not {"username", "password"} & data.keys():
        yield required_value(".data[username]")
        yield required_value(".data[password]")
    account_annotation = "kubernetes.io/service-account.name"
    if kind == "service-account-token" and not objects.annotations(secret).get(account_annotation):
        yield required_value(f".metadata.annotations[{account_annotation}]")
    for key in _REQUIRED_SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required_value(f".data[{key}]")
        elif key.startswith(".docker"):
            yield from _json_causes(data[key], f".data[{key}]")


_REQUIRED_SECRET_KEYS = {
    "dockerconfigjson": (".dockerconfigjson",),
    "dockercfg": (".dockercfg",),
    "ssh-auth": ("ssh-privatekey",),
    "tls": ("tls.crt", "tls.key"),
}


def _json_causes(encoded: str, field: str) -> Causes:
    """Registry credentials must be a JSON object. Messages never contain them."""
    text = base64.b64decode(encoded)
    if not (why := json_errors.json_error(text)) and not isinstance(decoded := json.loads(text), dict | None):
        why = json_errors.unmarshal_error(decoded, "an object")
    if why:
        yield invalid_value(field, "<secret contents redacted>", why)


@rule
def one_taint(taint: dict[str, Any], scope: Scope) -> Causes:
    if scope.outer.is_repeated("taints", (taint.get("key"), taint.get("effect"))):
        cause = duplicate_value("", taint)
        yield Cause(cause.reason, f"{cause.message}: taints must be unique by key and effect pair")


@rule
def event(obj: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    """Check an Event; one with an `eventTime` is a newer Event, with stricter rules."""
    space, namespace = objects.dig(obj, "involvedObject.namespace", ""), objects.namespace(obj)
    newer = bool(obj.get("eventTime"))
    other = space != namespace and (space or namespace != "default")
    if other and not (newer and (space or namespace == "kube-system")):
        yield invalid_value(".involvedObject.namespace", space, "does not match event.namespace")
    if newer:
        yield from check_struct("Event newer", obj, scope)


@rule
def user_priority(obj: dict[str, Any], _: Scope) -> Causes:
    name = objects.name(obj)
    if name.startswith("system-") and name not in ("system-node-critical", "system-cluster-critical"):
        text = "priority class names with 'system-' prefix are reserved for system use only."
        yield forbidden_field(".metadata.name", f"{text} error: {name} is not a known system priority class")
    if obj.get("value", 0) > 1_000_000_000 and not name.startswith("system-"):
        yield forbidden_field(".value", "maximum allowed value of a user defined priority is 1000000000")


# ---------------------------------------------------------------- rights


@rule
def policy_rule(rule: dict[str, Any], scope: Scope) -> Causes:
    if urls := rule.get("nonResourceURLs"):
        yield invalid_value(".nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
    yield from cluster_policy_rule(rule, scope)


@rule
def cluster_policy_rule(rule: dict[str, Any], _: Scope) -> Causes:
    if urls := rule.get("nonResourceURLs"):
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid_value(".nonResourceURLs", urls, text)
        return
    for field, noun in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(field):
            yield required_value(f".{field}", f"resource rules must supply at least one {noun}")


@rule
def subject(entry: dict[str, Any], _: Scope) -> Causes:
    name, kind, group = (entry.get(field) or "" for field in ("name", "kind", "apiGroup"))
    rights = "rbac.authorization.k8s.io"
    if kind == "ServiceAccount":
        yield from invalid_values(".name", name, subdomain_problems(name) if name else ())
        if group:
            yield not_supported(".apiGroup", group, ("",))
    elif kind not in ("User", "Group"):
        yield not_supported(".kind", kind, ("ServiceAccount", "User", "Group"))
    elif group != rights:
        yield not_supported(".apiGroup", group, (rights,))


@rule
def role_selector(selector: dict[str, Any], _: Scope) -> Causes:
    if from_label_selector(selector) is None:
        yield invalid_value("", None, "invalid label selector.")


@rule
def cluster_subject(entry: dict[str, Any], _: Scope) -> Causes:
    if entry.get("kind") == "ServiceAccount" and not entry.get("namespace"):
        yield required_value(".namespace")


# ---------------------------------------------------------------- what may not change

Update = Callable[[Object, Object], Iterable[Cause]]


def update_causes(kind: Kind, old: Object, new: Object, subresource: str = "") -> list[Cause]:
    """The forbidden changes in an update of a built-in kind."""
    if subresource == "ephemeralcontainers":
        return ephemeral_update_causes(old, new)
    return [cause for rule in _UPDATE_RULES.get(kind, ()) for cause in rule(old, new)]


def _fixed_field(field: str, why: str = "") -> Update:
    def causes(old: Object, new: Object) -> Causes:
        if old.get(field) != new.get(field):
            yield forbidden_field(field, why) if why else immutable_field(field, new.get(field))

    return causes


def _immutable_causes(old: Object, new: Object) -> list[Cause]:
    """Forbidden changes of ConfigMaps and Secrets with `immutable: true`."""
    changed = [key for key in ("immutable", "data", "binaryData") if old.get(key) != new.get(key)]
    text = "field is immutable when `immutable` is set"
    return [forbidden_field(key, text) for key in changed] if old.get("immutable") else []


def _service_update_causes(old: Object, new: Object) -> Causes:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if "ExternalName" in (before.get("type"), after.get("type")):
        return
    if before.get("clusterIP") != after.get("clusterIP") and before.get("clusterIP"):
        yield invalid_value("spec.clusterIPs[0]", after.get("clusterIPs") or "", "may not change once set")


def _claim_update_causes(old: Object, new: Object) -> Causes:
    def fixed_fields(obj: Object) -> dict[str, Any]:
        spec = obj.get("spec") or {}
        return {k: v for k, v in spec.items() if k not in mutable_fields}

    bound = (old.get("status") or {}).get("phase") == "Bound"
    mutable_fields = {"volumeName", "volumeAttributesClassName", *(("resources",) if bound else ())}

    def storage_size(obj: Object, path: str) -> Any:
        return parse(objects.dig(obj, f"{path}.storage", "0"))

    if fixed_fields(old) != fixed_fields(new):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden_field("spec", text)
    requested = storage_size(new, "spec.resources.requests")
    if requested < storage_size(old, "spec.resources.requests") and requested <= storage_size(old, "status.capacity"):
        yield forbidden_field("spec.resources.requests.storage", "field can not be less than status.capacity")
    if (mode := (new.get("spec") or {}).get("volumeMode")) != (old.get("spec") or {}).get("volumeMode"):
        yield immutable_field("volumeMode", mode)


def _node_update_causes(old: Object, new: Object) -> Causes:
    before, after = ((obj.get("spec") or {}).get("providerID") or "" for obj in (old, new))
    if before and before != after:
        yield forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')


def _role_update_causes(old: Object, new: Object) -> Causes:
    if old.get("roleRef") != new.get("roleRef"):
        ref = new.get("roleRef") or {}
        shown = {"APIGroup": ref.get("apiGroup", ""), "Kind": ref.get("kind", ""), "Name": ref.get("name", "")}
        yield invalid_value("roleRef", shown, "cannot change roleRef")


UPDATES_CHECKED_FIRST = frozenset({kinds.SECRET, kinds.CONFIG_MAP})
"""Kinds for which a real server reports forbidden changes before invalid values."""
_UPDATE_RULES: dict[Kind, tuple[Update, ...]] = {
    kinds.POD: (pod_update_causes,),
    kinds.CONFIG_MAP: (_immutable_causes,),
    kinds.SECRET: (_fixed_field("type"), _immutable_causes),
    kinds.SERVICE: (_service_update_causes,),
    kinds.PERSISTENT_VOLUME_CLAIM: (_claim_update_causes,),
    kinds.PRIORITY_CLASS: (_fixed_field("value", "may not be changed in an update."), _fixed_field("preemptionPolicy")),
    kinds.NODE: (_node_update_causes,),
    kinds.BATCH_JOB: (job_update_causes,),
    kinds.ROLE_BINDING: (_role_update_causes,),
    kinds.CLUSTER_ROLE_BINDING: (_role_update_causes,),
}
