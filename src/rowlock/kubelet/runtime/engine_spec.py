"""What a container engine is asked to create for one container of a pod: pure.

`container_create_body` is the engine's own JSON for a container; `engine_proxy.py` (in the shim) sends it. The container of a pod with
only one has the pod's address itself. Where several share an address, or memory, a *sandbox* holds it: a container that does nothing
(`pause.py`), as on a real node.
"""

import hashlib
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock.kubelet.images.images import Image
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.pod.volume import Volume
from rowlock.quantity import parse

LABEL_PREFIX = "dev.rowlock."
"""Prefix of the labels `cluster`, `pod`, `container` and `run` of everything that is made."""
SANDBOX_IMAGE = "rowlock.dev/sandbox-1:latest"
RUNTIMES = ("auto", "process", "container")
CPU_PERIOD = 100_000
_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class PodSandboxConfig:
    """The configuration that the containers of a pod share."""

    cluster: str
    network: str
    pod: PodSpec
    card: PodCard
    hosts: str
    memory: tuple[Volume, ...] = ()
    """Its memory volumes."""
    engine: str = "docker"
    shared_memory: int = 0
    """Size of /dev/shm in bytes."""
    running: Mapping[str, int] = field(default_factory=dict)
    """The pod's running containers → the number of each one's run."""

    @property
    def sandbox_name(self) -> str:
        return self.container_name("POD", 0)

    def container_name(self, container: str, number: int) -> str:
        """The container's name in the engine, in the format that Kubernetes used with Docker."""
        pod = self.pod
        return f"rowlock_{container}_{pod.name}_{pod.namespace}_{pod.uid}_{number}"

    def running_name(self, container: str) -> str:
        """The name in the engine of a running container. Raises ContainerConfigError when it does not run."""
        if container not in self.running:
            raise ContainerConfigError(f"unable to find target container {container}: it is not running")
        return self.container_name(container, self.running[container])

    def volume_name(self, name: str) -> str:
        """The name of the engine's volume for a memory volume."""
        return f"rowlock_{self.pod.uid}_{name}"

    def labels(self, container: str, number: int) -> dict[str, str]:
        values = {"cluster": self.cluster, "pod": self.pod.uid, "container": container, "run": str(number)}
        return {f"{LABEL_PREFIX}{k}": v for k, v in values.items()} | {
            "io.kubernetes.pod.name": self.pod.name,
            "io.kubernetes.pod.namespace": self.pod.namespace,
            "io.kubernetes.container.name": container,
        }


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """What runs in one container, as determined by the pod and its image."""

    container: ContainerSpec
    image: Image
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    binds: Sequence[Mapping[str, Any]] = ()
    """{source, target, read_only}; a source that is a memory volume's name has `memory`."""
    limits: Mapping[str, Any] | None = None
    devices: tuple[str, ...] = ()


def cluster_id(data: str) -> str:
    """The cluster's name in the engine, derived from its data directory."""
    return hashlib.sha256(data.encode()).hexdigest()[:12]


def container_create_body(pod_config: PodSandboxConfig, config: ContainerConfig, number: int) -> dict[str, Any]:
    """The body of the call that creates the container. Raises ContainerConfigError."""
    container = config.container
    security_context = pod_config.pod.container_security_context(container)
    host, networking = _network_config(pod_config, container)
    create_body: dict[str, Any] = {
        "Image": config.image.engine.partition("://")[2],
        "Entrypoint": list(config.argv[:1]),
        "Cmd": list(config.argv[1:]),
        "Env": [f"{k}={v}" for k, v in config.env.items()],
        "WorkingDir": config.cwd,
        "User": _user_string(security_context),
        "Tty": container.tty,
        "OpenStdin": container.stdin,
        "StdinOnce": container.stdin,
        **{f"Attach{end}": True for end in ("Stdin", "Stdout", "Stderr")},
        "Labels": pod_config.labels(container.name, number),
        "HostConfig": host
        | _resource_limits(config)
        | _security_options(pod_config, security_context)
        | _target_options(pod_config, container)
        | open_limits(pod_config.engine)
        | _device_requests(pod_config, config),
        **networking,
    }
    create_body["HostConfig"]["Mounts"] = [_mount(pod_config, bind) for bind in config.binds]
    is_alone = pod_config.engine != "podman" or "PidMode" not in create_body["HostConfig"]
    # in a shared PID namespace an init would not be process 1, and Podman refuses it
    create_body["HostConfig"]["Init"] = is_alone and not pod_config.pod.process_target(container)
    return create_body


