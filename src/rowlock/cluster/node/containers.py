"""What a container engine is asked for, for one container of a pod: pure.

`body` is the engine's own JSON for a container; `contained.py` (in the shim) sends it. A pod of one container has its
address itself. Where several share an address, or memory, a *sandbox* holds it: a container that does nothing
(`pause.py`), as on a real node.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.cluster.node.environment import Missing
from rowlock.cluster.node.images import Image
from rowlock.cluster.node.pod_directory import PodCard
from rowlock.cluster.node.pod_facts import all_containers, emulated
from rowlock.cluster.node.volumes import Volume
from rowlock.objects import Object, dig, namespace, uid
from rowlock.objects import name as name_of
from rowlock.quantity import parse

LABEL = "dev.rowlock."
"""Before `cluster`, `pod`, `container` and `run` in the labels of everything that is made."""
SANDBOX = "rowlock.dev/sandbox-1:latest"
RUNTIMES = ("auto", "process", "container")
PERIOD = 100_000
_MESSAGE, ERRORS = "/dev/termination-log", "/dev/torchelastic-error.json"
NOT_APPLIED = (
    "seccompProfile",
    "appArmorProfile",
    "seLinuxOptions",
    "procMount",
    "windowsOptions",
    "seLinuxChangePolicy",
)
"""Parts of a securityContext that are left to the engine's own defaults."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the containers of a pod have in common."""

    cluster: str
    network: str
    pod: Object
    card: PodCard
    hostname: str
    hosts: str
    memory: tuple[Volume, ...] = ()
    """Its memory volumes."""
    engine: str = "docker"
    shared_memory: int = 0
    """The most bytes of /dev/shm."""

    @property
    def sandbox(self) -> str:
        return self.name("POD", 0)

    def name(self, container: str, number: int) -> str:
        """The container's name in the engine, as Docker was used by Kubernetes."""
        pod = self.pod
        return f"rowlock_{container}_{name_of(pod)}_{namespace(pod)}_{uid(pod)}_{number}"

    def volume(self, name: str) -> str:
        """The engine's volume behind a memory volume."""
        return f"rowlock_{uid(self.pod)}_{name}"

    def labels(self, container: str, number: int) -> dict[str, str]:
        found = {"cluster": self.cluster, "pod": uid(self.pod), "container": container, "run": str(number)}
        return {f"{LABEL}{k}": v for k, v in found.items()} | {
            "io.kubernetes.pod.name": name_of(self.pod),
            "io.kubernetes.pod.namespace": namespace(self.pod),
            "io.kubernetes.container.name": container,
        }


@dataclass(frozen=True, slots=True)
class Program:
    """What runs in one container, as the pod and its image say."""

    container: Mapping[str, Any]
    image: Image
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    binds: Sequence[Mapping[str, Any]] = ()
    """{source, target, read_only}; a source that is a memory volume's name has `memory`."""
    limits: Mapping[str, Any] | None = None
    devices: tuple[str, ...] = ()


def sandboxed(pod: Object) -> bool:
    """Must something hold the pod's address or its memory volumes, however often its containers start?"""
    memory = any(dig(v, "emptyDir.medium") == "Memory" for v in dig(pod, "spec.volumes", ()))
    return memory or len([c for c in all_containers(pod) if not emulated(c)]) > 1


def digest(data: str) -> str:
    """The cluster's name in the engine: of its data directory."""
    return hashlib.sha256(data.encode()).hexdigest()[:12]


def body(scene: Scene, program: Program, number: int) -> dict[str, Any]:
    """The container to create."""
    container = program.container
    wanted = {**dig(scene.pod, "spec.securityContext", {}), **(container.get("securityContext") or {})}
    stdin = bool(container.get("stdin"))
    host, networking = _network(scene)
    found: dict[str, Any] = {
        "Image": program.image.engine.partition("://")[2],
        "Entrypoint": list(program.argv[:1]),
        "Cmd": list(program.argv[1:]),
        "Env": [f"{k}={v}" for k, v in program.env.items()],
        "WorkingDir": program.cwd,
        "User": _user(wanted),
        "Tty": bool(container.get("tty")),
        "OpenStdin": stdin,
        "StdinOnce": stdin,
        **{f"Attach{end}": True for end in ("Stdin", "Stdout", "Stderr")},
        "Labels": scene.labels(container["name"], number),
        "HostConfig": host | _limits(program) | _rights(scene, wanted) | _devices(scene, program),
        **networking,
    }
    found["HostConfig"]["Mounts"] = [_mount(scene, bind) for bind in program.binds]
    found["HostConfig"]["Init"] = True
    return found


