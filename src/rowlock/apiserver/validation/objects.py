"""What every object must satisfy: names, labels, annotations, owners; and what each built-in kind adds.

The texts are the real API server's. Each rule returns causes; `admission.py` collects them into one Invalid.
Kinds find their rules in `RULES` (create and update), `CREATE_RULES` (create), `UPDATE_RULES` and `STATUS_RULES`. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.schema import json_errors
from rowlock.apiserver.validation.containers import config_key_problems
from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    forbidden_field,
    immutable_field,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_supported,
    required_value,
    service_name_problems,
    subdomain_problems,
)
from rowlock.apiserver.validation.placement import TAINT_EFFECTS
from rowlock.apiserver.validation.pods import pod_causes, pod_create_causes, pod_status_causes, pod_update_causes
from rowlock.apiserver.validation.rbac import role_binding_causes, role_causes
from rowlock.apiserver.validation.resource_quotas import quota_causes
from rowlock.apiserver.validation.services import label_causes, service_causes, service_status_causes
from rowlock.apiserver.validation.volumes import claim_causes
from rowlock.errors import Cause
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import parse

Causes = Iterator[Cause]

ANNOTATION_BYTES = 256 * 1024
_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_FINALIZER_TEXT = "name is neither a standard finalizer name nor is it fully qualified"
_RBAC_NAMES = (kinds.ROLE, kinds.ROLE_BINDING)


def name_problems(kind: Kind, name: str) -> list[str]:
    """What is wrong with an object's name, by its kind's own alphabet."""
    if kind in _RBAC_NAMES:
        return [f"may not contain '{c}'" for c in ("/", "%") if c in name]
    if kind is kinds.NAMESPACE:
        return ["must not contain dots"] if "." in name and not subdomain_problems(name) else dns_label_problems(name)
    if kind is kinds.SERVICE:
        return service_name_problems(name)
    return subdomain_problems(name)


def meta_causes(kind: Kind, obj: Object) -> Causes:
    """Rules of `metadata`, in the real server's order."""
    meta = obj.get("metadata") or {}
    name = meta.get("name") or ""
    if prefix := meta.get("generateName"):
        for problem in name_problems(kind, f"{prefix[:-1]}a" if prefix.endswith("-") else prefix):
            yield invalid_value("metadata.generateName", prefix, problem)
    if not name:
        yield required_value("metadata.name", "name or generateName is required")
    else:
        for problem in name_problems(kind, name):
            yield invalid_value("metadata.name", name, problem)
    if labels := meta.get("labels"):
        yield from label_causes(labels, "metadata.labels")
    if annotations := meta.get("annotations"):
        yield from _annotation_causes(annotations)
    if owners := meta.get("ownerReferences"):
        yield from _owner_causes(owners)
    if finalizers := meta.get("finalizers"):
        yield from _finalizer_causes(finalizers)


def _finalizer_causes(finalizers: list[str]) -> Causes:
    for finalizer in finalizers:
        for problem in label_key_problems(finalizer):
            yield invalid_value("metadata.finalizers", finalizer, problem)
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            yield invalid_value(f"metadata.finalizers[{index}]", finalizer, _FINALIZER_TEXT)


def _annotation_causes(annotations: dict[str, str]) -> Causes:
    for key in annotations:
        for problem in label_key_problems(key.lower()):
            yield invalid_value("metadata.annotations", key, problem)
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > ANNOTATION_BYTES:
        text = f"Too long: may not be more than {ANNOTATION_BYTES} bytes"
        yield Cause("FieldValueTooLong", text, "metadata.annotations")


def _owner_causes(owners: Any) -> Causes:
    path = "metadata.ownerReferences"
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                subject = "version must" if key == "apiVersion" else "must"
                yield invalid_value(f"{path}.{key}", owner.get(key) or "", f"{subject} not be empty")
    controllers = [f"{o.get('kind')}/{o.get('name')}" for o in owners if o.get("controller")]
    if len(controllers) > 1:
        text = f'Only one reference can have Controller set to true. Found "true" in references for {controllers[0]} and {controllers[1]}'
        order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
        yield invalid_value(path, [{k: o[k] for k in order if k in o} for o in owners], text)


_IDENTITY_FIELDS = ("name", "namespace", "uid", "creationTimestamp")
_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")


def meta_update_causes(old: Object, new: Object) -> Causes:
    """What of `metadata` nobody may change, each twice: a real server asks so of all objects, and of each kind again."""
    causes = list(_identity_causes(old, new))
    yield from (*causes, *causes)


