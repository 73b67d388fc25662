"""Whether the ranks of a job have ever been connected to each other: from the sockets of their processes, in `/proc`."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rowlock.curves.endings import last_place, read_text
from rowlock.diagnosis.remarks import Remark, says_world_of_one, separate_ranks
from rowlock.diagnostics.rank_processes import RankProcess
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.shim.process_tree import descendants
from rowlock.objects import uid

MAX_RANKS = 16
"""Ranks whose sockets are read: where any two ranks meet, they meet the first ones."""
MIN_LOOKS, MIN_SECONDS = 4, 3.0
"""Looks without a connection, and seconds from the first to the last, before it is said that there was none: counted from
the moment at which ranks of two pods were seen to train, or over the whole life of a job that has ended."""
SHARE, MAX_CREDIT = 0.003, 0.1
"""CPUs that looks may take; and seconds of CPU that are saved up for the first ones."""
LONG_S = 120.0
"""Seconds without a connection after which it is said while ranks run, though no log shows that they train."""
FRAMEWORKS = frozenset({"torch", "tensorflow", "jaxlib", "paddle", "mpi4py", "xgboost", "lightgbm", "mindspore"})
"""Packages by whose native code a program is known to train."""
_MAX_DESCRIPTORS, _MAX_PROCESSES, _MAX_TABLE = 4096, 256, 4 << 20
_TAIL_BYTES = 2 * 1024
_ESTABLISHED = b"01"

Connection = tuple[str, str]
"""Both ends of a TCP connection as the kernel writes them, ours first."""


@dataclass(slots=True)
class Meeting:
    """What is known of whether the ranks of one job have met. Times are monotonic."""

    ranks: tuple[str, ...] = ()
    """Their names, of the first `MAX_RANKS`."""
    pods: int = 0
    """In how many pods they are."""
    has_met: bool = False
    """Or it cannot be known: sockets may not be read."""
    looks: int = 0
    first: float = 0.0
    last: float = 0.0
    trains: bool = False
    """Ranks of two pods were seen to train; then looks are counted anew."""
    is_told: bool = False
    began: float = 0.0
    """The first look of all."""
    packages: set[str] = field(default_factory=set)
    """What the first rank has loaded."""
    hint: str = ""
    """What is missing for them to find each other, where that is known."""
    is_warned: bool = False
    """It was said that they are not connected so far."""

    @property
    def is_late(self) -> bool:
        """Whether there is something to say of ranks that run: they train, or have run for long, and were never connected."""
        has_run_long = self.last - self.began >= LONG_S and not self.is_warned
        return self.was_missed and (self.trains or has_run_long)

    @property
    def is_training(self) -> bool:
        """Whether the ranks are a training at all: by their figures, or by the framework that they have loaded."""
        return self.trains or not self.packages.isdisjoint(FRAMEWORKS)

    @property
    def remark(self) -> Remark | None:
        """What is to be said of ranks that were not seen connected in enough looks."""
        if not self.was_missed:
            return None
        return separate_ranks(self.ranks, self.looks, self.last - self.first, self.hint)

    def note_hint(self, hint: str) -> None:
        """It is told now: for good where the ranks were seen to train, else so far."""
        self.hint, self.is_warned = hint, True

    @property
    def is_open(self) -> bool:
        """Whether it is worth a look."""
        return not self.has_met and not self.is_told

    @property
    def was_missed(self) -> bool:
        """Whether there was no connection of ranks that train in enough looks."""
        return self.is_open and self.is_training and self.looks >= MIN_LOOKS and self.last - self.first >= MIN_SECONDS

    def look(self, ranks: Sequence[RankProcess]) -> None:
        """Once more, at all ranks of the job that run. Runs in a thread."""
        seen = ranks[:MAX_RANKS]
        pods = len({uid(rank.running_pod.pod) for rank in seen})
        if pods < 2 or not self.is_open:
            return
        now = time.monotonic()
        connected = are_connected(seen)
        self.has_met = connected is True
        if connected is not False:
            return
        self.ranks, self.pods = tuple(rank.name for rank in ranks), pods
        if not self.trains and _train_apart(seen):
            self.trains, self.looks = True, 0
        self.began = self.began or now
        self.looks += 1
        if not self.is_training:
            self.packages = loaded_packages(seen[0].pid)
        self.first = now if self.looks == 1 else self.first
        self.last = now


class MeetingLooks:
    """Looks at the ranks of all jobs that have not met, within a small share of a CPU: of many jobs each is looked at more rarely."""

    def __init__(self) -> None:
        self._credit, self._at, self._turn = MAX_CREDIT, time.monotonic(), 0

    def look(self, jobs: Sequence[tuple[Meeting, Sequence[RankProcess]]]) -> None:
        """At some of `jobs`, each with its ranks; at most once at each. Runs in a thread."""
        now = time.monotonic()
        self._credit, self._at = min(MAX_CREDIT, self._credit + SHARE * (now - self._at)), now
        unmet = [(meeting, ranks) for meeting, ranks in jobs if meeting.is_open and len(ranks) > 1]
        for number in range(len(unmet)):
            if self._credit <= 0:
                self._turn += number
                return
            began = time.thread_time()
            meeting, ranks = unmet[(self._turn + number) % len(unmet)]
            meeting.look(ranks)
            self._credit -= time.thread_time() - began


def are_connected(ranks: Sequence[RankProcess]) -> bool | None:
    """Whether ranks of two pods are connected to each other now; None when one of them is just ending, and True as well where
    their sockets may not be read."""
    tables: dict[str, dict[bytes, Connection]] = {}
    ends: dict[Connection, str] = {}
    for rank in ranks:
        try:
            namespace = os.readlink(f"/proc/{rank.pid}/ns/net")
            if namespace not in tables:
                tables[namespace] = _read_connections(rank.pid)
            inodes = set(_socket_inodes(rank.pid))
        except PermissionError:
            return True
        except OSError:
            return None
        pod = uid(rank.running_pod.pod)
        for inode in inodes & tables[namespace].keys():
            near, far = tables[namespace][inode]
            if ends.get((far, near), pod) != pod:
                return True
            ends[near, far] = pod
    return False


def loaded_packages(pid: int) -> set[str]:
    """Packages whose native code a process has mapped, by the directory below `site-packages`."""
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file.read(_MAX_TABLE).splitlines():
            _, _, path = line.partition(b"-packages/")
            if path:
                found.add(path.partition(b"/")[0].decode(errors="replace"))
    return found


def _train_apart(ranks: Sequence[RankProcess]) -> bool:
    """Whether the logs of two pods have figures of their own, or say that their program is the only one."""
    logs = {uid(rank.running_pod.pod): rank.running_pod.log for rank in ranks}
    count = 0
    for path in logs.values():
        text = untrusted.read_tail(str(path), _TAIL_BYTES).decode(errors="replace")
        count += says_world_of_one(text) or last_place(read_text(text)) is not None
        if count >= 2:
            return True
    return False


def _read_connections(pid: int) -> dict[bytes, Connection]:
    """Inode of the socket → its connection, in the network of a process. Raises OSError."""
    found: dict[bytes, Connection] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/net/{name}", "rb") as file:
            for line in file.read(_MAX_TABLE).splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _ESTABLISHED:
                    found[fields[9]] = _end(fields[1]), _end(fields[2])
    return found


def _end(text: bytes) -> str:
    """An address and a port; an IPv4 address that stands in an IPv6 one as itself."""
    address, _, port = text.decode(errors="replace").partition(":")
    return (
        f"{address[24:] if len(address) == 32 and address.startswith('0000000000000000FFFF0000') else address}:{port}"
    )


def _socket_inodes(pid: int) -> Iterator[bytes]:
    """Of a rank and what it has started. Raises OSError where the rank's descriptors may not be read."""
    for number, each in enumerate((pid, *descendants(pid)[:_MAX_PROCESSES])):
        try:
            names = os.listdir(f"/proc/{each}/fd")
        except OSError:
            if number == 0:
                raise
            continue
        for name in names[:_MAX_DESCRIPTORS]:
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{each}/fd/{name}")
                if target.startswith("socket:["):
                    yield target[8:-1].encode()
