"""Converts `security`, `tolerations`, `nodeAffinityRequired`, `ports` and others of a submit to parts of a pod.

They are passed on in Kubernetes' spelling; the kubelet applies them, and reports in an event what it does not
support.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import submit_fields
from rowlock.objects import is_digits
from rowlock.workloads.body_fields import Fields, did_you_mean

_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "Any")
CAPABILITIES = (
    "ALL", "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE",
    "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE",
    "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM",
)  # fmt: skip
"""The capabilities of capabilities(7) in Kubernetes' spelling, and ALL."""
_AFFINITY_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
USER_CREDENTIAL = "userCredential"
"""Key in a variable's `valueFrom`: its value comes from one of the submitter's credentials."""


@dataclass(frozen=True, slots=True)
class PodSecurity:
    """User, groups and privileges of a pod's containers. None means not set."""

    user: int | None = None
    group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    non_root: bool = False
    read_only_root: bool = False
    capabilities: tuple[str, ...] = ()
    seccomp: str = ""
    allow_escalation: bool = False
    privileged: bool = False
    host_ipc: bool = False
    host_network: bool = False

    def pod_fields(self) -> dict[str, Any]:
        """The fields of the pod's spec."""
        context: dict[str, Any] = {
            "runAsUser": self.user,
            "runAsGroup": self.group,
            "supplementalGroups": list(self.supplemental_groups) or None,
            "runAsNonRoot": self.non_root or None,
            "seccompProfile": {"type": self.seccomp} if self.seccomp else None,
        }
        context = {name: value for name, value in context.items() if value is not None}
        fields: dict[str, Any] = {"securityContext": context} if context else {}
        return fields | {
            name: True for name, on in (("hostIPC", self.host_ipc), ("hostNetwork", self.host_network)) if on
        }

    def container_fields(self) -> dict[str, Any]:
        """The fields of the container."""
        context: dict[str, Any] = {"capabilities": {"add": list(self.capabilities)}} if self.capabilities else {}
        for name, on in (
            ("allowPrivilegeEscalation", self.allow_escalation),
            ("privileged", self.privileged),
            ("readOnlyRootFilesystem", self.read_only_root),
        ):
            if on:
                context[name] = True
        return {"securityContext": context} if context else {}


def parse_security(body: Fields) -> PodSecurity:
    """Parse a `security` object; mistakes are added to its errors."""
    body.allow_only(*submit_fields.field_names("security"))
    source = body.choice("uidGidSource", "fromTheImage", "fromIdpToken", "custom")
    user, group = body.integer("runAsUid"), body.integer("runAsGid")
    groups = _parse_groups(body)
    if source == "fromIdpToken":
        body.add_error(
            "uidGidSource",
            "unsupported",
            "tokens of an identity provider name no user of the nodes here; say runAsUid and runAsGid.",
        )
    if source == "fromTheImage" and (user is not None or group is not None or groups):
        body.add_error("uidGidSource", "exclusive", "says fromTheImage, but a user or a group is given. Say custom.")
    seccomp = body.choice("seccompProfileType", "RuntimeDefault", "Unconfined", "Localhost")
    if seccomp == "Localhost":
        body.add_error(
            "seccompProfileType",
            "unsupported",
            "Localhost needs a profile's path, which Run:ai's API has no field for.",
        )
    return PodSecurity(
        user, group, groups, body.flag("runAsNonRoot"), body.flag("readOnlyRootFilesystem"),
        _parse_capabilities(body), seccomp, body.flag("allowPrivilegeEscalation"), body.flag("privileged"),
        body.flag("hostIpc"), body.flag("hostNetwork"),
    )  # fmt: skip


def _parse_capabilities(body: Fields) -> tuple[str, ...]:
    """Capabilities in Kubernetes' spelling. An unknown one is an error, because the container would not start."""
    names = _parse_names(body, "capabilities")
    for name in names:
        if name not in CAPABILITIES:
            nearest = did_you_mean(name.upper().removeprefix("CAP_"), CAPABILITIES)
            body.add_error("capabilities", "options", f"Linux has no capability {name[:60]!r}.{nearest}")
    return names


def _parse_groups(body: Fields) -> tuple[int, ...]:
    """Supplemental groups: `"100,200"` as in Run:ai, or a list of numbers."""
    value = body.get("supplementalGroups")
    words = [str(v) for v in value] if isinstance(value, list) else body.text("supplementalGroups").split(",")
    words = [word.strip() for word in words if word.strip()]
    if not all(is_digits(word) for word in words):
        body.add_error("supplementalGroups", "format", f"must be numbers of groups such as 100,200, not {value!r}.")
        return ()
    return tuple(int(word) for word in words)


def _parse_names(body: Fields, name: str) -> tuple[str, ...]:
    value = [] if body.get(name) is None else body.get(name)
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        body.add_error(name, "type", "must be a list of names.")
        return ()
    return tuple(value)


@dataclass(frozen=True, slots=True)
class UserCredentialUse:
    """A use of one of the submitter's credentials: for a variable with the value of `key`, or with `key` "" to pull images. `field` is the
    field of the request."""

    credential: str
    key: str
    field: str


