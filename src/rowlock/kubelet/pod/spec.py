"""A pod's object, parsed for the kubelet: its spec and its reported status. Parsed once per resourceVersion.

It has all that the kubelet asks of a pod, so that other modules need not parse its object again; what only one module interprets
(an entry of `env`, a volume's source, the action of a probe) stays as written. It is small, for there may be a thousand pods:
texts, mappings and the object itself are those of the store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.shim.shim_request import ConsoleSpec, LimitsSpec
from rowlock.objects import Object, controller_of, meta, phase, seconds
from rowlock.quantity import integer_value, parse

DEFAULT_GRACE = 30.0
EMULATED_INIT = "init-pytorch"
Fields = Mapping[str, Any]
"""A part of the object, as it is written."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod."""

    name: str
    image: str
    image_pull_policy: str
    command: Sequence[str]
    args: Sequence[str]
    working_dir: str
    env: Sequence[Fields]
    env_from: Sequence[Fields]
    volume_mounts: Sequence[Fields]
    ports: Sequence[Fields]
    limits: Fields
    requests: Fields
    security_context: Fields
    """The container's own, without the pod's."""
    startup_probe: Fields | None
    liveness_probe: Fields | None
    readiness_probe: Fields | None
    post_start: Fields | None
    pre_stop: Fields | None
    stop_signal: str
    """The signal that asks it to end; "" = the image's."""
    tty: bool
    stdin: bool
    stdin_once: bool
    termination_message_path: str
    """ "" = the default path."""
    is_message_from_log: bool
    """Whether the end of the log is its message when it fails without leaving one."""
    resources: Fields
    is_main: bool
    is_sidecar: bool
    """An init container that keeps running beside the others (main ones have no restart policy of their own)."""
    is_ephemeral: bool
    """A debugging container in a running pod (`kubectl debug`): started once, and the pod does not depend on it."""
    target: str
    """For an ephemeral container: the container whose processes it sees; "" = none in particular."""
    awaited_master: str
    """The name for which the operator's own init container waits; the kubelet waits instead. "" = not such a container."""

    @property
    def is_emulated_init(self) -> bool:
        return bool(self.awaited_master)

    @property
    def has_start_checks(self) -> bool:
        """Whether it has a startup probe or a postStart hook."""
        return self.startup_probe is not None or self.post_start is not None

    @property
    def console(self) -> ConsoleSpec:
        """The settings of its terminal and stdin, for the shim; empty when it has neither."""
        console: ConsoleSpec = {}
        if self.tty:
            console["tty"] = True
        if self.stdin:
            console["stdin"] = True
        if self.stdin_once:
            console["once"] = True
        return console


