"""The rules of containers: image, ports, environment, mounts, resources, handlers and probes.

In the real server's order and words: what is wrong in a container is found here, before a program is started with it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    label_key_problems,
    not_found,
    not_supported,
    port_name_problems,
    required_value,
    subdomain_problems,
)
from rowlock.apiserver.validation.security_context import security_causes
from rowlock.errors import Cause
from rowlock.quantity import parse

Causes = Iterator[Cause]

PORT_RANGE_TEXT = "must be between 1 and 65535, inclusive"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_SUBSCRIPTED_PATH = re.compile(r"(.*)\['(.*)'\]", re.DOTALL)
_IDENTITY_PATHS = ("metadata.name", "metadata.namespace", "metadata.uid")
_MAP_PATHS = ("metadata.annotations", "metadata.labels")
ENV_FIELD_PATHS = (*_IDENTITY_PATHS, "spec.nodeName", "spec.serviceAccountName",
                "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")  # fmt: skip
VOLUME_FIELD_PATHS = (*_MAP_PATHS, *_IDENTITY_PATHS)
"""Fields of the pod itself that an environment variable, a file may show; one label or annotation besides."""
_OTHER_FIELD_PATHS = ("spec.restartPolicy", "spec.schedulerName", "status.phase")
"""… that are known for other purposes."""
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_RESOURCE_FIELDS = tuple(f"{what}.{name}" for what in ("limits", "requests") for name in sorted(_STANDARD_RESOURCES))
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',"
    "  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def config_key_problems(key: str) -> list[str]:
    """What is wrong with a key of a ConfigMap or Secret."""
    problems = [] if len(key) <= 253 else ["must be no more than 253 characters"]
    if not _CONFIG_KEY.fullmatch(key):
        return [*problems, _CONFIG_KEY_TEXT]
    if key in (".", ".."):
        return [*problems, f"must not be '{key}'"]
    return [*problems, "must not start with '..'"] if key.startswith("..") else problems


def container_causes(
    container: dict[str, Any], path: str, volumes: Mapping[str, str], *, is_init: bool = False
) -> Causes:
    """The rules of one container; `is_init` says that it is to end before others begin."""
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield required_value(f"{path}.name")
    else:
        for problem in dns_label_problems(name):
            yield invalid_value(f"{path}.name", name, problem)
    if not image:
        yield required_value(f"{path}.image")
    elif image != image.strip():
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    if container.get("terminationMessagePolicy", "File") not in _MESSAGE_POLICIES:
        yield not_supported(
            f"{path}.terminationMessagePolicy", container["terminationMessagePolicy"], _MESSAGE_POLICIES
        )
    yield from _port_causes(container.get("ports") or (), f"{path}.ports")
    yield from _env_causes(container.get("env") or (), f"{path}.env")
    yield from _env_from_causes(container.get("envFrom") or (), f"{path}.envFrom")
    if mounts := container.get("volumeMounts"):
        yield from _mount_causes(mounts, f"{path}.volumeMounts", volumes)
    if devices := container.get("volumeDevices"):
        yield from _device_causes(devices, f"{path}.volumeDevices", volumes)
    if container.get("imagePullPolicy") not in _PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    yield from _resource_causes(container.get("resources") or {}, f"{path}.resources")
    if policies := container.get("resizePolicy"):
        yield from _resize_causes(policies, f"{path}.resizePolicy")
    if context := container.get("securityContext"):
        yield from security_causes(context, f"{path}.securityContext")
    if is_init and container.get("restartPolicy") != "Always":
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in container:
                text = "may not be set for init containers without restartPolicy=Always"
                yield forbidden_field(f"{path}.{field}", text)
    else:
        yield from _handler_causes(container, path)


# ---------------------------------------------------------------- handlers and probes


def _handler_causes(container: dict[str, Any], path: str) -> Causes:
    for hook in ("postStart", "preStop"):
        lifecycle = container.get("lifecycle") or {}
        if hook in lifecycle:
            yield from _action_causes(lifecycle[hook], f"{path}.lifecycle.{hook}", _HOOKS)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            yield from _probe_causes(container[probe], f"{path}.{probe}", single_success=probe != "readinessProbe")


_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBE_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def _action_causes(handler: dict[str, Any], path: str, known: Sequence[str]) -> Causes:
    actions = [a for a in known if a in handler]
    if not actions:
        yield required_value(path, "must specify a handler type")
    for extra in actions[1:]:
        yield forbidden_field(f"{path}.{extra}", "may not specify more than 1 handler type")
    if actions[:1] == ["exec"] and not handler["exec"].get("command"):
        yield required_value(f"{path}.exec.command")
    for action in actions[:1]:
        if action in ("httpGet", "tcpSocket", "grpc"):
            yield from port_causes(handler[action].get("port", 0), f"{path}.{action}.port")
        if action == "httpGet":
            yield from _http_get_causes(handler[action], f"{path}.{action}")


_HEADER = re.compile(r"[-A-Za-z0-9]+")


def _http_get_causes(request: dict[str, Any], path: str) -> Causes:
    """How an HTTP server is asked."""
    if request.get("scheme", "HTTP") not in ("HTTP", "HTTPS"):
        yield not_supported(f"{path}.scheme", request["scheme"], ("HTTP", "HTTPS"))
    for header in request.get("httpHeaders") or ():
        if not _HEADER.fullmatch(header.get("name") or ""):
            text = (
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used"
            )
            text += f" for validation is '{_HEADER.pattern}')"
            yield invalid_value(f"{path}.httpHeaders", header.get("name") or "", text)


def port_causes(port: int | str, path: str) -> Causes:
    """A port by its number or by its name."""
    if isinstance(port, int):
        if not 0 < port < 65536:
            yield invalid_value(path, port, PORT_RANGE_TEXT)
        return
    for problem in port_name_problems(port):
        yield invalid_value(path, port, problem)


def _probe_causes(probe: dict[str, Any], path: str, *, single_success: bool) -> Causes:
    yield from _action_causes(probe, path, _ACTIONS)
    for field in _PROBE_COUNTS:
        if probe.get(field, 0) < 0:
            yield invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")
    if probe.get("terminationGracePeriodSeconds", 1) <= 0:
        text = "must be greater than 0"
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", probe["terminationGracePeriodSeconds"], text)
    if single_success and probe.get("successThreshold", 1) != 1:
        yield invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


# ---------------------------------------------------------------- ports and environment


def host_port_causes(ports_by_container: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> Causes:
    """A port of the node belongs to one container of a pod; what is given is each one's place and ports."""
    used: set[str] = set()
    for path, ports in ports_by_container:
        for index, port in enumerate(ports):
            if "hostPort" not in port:
                continue
            host_port = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if host_port in used:
                yield duplicate_value(f"{path}.ports[{index}].hostPort", host_port)
            used.add(host_port)