def parse_pull_secrets(body: Fields) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`imagePullSecrets`: (names of Secrets of the project, names of the submitter's credentials)."""
    secrets, credentials = dict[str, None](), dict[str, None]()
    for item in body.items("imagePullSecrets"):
        item.allow_only("name", "userCredential", "exclude")
        if not item.text("name"):
            item.add_error(
                "name", "required", "needs the name of a Secret of the project, or of a credential of yours."
            )
        (credentials if item.flag("userCredential") else secrets)[item.text("name")] = None
    return tuple(secrets), tuple(credentials)


def credential_uses(env: Sequence[Mapping[str, Any]], pull_credentials: Sequence[str]) -> list[UserCredentialUse]:
    """The uses of the submitter's credentials in a role's variables and image pulls."""
    sources = [source for variable in env if (source := (variable.get("valueFrom") or {}).get(USER_CREDENTIAL))]
    return [
        *(UserCredentialUse(one["name"], one["key"], "spec.environmentVariables") for one in sources),
        *(UserCredentialUse(name, "", "spec.imagePullSecrets") for name in pull_credentials),
    ]


def parse_tolerations(body: Fields) -> tuple[dict[str, Any], ...]:
    """`tolerations` in a pod's form; the effect Any is left out, which means all effects."""
    tolerations = []
    for item in body.items("tolerations"):
        item.allow_only("name", "operator", "key", "value", "effect", "seconds", "exclude")
        operator = item.choice("operator", "Equal", "Exists") or "Equal"
        key, value, effect = item.text("key"), item.text("value"), item.choice("effect", *_EFFECTS)
        seconds = item.integer("seconds")
        if not key and operator == "Equal":
            item.add_error("key", "required", "is required when the operator is Equal.")
        if value and operator == "Exists":
            item.add_error("value", "exclusive", "must be absent when the operator is Exists.")
        if seconds is not None and effect != "NoExecute":
            item.add_error("seconds", "exclusive", "is for the effect NoExecute alone.")
        toleration: dict[str, Any] = {"operator": operator, "key": key, "value": value, "effect": effect}
        if effect == "Any":
            toleration["effect"] = ""
        toleration = {name: text for name, text in toleration.items() if text}
        tolerations.append(toleration if seconds is None else {**toleration, "tolerationSeconds": seconds})
    return tuple(tolerations)


def parse_node_affinity(body: Fields) -> dict[str, Any]:
    """`nodeAffinityRequired` as a pod's node selector; {} if there is none."""
    affinity = body.object("nodeAffinityRequired")
    affinity.allow_only("nodeSelectorTerms")
    terms = []
    for term in affinity.items("nodeSelectorTerms"):
        term.allow_only("matchExpressions", "exclude")
        expressions = []
        for expression in term.items("matchExpressions"):
            expression.allow_only("key", "operator", "values", "exclude")
            operator = expression.choice("operator", *_AFFINITY_OPERATORS)
            if not expression.text("key") or not operator:
                expression.add_error("key", "required", "an expression needs a key and an operator.")
            values = list(_parse_names(expression, "values"))
            expressions.append(
                {"key": expression.text("key"), "operator": operator} | ({"values": values} if values else {})
            )
        if expressions:
            terms.append({"matchExpressions": expressions})
    return {"nodeSelectorTerms": terms} if terms else {}


def parse_ports(body: Fields) -> tuple[int, ...]:
    """The container's ports. Those that need a node port or load balancer are recorded as errors."""
    ports = dict[int, None]()
    for item in body.items("ports"):
        item.allow_only("container", "serviceType", "external", "toolType", "toolName", "name", "exclude")
        port = item.integer("container", 1)
        kind = item.choice("serviceType", "ClusterIP", "NodePort", "LoadBalancer")
        if kind in ("NodePort", "LoadBalancer") or item.get("external") is not None:
            text = "ports of pods are not opened on the nodes here; reach one with `runai port-forward JOB --port LOCAL:REMOTE`."
            item.add_error("serviceType", "unsupported", text)
        if port is None or port > 65535:
            item.add_error("container", "range", "must be the number of a port, 1 to 65535.")
        else:
            ports[port] = None
    return tuple(ports)


_PROBE_TIMES = {
    "initialDelaySeconds": 0, "periodSeconds": 1, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 1,
}  # fmt: skip
"""Numeric field of a probe → its minimum; Kubernetes has the same names."""


def parse_readiness(body: Fields) -> dict[str, Any]:
    """`probes.readiness` as a container's readiness probe; {} if there is none."""
    probes = body.object("probes")
    probes.allow_only("readiness")
    probe = probes.object("readiness")
    if not probe.values:
        return {}
    probe.allow_only(*_PROBE_TIMES, "handler")
    handler = probe.object("handler")
    handler.allow_only("httpGet")
    request = handler.object("httpGet")
    request.allow_only("path", "port", "host", "scheme")
    port = request.integer("port", 1)
    if port is None or port > 65535:
        request.add_error("port", "required", "must be the number of a port, 1 to 65535.")
    texts = {
        "path": request.text("path"),
        "host": request.text("host"),
        "scheme": request.choice("scheme", "HTTP", "HTTPS"),
    }
    times = {name: number for name, least in _PROBE_TIMES.items() if (number := probe.integer(name, least)) is not None}
    return {"httpGet": {"port": port, **{name: text for name, text in texts.items() if text}}, **times}


def parse_pod_affinity(body: Fields) -> tuple[str, str]:
    """`podAffinity` as (required, preferred): the node label whose value all pods of the job share; "" for none."""
    affinity = body.object("podAffinity")
    affinity.allow_only("type", "key")
    kind, key = affinity.choice("type", "Required", "Preferred"), affinity.text("key")
    if bool(kind) != bool(key):
        affinity.add_error("key", "required", "a type (Required or Preferred) and a key (a label of nodes) are needed.")
    return (key, "") if kind == "Required" else ("", key)
