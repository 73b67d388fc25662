"""What every object must satisfy: names, labels, annotations, owners; and what each built-in kind adds.

The texts are the real API server's. Each rule returns causes; `admission.py` collects them into one Invalid.
Kinds find their rules in `RULES` (create and update), `FIRST` (create), `UPDATES` and `STATUS`. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from rowlock import kinds, objects
from rowlock.cluster.api import golang
from rowlock.cluster.api.validation_containers import config_key_problems
from rowlock.cluster.api.validation_placement import EFFECTS
from rowlock.cluster.api.validation_pods import first_causes, pod_causes, pod_update_causes, status_causes
from rowlock.cluster.api.validation_quotas import quota_causes
from rowlock.cluster.api.validation_rights import role_binding_causes, role_causes
from rowlock.cluster.api.validation_services import label_causes, service_causes, service_status_causes
from rowlock.cluster.api.validation_volumes import claim_causes
from rowlock.cluster.api.wording import (
    dns_label_problems,
    forbidden,
    immutable,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_supported,
    required,
    service_name_problems,
    subdomain_problems,
)
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
        yield required("metadata.name", "name or generateName is required")
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
                what = "version must" if key == "apiVersion" else "must"
                yield invalid_value(f"{path}.{key}", owner.get(key) or "", f"{what} not be empty")
    controllers = [f"{o.get('kind')}/{o.get('name')}" for o in owners if o.get("controller")]
    if len(controllers) > 1:
        text = f'Only one reference can have Controller set to true. Found "true" in references for {controllers[0]} and {controllers[1]}'
        order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
        yield invalid_value(path, [{k: o[k] for k in order if k in o} for o in owners], text)


_IDENTITY = ("name", "namespace", "uid", "creationTimestamp")
_END = ("deletionTimestamp", "deletionGracePeriodSeconds")


def meta_update_causes(old: Object, new: Object) -> Causes:
    """What of `metadata` nobody may change, each twice: a real server asks so of all objects, and of each kind again."""
    found = list(_identity_causes(old, new))
    yield from (*found, *found)


def _identity_causes(old: Object, new: Object) -> Causes:
    before, after = old.get("metadata") or {}, new.get("metadata") or {}
    for key in _IDENTITY:
        if key in after and key in before and after[key] != before[key]:
            yield immutable(f"metadata.{key}", after[key])
    for key in _END:  # which is for a delete to say
        if key in after and after[key] != before.get(key):
            yield immutable(f"metadata.{key}", after[key])


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


def _config_map(obj: Object) -> Causes:
    yield from _data_causes(obj, "data", "binaryData")
    for key in obj.get("binaryData") or ():
        if key in (obj.get("data") or ()):
            yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")


def _secret(obj: Object) -> Causes:
    yield from _data_causes(obj, "data")
    kind, data = str(obj.get("type")), obj.get("data") or {}
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token":
        named = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(named):
            yield required(f"metadata.annotations[{named}]")
    for key in _NEEDED.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            yield from _json_causes(data[key], f"data[{key}]")


_NEEDED = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _json_causes(encoded: str, field: str) -> Causes:
    """Credentials of a registry are a JSON object; what they say is never repeated."""
    text = base64.b64decode(encoded)
    if not (why := golang.json_error(text)) and not isinstance(found := json.loads(text), dict | None):
        why = golang.unmarshal(found, "value of type map[string]interface {}")
    if why:
        yield invalid_value(field, "<secret contents redacted>", why)


def _frozen(old: Object, new: Object) -> Causes:
    """ConfigMaps and Secrets with `immutable: true`."""
    if not old.get("immutable"):
        return
    text = "field is immutable when `immutable` is set"
    for key in ("immutable", "data", "binaryData"):
        if old.get(key) != new.get(key):
            yield forbidden(key, text)


def _secret_update(old: Object, new: Object) -> Causes:
    if old.get("type") != new.get("type"):
        yield immutable("type", new.get("type"))
    yield from _frozen(old, new)


def _service_update(old: Object, new: Object) -> Causes:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before.get("clusterIP") != after.get("clusterIP") and before.get("clusterIP"):
        yield invalid_value("spec.clusterIPs[0]", after.get("clusterIPs") or "", "may not change once set")


def _claim(obj: Object) -> Causes:
    yield from claim_causes(obj.get("spec") or {}, "spec")


def _claim_update(old: Object, new: Object) -> Causes:
    def fixed(obj: Object) -> dict[str, Any]:
        spec = obj.get("spec") or {}
        return {k: v for k, v in spec.items() if k not in free}

    bound = (old.get("status") or {}).get("phase") == "Bound"
    free = {"volumeName", "volumeAttributesClassName", *(("resources",) if bound else ())}

    def size(obj: Object, path: str) -> Any:
        return parse(objects.dig(obj, f"{path}.storage", "0"))

    if fixed(old) != fixed(new):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield forbidden("spec", text)
    wanted = size(new, "spec.resources.requests")
    if wanted < size(old, "spec.resources.requests") and wanted <= size(old, "status.capacity"):
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if (mode := (new.get("spec") or {}).get("volumeMode")) != (old.get("spec") or {}).get("volumeMode"):
        yield immutable("volumeMode", mode)


def _priority_class(obj: Object) -> Causes:
    value, name = obj.get("value", 0), obj["metadata"].get("name", "")
    if name.startswith("system-") and name not in ("system-node-critical", "system-cluster-critical"):
        text = "priority class names with 'system-' prefix are reserved for system use only."
        yield forbidden("metadata.name", f"{text} error: {name} is not a known system priority class")
    if value > 1_000_000_000 and not name.startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        yield forbidden("value", text)
    if obj.get("preemptionPolicy") not in ("Never", "PreemptLowerPriority"):
        yield not_supported("preemptionPolicy", obj.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"))


def _priority_class_update(old: Object, new: Object) -> Causes:
    if old.get("value", 0) != new.get("value", 0):
        yield forbidden("value", "may not be changed in an update.")
    if old.get("preemptionPolicy") != new.get("preemptionPolicy"):
        yield immutable("preemptionPolicy", new.get("preemptionPolicy"))


def _node(obj: Object) -> Causes:
    seen = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"  # where the real server looks for them, too
        for problem in label_key_problems(taint.get("key") or ""):
            yield invalid_value(f"{path}.key", taint.get("key") or "", problem)
        for problem in label_value_problems(taint.get("value") or ""):
            yield invalid_value(f"{path}.value", taint.get("value"), problem)
        if not taint.get("effect"):
            yield required(f"{path}.effect")
        elif taint["effect"] not in EFFECTS:
            yield not_supported(f"{path}.effect", taint["effect"], EFFECTS)
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


def _node_update(old: Object, new: Object) -> Causes:
    before, after = ((obj.get("spec") or {}).get("providerID") or "" for obj in (old, new))
    if before and before != after:
        yield forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')


def _namespace(obj: Object) -> Causes:
    for name in (obj.get("spec") or {}).get("finalizers") or ():
        for problem in label_key_problems(name):
            yield invalid_value("spec.finalizers", name, problem)
        if "/" not in name and name not in _FINALIZERS:
            yield invalid_value("spec.finalizers", name, _FINALIZER_TEXT)


def event_causes(obj: Object, controller: str = "reportingComponent") -> Causes:
    """An Event with a time of its own is a newer one, of which more is asked. `controller` is what the field is called."""
    space = (obj.get("involvedObject") or {}).get("namespace") or ""
    own = obj["metadata"].get("namespace") or ""
    newer = bool(obj.get("eventTime"))
    if space != own and not (not space and own == "default") and not (newer and (space or own == "kube-system")):
        yield invalid_value("involvedObject.namespace", space, "does not match event.namespace")
    if not newer:
        return
    name = obj.get("reportingComponent") or ""
    if not name:
        yield required(controller)
    for problem in label_key_problems(name):
        yield invalid_value(controller, name, problem)
    for field in ("reportingInstance", "action", "reason"):
        text = obj.get(field) or ""
        if not text:
            yield required(field)
        if len(text) > 128:
            yield invalid_value(field, "", "can have at most 128 characters")
    if len(obj.get("message") or "") > 1024:
        yield invalid_value("message", "", "can have at most 1024 characters")


def _lease(obj: Object) -> Causes:
    seconds = (obj.get("spec") or {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    turns = (obj.get("spec") or {}).get("leaseTransitions")
    if turns is not None and turns < 0:
        yield invalid_value("spec.leaseTransitions", turns, "must be greater than or equal to 0")


def _role_binding_update(old: Object, new: Object) -> Causes:
    if old.get("roleRef") != new.get("roleRef"):
        yield Cause("FieldValueInvalid", "Invalid value: cannot change roleRef", "roleRef")


Rule = Callable[[Object], Causes]
Update = Callable[[Object, Object], Causes]

RULES: dict[Kind, Rule] = {
    kinds.POD: pod_causes,
    kinds.CONFIG_MAP: _config_map,
    kinds.SECRET: _secret,
    kinds.SERVICE: service_causes,
    kinds.PERSISTENT_VOLUME_CLAIM: _claim,
    kinds.NODE: _node,
    kinds.EVENT: event_causes,
    kinds.LEASE: _lease,
    kinds.NAMESPACE: _namespace,
    kinds.RESOURCE_QUOTA: quota_causes,
    kinds.ROLE: role_causes,
    kinds.ROLE_BINDING: role_binding_causes,
}
CHANGES_FIRST = frozenset({kinds.SECRET, kinds.CONFIG_MAP})
"""Kinds of which a real server tells what may not change before what may not be."""
FIRST: dict[Kind, Rule] = {kinds.POD: first_causes, kinds.PRIORITY_CLASS: _priority_class}
STATUS: dict[Kind, Rule] = {kinds.POD: status_causes, kinds.SERVICE: service_status_causes}

UPDATES: dict[Kind, Update] = {
    kinds.POD: pod_update_causes,
    kinds.CONFIG_MAP: _frozen,
    kinds.SECRET: _secret_update,
    kinds.SERVICE: _service_update,
    kinds.PERSISTENT_VOLUME_CLAIM: _claim_update,
    kinds.PRIORITY_CLASS: _priority_class_update,
    kinds.NODE: _node_update,
    kinds.ROLE_BINDING: _role_binding_update,
}