def _port_causes(ports: Sequence[dict[str, Any]], path: str) -> Causes:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where, name = f"{path}[{index}]", port.get("name")
        if name:
            problems = port_name_problems(name)
            for problem in problems:
                yield invalid_value(f"{where}.name", name, problem)
            if name in names:
                yield duplicate_value(f"{where}.name", name)
            names.add(name)
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if field == "containerPort" and not number:
                yield required_value(f"{where}.{field}")
            elif number is not None and not 0 < number < 65536:
                yield invalid_value(f"{where}.{field}", number, PORT_RANGE_TEXT)
        if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
            yield not_supported(f"{where}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))


_ENV_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def _is_env_name(name: str) -> bool:
    return "=" not in name and name.isascii() and name.isprintable()


def _env_causes(variables: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, variable in enumerate(variables):
        name, where = variable.get("name") or "", f"{path}[{index}]"
        if not name:
            yield required_value(f"{where}.name")
        elif not _is_env_name(name):
            yield invalid_value(f"{where}.name", name, _ENV_NAME_TEXT)
        if "valueFrom" in variable:
            yield from _env_source_causes(variable, f"{where}.valueFrom")


_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")


def _env_source_causes(variable: dict[str, Any], path: str) -> Causes:
    source = variable["valueFrom"] or {}
    if "fieldRef" in source:
        yield from field_ref_causes(source["fieldRef"], f"{path}.fieldRef", ENV_FIELD_PATHS)
    if "resourceFieldRef" in source:
        yield from resource_field_ref_causes(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind not in source:
            continue
        name, key = source[kind].get("name") or "", source[kind].get("key") or ""
        for problem in subdomain_problems(name):
            yield invalid_value(f"{path}.{kind}.name", name, problem)
        if not key:
            yield required_value(f"{path}.{kind}.key")
        for problem in config_key_problems(key) if key else ():
            yield invalid_value(f"{path}.{kind}.key", key, problem)
    count = sum(1 for kind in _ENV_SOURCES if kind in source)
    if not count:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid_value(path, "", text)
    elif variable.get("value"):
        yield invalid_value(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid_value(path, "", "may not have more than one field specified at a time")


def field_ref_causes(reference: dict[str, Any], path: str, allowed: tuple[str, ...]) -> Causes:
    """A field of the pod itself, as an environment variable or a file."""
    field_path, where = str(reference.get("fieldPath") or ""), f"{path}.fieldPath"
    field = "spec.nodeName" if field_path == "spec.host" else field_path
    version = reference.get("apiVersion") or "v1"
    subscript = _SUBSCRIPTED_PATH.fullmatch(field)
    if not field:
        yield required_value(where)
    elif version != "v1":
        yield invalid_value(where, field, f"error converting fieldPath: unsupported pod version: {version}")
    elif subscript and subscript[1] not in _MAP_PATHS:
        text = f"error converting fieldPath: field label does not support subscript: {field}"
        yield invalid_value(where, field, text)
    elif subscript:
        key = subscript[2] if subscript[1] == "metadata.labels" else subscript[2].lower()
        for problem in label_key_problems(key):
            yield invalid_value(path, key, problem)
    elif field not in (*VOLUME_FIELD_PATHS, *ENV_FIELD_PATHS, *_OTHER_FIELD_PATHS):
        yield invalid_value(where, field, f"error converting fieldPath: field label not supported: {field}")
    elif field not in allowed:
        yield not_supported(where, field, allowed)


def resource_field_ref_causes(reference: dict[str, Any], path: str, *, container_required: bool = False) -> Causes:
    """A container's resource, as an environment variable or (`container_required`: it must name its container) a file."""
    resource = reference.get("resource") or ""
    if container_required and not reference.get("containerName"):
        yield required_value(f"{path}.containerName")
    elif not resource:
        yield required_value(f"{path}.resource")
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield not_supported(f"{path}.resource", resource, _RESOURCE_FIELDS)
    if resource and (divisor := reference.get("divisor", "0")) != "0":
        name = resource.partition(".")[2]
        units, title = _CPU_UNITS if name == "cpu" else _BYTE_UNITS, _RESOURCE_TITLES.get(name)
        if title and divisor not in units.split(", "):
            units_text = units.replace("1m, 1", "1m and 1")
            text = f"only divisor's values {units_text} are supported with the {title} resource"
            yield invalid_value(f"{path}.divisor", resource, text)


_CPU_UNITS, _BYTE_UNITS = "1m, 1", "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
_RESOURCE_TITLES = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}


def _env_from_causes(sources: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, source in enumerate(sources):
        where, prefix = f"{path}[{index}]", source.get("prefix") or ""
        if prefix and not _is_env_name(prefix):
            yield invalid_value(f"{where}.prefix", prefix, _ENV_NAME_TEXT)
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        for kind in kinds:
            name = source[kind].get("name") or ""
            if not name:
                yield required_value(f"{where}.{kind}.name")
            for problem in subdomain_problems(name) if name else ():
                yield invalid_value(f"{where}.{kind}.name", name, problem)
        if not kinds:
            yield invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid_value(path, "", "may not have more than one field specified at a time")


# ---------------------------------------------------------------- mounts, resources, rights


def _mount_causes(mounts: Sequence[dict[str, Any]], path: str, volumes: Mapping[str, str]) -> Causes:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        name, mount_path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required_value(f"{path}[{index}].name")
        if name not in volumes:
            yield not_found(f"{path}[{index}].name", name)
        if not mount_path:
            yield required_value(f"{path}[{index}].mountPath")
        elif mount_path in paths:
            yield invalid_value(f"{path}[{index}].mountPath", mount_path, "must be unique")
        paths.add(mount_path)
        if "subPath" in mount or "subPathExpr" in mount:
            yield from _sub_path_causes(mount, path)
        if "mountPropagation" in mount and mount["mountPropagation"] not in _PROPAGATION:
            yield not_supported(f"{path}.mountPropagation", mount["mountPropagation"], _PROPAGATION)


def _sub_path_causes(mount: dict[str, Any], path: str) -> Causes:
    """A part of a volume, named or computed."""
    for field in ("subPath", "subPathExpr"):
        if mount.get(field):
            yield from relative_path_causes(mount[field], f"{path}.{field}")
    if mount.get("subPath") and mount.get("subPathExpr"):
        text = "subPathExpr and subPath are mutually exclusive"
        yield invalid_value(f"{path}.subPathExpr", mount["subPathExpr"], text)


_PROPAGATION = ("Bidirectional", "HostToContainer", "None")


def _device_causes(devices: Sequence[dict[str, Any]], path: str, volumes: Mapping[str, str]) -> Causes:
    """Volumes that a container sees as a disk and not as files."""
    names: set[str] = set()
    device_paths: set[str] = set()
    for index, device in enumerate(devices):
        name, device_path = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required_value(f"{path}[{index}].name")
        if name in names:
            yield invalid_value(f"{path}[{index}].name", name, "must be unique")
        if name not in volumes:
            yield not_found(f"{path}[{index}].name", name)
        elif volumes[name] not in ("persistentVolumeClaim", "ephemeral"):
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid_value(f"{path}[{index}].name", name, text)
        if not device_path:
            yield required_value(f"{path}[{index}].devicePath")
        elif device_path in device_paths:
            yield invalid_value(f"{path}[{index}].devicePath", device_path, "must be unique")
        names.add(name)
        device_paths.add(device_path)


def relative_path_causes(path: str, field: str) -> Causes:
    """A path that must stay inside its volume."""
    if path.startswith("/"):
        yield invalid_value(field, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid_value(field, path, "must not contain '..'")


def _resize_causes(policies: Sequence[dict[str, Any]], path: str) -> Causes:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        for field, supported in (("resourceName", ("cpu", "memory")), ("restartPolicy", _RESIZE_POLICIES)):
            value = policy.get(field) or ""
            if not value:
                yield required_value(path)
            elif value not in supported:
                yield not_supported(path, value, supported)
        name = policy.get("resourceName") or ""
        if name in seen:
            yield duplicate_value(f"{path}[{index}]", name)
        seen.add(name)


_RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def _resource_causes(resources: dict[str, Any], path: str) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{field}[{name}]"
            if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                yield invalid_value(where, name, "must be a standard resource type or fully qualified")
                yield invalid_value(where, name, "must be a standard resource for containers")
            number = parse(amount)
            if number < 0:
                yield invalid_value(where, amount, "must be greater than or equal to 0")
            if "/" in name and number != number.to_integral_value():
                yield invalid_value(where, amount, "must be an integer")
    yield from _request_causes(limits, requests, path)
    names = limits.keys() | requests.keys()
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        yield forbidden_field(path, "HugePages require cpu or memory")


def _request_causes(limits: dict[str, Any], requests: dict[str, Any], path: str) -> Causes:
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None:
            if "/" in name and "kubernetes.io/" not in name:
                yield required_value(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif "/" in name and parse(amount) != parse(limit):
            yield invalid_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif parse(amount) > parse(limit):
            yield invalid_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
