"""The environment of a program: pure.

Later sources win: the base (a small set, never the user's shell) < the image's ENV < Services of the namespace < `envFrom` < `env`
(with `$(VAR)`, fields, resources, ConfigMaps, Secrets). The platform adds threads and proxy unless the pod sets them, and always
its marks and devices (`node/gpus.py`). Beyond the base, no program gets the variables of the shell that started the server.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kubelet.network.hosts import HOST_NAME
from rowlock.kubelet.pod.exec_space import ExecSpace
from rowlock.kubelet.pod.facts import (
    DATA_DIRECTORY_VARIABLE,
    POD_UID_VARIABLE,
    ContainerConfigError,
    ObjectLookup,
)
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.quantity import parse

SHELL_ENVIRONMENT_ANNOTATION = "rowlock.dev/shell-environment"
"""The annotation of pods that get the variables of the shell that submitted them."""
CHECKPOINT_DIR_VARIABLE = "ROWLOCK_CHECKPOINT_DIR"
RESTART_COUNT_VARIABLE = "ROWLOCK_RESTART_COUNT"
"""How often the container was restarted in its pod; a recreated pod begins with 0."""
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_RESOURCE_NAMES = {"ConfigMap": "configmap", "Secret": "secret"}


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """The facts of node and cluster from which container variables are computed."""

    node: str
    pod_ip: str
    host_ip: str = "127.0.0.1"
    cpus: Decimal = Decimal(1)
    memory: int = 0
    pods_on_node: int = 1
    """Pods that share the node's CPUs, this one included."""
    proxy: str = ""
    peers: tuple[str, ...] = ()
    """Short names and addresses of the pods of the same job: to be reached without the proxy."""
    api_server: Mapping[str, str] = field(default_factory=dict)
    """Variables by which in-cluster clients find the API server."""
    services: Mapping[str, str] = field(default_factory=dict)
    """Variables of the Services in the pod's namespace."""
    data_directory: str = ""
    """The identity of the data directory of the pod's cluster."""
    rewrite: Callable[[dict[str, str]], dict[str, str]] | None = None
    """Rewrites the variables of a pod without an address of its own; None = the pod has one."""


def container_environment(
    pod: PodSpec,
    container: ContainerSpec,
    context: EnvironmentContext,
    *,
    base: Mapping[str, str],
    image: Mapping[str, str],
    lookup: ObjectLookup,
    space: ExecSpace,
) -> dict[str, str]:
    """`base` overlaid with variables of the image, the pod and the platform. Raises ContainerConfigError, also beyond `space`."""
    env = {**base, "HOSTNAME": pod.hostname, **context.api_server, **image, **context.services}
    for name, value in env.items():
        space.take(value, name)
    env |= declared_environment(pod, container, context, lookup, space)
    env = context.rewrite(env) if context.rewrite else env
    marks = {POD_UID_VARIABLE: pod.uid, DATA_DIRECTORY_VARIABLE: context.data_directory}
    return {**env, **platform_environment(container, context, env), **marks}


def declared_environment(
    pod: PodSpec,
    container: ContainerSpec,
    context: EnvironmentContext,
    lookup: ObjectLookup,
    space: ExecSpace,
) -> dict[str, str]:
    """The variables of the container's `envFrom` and `env`. Raises ContainerConfigError when something that they refer to does not
    exist, or when they exceed `space`."""
    env, services = dict[str, str](), dict(context.services)  # a variable may refer to both
    for source in container.env_from:
        for kind, ref in ((kinds.CONFIG_MAP, source.get("configMapRef")), (kinds.SECRET, source.get("secretRef"))):
            if ref:
                prefix = source.get("prefix", "")
                for key, stored in _stored_data(kind, pod.namespace, ref, lookup).items():
                    env[prefix + key] = _plain_text(kind, stored)
                    space.take(env[prefix + key], prefix + key)
    for entry in container.env:
        if entry.get("valueFrom"):
            value = _value_from(pod, container, context, entry["valueFrom"], lookup)
            if value is None:
                continue
        else:
            value = space.expand(entry.get("value") or "", ChainMap(env, services), entry["name"])
        space.take(value, entry["name"])
        env[entry["name"]] = value
    return env


def _stored_data(kind: Kind, source_namespace: str, ref: Mapping[str, Any], lookup: ObjectLookup) -> Mapping[str, str]:
    """The data of a ConfigMap or a Secret as stored; `_plain_text` decodes single values, as thousands of variables may name one object."""
    obj = lookup(kind, source_namespace, ref["name"])
    if obj is None:
        if ref.get("optional"):
            return {}
        raise ContainerConfigError(f'{_RESOURCE_NAMES[kind.name]} "{ref["name"]}" not found')
    return obj.get("data") or {}


