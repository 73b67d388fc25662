"""What a pod asks for and does not get here: a sentence each, and it runs all the same. Pure.

A process of this machine gets what `worker/security_context.py` applies; a container what its engine can do.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rowlock.kubelet.pod.spec import Fields, PodSpec

_SHOWN_NAMES = 5
WATCHDOG_REASON = "the control groups of this machine cannot be written here"
ROOT_ONLY_FIELDS = ("runAsUser", "runAsGroup", "supplementalGroups", "fsGroup", "fsGroupChangePolicy")
"""Fields that are applied only where root started the cluster."""
ALWAYS_APPLIED_FIELDS = ("runAsNonRoot", "allowPrivilegeEscalation")
"""Fields that are applied everywhere, or need no action."""
UNSUPPORTED_SECURITY_FIELDS = (
    "seccompProfile",
    "appArmorProfile",
    "seLinuxOptions",
    "procMount",
    "windowsOptions",
    "seLinuxChangePolicy",
)
"""Parts of a securityContext that are left to the engine's own defaults."""


def pod_warnings(
    pod: PodSpec, limits: str = "watchdog", *, engine: str = "", engine_problem: str = "", has_namespaces: bool = False
) -> list[str]:
    """What the pod asks for and does not get, a sentence each; it runs all the same. `engine`: the engine of its containers, if any;
    `engine_problem`: why these do not reach this machine;
    `has_namespaces`: whether pods that run as processes have networks of their own."""
    contexts = [("the pod", pod.security_context), *((c.name, c.security_context) for c in pod.containers)]
    if engine:
        warnings = engine_context_warnings(contexts) + memory_volume_warnings(pod.volumes, engine)
        if pod.wants_token and engine_problem:
            text = f"pods in containers do not reach the API server here ({engine_problem}), so they have no token"
            warnings.append(f"automountServiceAccountToken: {text}")
    else:
        warnings = [text for owner, context in contexts for text in unapplied_warnings(context, owner)]
    warnings += network_warnings(pod.object.get("spec") or {}, has_own_network=has_namespaces and not engine)
    warnings += field_warnings(pod.object.get("spec") or {})
    for container in pod.main_containers:
        if limits == "watchdog" and not engine and container.limits.get("cpu"):
            text = f"the cpu limit of {container.name} counts for the scheduler but is not enforced"
            warnings.append(f"{text}: {WATCHDOG_REASON}")
        for mount in container.volume_mounts:
            if mount.get("mountPropagation") not in (None, "None"):
                warnings.append(f"mountPropagation of {mount['name']} in {container.name} is not applied")
    return warnings


def network_warnings(spec: Fields, *, has_own_network: bool) -> list[str]:
    """What the pod asks for of its host's network and names and does not get, a sentence each."""
    warnings = []
    if spec.get("hostNetwork") and has_own_network:
        warnings.append(
            "hostNetwork: the pod has a network of its own all the same. 127.0.0.1 on this machine leads to its declared ports; "
            "to reach this machine's, start with rowlock up --host-ports and use host.rowlock.internal, or start with --network rewrite"
        )
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    ports = [port for container in containers for port in container.get("ports") or ()]
    other = {port.get("protocol") for port in ports if port.get("hostPort")} - {"TCP", None}
    if other:
        warnings.append(
            f"hostPort over {', '.join(sorted(map(str, other)))}: only TCP ports of this machine lead to pods"
        )
    if spec.get("dnsConfig") and has_own_network:
        warnings.append(
            "dnsConfig: pods ask no name server. Names of pods and services are in /etc/hosts, the proxy of the pod looks up others; "
            "add names with hostAliases"
        )
    return warnings


def field_warnings(spec: Fields) -> list[str]:
    """What else of a pod's spec has no effect anywhere on this machine, a sentence each."""
    unused = [name for name in ("runtimeClassName", "setHostnameAsFQDN", "hostnameOverride") if spec.get(name)]
    unused += ["hostUsers: false"] if spec.get("hostUsers") is False else []
    warnings = [f"{name} is not applied on this machine" for name in unused]
    if spec.get("resources"):
        warnings.append("spec.resources is neither counted nor enforced: write requests and limits into each container")
    if gates := [str(gate.get("conditionType")) for gate in spec.get("readinessGates") or ()]:
        warnings.append(f"readinessGates: the pod is Ready without the condition {', '.join(gates)}")
    if (system := (spec.get("os") or {}).get("name") or "linux") != "linux":
        warnings.append(f"os.name {system}: its programs run on this machine all the same")
    return warnings


def unknown_names_warning(names: Sequence[str]) -> str:
    """Warns of addresses that name pods or services, where pods share this machine's network."""
    shown = ", ".join(names[:_SHOWN_NAMES]) + (
        f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    )
    return (
        f"{shown}: with --network rewrite programs cannot look up names of pods and services. Take the address from MASTER_ADDR and "
        "MASTER_PORT, or write 127.0.0.1 and a port that no other pod has"
    )


def unapplied_warnings(security_context: Mapping[str, Any], owner: str, euid: int = os.geteuid()) -> list[str]:
    """Which fields of a security context are not applied: one sentence, or an empty list. Empty fields and `false` ask for
    nothing, and neither does the user that the server runs as."""
    applied = {*ALWAYS_APPLIED_FIELDS, *(ROOT_ONLY_FIELDS if euid == 0 else ())}
    unapplied = sorted(
        key
        for key, value in security_context.items()
        if key not in applied
        and value not in (None, {}, [])
        and value is not False
        and not (key == "runAsUser" and value == euid)
    )
    if not unapplied:
        return []
    return [
        f"securityContext of {owner} is not applied ({', '.join(unapplied)}): programs run as the user who started the cluster"
    ]


def engine_context_warnings(contexts: Iterable[tuple[str, Fields]]) -> list[str]:
    """What security contexts ask of a container engine and do not get, a sentence each; each with its owner's name."""
    sentences = []
    for owner, security_context in contexts:
        unsupported = sorted(
            key for key in UNSUPPORTED_SECURITY_FIELDS if security_context.get(key) not in (None, {}, "")
        )
        if unsupported:
            sentences.append(
                f"securityContext of {owner}: {', '.join(unsupported)} left to the container engine's defaults"
            )
    return sentences


def memory_volume_warnings(volumes: Iterable[Fields], engine: str) -> list[str]:
    """Size limits of memory volumes that the engine does not enforce, a sentence each."""
    unkept = [volume["name"] for volume in volumes if engine == "podman" and _is_sized_memory(volume)]
    return [f"sizeLimit of the memory volume {name} is not kept: Podman's have no size" for name in unkept]


def _is_sized_memory(volume: Fields) -> bool:
    source = volume.get("emptyDir") or {}
    return source.get("medium") == "Memory" and bool(source.get("sizeLimit"))
