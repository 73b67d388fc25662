"""The rules of pods: what kube-apiserver refuses in a PodSpec, in its order and its words. Pure.

Covered is what a training pod can get wrong: containers, images, ports, resources, environment, mounts, volumes,
restart policy, and what may still change once a pod exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rowlock.cluster.api.wording import (
    dns_label_problems,
    duplicate,
    forbidden,
    invalid_value,
    label_key_problems,
    label_value_problems,
    not_found,
    not_supported,
    required,
    subdomain_problems,
)
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.quantity import parse

Causes = Iterator[Cause]

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PULL = ("Always", "IfNotPresent", "Never")
_FIELD_PATH = re.compile(
    r"metadata\.(name|namespace|uid|labels\['.+'\]|annotations\['.+'\])|spec\.(nodeName|serviceAccountName)"
    r"|status\.(hostIPs?|podIPs?)"
)
_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_causes(pod: Object) -> Causes:
    yield from spec_causes(pod.get("spec") or {}, "spec")


def spec_causes(spec: dict[str, Any], path: str) -> Causes:
    """The rules of a PodSpec, in the real server's order."""
    volumes: set[str] = set()
    yield from _volume_causes(spec.get("volumes") or (), f"{path}.volumes", volumes)
    containers = spec.get("containers") or ()
    if not containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}]"
            yield from _container_causes(container, where, volumes)
            name = container.get("name") or ""
            if name and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
    yield from _policy_causes(spec, path)


def _policy_causes(spec: dict[str, Any], path: str) -> Causes:
    if spec.get("restartPolicy") not in _RESTART:
        yield not_supported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    if spec.get("dnsPolicy") not in _DNS:
        yield not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    for key, value in (spec.get("nodeSelector") or {}).items():
        for problem in label_key_problems(key):
            yield invalid_value(f"{path}.nodeSelector", key, problem)
        for problem in label_value_problems(value):
            yield invalid_value(f"{path}.nodeSelector", value, problem)
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "subdomain", "hostname"):
        value = spec.get(field)
        check = dns_label_problems if field in ("subdomain", "hostname") else subdomain_problems
        for problem in check(value) if value else ():
            yield invalid_value(f"{path}.{field}", value, problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield invalid_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(toleration, f"{path}.tolerations[{index}]")


def _toleration_causes(toleration: dict[str, Any], path: str) -> Causes:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    for problem in label_key_problems(key) if key else ():
        yield invalid_value(f"{path}.key", key, problem)
    if operator not in ("Equal", "Exists"):
        yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        yield invalid_value(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    if toleration.get("effect") not in (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        yield not_supported(f"{path}.effect", toleration["effect"], ("NoExecute", "NoSchedule", "PreferNoSchedule"))


def _volume_causes(volumes: Sequence[dict[str, Any]], path: str, names: set[str]) -> Causes:
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        else:
            for problem in dns_label_problems(name):
                yield invalid_value(f"{where}.name", name, problem)
            if name in names:
                yield duplicate(f"{where}.name", name)
        names.add(name)
        sources = [key for key in volume if key != "name"]
        for extra in sources[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        for source, field in (("configMap", "name"), ("secret", "secretName"), ("persistentVolumeClaim", "claimName")):
            if source in volume and not volume[source].get(field):
                yield required(f"{where}.{source}.{field}")
        if "hostPath" in volume and not volume["hostPath"].get("path"):
            yield required(f"{where}.hostPath.path")


def _container_causes(container: dict[str, Any], path: str, volumes: set[str]) -> Causes:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        for problem in dns_label_problems(name):
            yield invalid_value(f"{path}.name", name, problem)
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _port_causes(container.get("ports") or (), f"{path}.ports")
    yield from _env_causes(container.get("env") or (), f"{path}.env")
    yield from _mount_causes(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    if container.get("imagePullPolicy") not in _PULL:
        yield not_supported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    yield from _resource_causes(container.get("resources") or {}, f"{path}.resources")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            yield from _probe_causes(container[probe], f"{path}.{probe}")


_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc")


def _probe_causes(probe: dict[str, Any], path: str) -> Causes:
    actions = [a for a in _ACTIONS if a in probe]
    if not actions:
        yield required(path, "must specify a handler type")
    for extra in actions[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if probe.get(field, 0) < 0:
            yield invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")


def _port_causes(ports: Sequence[dict[str, Any]], path: str) -> Causes:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name")
        if name:
            if len(name) > 15:
                yield invalid_value(f"{where}.name", name, "must be no more than 15 characters")
            for problem in dns_label_problems(name) if len(name) <= 15 else ():
                yield invalid_value(f"{where}.name", name, problem)
            if name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if field == "containerPort" and not number:
                yield required(f"{where}.{field}")
            elif number is not None and not 0 < number < 65536:
                yield invalid_value(f"{where}.{field}", number, "must be between 1 and 65535, inclusive")
        if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{where}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))


def _env_causes(variables: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        elif "=" in name or not name.isascii() or not name.isprintable():
            text = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            yield invalid_value(f"{path}[{index}].name", name, text)
        field = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if field is not None and not _FIELD_PATH.fullmatch(field):
            text = f"error converting fieldPath: field label not supported: {field}"
            yield invalid_value(f"{path}[{index}].valueFrom.fieldRef.fieldPath", field, text)
        if variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            yield invalid_value(f"{path}[{index}].valueFrom", "", text)


def _mount_causes(mounts: Sequence[dict[str, Any]], path: str, volumes: set[str]) -> Causes:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, where = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        elif name not in volumes:
            yield not_found(f"{path}[{index}].name", name)
        if not where:
            yield required(f"{path}[{index}].mountPath")
        elif where in paths:
            yield invalid_value(f"{path}[{index}].mountPath", where, "must be unique")
        paths.add(where)


def _resource_causes(resources: dict[str, Any], path: str) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{field}[{name}]"
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                text = "must be a standard resource type or fully qualified"
                yield invalid_value(f"{path}.{field}", name, text)
                text = "must be a standard resource for containers"
                yield invalid_value(f"{path}.{field}", name, text)
            number = parse(amount)
            if number < 0:
                yield invalid_value(where, amount, "must be greater than or equal to 0")
            if "/" in name and number != number.to_integral_value():
                yield invalid_value(where, amount, "must be an integer")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if "/" in name and "kubernetes.io/" not in name:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif "/" in name and parse(amount) != parse(limit):
            yield invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif parse(amount) > parse(limit):
            yield invalid_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")


_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})


def pod_update_causes(old: Object, new: Object) -> Causes:
    """What may still change once a pod exists: images, deadline, more tolerations; metadata apart."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before == after:
        return
    if len(before.get("containers") or ()) != len(after.get("containers") or ()):
        yield forbidden("spec.containers", "pod updates may not add or remove containers")
        return
    added = after.get("tolerations") or []
    if any(t not in added for t in before.get("tolerations") or ()):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    if _fixed(before) != _fixed(after):
        yield forbidden("spec", _CHANGEABLE)


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    free = {"activeDeadlineSeconds", "tolerations", "nodeName", "schedulingGates", "ephemeralContainers"}
    kept = {k: v for k, v in spec.items() if k not in free}
    for field in ("containers", "initContainers"):
        if field in kept:
            kept[field] = [{k: v for k, v in c.items() if k != "image"} for c in kept[field]]
    return kept
