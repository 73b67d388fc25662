"""What a shim is asked for: one run of one container, as the kubelet hands it to the pod host, and that to the shim.

It travels as JSON. Keys that are not known are refused, so a kubelet and a pod host of different versions do not
misunderstand each other silently. Standard library only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from rowlock.kubelet.mounts import calls
from rowlock.kubelet.mounts.rootfs import RootfsSpec


class NetworkSpec(TypedDict):
    """The pod's own network: whose namespace, its address, the hosts file to mount and the host's name."""

    uid: str
    ip: str
    hosts: str
    hostname: str


class UserSpec(TypedDict, total=False):
    """Who the program is; what is missing or None is as the server's own process."""

    uid: int | None
    gid: int | None
    groups: Sequence[int]
    no_new_privileges: bool


class ConsoleSpec(TypedDict, total=False):
    """Has the program a terminal, a stdin, one that ends with the first client?"""

    tty: bool
    stdin: bool
    once: bool


class LimitsSpec(TypedDict, total=False):
    """Memory in bytes, CPUs and requested CPUs in cores, processes and threads; `how` they are kept: `v2`, `v1` or `watchdog`."""

    memory: int
    pids: int
    cpu: float
    share: float
    how: str


class EngineRunSpec(TypedDict):
    """The container in an engine: the engine's socket, its name there and what creates it; the pod's sandbox, if any; what asks it to end."""

    socket: Mapping[str, str]
    name: str
    create: Mapping[str, Any]
    sandbox: Mapping[str, Any] | None
    stop_signal: int


class ShimRequest(NamedTuple):
    """One run of one container.

    A named tuple, because every shim makes one of its own: a frozen dataclass sets its fields one by one through
    `object.__setattr__`, and what that touches costs each pod 40 KiB."""

    directory: str
    """Where its facts and its log lie."""
    number: int
    """Of the run, from 0."""
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    """Entered as the program's user."""
    hint: str
    """`uid/container`: what the server is told when something happens."""
    wake_path: str
    """The pipe in which it is told."""
    own_directory: str = ""
    """A directory that the kubelet has made for the container and in which `cwd` lies: its user need not come there by the path."""
    backoff: int = 0
    """How many restarts are still remembered when it ends."""
    stop_signal: int = 15
    """What asks the program to end; SIGTERM unless its image says otherwise."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL, when a stop does not say."""
    network: NetworkSpec | None = None
    """None = the machine's."""
    namespaces: Sequence[str] = ()
    """Those that are not the machine's: `pid` and `ipc` of the container alone, `pod-pid` and `pod-ipc` of all containers of the pod."""
    joined_run: str = ""
    """The `start.N` of the container whose processes it sees, where those are not its own; "" = none."""
    shared_memory: int = 0
    """The most bytes of a /dev/shm of its own; 0 = there is none but what `mounts` say, or the machine's."""
    mounts: Sequence[Mapping[str, Any]] = ()
    """As `volume_mounts.mount_volumes` takes them."""
    memory_volumes: Sequence[Mapping[str, Any]] = ()
    """The pod's: `path` and `size` in bytes, 0 = no limit."""
    rootfs: RootfsSpec | None = None
    """What its root file system is made of; None = the machine's."""
    spare: str = ""
    """Where the pod host has one for it that was assembled ahead (`spare_roots.SpareRoot`); "" = nowhere."""
    image_copy: Sequence[str] = ()
    """Where there is no root file system of its own: where the image's files are, and where the run's copy of them goes."""
    user: UserSpec = UserSpec()
    console: ConsoleSpec = ConsoleSpec()
    limits: LimitsSpec = LimitsSpec()
    rlimits: Mapping[str, Sequence[int]] = dict[str, Sequence[int]]()
    """RLIMIT_… → soft and hard."""
    log_limit: int = 0
    """Bytes of its log that are kept; 0 = `log_writer.DEFAULT_LOG_LIMIT`."""
    message_path: str = ""
    """Where the program leaves its last words; "" = nowhere."""
    message_from_log: bool = False
    """Are they the end of its log when it failed and left none?"""
    warm: Mapping[str, Any] | None = None
    """How it may start warm (`warm.eligibility.WarmStart.spec`)."""
    engine: EngineRunSpec | None = None
    """None = it runs as a process."""

    @property
    def pod_uid(self) -> str:
        return self.hint.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """Plain values; the nested ones are those of the request."""
        return self._asdict()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ShimRequest":
        """Raises ValueError with a sentence for unknown and for missing keys."""
        _refuse_unknown("", data, _FIELDS)
        for name, known in _NESTED.items():
            _refuse_unknown(f" in {name}", data.get(name) or {}, known)
        if missing := [name for name in _REQUIRED if name not in data]:
            raise ValueError(
                f"a request for a shim lacks {', '.join(missing)}: restart the cluster with one version of rowlock"
            )
        return cls(**data)


def namespace_flags(namespaces: Sequence[str]) -> int:
    """The namespaces that begin with the shim, as `calls.fork_into` takes them."""
    return calls.NEWPID if "pid" in namespaces else 0


def _refuse_unknown(place: str, data: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(data.keys() - known):
        raise ValueError(
            f"a request for a shim has unknown keys{place} ({', '.join(unknown)}): restart the cluster with one version of rowlock"
        )


_FIELDS = frozenset(ShimRequest._fields)
_REQUIRED = tuple(name for name in ShimRequest._fields if name not in ShimRequest._field_defaults)
_NESTED: Mapping[str, frozenset[str]] = {
    name: frozenset(kind.__annotations__)
    for name, kind in (
        ("network", NetworkSpec),
        ("user", UserSpec),
        ("console", ConsoleSpec),
        ("limits", LimitsSpec),
        ("engine", EngineRunSpec),
        ("rootfs", RootfsSpec),
    )
}