def _plain_text(kind: Kind, stored: str) -> str:
    return b64decode(stored).decode(errors="surrogateescape") if kind is kinds.SECRET else stored


def _value_from(
    pod: PodSpec,
    container: ContainerSpec,
    context: EnvironmentContext,
    source: Mapping[str, Any],
    lookup: ObjectLookup,
) -> str | None:
    if ref := source.get("fieldRef"):
        return pod_field(pod, context, ref["fieldPath"])
    if ref := source.get("resourceFieldRef"):
        return pod_resource(pod, container, context, ref)
    for kind, key in ((kinds.CONFIG_MAP, "configMapKeyRef"), (kinds.SECRET, "secretKeyRef")):
        if ref := source.get(key):
            data = _stored_data(kind, pod.namespace, ref, lookup)
            if ref["key"] not in data and not ref.get("optional"):
                raise ContainerConfigError(
                    f"couldn't find key {ref['key']} in {kind.name} {pod.namespace}/{ref['name']}"
                )
            return _plain_text(kind, data[ref["key"]]) if ref["key"] in data else None
    raise ContainerConfigError(f"rowlock does not know the source of this variable: {', '.join(source)}")


def pod_field(pod: PodSpec, context: EnvironmentContext, path: str) -> str:
    """The value of a downward API field. Raises ContainerConfigError for an unknown path."""
    if match := _FIELD.fullmatch(path):
        return (pod.labels if match[1] == "labels" else pod.annotations).get(match[2], "")
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": context.node,
        "spec.host": context.node,  # its name in old manifests
        "spec.serviceAccountName": pod.service_account,
        "status.hostIP": context.host_ip,
        "status.hostIPs": context.host_ip,
        "status.podIP": context.pod_ip,
        "status.podIPs": context.pod_ip,
    }
    if path not in fields:
        raise ContainerConfigError(
            f"unsupported field path {path}: rowlock knows {', '.join(fields)}, metadata.labels['…']"
        )
    return str(fields[path])


def pod_resource(pod: PodSpec, container: ContainerSpec, context: EnvironmentContext, ref: Mapping[str, Any]) -> str:
    """A resourceFieldRef: the container's limit or request, divided and rounded up; without one, a limit is the node's amount, else 0."""
    container_name = ref.get("containerName") or container.name
    chosen = pod.by_name.get(container_name, container)
    side, _, resource = str(ref["resource"]).partition(".")
    amount = (chosen.resources.get(side) or {}).get(resource)
    if amount is None:
        amount = {"limits.cpu": context.cpus, "limits.memory": context.memory}.get(str(ref["resource"]), 0)
    divisor = parse(ref.get("divisor") or 1) or Decimal(1)
    return str(int((parse(str(amount)) / divisor).to_integral_value("ROUND_CEILING")))


def thread_count(container: ContainerSpec, context: EnvironmentContext) -> int:
    """Threads for this container's CPU share: its limit, else its request (from 1 CPU on), else an equal part of the node."""
    limit, request = container.limits.get("cpu"), container.requests.get("cpu")
    if limit is not None:
        return max(1, int(parse(limit)))
    if request is not None and parse(request) >= 1:
        return int(parse(request))
    return max(1, int(context.cpus / max(1, context.pods_on_node)))


def platform_environment(
    container: ContainerSpec, context: EnvironmentContext, pod_env: Mapping[str, str]
) -> dict[str, str]:
    """Variables that rowlock adds to `pod_env`: GROUP_RANK, threads and proxy, each unless the pod sets it."""
    env: dict[str, str] = {}
    if pod_env.get("LOCAL_WORLD_SIZE") == "1" and "RANK" in pod_env and "GROUP_RANK" not in pod_env:
        env["GROUP_RANK"] = pod_env["RANK"]  # one rank per pod: torchrun would number groups by pod
    if "OMP_NUM_THREADS" not in pod_env:
        env["OMP_NUM_THREADS"] = str(thread_count(container, context))
    if context.proxy:
        values = {
            "http_proxy": context.proxy,
            "https_proxy": context.proxy,
            "no_proxy": ",".join((NO_PROXY, *context.peers)),
        }
        for name, value in values.items():
            if name not in pod_env and name.upper() not in pod_env:
                env |= {name: value, name.upper(): value}
    return env


NO_PROXY = "localhost,127.0.0.1,::1,10.77.0.1,10.77.0.0/16,.svc,.cluster.local," + HOST_NAME
