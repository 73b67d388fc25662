"""The request for a shim: one run of one container, sent by the kubelet to the pod host, and by that to the shim.

It travels as JSON. Unknown keys are refused, so that a kubelet and a pod host of different versions do not misunderstand
each other silently. Standard library only.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from rowlock.kubelet.mounts import calls
from rowlock.kubelet.mounts.rootfs import RootfsSpec


class NetworkSpec(TypedDict):
    """The pod's own network: the pod's uid and address, the hosts file to mount and the host name."""

    uid: str
    ip: str
    hosts: str
    hostname: str


class UserSpec(TypedDict, total=False):
    """The program's user; what is missing or None is as in the server's own process."""

    uid: int | None
    gid: int | None
    groups: Sequence[int]
    no_new_privileges: bool


class ConsoleSpec(TypedDict, total=False):
    """Whether the program has a terminal and a stdin, and whether stdin ends with the first client (`once`)."""

    tty: bool
    stdin: bool
    once: bool


class LimitsSpec(TypedDict, total=False):
    """Memory in bytes, CPUs and requested CPUs in cores, processes and threads; `how` they are enforced: `v2`, `v1` or `watchdog`."""

    memory: int
    pids: int
    cpu: float
    share: float
    how: str


class EngineRunSpec(TypedDict):
    """The container in an engine: the engine's socket, the container's name and create body, the pod's sandbox, if any; the stop signal."""

    socket: Mapping[str, str]
    name: str
    create: Mapping[str, Any]
    sandbox: Mapping[str, Any] | None
    stop_signal: int


class ShimRequest(NamedTuple):
    """One run of one container.

    A named tuple, because every shim makes one: a frozen dataclass sets its fields one by one through
    `object.__setattr__`, and the memory that this touches costs each pod 40 KiB."""

    directory: str
    """The directory of its facts and its log."""
    number: int
    """Number of the run, from 0."""
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    """Entered as the program's user."""
    hint: str
    """`uid/container`, which is sent to the server when something happens."""
    wake_path: str
    """The pipe into which the server is sent hints."""
    own_directory: str = ""
    """A directory made by the kubelet in which `cwd` lies; the program's user need not be able to reach it by path."""
    backoff: int = 0
    """Restarts that count for the back-off when it ends."""
    stop_signal: int = 15
    """The signal that asks the program to end; SIGTERM unless its image says otherwise."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL, if the stop request does not say."""
    network: NetworkSpec | None = None
    """None = the machine's network."""
    namespaces: Sequence[str] = ()
    """The namespaces of its own: `pid` and `ipc` for the container alone, `pod-pid` and `pod-ipc` for all containers of the pod."""
    joined_run: str = ""
    """Path of the `start.N` of the container whose processes it sees; "" = it sees only its own."""
    shared_memory: int = 0
    """Size of its own /dev/shm in bytes; 0 = it has that of `mounts`, or the machine's."""
    mounts: Sequence[Mapping[str, Any]] = ()
    """In the form that `volume_mounts.mount_volumes` takes."""
    memory_volumes: Sequence[Mapping[str, Any]] = ()
    """The pod's memory volumes: `path` and `size` in bytes, 0 = no limit."""
    rootfs: RootfsSpec | None = None
    """Its root file system; None = the machine's."""
    spare: str = ""
    """Directory of a root file system that the pod host has assembled ahead (`spare_roots.SpareRoot`); "" = none."""
    image_copy: Sequence[str] = ()
    """Without a root file system of its own: the path of the image's files, and the path for the run's copy of them."""
    user: UserSpec = UserSpec()
    console: ConsoleSpec = ConsoleSpec()
    limits: LimitsSpec = LimitsSpec()
    rlimits: Mapping[str, Sequence[int]] = dict[str, Sequence[int]]()
    """RLIMIT_… → soft and hard."""
    log_limit: int = 0
    """Bytes of its log that are kept; 0 = `log_writer.DEFAULT_LOG_LIMIT`."""
    message_path: str = ""
    """Path of the termination message file; "" = none."""
    message_from_log: bool = False
    """Whether the end of its log is its message when it fails without leaving one."""
    warm: Mapping[str, Any] | None = None
    """How it may start warm (`warm.eligibility.WarmStart.spec`); None = it starts cold."""
    engine: EngineRunSpec | None = None
    """None = it runs as a process."""

    @property
    def pod_uid(self) -> str:
        return self.hint.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values; nested ones are shared with the request."""
        return self._asdict()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ShimRequest":
        """Parses a request. Raises ValueError with a sentence for unknown and for missing keys."""
        _refuse_unknown("", data, _FIELDS)
        for name, known in _NESTED.items():
            _refuse_unknown(f" in {name}", data.get(name) or {}, known)
        if missing := [name for name in _REQUIRED if name not in data]:
            raise ValueError(
                f"a request for a shim lacks {', '.join(missing)}: restart the cluster with one version of rowlock"
            )
        return cls(**data)


def namespace_flags(namespaces: Sequence[str]) -> int:
    """The namespaces that are created with the shim, as `calls.fork_into` takes them."""
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
