"""The environment of a program: pure.

Order, later wins: the base (a small set, never the user's shell) < the image's ENV < `envFrom` < `env` (with `$(VAR)`,
fields, resources, ConfigMaps, Secrets) ; and what the platform adds where the pod says nothing (threads, proxy), or
always (devices). The annotation `rowlock.dev/inherit-env` ("*" or names, with wildcards) adds variables of the
environment the server was started in.
"""

from __future__ import annotations

import fnmatch
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rowlock import kinds
from rowlock.cluster.node import gpu_shares
from rowlock.cluster.node.gpu_shares import Share
from rowlock.cluster.node.pod_facts import Problem
from rowlock.kinds import Kind
from rowlock.objects import Object, dig, labels, meta, namespace
from rowlock.objects import annotations as notes
from rowlock.objects import name as name_of
from rowlock.quantity import parse

INHERIT = "rowlock.dev/inherit-env"
BASE = (
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""What a program gets of the server's own environment without asking."""
HOST_ONLY = ("LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH", "CUDA_HOME")
"""And with an image that stands for the host."""
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REFERENCE = re.compile(r"\$(\$|\([A-Za-z_.-][A-Za-z0-9_.-]*\))")
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_WORDS = {"ConfigMap": "configmap", "Secret": "secret"}

Lookup = Callable[[Kind, str, str], Object | None]


class Missing(Exception):
    """The environment cannot be built; carries what the container's status says."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.problem = Problem(reason, message)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container runs, as far as its environment says so."""

    node: str
    pod_ip: str
    host_ip: str = "127.0.0.1"
    cpus: Decimal = Decimal(1)
    memory: int = 0
    neighbours: int = 1
    """Pods that share the node's CPUs, this one included."""
    devices: tuple[str, ...] | None = None
    """UUIDs of its GPUs; () = none; None = this machine has no GPUs and no pretend ones."""
    simulated: str | None = None
    proxy: str = ""
    peers: tuple[str, ...] = ()
    """Short names of the pods of the same job: to be reached without the proxy."""
    extras: Mapping[str, str] = field(default_factory=dict)
    share: Share | None = None
    """Of a GPU, when it has less than a whole one."""


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` from `env`, `$$` an escaped dollar; what is unknown stays as it is."""

    def one(found: re.Match[str]) -> str:
        token = found[1]
        if token == "$":
            return "$"
        return env.get(token[1:-1], found[0])

    return _REFERENCE.sub(one, text)


def base(server: Mapping[str, str], *, host: bool, first: str = "") -> dict[str, str]:
    """The minimal environment: `first` leads PATH; an image that stands for the host gets the server's PATH too."""
    found = {k: server[k] for k in BASE + (HOST_ONLY if host else ()) if k in server}
    found.setdefault("LANG", "C.UTF-8")
    parts = [first, server.get("PATH", "") if host else "", STANDARD_PATH]
    path = [step for part in parts for step in part.split(":") if step]
    return {**found, "PATH": ":".join(dict.fromkeys(path))}


def inherited(pod: Object, server: Mapping[str, str]) -> dict[str, str]:
    """What `rowlock.dev/inherit-env` asks for."""
    patterns = [p.strip() for p in notes(pod).get(INHERIT, "").split(",") if p.strip()]
    return {k: v for k, v in server.items() if any(fnmatch.fnmatchcase(k, p) for p in patterns)}


def declared(pod: Object, container: Mapping[str, Any], place: Place, lookup: Lookup) -> dict[str, str]:
    """`envFrom` and `env` of the container. Raises Missing when something they name is not there."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind, ref in ((kinds.CONFIG_MAP, source.get("configMapRef")), (kinds.SECRET, source.get("secretRef"))):
            if ref:
                prefix = source.get("prefix", "")
                found |= {prefix + k: v for k, v in _data(kind, namespace(pod), ref, lookup).items()}
    for entry in container.get("env") or ():
        if entry.get("valueFrom"):
            value = _value_from(pod, container, place, entry["valueFrom"], lookup)
            if value is None:
                continue
        else:
            value = expand(entry.get("value") or "", found)
        found[entry["name"]] = value
    return found


def _data(kind: Kind, where: str, ref: Mapping[str, Any], lookup: Lookup) -> dict[str, str]:
    obj = lookup(kind, where, ref["name"])
    if obj is None:
        if ref.get("optional"):
            return {}
        raise Missing(f'{_WORDS[kind.name]} "{ref["name"]}" not found')
    if kind is kinds.SECRET:
        return {k: b64decode(v).decode(errors="surrogateescape") for k, v in (obj.get("data") or {}).items()}
    return dict(obj.get("data") or {})


def _value_from(
    pod: Object, container: Mapping[str, Any], place: Place, source: Mapping[str, Any], lookup: Lookup
) -> str | None:
    if ref := source.get("fieldRef"):
        return pod_field(pod, place, ref["fieldPath"])
    if ref := source.get("resourceFieldRef"):
        return pod_resource(pod, container, place, ref)
    for kind, key in ((kinds.CONFIG_MAP, "configMapKeyRef"), (kinds.SECRET, "secretKeyRef")):
        if ref := source.get(key):
            data = _data(kind, namespace(pod), ref, lookup)
            if ref["key"] not in data and not ref.get("optional"):
                raise Missing(f"couldn't find key {ref['key']} in {kind.name} {namespace(pod)}/{ref['name']}")
            return data.get(ref["key"])
    raise Missing(f"rowlock does not know the source of this variable: {', '.join(source)}")


def pod_field(pod: Object, place: Place, path: str) -> str:
    """The downward API's fields."""
    if found := _FIELD.fullmatch(path):
        return (labels(pod) if found[1] == "labels" else notes(pod)).get(found[2], "")
    known = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace(pod),
        "metadata.uid": str(meta(pod).get("uid", "")),
        "spec.nodeName": place.node,
        "spec.host": place.node,  # its name in old manifests
        "spec.serviceAccountName": dig(pod, "spec.serviceAccountName", "default"),
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
    }
    if path not in known:
        raise Missing(f"unsupported field path {path}: rowlock knows {', '.join(known)}, metadata.labels['…']")
    return str(known[path])


def pod_resource(pod: Object, container: Mapping[str, Any], place: Place, ref: Mapping[str, Any]) -> str:
    """A resourceFieldRef: the container's limit or request, divided and rounded up; the node's where it has none."""
    of = ref.get("containerName") or container["name"]
    every = [*dig(pod, "spec.containers", ()), *dig(pod, "spec.initContainers", ())]
    chosen = next((c for c in every if c["name"] == of), container)
    side, _, resource = str(ref["resource"]).partition(".")
    amount = dig(chosen, f"resources.{side}", {}).get(resource)
    if amount is None:
        amount = {"limits.cpu": place.cpus, "limits.memory": place.memory}.get(str(ref["resource"]), 0)
    divisor = parse(ref.get("divisor") or 1) or Decimal(1)
    return str(int((parse(str(amount)) / divisor).to_integral_value("ROUND_CEILING")))


def threads(container: Mapping[str, Any], place: Place) -> int:
    """Threads that this container's CPU share is worth: its limit, else its request, else its part of the node."""
    for side in ("limits", "requests"):
        amount = dig(container, f"resources.{side}", {}).get("cpu")
        if amount is not None and (side == "limits" or parse(amount) >= 1):
            return max(1, int(parse(amount)))
    return max(1, int(place.cpus / max(1, place.neighbours)))


def platform(container: Mapping[str, Any], place: Place, given: Mapping[str, str]) -> dict[str, str]:
    """What rowlock adds to `given`: threads and proxy where the pod is silent, devices always."""
    found: dict[str, str] = {}
    if "OMP_NUM_THREADS" not in given:
        found["OMP_NUM_THREADS"] = str(threads(container, place))
    if place.proxy:
        values = {"http_proxy": place.proxy, "https_proxy": place.proxy, "no_proxy": ",".join((NO_PROXY, *place.peers))}
        for name, value in values.items():
            if name not in given and name.upper() not in given:
                found |= {name: value, name.upper(): value}
    if place.devices is not None:
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        found["CUDA_VISIBLE_DEVICES"] = ",".join(place.devices)
        found["NVIDIA_VISIBLE_DEVICES"] = ",".join(place.devices) or "void"
    if place.simulated is not None:
        found |= {"CUDA_VISIBLE_DEVICES": "", "ROWLOCK_SIMULATED_GPU": place.simulated}
    if place.share is not None:
        found |= gpu_shares.environment(place.share, given)
    return {**found, **place.extras}


NO_PROXY = "localhost,127.0.0.1,::1,10.77.0.0/16,.svc,.cluster.local"
