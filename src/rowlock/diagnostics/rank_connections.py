"""Whether the ranks of a job have ever been connected to each other: from the sockets of their processes, in `/proc`."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rowlock.curves.endings import last_place, read_text
from rowlock.diagnosis.remarks import Remark, says_world_of_one, separate_ranks
from rowlock.diagnostics.connection_counters import ConnectionCounters, failed_attempts
from rowlock.diagnostics.process_sockets import (
    Connection,
    read_connections,
    shares_host_network,
    socket_inodes,
    visited_ports,
)
from rowlock.diagnostics.rank_processes import FRAMEWORKS, RankProcess, loaded_packages
from rowlock.kubelet.files import untrusted
from rowlock.objects import uid

MAX_RANKS = 16
"""The first ranks, whose sockets are read: if any ranks are connected, these are."""
MIN_LOOKS, MIN_SECONDS = 4, 3.0
"""Scans without a connection, and seconds from the first to the last, before the lack is reported. They count from the
moment when ranks of two pods were seen to train, or over the whole life of a job that has ended."""
SHARE, MAX_CREDIT = 0.003, 0.1
"""The budget for scans: a share of one CPU, and the most CPU seconds that accumulate."""
LONG_S = 120.0
"""Seconds without a connection after which it is reported for running ranks even if no log shows that they train."""
MIN_ATTEMPTS = 4
"""Refused attempts to connect of a pod whose ranks seek others, and do not train alone; a few fail everywhere, as of IPv6 on localhost."""
_TAIL_BYTES = 2 * 1024


@dataclass(slots=True)
class Meeting:
    """Whether the ranks of one job have met, i.e. been connected. Times are monotonic."""

    ranks: tuple[str, ...] = ()
    """The names of the job's ranks."""
    pods: int = 0
    """The number of pods of the observed ranks."""
    has_met: bool = False
    """They were connected, or it cannot be known because their sockets may not be read."""
    looks: int = 0
    first: float = 0.0
    last: float = 0.0
    trains: bool = False
    """Ranks of two pods were seen to train; the count of scans restarts then."""
    is_told: bool = False
    began: float = 0.0
    """The time of the very first scan."""
    packages: set[str] = field(default_factory=set)
    """Packages that the first rank has loaded."""
    hint: str = ""
    """What is missing for the ranks to find each other; "" = unknown."""
    is_warned: bool = False
    """An Event has said that they are not connected so far."""
    counters: ConnectionCounters = field(default_factory=ConnectionCounters)
    may_be_visited: bool = False
    """A rank without a network of its own listens: nothing counts who connects to it after the last look."""

    @property
    def is_late(self) -> bool:
        """Whether running ranks should be reported: they train, or have run for long, and were never connected."""
        has_run_long = self.last - self.began >= LONG_S and not self.is_warned
        return self.was_missed and (self.trains or has_run_long)

    @property
    def is_training(self) -> bool:
        """Whether the ranks are a training at all, by their logged figures or the framework that they have loaded."""
        return self.trains or not self.packages.isdisjoint(FRAMEWORKS)

    @property
    def remark(self) -> Remark | None:
        """The remark that the ranks were not connected in enough scans; else None."""
        if not self.was_missed:
            return None
        return separate_ranks(self.ranks, self.looks, self.last - self.first, self.hint)

    def note_hint(self, hint: str) -> None:
        """Set the hint; the caller is about to report that the ranks have not met."""
        self.hint, self.is_warned = hint, True

    @property
    def is_open(self) -> bool:
        """Whether further scans are useful."""
        return not self.has_met and not self.is_told

    @property
    def was_missed(self) -> bool:
        """Whether training ranks were not connected in enough scans over enough time."""
        return self.is_open and self.is_training and self.looks >= MIN_LOOKS and self.last - self.first >= MIN_SECONDS

    def look(self, ranks: Sequence[RankProcess]) -> None:
        """Look once at the connections of the running ranks of the job. Runs in a thread."""
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
        if not self.trains and any(failed_attempts(rank.pid) >= MIN_ATTEMPTS for rank in seen):
            self.looks = 0  # one of them tries to reach another, so they may still meet, even between the last look and their end
            return
        self.began = self.began or now
        self.looks += 1
        if not self.is_training:
            self.packages = loaded_packages(seen[0].pid)
        self.first = now if self.looks == 1 else self.first
        self.last = now
        if self.is_training:
            self.counters.hold((uid(rank.running_pod.pod), rank.pid) for rank in seen)
            visited = _visits_in_host_network(seen)
            self.may_be_visited = visited is not None
            self.has_met = not self.counters.are_surely_alone() or bool(visited)

    def settle(self, at_end: bool) -> None:
        """Count once more: ranks that meet for a moment, or at the very end, are seen in no look."""
        if self.is_open and (not self.counters.are_surely_alone(at_end) or (at_end and self.may_be_visited)):
            self.has_met = True


class MeetingLooks:
    """Looks at the connections of all jobs whose ranks have not met, within a CPU budget: with many jobs, less often at each."""

    def __init__(self) -> None:
        self._credit, self._at, self._turn = MAX_CREDIT, time.monotonic(), 0

    def look(self, jobs: Sequence[tuple[Meeting, Sequence[RankProcess]]]) -> None:
        """Look at as many of `jobs` as the budget allows, each at most once. Runs in a thread."""
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
    """Whether ranks of two pods are connected to each other now; None when one of them is ending; also True when
    their sockets may not be read."""
    tables: dict[str, dict[bytes, Connection]] = {}
    ends: dict[Connection, str] = {}
    try:
        held = [(rank, found) for rank in ranks if (found := set(socket_inodes(rank.pid)))]
        if len({uid(rank.running_pod.pod) for rank, _ in held}) < 2:
            return False  # without a read of the tables, which costs milliseconds: the kernel searches all connections
        for rank, inodes in held:
            namespace = os.readlink(f"/proc/{rank.pid}/ns/net")
            if namespace not in tables:
                tables[namespace] = read_connections(rank.pid)
            pod = uid(rank.running_pod.pod)
            for inode in inodes & tables[namespace].keys():
                near, far = tables[namespace][inode]
                if ends.get((far, near), pod) != pod:
                    return True
                ends[near, far] = pod
    except PermissionError:
        return True
    except OSError:
        return None
    return False


def _visits_in_host_network(ranks: Sequence[RankProcess]) -> bool | None:
    """Whether somebody has connected to a rank that listens in the machine's own network, and has closed that a moment ago; None when none
    listens there, or it cannot be known."""
    found: dict[str, bool] = {}
    with contextlib.suppress(OSError):
        shared = [rank.pid for rank in ranks if shares_host_network(rank.pid)]
        inodes = {inode for pid in shared for inode in socket_inodes(pid)}
        found = visited_ports(shared[0], inodes) if inodes else {}
    return any(found.values()) if found else None


def _train_apart(ranks: Sequence[RankProcess]) -> bool:
    """Whether the logs of two pods each show training figures, or a world size of 1."""
    logs = {uid(rank.running_pod.pod): rank.running_pod.log for rank in ranks}
    count = 0
    for path in logs.values():
        text = untrusted.read_tail(str(path), _TAIL_BYTES).decode(errors="replace")
        count += says_world_of_one(text) or last_place(read_text(text)) is not None
        if count >= 2:
            return True
    return False
