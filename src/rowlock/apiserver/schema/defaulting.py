"""Defaults that depend on other fields. All others are rows of the table of types (`structs.DEFAULTS`).

Every function changes in place a dict that the decoder has just made, after the table's defaults; it
implements `SetDefaults_…` of the type, or the changes of `PrepareForCreate` and `PrepareForUpdate`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any

from rowlock.apiserver.schema import structs, types

JsonObject = dict[str, Any]
SetDefaults = Callable[[JsonObject], None]

_CORE = "io.k8s.api.core.v1."
_HPA_BEHAVIOR = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior"


_DOMAIN = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|{_DOMAIN}(?:\.{_DOMAIN})*:[0-9]+|{_DOMAIN}(?:\.{_DOMAIN})+|(?=[^/]*[A-Z]){_DOMAIN}(?::[0-9]+)?)/)?"
    rf"{_COMPONENT}(?:/{_COMPONENT})*(?P<tag>:\w[\w.-]{{0,127}})?(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
"""A valid image reference; others are refused when the image is pulled."""
_MAX_NAME_LENGTH = 255


@lru_cache(1024)
def pull_policy(image: str) -> str:
    """`Always` for the tag latest, explicit or implied; else `IfNotPresent`."""
    reference = _IMAGE.fullmatch(image) if len(image) <= _MAX_NAME_LENGTH + 200 else None
    if (
        reference is None
        or reference["digest"]
        or len(image.partition("@")[0].removesuffix(reference["tag"] or "")) > _MAX_NAME_LENGTH
    ):
        return "IfNotPresent"
    return "Always" if reference["tag"] in (None, ":latest") else "IfNotPresent"


def _set_container_defaults(obj: JsonObject) -> None:
    if "imagePullPolicy" not in obj:
        obj["imagePullPolicy"] = pull_policy(obj.get("image", ""))


def _set_volume_defaults(obj: JsonObject) -> None:
    if not obj.keys() - {"name"}:
        obj["emptyDir"] = {}


_SWITCHED_OFF = {
    "containers": ("restartPolicy", "restartPolicyRules"),
    "initContainers": ("restartPolicyRules",),
    "ephemeralContainers": ("restartPolicy", "restartPolicyRules"),
}
"""Fields that a real server drops silently, because the feature ContainerRestartRules is disabled there."""


def _set_pod_spec_defaults(obj: JsonObject) -> None:
    if obj["terminationGracePeriodSeconds"] < 0:
        obj["terminationGracePeriodSeconds"] = 1  # a negative value once meant immediately
    account = obj.get("serviceAccountName") or obj.get("serviceAccount")
    if account:
        obj["serviceAccountName"] = obj["serviceAccount"] = account
    for field, dropped in _SWITCHED_OFF.items():
        for container in obj.get(field) or ():
            for name in dropped:
                container.pop(name, None)
    if obj.get("hostNetwork"):
        for container in obj.get("containers") or ():
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort"))


def _set_pod_defaults(obj: JsonObject) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    if "spec" not in obj:
        return
    spec = obj["spec"]
    spec.setdefault("enableServiceLinks", True)
    # Limits are also requests. (Pod templates do not get this default.)
    for container in chain(spec.get("containers") or (), spec.get("initContainers") or ()):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        if missing := {k: v for k, v in limits.items() if k not in requests}:
            container["resources"] = {**resources, "requests": {**requests, **missing}}


def _set_job_defaults(obj: JsonObject) -> None:
    """The defaults of a Job's spec, which the template of a CronJob does not get; labels of its pod template, if it has none."""
    if "spec" in obj:
        _set_job_spec_defaults(obj["spec"])
    template_labels = ((obj.get("spec") or {}).get("template") or {}).get("metadata", {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if template_labels and not metadata.get("labels"):
        metadata["labels"] = dict(template_labels)


def _set_job_spec_defaults(obj: JsonObject) -> None:
    """`completions` is 1 only if `parallelism` is absent too: with `parallelism` alone, any pod's success completes the Job."""
    if "completions" not in obj and "parallelism" not in obj:
        obj["completions"] = 1
    obj.setdefault("parallelism", 1)
    obj.setdefault("completionMode", "NonIndexed")
    obj.setdefault("suspend", False)
    obj.setdefault("manualSelector", False)
    obj.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in obj else 6)
    obj.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in obj else "TerminatingOrFailed")


def _set_pod_status_defaults(obj: JsonObject) -> None:
    """Fill `podIPs` and `hostIPs` from the older single fields."""
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        address = obj.get(one)
        if address and [entry.get("ip") for entry in obj.get(many) or ()][:1] != [address]:
            obj[many] = [{"ip": address}]


def _set_service_port_defaults(obj: JsonObject) -> None:
    if not obj.get("targetPort") and "port" in obj:
        obj["targetPort"] = obj["port"]


def _set_service_spec_defaults(obj: JsonObject) -> None:
    if obj["sessionAffinity"] == "None":
        obj.pop("sessionAffinityConfig", None)
    elif obj["sessionAffinity"] == "ClientIP":
        client = (obj.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        obj["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800, **client}}
    if obj.get("type") != "ExternalName":
        obj.setdefault("internalTrafficPolicy", "Cluster")
        # a headless service without a selector gets endpoints of either family from others
        dual_stack = obj.get("clusterIP") == "None" and not obj.get("selector")
        obj.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual_stack else ["IPv4"])
        obj.setdefault("ipFamilyPolicy", "RequireDualStack" if dual_stack else "SingleStack")
    if obj.get("clusterIP"):
        obj.setdefault("clusterIPs", [obj["clusterIP"]])
    if obj.get("externalIPs"):
        obj.setdefault("externalTrafficPolicy", "Cluster")


def _set_namespace_defaults(obj: JsonObject) -> None:
    meta = obj.get("metadata") or {}
    if meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


def _drop_coordinated_election(obj: JsonObject) -> None:
    """Drop the fields of coordinated leader election, which is disabled on a real server."""
    obj.pop("preferredHolder", None)
    obj.pop("strategy", None)


def _set_scaling_defaults(obj: JsonObject) -> None:
    """Complete partial rules with the defaults of their direction (`GenerateHPAScaleUpRules`, `…Down…`)."""
    for direction, rules in types.schema(_HPA_BEHAVIOR)[structs.DEFAULTS].items():
        obj[direction] = {**rules, **obj[direction]}


def _set_role_binding_defaults(obj: JsonObject) -> None:
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


SET_DEFAULTS: dict[str, SetDefaults] = {
    _CORE + "Container": _set_container_defaults,
    _CORE + "EphemeralContainer": _set_container_defaults,
    _CORE + "Namespace": _set_namespace_defaults,
    _CORE + "Pod": _set_pod_defaults,
    _CORE + "PodSpec": _set_pod_spec_defaults,
    _CORE + "PodStatus": _set_pod_status_defaults,
    _CORE + "ServicePort": _set_service_port_defaults,
    _CORE + "ServiceSpec": _set_service_spec_defaults,
    _CORE + "Volume": _set_volume_defaults,
    _HPA_BEHAVIOR: _set_scaling_defaults,
    "io.k8s.api.batch.v1.Job": _set_job_defaults,
    "io.k8s.api.coordination.v1.LeaseSpec": _drop_coordinated_election,
    "io.k8s.api.rbac.v1.RoleBinding": _set_role_binding_defaults,
    "io.k8s.api.rbac.v1.ClusterRoleBinding": _set_role_binding_defaults,
}
