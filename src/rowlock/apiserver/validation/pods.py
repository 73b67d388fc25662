"""The rules of pods: what kube-apiserver refuses in a PodSpec, in its order and its words. Pure.

The parts have files of their own: containers, volumes and placement (`containers.py` …). Here is the order,
what concerns the whole pod, and what may still change once a pod exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.containers import container_causes, host_port_causes
from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_supported,
    required_value,
    subdomain_problems,
)
from rowlock.apiserver.validation.ip_addresses import address_causes
from rowlock.apiserver.validation.placement import (
    affinity_causes,
    gate_causes,
    gate_update_causes,
    spread_causes,
    toleration_causes,
)
from rowlock.apiserver.validation.security_context import pod_security_causes
from rowlock.apiserver.validation.volumes import volume_causes
from rowlock.errors import Cause
from rowlock.objects import Object

Causes = Iterator[Cause]

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SEARCH_DOMAIN = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_SEARCH_DOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start"
    f" and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SEARCH_DOMAIN.pattern}')"
)
_MUTABLE_FIELDS_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_causes(pod: Object) -> Causes:
    yield from spec_causes(pod.get("spec") or {}, "spec", name=objects.name(pod))


def spec_causes(spec: dict[str, Any], path: str, *, name: str = "") -> Causes:
    """The rules of a PodSpec, in the real server's order; `name` is the pod's."""
    volumes: dict[str, str] = {}
    yield from volume_causes(spec.get("volumes") or (), f"{path}.volumes", volumes, pod=name)
    containers = spec.get("containers") or ()
    if not containers:
        yield required_value(f"{path}.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        ports = []
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            yield from container_causes(container, where, volumes, is_init=field == "initContainers")
            container_name = container.get("name") or ""
            if container_name and container_name in names:
                yield duplicate_value(f"{where}.name", container_name)
            names.add(container_name)
            if container.get("ports"):
                ports.append((where, container["ports"]))
        # containers share the node's ports; those that run before them are alone
        for together in [ports] if field == "containers" else [[one] for one in ports]:
            yield from host_port_causes(together)
    yield from _policy_causes(spec, path)
    yield from _naming_causes(spec, path)


def _policy_causes(spec: dict[str, Any], path: str) -> Causes:
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    if spec.get("dnsPolicy") not in _DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    for key, value in (spec.get("nodeSelector") or {}).items():
        for problem in label_key_problems(key):
            yield invalid_value(f"{path}.nodeSelector", key, problem)
        for problem in label_value_problems(value):
            yield invalid_value(f"{path}.nodeSelector", value, problem)
    if spec.get("securityContext") or spec.get("shareProcessNamespace"):
        yield from pod_security_causes(spec, f"{path}.securityContext")
    if spec.get("affinity"):
        yield from affinity_causes(spec["affinity"], f"{path}.affinity")
    if spec.get("dnsConfig"):
        yield from _dns_config_causes(spec["dnsConfig"], f"{path}.dnsConfig")
    elif spec.get("dnsPolicy") == "None":
        yield required_value(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        for problem in label_key_problems(gate.get("conditionType") or ""):
            where = f"{path}.readinessGates[{index}].conditionType"
            yield invalid_value(where, gate.get("conditionType") or "", problem)
    yield from gate_causes(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    yield from spread_causes(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")


def _dns_config_causes(config: dict[str, Any], path: str) -> Causes:
    """How names are looked up."""
    for index, server in enumerate(config.get("nameservers") or ()):
        yield from address_causes(server, f"{path}.nameservers[{index}]")
    for index, domain in enumerate(config.get("searches") or ()):
        name = domain if domain == "." else domain.removesuffix(".")
        if len(name) > 253:
            yield invalid_value(f"{path}.searches[{index}]", domain, "must be no more than 253 characters")
        if name != "." and not _SEARCH_DOMAIN.fullmatch(name):
            yield invalid_value(f"{path}.searches[{index}]", domain, _SEARCH_DOMAIN_TEXT)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required_value(f"{path}.options[{index}]", "must not be empty")


def _naming_causes(spec: dict[str, Any], path: str) -> Causes:
    for field in ("serviceAccountName", "nodeName"):
        yield from _name_causes(spec, field, path)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for field in ("hostname", "subdomain"):
        yield from _name_causes(spec, field, path)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from toleration_causes(toleration, f"{path}.tolerations[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from _alias_causes(alias, f"{path}.hostAliases[{index}]")
    yield from _name_causes(spec, "priorityClassName", path)
    system = (spec.get("os") or {}).get("name")
    if "os" in spec and not system:
        yield required_value(f"{path}.os.name")
    elif "os" in spec and system not in ("linux", "windows"):
        yield not_supported(f"{path}.os", system, ("linux", "windows"))


def _name_causes(spec: dict[str, Any], field: str, path: str) -> Causes:
    value = spec.get(field)
    check = dns_label_problems if field in ("subdomain", "hostname") else subdomain_problems
    for problem in check(value) if value else ():
        yield invalid_value(f"{path}.{field}", value, problem)


def _alias_causes(alias: dict[str, Any], path: str) -> Causes:
    yield from address_causes(alias.get("ip") or "", f"{path}.ip")
    for index, name in enumerate(alias.get("hostnames") or ()):
        for problem in subdomain_problems(name):
            yield invalid_value(f"{path}.hostnames[{index}]", name, problem)


def pod_create_causes(pod: Object) -> Causes:
    """What a new pod may not have yet."""
    if (pod.get("spec") or {}).get("ephemeralContainers"):
        yield forbidden_field("spec.ephemeralContainers", "cannot be set on create")


def pod_status_causes(pod: Object) -> Causes:
    """The rules of what a kubelet reports."""
    status = pod.get("status") or {}
    addresses: Sequence[dict[str, Any]] = status.get("podIPs") or ()
    if not addresses and status.get("podIP"):
        addresses = ({"ip": status["podIP"]},)
    for index, entry in enumerate(addresses):
        yield from address_causes(entry.get("ip") or "", f"status.podIPs[{index}]")


def pod_update_causes(old: Object, new: Object) -> Causes:
    """What may still change once a pod exists: images, deadline, more tolerations; metadata apart."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before == after:
        return
    for field in ("containers", "initContainers"):
        if len(before.get(field) or ()) != len(after.get(field) or ()):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    yield from gate_update_causes(before, after)
    new_tolerations = [_without_seconds(t) for t in after.get("tolerations") or ()]
    if any(_without_seconds(t) not in new_tolerations for t in before.get("tolerations") or ()):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    yield from _deadline_causes(before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds"))
    if changes := list(field_differences(_immutable_fields(before, before), _immutable_fields(after, before), "spec")):
        yield forbidden_field("spec", "\n".join((_MUTABLE_FIELDS_TEXT, *changes[:MAX_SHOWN_CHANGES])))


MAX_SHOWN_CHANGES = 30
"""Lines of a forbidden change that are told."""


def field_differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """What changed, three lines each: the field, what it was, what it would be (a real server prints Go's structs)."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from field_differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from field_differences(*pair, f"{path}[{index}]")
    else:
        yield f"  {path}:"
        for sign, value in (("-", old), ("+", new)):
            if value is not None:
                yield f"{sign} {json.dumps(value, ensure_ascii=False)[:200]}"


def _deadline_causes(before: int | None, after: int | None) -> Causes:
    """A deadline may come nearer, never go."""
    field = "spec.activeDeadlineSeconds"
    if after is not None and not 0 <= after <= 2**31 - 1:
        yield invalid_value(field, after, "must be between 0 and 2147483647, inclusive")
    if before is None or before == after:
        return
    if after is None:
        yield invalid_value(field, None, "must not update from a positive integer to nil value")
    elif after > before:
        yield invalid_value(field, after, "must be less than or equal to previous value")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    """A toleration without the time that it lasts, which may change."""
    return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}


def _immutable_fields(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What of a spec stays as it was `before`."""
    mutable_fields = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"}
    if before.get("schedulingGates"):  # `gate_update_causes` has judged these
        mutable_fields |= {"nodeSelector", "affinity"}
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        spec = {**spec, "terminationGracePeriodSeconds": before["terminationGracePeriodSeconds"]}
    fixed = {k: v for k, v in spec.items() if k not in mutable_fields}
    if "affinity" in mutable_fields:
        fixed["affinity"] = {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    return fixed