def sandbox_create_spec(pod_config: PodSandboxConfig) -> dict[str, Any] | None:
    """The sandbox that must exist before any of the pod's containers; None = the pod needs none."""
    if not pod_config.pod.needs_sandbox:
        return None
    mounts = [_mount(pod_config, {"memory": v.name, "target": f"/memory/{v.name}"}) for v in pod_config.memory]
    host = {
        "LogConfig": {"Type": "none"},
        "IpcMode": "shareable",
        "ShmSize": pod_config.shared_memory,
        "Mounts": mounts,
    }
    host |= {"NetworkMode": _host_network_mode(pod_config) or pod_config.network, **open_limits(pod_config.engine)}
    create_body = {
        "Image": SANDBOX_IMAGE,
        "Entrypoint": ["/pause"],
        "Labels": pod_config.labels("", 0),
        "HostConfig": host,
    }
    volumes = [_volume(pod_config, volume) for volume in pod_config.memory]
    return {"name": pod_config.sandbox_name, "create": create_body | _endpoint_config(pod_config), "volumes": volumes}


def _volume(pod_config: PodSandboxConfig, volume: Volume) -> dict[str, Any]:
    sized = volume.limit and pod_config.engine != "podman"  # Podman takes a size for a disk quota, and refuses
    options = "mode=1777" + (f",size={volume.limit}" if sized else "")
    volume_body = {"Name": pod_config.volume_name(volume.name), "Driver": "local", "Labels": pod_config.labels("", 0)}
    return volume_body | {"DriverOpts": {"type": "tmpfs", "device": "tmpfs", "o": options}}


def _host_network_mode(pod_config: PodSandboxConfig) -> str:
    return "host" if pod_config.pod.host_network else ""


def _endpoint_config(pod_config: PodSandboxConfig) -> dict[str, Any]:
    if _host_network_mode(pod_config):
        return {}
    endpoint = {"IPAMConfig": {"IPv4Address": pod_config.card.ip}}
    return {
        "Hostname": pod_config.pod.hostname,
        "NetworkingConfig": {"EndpointsConfig": {pod_config.network: endpoint}},
    }


