"""The mutations of pod admission, as on a real cluster: service account and its token volume, priority, tolerations,
QoS class. They are visible in every `kubectl get pod -o yaml`. Pure: existing objects come from the view.
"""

from __future__ import annotations

from typing import Any

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.apiserver.validation.volumes import TOKEN_SOURCES
from rowlock.errors import forbidden
from rowlock.objects import Object
from rowlock.quantity import parse
from rowlock.storage.lifecycle import SUFFIX_LENGTH, generate_suffix

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
)
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def admit_create(pod: Object, view: View | None) -> Object:
    """The pod with everything that admission adds. Raises Forbidden for missing objects that it refers to."""
    spec = dict(pod.get("spec") or {})
    _check_overhead(pod, spec)
    _set_service_account(pod, spec, view)
    _set_priority(pod, spec, view)
    _add_default_tolerations(spec)
    if not spec.get("containers"):
        spec["containers"] = []
    status = {**(pod.get("status") or {}), "phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [*(status.get("conditions") or ()), _gated_condition(pod)]
    return {**pod, "spec": spec, "status": status}


def _name_asked_for(pod: Object) -> str:
    """The pod's name for messages: only the prefix if it was generated, because a real server generates names after these plugins."""
    prefix, name = str(objects.meta(pod).get("generateName") or ""), objects.name(pod)
    return prefix if prefix and name.startswith(prefix[:-1]) and len(name) == len(prefix) + SUFFIX_LENGTH else name


def admit_update(pod: Object) -> Object:
    """The updated pod: the default tolerations are added again if they were removed."""
    spec = dict(pod.get("spec") or {})
    _add_default_tolerations(spec)
    return pod if spec == pod.get("spec") else {**pod, "spec": spec}


def _gated_condition(pod: Object) -> dict[str, Any]:
    """The condition that a gated pod has from its creation, whichever scheduler it is for."""
    return {
        "type": "PodScheduled", "status": "False", "lastProbeTime": None,
        "lastTransitionTime": objects.meta(pod).get("creationTimestamp"), "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }  # fmt: skip


def _set_service_account(pod: Object, spec: dict[str, Any], view: View | None) -> None:
    name, space = spec.get("serviceAccountName") or "default", objects.namespace(pod)
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    account = view.get(kinds.SERVICE_ACCOUNT, space, name) if view else None
    if view is not None and account is None and name != "default":
        why = f'error looking up service account {space}/{name}: serviceaccount "{name}" not found'
        raise forbidden("pods", _name_asked_for(pod), why)
    automount = spec.get("automountServiceAccountToken", (account or {}).get("automountServiceAccountToken", True))
    if automount and spec.get("containers"):
        _mount_token(pod, spec)


def _mount_token(pod: Object, spec: dict[str, Any]) -> None:
    volume = f"kube-api-access-{generate_suffix(objects.uid(pod))}"
    mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_PATH}
    mounted = False
    for field in ("containers", "initContainers"):
        if field not in spec:
            continue
        containers = []
        for container in spec[field]:
            mounts = container.get("volumeMounts") or []
            if not any(m.get("mountPath") == TOKEN_PATH for m in mounts):
                container, mounted = {**container, "volumeMounts": [*mounts, mount]}, True
            containers.append(container)
        spec[field] = containers
    if mounted:
        spec["volumes"] = [*(spec.get("volumes") or ()), _token_volume(volume)]


def _token_volume(name: str) -> dict[str, Any]:
    return {"name": name, "projected": TOKEN_SOURCES}


def _set_priority(pod: Object, spec: dict[str, Any], view: View | None) -> None:
    name = spec.get("priorityClassName")
    if not name:
        default = _default_priority_class(view) or {}
        if default:
            spec["priorityClassName"] = objects.name(default)
        _apply_priority_class(pod, spec, default, int(default.get("value", 0)))
        return
    priority_class = view.get(kinds.PRIORITY_CLASS, "", name) if view else None
    if priority_class is None and name not in _SYSTEM_PRIORITIES:
        if view is not None:
            raise forbidden("pods", _name_asked_for(pod), f"no PriorityClass with name {name} was found")
        priority_class = {}
    value = (priority_class or {}).get("value", _SYSTEM_PRIORITIES.get(name, 0))
    _apply_priority_class(pod, spec, priority_class or {}, value)


def _apply_priority_class(pod: Object, spec: dict[str, Any], priority_class: Object, value: int) -> None:
    """Set priority and preemption policy from the class. Raises Forbidden for other given values."""
    policy = priority_class.get("preemptionPolicy", "PreemptLowerPriority")
    for field, title, own in (
        ("priority", "integer value of priority", value),
        ("preemptionPolicy", "string value of PreemptionPolicy", policy),
    ):
        if spec.get(field) not in (None, own):
            why = f"the {title} ({spec[field]}) must not be provided in pod spec; priority admission controller computed {own}"
            raise forbidden("pods", _name_asked_for(pod), f"{why} from the given PriorityClass name")
        spec[field] = own


def _check_overhead(pod: Object, spec: dict[str, Any]) -> None:
    """Raise Forbidden for `overhead`. There are no RuntimeClasses here, but their names are allowed, for manifests of GPU clusters."""
    if spec.get("overhead"):
        raise forbidden(
            "pods",
            _name_asked_for(pod),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )


def _default_priority_class(view: View | None) -> Object | None:
    classes = view.all(kinds.PRIORITY_CLASS) if view else ()
    return max((c for c in classes if c.get("globalDefault")), key=lambda c: int(c.get("value", 0)), default=None)


def _add_default_tolerations(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations") or []
    added = []
    for toleration in _DEFAULT_TOLERATIONS:
        keys = (None, "", toleration["key"])
        if not any(t.get("key") in keys and t.get("effect") in (None, "", "NoExecute") for t in tolerations):
            added.append(toleration)
    if tolerations or added:
        spec["tolerations"] = [*tolerations, *added]


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, from CPU and memory of all containers."""
    any_set, guaranteed = False, True
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name)
            any_set = any_set or limit is not None or request is not None
            if limit is None or (request is not None and parse(request) != parse(limit)):
                guaranteed = False
    return "BestEffort" if not any_set else "Guaranteed" if guaranteed else "Burstable"