def _identity_causes(old: Object, new: Object) -> Causes:
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    for key in _IDENTITY_FIELDS:
        if key in after and key in before and after[key] != before[key]:
            yield immutable_field(f"metadata.{key}", after[key])
    for key in _DELETION_FIELDS:  # which is for a delete to say
        if key in after and after[key] != before.get(key):
            yield immutable_field(f"metadata.{key}", after[key])


# ---------------------------------------------------------------- kinds


def _data_causes(obj: Object, *fields: str) -> Causes:
    size = 0
    for name in fields:
        for key, value in (obj.get(name) or {}).items():
            size += len(key) + len(value)
            for problem in config_key_problems(key):
                yield invalid_value(f"{name}[{key}]", key, problem)
    if size > 1024 * 1024:
        yield Cause("FieldValueTooLong", "Too long: may not be more than 1048576 bytes", "")


def _config_map_causes(obj: Object) -> Causes:
    yield from _data_causes(obj, "data", "binaryData")
    for key in obj.get("binaryData") or ():
        if key in (obj.get("data") or ()):
            yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")


def _secret_causes(obj: Object) -> Causes:
    yield from _data_causes(obj, "data")
    kind, data = str(obj.get("type")), obj.get("data") or {}
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield required_value("data[username]")
        yield required_value("data[password]")
    if kind == "kubernetes.io/service-account-token":
        account_annotation = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(account_annotation):
            yield required_value(f"metadata.annotations[{account_annotation}]")
    for key in _REQUIRED_SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required_value(f"data[{key}]")
        elif key.startswith(".docker"):
            yield from _json_causes(data[key], f"data[{key}]")


_REQUIRED_SECRET_KEYS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _json_causes(encoded: str, field: str) -> Causes:
    """Credentials of a registry are a JSON object; what they say is never repeated."""
    text = base64.b64decode(encoded)
    if not (why := json_errors.json_error(text)) and not isinstance(decoded := json.loads(text), dict | None):
        why = json_errors.unmarshal_error(decoded, "an object")
    if why:
        yield invalid_value(field, "<secret contents redacted>", why)


def _immutable_causes(old: Object, new: Object) -> Causes:
    """ConfigMaps and Secrets with `immutable: true`."""
    if not old.get("immutable"):
        return
    text = "field is immutable when `immutable` is set"
    for key in ("immutable", "data", "binaryData"):
        if old.get(key) != new.get(key):
            yield forbidden_field(key, text)


def _secret_update_causes(old: Object, new: Object) -> Causes:
    if old.get("type") != new.get("type"):
        yield immutable_field("type", new.get("type"))
    yield from _immutable_causes(old, new)


def _service_update_causes(old: Object, new: Object) -> Causes:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before.get("clusterIP") != after.get("clusterIP") and before.get("clusterIP"):
        yield invalid_value("spec.clusterIPs[0]", after.get("clusterIPs") or "", "may not change once set")


def _volume_claim_causes(obj: Object) -> Causes:
    yield from claim_causes(obj.get("spec") or {}, "spec")


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


def _priority_class_causes(obj: Object) -> Causes:
    value, name = obj.get("value", 0), obj["metadata"].get("name", "")
    if name.startswith("system-") and name not in ("system-node-critical", "system-cluster-critical"):
        text = "priority class names with 'system-' prefix are reserved for system use only."
        yield forbidden_field("metadata.name", f"{text} error: {name} is not a known system priority class")
    if value > 1_000_000_000 and not name.startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        yield forbidden_field("value", text)
    if obj.get("preemptionPolicy") not in ("Never", "PreemptLowerPriority"):
        yield not_supported("preemptionPolicy", obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))


def _priority_class_update_causes(old: Object, new: Object) -> Causes:
    if old.get("value", 0) != new.get("value", 0):
        yield forbidden_field("value", "may not be changed in an update.")
    if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
        yield immutable_field("preemptionPolicy", new.get("preemptionPolicy"))


