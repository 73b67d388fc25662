"""The defaults of built-in kinds, as a table: type → what the real API server fills in when it reads one.

OpenAPI knows only a few of them; the rest are code there and rows here. Every function gets a dict that the decoder
has just made and owns, and changes it in place. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

JsonObject = dict[str, Any]
SetDefaults = Callable[[JsonObject], None]

_CORE = "io.k8s.api.core.v1."


def _default_values(**values: Any) -> SetDefaults:
    def set_defaults(obj: JsonObject) -> None:
        for key, value in values.items():
            if key not in obj:
                obj[key] = value.copy() if isinstance(value, dict) else value

    return set_defaults


_DOMAIN = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|{_DOMAIN}(?:\.{_DOMAIN})*:[0-9]+|{_DOMAIN}(?:\.{_DOMAIN})+|(?=[^/]*[A-Z]){_DOMAIN}(?::[0-9]+)?)/)?"
    rf"{_COMPONENT}(?:/{_COMPONENT})*(?P<tag>:\w[\w.-]{{0,127}})?(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
"""A name that an image can have; who writes another one is told so when it is to be pulled."""
_MAX_NAME_LENGTH = 255


@lru_cache(1024)
def pull_policy(image: str) -> str:
    """`Always` for the tag latest, said or unsaid; else `IfNotPresent`."""
    reference = _IMAGE.fullmatch(image) if len(image) <= _MAX_NAME_LENGTH + 200 else None
    if (
        reference is None
        or reference["digest"]
        or len(image.partition("@")[0].removesuffix(reference["tag"] or "")) > _MAX_NAME_LENGTH
    ):
        return "IfNotPresent"
    return "Always" if reference["tag"] in (None, ":latest") else "IfNotPresent"


def _set_container_defaults(obj: JsonObject) -> None:
    obj.setdefault("resources", {})
    obj.setdefault("terminationMessagePath", "/dev/termination-log")
    obj.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in obj:
        obj["imagePullPolicy"] = pull_policy(obj.get("image", ""))


def _set_resource_defaults(obj: JsonObject) -> None:
    """What is limited is requested, unless something else is."""
    limits = obj.get("limits")
    if limits:
        requests = obj.get("requests") or {}
        missing = {k: v for k, v in limits.items() if k not in requests}
        if missing:
            obj["requests"] = {**requests, **missing}


def _set_volume_defaults(obj: JsonObject) -> None:
    if not obj.keys() - {"name"}:
        obj["emptyDir"] = {}


def _set_probe_defaults(obj: JsonObject) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not obj.get(key):
            obj[key] = value


def _set_pod_spec_defaults(obj: JsonObject) -> None:
    _SET_POD_SPEC_VALUES(obj)
    if obj["terminationGracePeriodSeconds"] < 0:
        obj["terminationGracePeriodSeconds"] = 1  # once meant "at once"
    account = obj.get("serviceAccountName") or obj.get("serviceAccount")
    if account:
        obj["serviceAccountName"] = obj["serviceAccount"] = account
    if obj.get("hostNetwork"):
        for container in obj.get("containers") or ():
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort"))


_SET_POD_SPEC_VALUES = _default_values(
    restartPolicy="Always",
    terminationGracePeriodSeconds=30,
    dnsPolicy="ClusterFirst",
    securityContext={},
    schedulerName="default-scheduler",
    enableServiceLinks=True,
)


def _set_pod_defaults(obj: JsonObject) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _set_pod_status_defaults(obj: JsonObject) -> None:
    """The older field is the first of the newer list."""
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        address = obj.get(one)
        if address and [entry.get("ip") for entry in obj.get(many) or ()][:1] != [address]:
            obj[many] = [{"ip": address}]


def _set_service_port_defaults(obj: JsonObject) -> None:
    obj.setdefault("protocol", "TCP")
    if not obj.get("targetPort") and "port" in obj:
        obj["targetPort"] = obj["port"]


def _set_service_spec_defaults(obj: JsonObject) -> None:
    _SET_SERVICE_SPEC_VALUES(obj)
    if obj["sessionAffinity"] == "None":
        obj.pop("sessionAffinityConfig", None)
    elif obj["sessionAffinity"] == "ClientIP":
        client = (obj.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        obj["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800, **client}}
    if obj.get("type") != "ExternalName":
        obj.setdefault("internalTrafficPolicy", "Cluster")
        # names without a selector are somebody else's to fill: of either family
        dual_stack = obj.get("clusterIP") == "None" and not obj.get("selector")
        obj.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual_stack else ["IPv4"])
        obj.setdefault("ipFamilyPolicy", "RequireDualStack" if dual_stack else "SingleStack")
    if obj.get("clusterIP"):
        obj.setdefault("clusterIPs", [obj["clusterIP"]])
    if obj.get("externalIPs"):
        obj.setdefault("externalTrafficPolicy", "Cluster")


_SET_SERVICE_SPEC_VALUES = _default_values(sessionAffinity="None", type="ClusterIP")


def _set_secret_defaults(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")


def _set_claim_defaults(obj: JsonObject) -> None:
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _set_namespace_defaults(obj: JsonObject) -> None:
    obj.setdefault("spec", {})  # its finalizer is the store's: a default would bring it back when it is taken away
    obj.setdefault("status", {}).setdefault("phase", "Active")
    meta = obj.setdefault("metadata", {})
    if meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


def _set_event_defaults(obj: JsonObject) -> None:
    obj.setdefault("involvedObject", {})
    obj.setdefault("source", {})
    for key in ("eventTime", "firstTimestamp", "lastTimestamp"):  # a time that is not known is written as one
        obj.setdefault(key, None)
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _drop_coordinated_election(obj: JsonObject) -> None:
    """Coordinated elections are switched off on a real server: it drops what belongs to them."""
    obj.pop("preferredHolder", None)
    obj.pop("strategy", None)


def _set_autoscaler_defaults(obj: JsonObject) -> None:
    obj.setdefault("minReplicas", 1)


def _set_role_defaults(obj: JsonObject) -> None:
    obj["rules"] = obj.get("rules") or None


def _set_role_binding_defaults(obj: JsonObject) -> None:
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")
    obj.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")


DEFAULTS: dict[str, SetDefaults] = {
    _CORE + "Container": _set_container_defaults,
    _CORE + "EphemeralContainer": _set_container_defaults,
    _CORE + "ContainerPort": _default_values(protocol="TCP"),
    _CORE + "ResourceRequirements": _set_resource_defaults,
    _CORE + "Probe": _set_probe_defaults,
    _CORE + "HTTPGetAction": _default_values(path="/", scheme="HTTP"),
    _CORE + "GRPCAction": _default_values(service=""),
    _CORE + "Volume": _set_volume_defaults,
    _CORE + "SecretVolumeSource": _default_values(defaultMode=420),
    _CORE + "ConfigMapVolumeSource": _default_values(defaultMode=420),
    _CORE + "DownwardAPIVolumeSource": _default_values(defaultMode=420),
    _CORE + "ProjectedVolumeSource": _default_values(defaultMode=420, sources=None),
    _CORE + "PersistentVolumeClaimTemplate": _default_values(metadata={}),
    _CORE + "PreferredSchedulingTerm": _default_values(preference={}),
    _CORE + "Sysctl": _default_values(value=""),
    _CORE + "HTTPHeader": _default_values(value=""),
    _CORE + "ServiceAccountTokenProjection": _default_values(expirationSeconds=3600),
    _CORE + "ObjectFieldSelector": _default_values(apiVersion="v1"),
    _CORE + "HostPathVolumeSource": _default_values(type=""),
    _CORE + "TopologySpreadConstraint": _default_values(),
    _CORE + "PodSpec": _set_pod_spec_defaults,
    _CORE + "Pod": _set_pod_defaults,
    _CORE + "PodCondition": _default_values(lastProbeTime=None, lastTransitionTime=None),
    _CORE + "NodeCondition": _default_values(lastHeartbeatTime=None, lastTransitionTime=None),
    _CORE + "PersistentVolumeClaimCondition": _default_values(lastProbeTime=None, lastTransitionTime=None),
    _CORE + "ContainerStateRunning": _default_values(startedAt=None),
    _CORE + "ContainerStateTerminated": _default_values(startedAt=None, finishedAt=None),
    _CORE + "ResourceFieldSelector": _default_values(divisor="0"),
    _CORE + "Service": _default_values(spec={}, status={"loadBalancer": {}}),
    _CORE + "ServiceSpec": _set_service_spec_defaults,
    _CORE + "ServicePort": _set_service_port_defaults,
    _CORE + "ServiceStatus": _default_values(loadBalancer={}),
    _CORE + "Secret": _set_secret_defaults,
    _CORE + "PersistentVolumeClaimSpec": _default_values(volumeMode="Filesystem"),
    _CORE + "PersistentVolumeClaim": _set_claim_defaults,
    _CORE + "Namespace": _set_namespace_defaults,
    _CORE + "NodeStatus": _default_values(
        daemonEndpoints={"kubeletEndpoint": {"Port": 0}},
        nodeInfo={
            "architecture": "",
            "bootID": "",
            "containerRuntimeVersion": "",
            "kernelVersion": "",
            "kubeProxyVersion": "",
            "kubeletVersion": "",
            "machineID": "",
            "operatingSystem": "",
            "osImage": "",
            "systemUUID": "",
        },
    ),
    _CORE + "Event": _set_event_defaults,
    _CORE + "PodStatus": _set_pod_status_defaults,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Condition": _default_values(message="", reason=""),
    "io.k8s.api.scheduling.v1.PriorityClass": _default_values(preemptionPolicy="PreemptLowerPriority", value=0),
    "io.k8s.api.coordination.v1.LeaseSpec": _drop_coordinated_election,
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec": _set_autoscaler_defaults,
    "io.k8s.api.rbac.v1.Role": _set_role_defaults,
    "io.k8s.api.rbac.v1.RoleBinding": _set_role_binding_defaults,
}