@dataclass(frozen=True, slots=True)
class ReportedContainer:
    """The pod's stored status of one container."""

    restart_count: int | None
    image_id: str
    has_started: bool
    is_ready: bool
    is_terminated: bool
    finished_at: str = ""
    """When it ended, as written; "" = it has not."""


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """What the stored status says: the only record of this after a restart of the server."""

    start_time: str
    """The start time as written; "" = none."""
    failure: tuple[str, str] | None
    """Reason and message of why it failed as a whole."""
    conditions: Sequence[Fields]
    containers: Mapping[str, ReportedContainer]
    """By name."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod, as it was at one resourceVersion."""

    object: Object
    """The object as stored: for events, and for its status."""
    name: str
    namespace: str
    uid: str
    owner_uid: str
    """The uid of its controller; "" = it has none."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hostname: str
    """`spec.hostname`, else the pod's name, cut to what the kernel takes."""
    service_account: str
    security_context: Fields
    """The defaults for all containers."""
    volumes: Sequence[Fields]
    image_pull_secrets: Sequence[Fields]
    host_network: bool
    has_host_aliases: bool
    """Whether the pod adds names to its hosts file (`spec.hostAliases`)."""
    host_pid: bool
    host_ipc: bool
    is_process_namespace_shared: bool
    wants_token: bool
    """Whether it asks for a service account's token."""
    main_containers: tuple[ContainerSpec, ...]
    init_containers: tuple[ContainerSpec, ...]
    sidecars: tuple[ContainerSpec, ...]
    """The sidecars among the init containers."""
    ephemeral_containers: tuple[ContainerSpec, ...]
    by_name: Mapping[str, ContainerSpec]
    """All containers."""
    restart_policy: str
    grace_period: float
    """Seconds between SIGTERM and SIGKILL."""
    active_deadline: float | None
    """Seconds that it may be active; None = no limit."""
    deletion_time: float | None
    """When its grace period ends, in seconds since the epoch; None = it is not being deleted."""
    deletion_grace_period: float
    generation: int | None
    phase: str
    reported: ReportedStatus
    awaited_master: str
    """The name that the emulated init container looks up; "" when the pod has none."""

    @property
    def containers(self) -> tuple[ContainerSpec, ...]:
        """Init containers, then the main ones: those that the pod was created with."""
        return (*self.init_containers, *self.main_containers)

    @property
    def all_containers(self) -> tuple[ContainerSpec, ...]:
        """`containers`, then the ephemeral ones."""
        return (*self.containers, *self.ephemeral_containers)

    @property
    def real_containers(self) -> tuple[ContainerSpec, ...]:
        """The `containers` that have a program: all but the emulated init container."""
        return tuple(c for c in self.containers if not c.is_emulated_init)

    @property
    def shares_processes_of_several(self) -> bool:
        """Whether its containers see each other's processes, and it has more than one that lasts."""
        return self.is_process_namespace_shared and len([c for c in self.real_containers if not c.is_ephemeral]) > 1

    def process_target(self, container: ContainerSpec) -> str:
        """The container whose processes an ephemeral one sees: the one that it names, else the only one of a pod that shares them;
        "" = none."""
        if container.target or not container.is_ephemeral:
            return container.target
        is_only = self.is_process_namespace_shared and len(self.real_containers) == 1
        return self.real_containers[0].name if is_only else ""

    def container(self, name: str) -> ContainerSpec:
        """The container of this name. Raises KeyError if there is none."""
        return self.by_name[name]

    def container_security_context(self, container: ContainerSpec) -> Fields:
        """The pod's security context, overlaid with the container's own."""
        return {**self.security_context, **container.security_context}

    @property
    def fs_group(self) -> int | None:
        """The group that shall own the pod's volumes; None = as they are made."""
        group = self.security_context.get("fsGroup")
        return None if group is None else int(group)

    @property
    def memory_limit(self) -> int:
        """Bytes of memory that its containers may use together; 0 = one of them has no limit."""
        limits = {c.name: integer_value(c.limits.get("memory", 0)) for c in self.real_containers}
        if not all(limits.values()):
            return 0
        first = [limits[c.name] for c in self.real_containers if not c.is_main and not c.is_sidecar]
        together = sum(limits[c.name] for c in self.real_containers if c.is_main or c.is_sidecar)
        return max(together, *first, 0)

    @property
    def needs_sandbox(self) -> bool:
        """In an engine: whether a sandbox must hold the pod's address or memory volumes across restarts of its containers."""
        in_memory = any((v.get("emptyDir") or {}).get("medium") == "Memory" for v in self.volumes)
        return in_memory or len(self.real_containers) > 1

    @property
    def location(self) -> str:
        """The pod's name as a kubelet writes it in messages."""
        return f"{self.name}_{self.namespace}({self.uid})"


def parse_pod_spec(pod: Object, earlier: PodSpec | None = None) -> PodSpec:
    """Reads a pod that the API server has admitted. `earlier`: the same pod at an earlier resourceVersion; containers that have not
    changed since are taken from there."""
    metadata, spec = meta(pod), pod.get("spec") or {}
    if earlier is not None and earlier.object.get("spec") is spec:
        inits, mains, ephemerals = earlier.init_containers, earlier.main_containers, earlier.ephemeral_containers
    else:
        inits = tuple(parse_container(c, "initContainers") for c in spec.get("initContainers") or ())
        mains = tuple(parse_container(c) for c in spec.get("containers") or ())
        ephemerals = tuple(parse_container(c, "ephemeralContainers") for c in spec.get("ephemeralContainers") or ())
    name, grace = str(metadata.get("name") or ""), spec.get("terminationGracePeriodSeconds")
    deadline, deletion = spec.get("activeDeadlineSeconds"), metadata.get("deletionTimestamp")
    reported, owner = _parse_status(pod.get("status") or {}), controller_of(pod) or {}
    return PodSpec(
        object=pod,
        name=name,
        namespace=str(metadata.get("namespace") or ""),
        uid=str(metadata.get("uid") or ""),
        owner_uid=str(owner.get("uid") or ""),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        hostname=str(spec.get("hostname") or name)[:63].rstrip("-."),
        service_account=str(spec.get("serviceAccountName") or "default"),
        security_context=spec.get("securityContext") or {},
        volumes=spec.get("volumes") or (),
        image_pull_secrets=spec.get("imagePullSecrets") or (),
        host_network=bool(spec.get("hostNetwork")),
        has_host_aliases=bool(spec.get("hostAliases")),
        host_pid=bool(spec.get("hostPID")),
        host_ipc=bool(spec.get("hostIPC")),
        is_process_namespace_shared=bool(spec.get("shareProcessNamespace")),
        wants_token=bool(spec.get("automountServiceAccountToken")),
        main_containers=mains,
        init_containers=inits,
        sidecars=tuple(c for c in inits if c.is_sidecar),
        ephemeral_containers=ephemerals,
        by_name={c.name: c for c in (*inits, *mains, *ephemerals)},
        restart_policy=str(spec.get("restartPolicy") or "Always"),
        grace_period=DEFAULT_GRACE if grace is None else float(grace),
        active_deadline=None if deadline is None else float(deadline),
        deletion_time=seconds(deletion) if deletion else None,
        deletion_grace_period=float(metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE)),
        generation=metadata.get("generation"),
        phase=phase(pod),
        reported=reported,
        awaited_master=next((c.awaited_master for c in inits if c.awaited_master), ""),
    )