def sandbox(scene: Scene) -> dict[str, Any] | None:
    """The sandbox that must be there before any of the pod's containers; None when it needs none."""
    if not sandboxed(scene.pod):
        return None
    mounts = [_mount(scene, {"memory": v.name, "target": f"/memory/{v.name}"}) for v in scene.memory]
    host = {"LogConfig": {"Type": "none"}, "IpcMode": "shareable", "ShmSize": scene.shared_memory, "Mounts": mounts}
    host |= {"NetworkMode": _host_network(scene) or scene.network}
    made = {"Image": SANDBOX, "Entrypoint": ["/pause"], "Labels": scene.labels("", 0), "HostConfig": host}
    volumes = [_volume(scene, volume) for volume in scene.memory]
    return {"name": scene.sandbox, "create": made | _address(scene), "volumes": volumes}


def _volume(scene: Scene, volume: Volume) -> dict[str, Any]:
    sized = volume.limit and scene.engine != "podman"  # which takes a size for a quota of the disk, and refuses
    options = "mode=1777" + (f",size={volume.limit}" if sized else "")
    made = {"Name": scene.volume(volume.name), "Driver": "local", "Labels": scene.labels("", 0)}
    return made | {"DriverOpts": {"type": "tmpfs", "device": "tmpfs", "o": options}}


def _host_network(scene: Scene) -> str:
    return "host" if dig(scene.pod, "spec.hostNetwork") else ""


def _address(scene: Scene) -> dict[str, Any]:
    if _host_network(scene):
        return {}
    endpoint = {"IPAMConfig": {"IPv4Address": scene.card.ip}}
    return {"Hostname": scene.hostname, "NetworkingConfig": {"EndpointsConfig": {scene.network: endpoint}}}


def _network(scene: Scene) -> tuple[dict[str, Any], dict[str, Any]]:
    """HostConfig's part of it, and what stands beside HostConfig."""
    host: dict[str, Any] = {"LogConfig": {"Type": "none"}}
    if sandboxed(scene.pod):
        shared = f"container:{scene.sandbox}"
        return host | {"NetworkMode": shared, "IpcMode": shared}, {}
    host |= {"NetworkMode": _host_network(scene) or scene.network, "ShmSize": scene.shared_memory}
    return host, _address(scene)


def _user(wanted: Mapping[str, Any]) -> str:
    number, group = wanted.get("runAsUser"), wanted.get("runAsGroup")
    if group is not None:
        return f"{0 if number is None else number}:{group}"
    return "" if number is None else str(number)


def _limits(program: Program) -> dict[str, Any]:
    wanted, found = program.limits or {}, dict[str, Any]()
    if memory := wanted.get("memory"):
        found |= {"Memory": memory, "MemorySwap": memory}
    if cpu := wanted.get("cpu"):
        found |= {"CpuPeriod": PERIOD, "CpuQuota": max(1000, int(float(cpu) * PERIOD))}
    asked = dig(program.container, "resources.requests", {}).get("cpu")
    if asked:
        found["CpuShares"] = min(262144, max(2, int(float(parse(asked)) * 1024)))
    return found


