"""What the kubelet knows about a pod's programs: plain values, read from the pod's directory by `processes.py`.

A *run* is one execution of one container, numbered from 0 (its restart count). Decisions (`sync.py`) and the status
(`status.py`) are computed from these values and the pod alone.
"""

import signal as signals
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.kinds import Kind
from rowlock.objects import Object, dig

LOST_EXIT_CODE = 137
BACKOFF_RESET_AFTER = 600.0
"""Seconds after which a run resets the back-off."""
POD_UID_VARIABLE = "ROWLOCK_POD_UID"
"""Every program has its pod's uid in this variable, by which leftover processes are recognised."""
DATA_DIRECTORY_VARIABLE = "ROWLOCK_DATA_DIRECTORY_ID"
"""The variable with `PodDirectories.identity`: pods of a restored or copied cluster have the same uids."""

ObjectLookup = Callable[[Kind, str, str], Object | None]
"""Kind, namespace and name → the object; None when there is none."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended; `code` is 128+N for signal N. `reason` is Kubernetes' term if it does not follow from the code."""

    code: int
    started: float
    finished: float
    signal: int = 0
    message: str = ""
    reason: str = ""
    container: str = ""
    """The id of its container in an engine; "" = it ran as a process."""
    passed_on: bool = False
    """Its first process died of the stop signal without passing it on; the processes that it left were asked to end afterwards."""
    stop_grace: float | None = None
    """Seconds of grace with which it was asked to end; None = it was not asked."""
    stop_took: float = 0.0
    """Seconds from that request to its end."""
    stop_signal: int = signals.SIGTERM
    """The signal of that request."""
    used_grace: bool = False
    """Whether the grace ran out and it was killed."""
    helpers_overuse: str = ""
    """Why processes that it started were killed for memory, although it exited with 0 itself; "" = none were."""
    reached_pids_limit: bool = False
    """The kernel refused it a process or thread, because it had as many as it may have."""

    @property
    def status_reason(self) -> str:
        return self.reason or ("Completed" if self.code == 0 else "Error")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a container. `started` is None until the program has been exec'ed."""

    number: int
    shim: int = 0
    shim_ticks: int = 0
    pid: int = 0
    started: float | None = None
    backoff: int = 0
    exit: Exit | None = None
    container: str = ""
    """The id of its container in an engine; "" = it runs as a process."""
    directory: str = ""
    """The directory of its facts; "" = not on disk."""

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.exit is None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a container cannot be started: the reason as Kubernetes spells it, and one sentence."""

    reason: str
    message: str


class ContainerConfigError(Exception):
    """A container cannot be started as its pod is now; carries what the container's status says."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.problem = Problem(reason, message)


@dataclass(frozen=True, slots=True)
class Pull:
    """The pull of a container's image by a container engine."""

    under_way: bool = False
    failures: int = 0
    not_before: float = 0.0
    """Time of the next attempt at the earliest, in seconds since the epoch."""
    why: str = ""
    """Why the last attempt failed."""
    told: bool = False
    """Whether an event has reported that the image was pulled."""


NO_PULL = Pull()


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """`run` is the newest run, `last` the exit of the one before, `asked` the number of a start that is under way."""

    run: Run | None = None
    last: Exit | None = None
    problem: Problem | None = None
    problem_since: float = 0.0
    asked: int | None = None
    shim: int = 0
    """The pid of that start's shim; 0 = not known."""
    stop_by: float | None = None
    image_id: str = ""
    pull: Pull = NO_PULL
    started: bool = False
    """Whether the newest run's startup probe has passed and its postStart hook is done; used only if it has either."""
    ready: bool = False
    """Whether the newest run's readiness probe passes; used only if it has one."""

    @property
    def is_alive(self) -> bool:
        """Whether a program may be running."""
        return self.asked is not None or (self.run is not None and self.run.exit is None)

    @property
    def recent_restarts(self) -> int:
        """Restarts that count for the back-off once the newest run has ended."""
        run = self.run
        if run is None or run.exit is None or run.exit.finished - run.exit.started >= BACKOFF_RESET_AFTER:
            return 0
        return run.backoff


NO_FACTS = ContainerFacts()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is known about one pod beside its object."""

    ip: str = ""
    host_ip: str = "127.0.0.1"
    start_time: float = 0.0
    containers: Mapping[str, ContainerFacts] = field(default_factory=dict)
    master_ready: float | None = None
    """When the master that an emulated init container waits for became ready; None = not yet."""
    evicted: str = ""
    """Why the pod is evicted; "" = it is not."""
    start_delay: float = 0.0
    """Seconds from `start_time` until its first program may start, because its predecessors failed (`recreations.py`)."""
    rejected: tuple[str, str] | None = None
    """Reason and message of a pod that the node has no room for."""

    def for_container(self, name: str) -> ContainerFacts:
        return self.containers.get(name, NO_FACTS)


def main_containers(pod: Object) -> list[dict[str, Any]]:
    return list(dig(pod, "spec.containers", ()))


def init_containers(pod: Object) -> list[dict[str, Any]]:
    return list(dig(pod, "spec.initContainers", ()))


def ephemeral_containers(pod: Object) -> list[dict[str, Any]]:
    return list(dig(pod, "spec.ephemeralContainers", ()))


def all_containers(pod: Object) -> list[dict[str, Any]]:
    return init_containers(pod) + main_containers(pod) + ephemeral_containers(pod)


def container_statuses(pod: Object) -> list[dict[str, Any]]:
    """The status entries of all containers of the pod."""
    fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [status for field in fields for status in dig(pod, f"status.{field}", ())]