def parse_container(container: Fields, field: str = "containers") -> ContainerSpec:
    """Parses one container of a pod; `field` is the list of the pod's spec that contains it."""
    resources, lifecycle = container.get("resources") or {}, container.get("lifecycle") or {}
    return ContainerSpec(
        name=str(container["name"]),
        image=str(container.get("image") or ""),
        image_pull_policy=str(container.get("imagePullPolicy") or ""),
        command=container.get("command") or (),
        args=container.get("args") or (),
        working_dir=str(container.get("workingDir") or ""),
        env=container.get("env") or (),
        env_from=container.get("envFrom") or (),
        volume_mounts=container.get("volumeMounts") or (),
        ports=container.get("ports") or (),
        limits=resources.get("limits") or {},
        requests=resources.get("requests") or {},
        security_context=container.get("securityContext") or {},
        startup_probe=container.get("startupProbe") or None,
        liveness_probe=container.get("livenessProbe") or None,
        readiness_probe=container.get("readinessProbe") or None,
        post_start=lifecycle.get("postStart") or None,
        pre_stop=lifecycle.get("preStop") or None,
        stop_signal=str(lifecycle.get("stopSignal") or ""),
        tty=bool(container.get("tty")),
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        termination_message_path=str(container.get("terminationMessagePath") or ""),
        is_message_from_log=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        resources=resources,
        is_main=field == "containers",
        is_sidecar=field == "initContainers" and container.get("restartPolicy") == "Always",
        is_ephemeral=field == "ephemeralContainers",
        target=str(container.get("targetContainerName") or ""),
        awaited_master=_awaited_master(container) if field == "initContainers" else "",
    )


STATUS_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def _parse_status(status: Fields) -> ReportedStatus:
    reason = status.get("reason")
    return ReportedStatus(
        start_time=str(status.get("startTime") or ""),
        failure=(str(reason), str(status.get("message") or "")) if reason else None,
        conditions=status.get("conditions") or (),
        containers={
            str(c["name"]): ReportedContainer(
                restart_count=c.get("restartCount"),
                image_id=str(c.get("imageID") or ""),
                has_started=bool(c.get("started")),
                is_ready=bool(c.get("ready")),
                is_terminated=bool((c.get("state") or {}).get("terminated")),
                finished_at=str(((c.get("state") or {}).get("terminated") or {}).get("finishedAt") or ""),
            )
            for field in STATUS_LISTS
            for c in status.get(field) or ()
        },
    )


def _awaited_master(container: Fields) -> str:
    """The name that the operator's own init container looks up with nslookup; "" for all other containers."""
    words = " ".join(container.get("command") or ()).replace(";", " ").split()
    if container["name"] != EMULATED_INIT or "nslookup" not in words[:-1]:
        return ""
    return words[words.index("nslookup") + 1]


def shim_limits(container: ContainerSpec, pids: int = 0) -> LimitsSpec:
    """The limits of a container for the shim: memory in bytes, CPUs and requested CPUs in cores, and the node's limit of
    processes; empty when it has none."""
    limits, requests = container.limits, container.requests
    kept_limits: LimitsSpec = {}
    if integer_value(limits.get("memory", 0)):
        kept_limits["memory"] = integer_value(limits["memory"])
    if parse(limits.get("cpu", 0)):
        kept_limits["cpu"] = float(parse(limits["cpu"]))
    if parse(requests.get("cpu", 0)):
        kept_limits["share"] = float(parse(requests["cpu"]))
    if pids:
        kept_limits["pids"] = pids
    return kept_limits