def _rights(scene: Scene, wanted: Mapping[str, Any]) -> dict[str, Any]:
    spec, found = scene.pod["spec"], dict[str, Any]()
    groups = [*(wanted.get("supplementalGroups") or ()), *([wanted["fsGroup"]] if wanted.get("fsGroup") else ())]
    capabilities = wanted.get("capabilities") or {}
    rows = {
        "GroupAdd": [str(group) for group in groups],
        "CapAdd": list(capabilities.get("add") or ()),
        "CapDrop": list(capabilities.get("drop") or ()),
        "Privileged": bool(wanted.get("privileged")),
        "ReadonlyRootfs": bool(wanted.get("readOnlyRootFilesystem")),
        "SecurityOpt": ["no-new-privileges"] if wanted.get("allowPrivilegeEscalation") is False else [],
        "Sysctls": {row["name"]: row["value"] for row in wanted.get("sysctls") or ()},
        "PidMode": "host" if spec.get("hostPID") else "",
    }
    found = {key: value for key, value in rows.items() if value}
    if spec.get("hostIPC"):
        found["IpcMode"] = "host"
    if spec.get("shareProcessNamespace") and sandboxed(scene.pod):
        found["PidMode"] = f"container:{scene.sandbox}"
    return found


def _devices(scene: Scene, program: Program) -> dict[str, Any]:
    """Whole GPUs by UUID, through the engine's NVIDIA runtime. Ranks of one machine must see the same /dev/shm, or NCCL
    loses its fast path between them."""
    if not program.devices:
        return {}
    asked: dict[str, Any] = {"Driver": "nvidia", "DeviceIDs": list(program.devices), "Capabilities": [["gpu"]]}
    if scene.engine == "podman":
        asked = {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={device}" for device in program.devices]}
    return {"DeviceRequests": [asked], "IpcMode": "host"}


def _mount(scene: Scene, bind: Mapping[str, Any]) -> dict[str, Any]:
    found = {"Target": bind["target"], "ReadOnly": bool(bind.get("read_only"))}
    if bind.get("memory"):
        return found | {"Type": "volume", "Source": scene.volume(bind["memory"])}
    return found | {"Type": "bind", "Source": bind["source"]}


def not_root(pod: Object, container: Mapping[str, Any], image: Image) -> None:
    """Raises Missing when it may not run as root and would."""
    wanted = {**dig(pod, "spec.securityContext", {}), **(container.get("securityContext") or {})}
    number = wanted.get("runAsUser")
    user = image.user.partition(":")[0] if number is None else str(number)
    if not wanted.get("runAsNonRoot") or user not in ("", "0", "root"):
        return
    where = f'(pod: "{name_of(pod)}_{namespace(pod)}({uid(pod)})", container: {container["name"]})'
    if number is None:
        raise Missing(f"container has runAsNonRoot and image will run as root {where}")
    raise Missing(f"container's runAsUser breaks non-root policy {where}")


def remarks(pod: Object, engine: str = "docker") -> list[str]:
    """What a pod in containers asks of its engine and does not get, a sentence each."""
    found = []
    for volume in dig(pod, "spec.volumes", ()) if engine == "podman" else ():
        if dig(volume, "emptyDir.medium") == "Memory" and dig(volume, "emptyDir.sizeLimit"):
            found.append(f"sizeLimit of the memory volume {volume['name']} is not kept: Podman's have no size")
    for whose, wanted in [("the pod", dig(pod, "spec.securityContext", {}))] + [
        (c["name"], c.get("securityContext") or {}) for c in all_containers(pod)
    ]:
        asked = sorted(key for key in NOT_APPLIED if wanted.get(key) not in (None, {}, ""))
        if asked:
            found.append(f"securityContext of {whose}: {', '.join(asked)} left to the container engine's defaults")
    return found


def message_path(container: Mapping[str, Any]) -> str:
    """Where the program leaves its last words."""
    return str(container.get("terminationMessagePath") or _MESSAGE)


def orphans(found: Sequence[Mapping[str, Any]], alive: set[tuple[str, str, str]], pods: set[str]) -> list[str]:
    """Ids of containers that nobody looks after: neither a run that lives, nor the sandbox of a pod that is at work.

    `found` as the engine lists them; `alive` (pod, container, run); `pods` that are at work."""
    ids = []
    for row in found:
        marks = row.get("Labels") or {}
        pod, container, run = (str(marks.get(f"{LABEL}{key}", "")) for key in ("pod", "container", "run"))
        if (pod not in pods) if not container else (pod, container, run) not in alive:
            ids.append(str(row["Id"]))
    return ids