def _network_config(pod_config: PodSandboxConfig, container: ContainerSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The network's part of HostConfig, and its fields beside HostConfig."""
    host: dict[str, Any] = {"LogConfig": {"Type": "none"}}
    if pod_config.pod.needs_sandbox:
        shared = f"container:{pod_config.sandbox_name}"
        return host | {"NetworkMode": shared, "IpcMode": shared}, {}
    if container.is_ephemeral and not pod_config.pod.host_network:  # the pod's one container has its address
        only = pod_config.pod.real_containers[0].name
        return host | {"NetworkMode": f"container:{pod_config.running_name(only)}"}, {}
    host |= {"NetworkMode": _host_network_mode(pod_config) or pod_config.network, "ShmSize": pod_config.shared_memory}
    return host, _endpoint_config(pod_config)


def _user_string(security_context: Mapping[str, Any]) -> str:
    number, group = security_context.get("runAsUser"), security_context.get("runAsGroup")
    if group is not None:
        return f"{0 if number is None else number}:{group}"
    return "" if number is None else str(number)


def _resource_limits(config: ContainerConfig) -> dict[str, Any]:
    limits, host_config = config.limits or {}, dict[str, Any]()
    if memory := limits.get("memory"):
        host_config |= {"Memory": memory, "MemorySwap": memory}
    if cpu := limits.get("cpu"):
        host_config |= {"CpuPeriod": CPU_PERIOD, "CpuQuota": max(1000, int(float(cpu) * CPU_PERIOD))}
    if pids := limits.get("pids"):
        host_config["PidsLimit"] = pids
    cpu_request = config.container.requests.get("cpu")
    if cpu_request:
        host_config["CpuShares"] = min(262144, max(2, int(float(parse(cpu_request)) * 1024)))
    return host_config


def _security_options(pod_config: PodSandboxConfig, security_context: Mapping[str, Any]) -> dict[str, Any]:
    pod = pod_config.pod
    groups = [
        *(security_context.get("supplementalGroups") or ()),
        *([security_context["fsGroup"]] if security_context.get("fsGroup") else ()),
    ]
    capabilities = security_context.get("capabilities") or {}
    rows = {
        "GroupAdd": [str(group) for group in groups],
        "CapAdd": list(capabilities.get("add") or ()),
        "CapDrop": list(capabilities.get("drop") or ()),
        "Privileged": bool(security_context.get("privileged")),
        "ReadonlyRootfs": bool(security_context.get("readOnlyRootFilesystem")),
        "SecurityOpt": ["no-new-privileges"] if security_context.get("allowPrivilegeEscalation") is False else [],
        "Sysctls": {row["name"]: row["value"] for row in security_context.get("sysctls") or ()},
        "PidMode": "host" if pod.host_pid else "",
    }
    options: dict[str, Any] = {key: value for key, value in rows.items() if value}
    if pod.host_ipc:
        options["IpcMode"] = "host"
    if pod.is_process_namespace_shared and pod.needs_sandbox:
        options["PidMode"] = f"container:{pod_config.sandbox_name}"
    return options


def _target_options(pod_config: PodSandboxConfig, container: ContainerSpec) -> dict[str, Any]:
    """An ephemeral container sees the processes of its target, or of the pod where those are shared already."""
    target = pod_config.pod.process_target(container)
    if not target or pod_config.pod.host_pid or pod_config.pod.shares_processes_of_several:
        return {}
    return {"PidMode": f"container:{pod_config.running_name(target)}"}


_MOST_PROCESSES = 32768


def open_limits(engine: str) -> dict[str, Any]:
    """Podman's own defaults are a million open files and four million processes, which it cannot give where the machine allows fewer: then
    no container starts. Its containers get what this process may have, and no more processes than there can be, as Podman itself."""
    if engine != "podman":
        return {}
    files, processes = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    try:
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
    except OSError:  # an engine in a virtual machine
        most = _MOST_PROCESSES
    limits = {"nofile": files, "nproc": most if processes < 0 else min(processes, most)}
    return {"Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in limits.items()]}


def _device_requests(pod_config: PodSandboxConfig, config: ContainerConfig) -> dict[str, Any]:
    """Requests whole GPUs by UUID, through the engine's NVIDIA runtime. Ranks of one machine must share /dev/shm, or NCCL
    loses its fast path between them."""
    if not config.devices:
        return {}
    device_request: dict[str, Any] = {"Driver": "nvidia", "DeviceIDs": list(config.devices), "Capabilities": [["gpu"]]}
    if pod_config.engine == "podman":
        device_request = {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={device}" for device in config.devices]}
    return {"DeviceRequests": [device_request], "IpcMode": "host"}


def _mount(pod_config: PodSandboxConfig, bind: Mapping[str, Any]) -> dict[str, Any]:
    mount = {"Target": bind["target"], "ReadOnly": bool(bind.get("read_only"))}
    if bind.get("memory"):
        return mount | {"Type": "volume", "Source": pod_config.volume_name(bind["memory"])}
    return mount | {"Type": "bind", "Source": bind["source"]}


def verify_run_as_non_root(pod: PodSpec, container: ContainerSpec, image: Image) -> None:
    """Raises ContainerConfigError when the container would run as root but may not."""
    security_context = pod.container_security_context(container)
    number = security_context.get("runAsUser")
    user = image.user.partition(":")[0] if number is None else str(number)
    if not security_context.get("runAsNonRoot") or user not in ("", "0", "root"):
        return
    location = f'(pod: "{pod.location}", container: {container.name})'
    if number is None:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {location}")
    raise ContainerConfigError(f"container's runAsUser breaks non-root policy {location}")


def message_path(container: ContainerSpec) -> str:
    """The path of the termination message file."""
    return container.termination_message_path or _TERMINATION_LOG


def orphan_ids(
    listed: Sequence[Mapping[str, Any]], live_runs: set[tuple[str, str, str]], active_pods: set[str]
) -> list[str]:
    """Ids of orphaned containers: of no live run, and not the sandbox of an active pod. `listed`: containers as the engine lists them;
    `live_runs`: (pod, container, run); `active_pods`: uids of unfinished pods."""
    ids = []
    for row in listed:
        row_labels = row.get("Labels") or {}
        pod, container, run = (str(row_labels.get(f"{LABEL_PREFIX}{key}", "")) for key in ("pod", "container", "run"))
        if (pod not in active_pods) if not container else (pod, container, run) not in live_runs:
            ids.append(str(row["Id"]))
    return ids
