"""The defaults of built-in kinds, as a table: type → what the real API server fills in when it reads one.

OpenAPI knows only a few of them; the rest are code there and rows here. Every function gets a dict that the decoder
has just made and owns, and changes it in place. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Made = dict[str, Any]
Fill = Callable[[Made], None]

_CORE = "io.k8s.api.core.v1."


def _values(**values: Any) -> Fill:
    def fill(made: Made) -> None:
        for key, value in values.items():
            if key not in made:
                made[key] = value.copy() if isinstance(value, dict) else value

    return fill


_DOMAIN = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:localhost|{_DOMAIN}(?:\.{_DOMAIN})*:[0-9]+|{_DOMAIN}(?:\.{_DOMAIN})+|(?=[^/]*[A-Z]){_DOMAIN}(?::[0-9]+)?)/)?"
    rf"{_COMPONENT}(?:/{_COMPONENT})*(?P<tag>:\w[\w.-]{{0,127}})?(?P<digest>@[A-Za-z][\w+.-]*:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
"""A name that an image can have; who writes another one is told so when it is to be pulled."""
_LONGEST = 255


@lru_cache(1024)
def pull_policy(image: str) -> str:
    """`Always` for the tag latest, said or unsaid; else `IfNotPresent`."""
    found = _IMAGE.fullmatch(image) if len(image) <= _LONGEST + 200 else None
    if found is None or found["digest"] or len(image.partition("@")[0].removesuffix(found["tag"] or "")) > _LONGEST:
        return "IfNotPresent"
    return "Always" if found["tag"] in (None, ":latest") else "IfNotPresent"


def _container(made: Made) -> None:
    made.setdefault("resources", {})
    made.setdefault("terminationMessagePath", "/dev/termination-log")
    made.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in made:
        made["imagePullPolicy"] = pull_policy(made.get("image", ""))


def _resources(made: Made) -> None:
    """What is limited is requested, unless something else is."""
    limits = made.get("limits")
    if limits:
        requests = made.get("requests") or {}
        missing = {k: v for k, v in limits.items() if k not in requests}
        if missing:
            made["requests"] = {**requests, **missing}


def _volume(made: Made) -> None:
    if not made.keys() - {"name"}:
        made["emptyDir"] = {}


def _probe(made: Made) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not made.get(key):
            made[key] = value


def _pod_spec(made: Made) -> None:
    _POD_SPEC(made)
    if made["terminationGracePeriodSeconds"] < 0:
        made["terminationGracePeriodSeconds"] = 1  # once meant "at once"
    account = made.get("serviceAccountName") or made.get("serviceAccount")
    if account:
        made["serviceAccountName"] = made["serviceAccount"] = account
    if made.get("hostNetwork"):
        for container in made.get("containers") or ():
            for port in container.get("ports") or ():
                port.setdefault("hostPort", port.get("containerPort"))


_POD_SPEC = _values(
    restartPolicy="Always",
    terminationGracePeriodSeconds=30,
    dnsPolicy="ClusterFirst",
    securityContext={},
    schedulerName="default-scheduler",
    enableServiceLinks=True,
)


def _pod(made: Made) -> None:
    made.setdefault("status", {}).setdefault("phase", "Pending")


def _pod_status(made: Made) -> None:
    """The older field is the first of the newer list."""
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        address = made.get(one)
        if address and [entry.get("ip") for entry in made.get(many) or ()][:1] != [address]:
            made[many] = [{"ip": address}]


def _service_port(made: Made) -> None:
    made.setdefault("protocol", "TCP")
    if not made.get("targetPort") and "port" in made:
        made["targetPort"] = made["port"]


def _service_spec(made: Made) -> None:
    _SERVICE_SPEC(made)
    if made["sessionAffinity"] == "None":
        made.pop("sessionAffinityConfig", None)
    elif made["sessionAffinity"] == "ClientIP":
        client = (made.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        made["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800, **client}}
    if made.get("type") != "ExternalName":
        made.setdefault("internalTrafficPolicy", "Cluster")
        # names without a selector are somebody else's to fill: of either family
        both = made.get("clusterIP") == "None" and not made.get("selector")
        made.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
        made.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
    if made.get("clusterIP"):
        made.setdefault("clusterIPs", [made["clusterIP"]])
    if made.get("externalIPs"):
        made.setdefault("externalTrafficPolicy", "Cluster")


_SERVICE_SPEC = _values(sessionAffinity="None", type="ClusterIP")


def _secret(made: Made) -> None:
    made.setdefault("type", "Opaque")


def _claim(made: Made) -> None:
    made.setdefault("status", {}).setdefault("phase", "Pending")


def _namespace(made: Made) -> None:
    made.setdefault("spec", {})  # its finalizer is the store's: a default would bring it back when it is taken away
    made.setdefault("status", {}).setdefault("phase", "Active")
    meta = made.setdefault("metadata", {})
    if meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


def _event(made: Made) -> None:
    made.setdefault("involvedObject", {})
    made.setdefault("source", {})
    for key in ("eventTime", "firstTimestamp", "lastTimestamp"):  # a time that is not known is written as one
        made.setdefault(key, None)
    made.setdefault("reportingComponent", "")
    made.setdefault("reportingInstance", "")


def _lease(made: Made) -> None:
    """Coordinated elections are switched off on a real server: it drops what belongs to them."""
    made.pop("preferredHolder", None)
    made.pop("strategy", None)


def _autoscaler(made: Made) -> None:
    made.setdefault("minReplicas", 1)


def _role(made: Made) -> None:
    made["rules"] = made.get("rules") or None


def _role_binding(made: Made) -> None:
    for subject in made.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")
    made.setdefault("roleRef", {}).setdefault("apiGroup", "rbac.authorization.k8s.io")


DEFAULTS: dict[str, Fill] = {
    _CORE + "Container": _container,
    _CORE + "EphemeralContainer": _container,
    _CORE + "ContainerPort": _values(protocol="TCP"),
    _CORE + "ResourceRequirements": _resources,
    _CORE + "Probe": _probe,
    _CORE + "HTTPGetAction": _values(path="/", scheme="HTTP"),
    _CORE + "GRPCAction": _values(service=""),
    _CORE + "Volume": _volume,
    _CORE + "SecretVolumeSource": _values(defaultMode=420),
    _CORE + "ConfigMapVolumeSource": _values(defaultMode=420),
    _CORE + "DownwardAPIVolumeSource": _values(defaultMode=420),
    _CORE + "ProjectedVolumeSource": _values(defaultMode=420, sources=None),
    _CORE + "PersistentVolumeClaimTemplate": _values(metadata={}),
    _CORE + "PreferredSchedulingTerm": _values(preference={}),
    _CORE + "Sysctl": _values(value=""),
    _CORE + "HTTPHeader": _values(value=""),
    _CORE + "ServiceAccountTokenProjection": _values(expirationSeconds=3600),
    _CORE + "ObjectFieldSelector": _values(apiVersion="v1"),
    _CORE + "HostPathVolumeSource": _values(type=""),
    _CORE + "TopologySpreadConstraint": _values(),
    _CORE + "PodSpec": _pod_spec,
    _CORE + "Pod": _pod,
    _CORE + "PodCondition": _values(lastProbeTime=None, lastTransitionTime=None),
    _CORE + "NodeCondition": _values(lastHeartbeatTime=None, lastTransitionTime=None),
    _CORE + "PersistentVolumeClaimCondition": _values(lastProbeTime=None, lastTransitionTime=None),
    _CORE + "ContainerStateRunning": _values(startedAt=None),
    _CORE + "ContainerStateTerminated": _values(startedAt=None, finishedAt=None),
    _CORE + "ResourceFieldSelector": _values(divisor="0"),
    _CORE + "Service": _values(spec={}, status={"loadBalancer": {}}),
    _CORE + "ServiceSpec": _service_spec,
    _CORE + "ServicePort": _service_port,
    _CORE + "ServiceStatus": _values(loadBalancer={}),
    _CORE + "Secret": _secret,
    _CORE + "PersistentVolumeClaimSpec": _values(volumeMode="Filesystem"),
    _CORE + "PersistentVolumeClaim": _claim,
    _CORE + "Namespace": _namespace,
    _CORE + "NodeStatus": _values(
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
    _CORE + "Event": _event,
    _CORE + "PodStatus": _pod_status,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Condition": _values(message="", reason=""),
    "io.k8s.api.scheduling.v1.PriorityClass": _values(preemptionPolicy="PreemptLowerPriority", value=0),
    "io.k8s.api.coordination.v1.LeaseSpec": _lease,
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec": _autoscaler,
    "io.k8s.api.rbac.v1.Role": _role,
    "io.k8s.api.rbac.v1.RoleBinding": _role_binding,
}