def _node_causes(obj: Object) -> Causes:
    seen = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"  # where the real server looks for them, too
        for problem in label_key_problems(taint.get("key") or ""):
            yield invalid_value(f"{path}.key", taint.get("key") or "", problem)
        for problem in label_value_problems(taint.get("value") or ""):
            yield invalid_value(f"{path}.value", taint.get("value"), problem)
        if not taint.get("effect"):
            yield required_value(f"{path}.effect")
        elif taint["effect"] not in TAINT_EFFECTS:
            yield not_supported(f"{path}.effect", taint["effect"], TAINT_EFFECTS)
        pair = (taint.get("key"), taint.get("effect"))
        if pair in seen:
            shown = json.dumps(
                {
                    "Key": pair[0],
                    "Value": taint.get("value") or "",
                    "Effect": pair[1],
                    "TimeAdded": taint.get("timeAdded"),
                },
                separators=(",", ":"),
            )
            text = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            yield Cause("FieldValueDuplicate", text, path)
        seen.add(pair)


def _node_update_causes(old: Object, new: Object) -> Causes:
    before, after = ((obj.get("spec") or {}).get("providerID") or "" for obj in (old, new))
    if before and before != after:
        yield forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')


def _namespace_causes(obj: Object) -> Causes:
    for name in (obj.get("spec") or {}).get("finalizers") or ():
        for problem in label_key_problems(name):
            yield invalid_value("spec.finalizers", name, problem)
        if "/" not in name and name not in _FINALIZERS:
            yield invalid_value("spec.finalizers", name, _FINALIZER_TEXT)


def event_causes(obj: Object, component_field: str = "reportingComponent") -> Causes:
    """An Event with a time of its own is a newer one, of which more is asked. `component_field` is what the field is called."""
    space = (obj.get("involvedObject") or {}).get("namespace") or ""
    namespace = obj["metadata"].get("namespace") or ""
    newer = bool(obj.get("eventTime"))
    if (
        space != namespace
        and not (not space and namespace == "default")
        and not (newer and (space or namespace == "kube-system"))
    ):
        yield invalid_value("involvedObject.namespace", space, "does not match event.namespace")
    if not newer:
        return
    name = obj.get("reportingComponent") or ""
    if not name:
        yield required_value(component_field)
    for problem in label_key_problems(name):
        yield invalid_value(component_field, name, problem)
    for field in ("reportingInstance", "action", "reason"):
        text = obj.get(field) or ""
        if not text:
            yield required_value(field)
        if len(text) > 128:
            yield invalid_value(field, "", "can have at most 128 characters")
    if len(obj.get("message") or "") > 1024:
        yield invalid_value("message", "", "can have at most 1024 characters")


def _lease_causes(obj: Object) -> Causes:
    seconds = (obj.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = (obj.get("spec") or {}).get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _role_binding_update_causes(old: Object, new: Object) -> Causes:
    if old.get("roleRef") != new.get("roleRef"):
        yield Cause("FieldValueInvalid", "Invalid value: cannot change roleRef", "roleRef")


Rule = Callable[[Object], Causes]
Update = Callable[[Object, Object], Causes]

RULES: dict[Kind, Rule] = {
    kinds.POD: pod_causes,
    kinds.CONFIG_MAP: _config_map_causes,
    kinds.SECRET: _secret_causes,
    kinds.SERVICE: service_causes,
    kinds.PERSISTENT_VOLUME_CLAIM: _volume_claim_causes,
    kinds.NODE: _node_causes,
    kinds.EVENT: event_causes,
    kinds.LEASE: _lease_causes,
    kinds.NAMESPACE: _namespace_causes,
    kinds.RESOURCE_QUOTA: quota_causes,
    kinds.ROLE: role_causes,
    kinds.ROLE_BINDING: role_binding_causes,
}
UPDATES_CHECKED_FIRST = frozenset({kinds.SECRET, kinds.CONFIG_MAP})
"""Kinds of which a real server tells what may not change before what may not be."""
CREATE_RULES: dict[Kind, Rule] = {kinds.POD: pod_create_causes, kinds.PRIORITY_CLASS: _priority_class_causes}
STATUS_RULES: dict[Kind, Rule] = {kinds.POD: pod_status_causes, kinds.SERVICE: service_status_causes}

UPDATE_RULES: dict[Kind, Update] = {
    kinds.POD: pod_update_causes,
    kinds.CONFIG_MAP: _immutable_causes,
    kinds.SECRET: _secret_update_causes,
    kinds.SERVICE: _service_update_causes,
    kinds.PERSISTENT_VOLUME_CLAIM: _claim_update_causes,
    kinds.PRIORITY_CLASS: _priority_class_update_causes,
    kinds.NODE: _node_update_causes,
    kinds.ROLE_BINDING: _role_binding_update_causes,
}
