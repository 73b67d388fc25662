"""Reads what ranks in a rendezvous wait for: from the variables of torch's and others' calls, or from torchrun's command line; and whether
they have come close to each other: since when all of them are there, and which are connected."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rowlock.diagnosis.observation import RankObservation
from rowlock.diagnosis.rendezvous import MEETINGS, Rendezvous, expected_ranks, parse_rendezvous, torchrun_rendezvous
from rowlock.diagnostics.process_sockets import connected_processes
from rowlock.diagnostics.rank_processes import RankProcess, read_command_line, read_variables
from rowlock.diagnostics.stack_dumps import dump_variables
from rowlock.kubelet.files import untrusted
from rowlock.objects import uid

_TORCHRUNS = ("/torchrun", "torch.distributed.run", "torch.distributed.launch")
_TAIL_BYTES, _STAT_BYTES = 16 * 1024, 4096
_AGENT_BYTES, _MOST_AGENT_BYTES = 400.0, 64 * 1024.0
"""Bytes per second with which n torchruns keep each other alive: each reads once a second a state that grows with n, and the pod that holds
their store answers all of them: measured 961 for 2 of them and 10,127 for 6, about 280 n². And what is allowed at most."""
_MAX_RANKS = 64
"""The most ranks that are examined: enough to see what is wrong with a rendezvous."""


class Rendezvouses:
    """The rendezvous of the jobs on this machine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._complete: dict[str, tuple[frozenset[int], float]] = {}
        """By job (its uid): the processes that were seen in a rendezvous all together, and since when."""

    def forget(self, job: str) -> None:
        self._complete.pop(job, None)

    def note(self, job: str, observations: Sequence[RankObservation]) -> list[RankObservation]:
        """The observations as they are; a later rendezvous of ranks that are in none now begins anew."""
        if not any(look.awaited_collective in MEETINGS for look in observations):
            self.forget(job)
        return list(observations)

    async def look(
        self, job: str, observations: list[RankObservation], ranks: Sequence[RankProcess]
    ) -> list[RankObservation]:
        """The observations of a job (its uid), with the rendezvous of the ranks that wait in one."""
        waiting = {look.pid for look in observations if look.awaited_collective in MEETINGS}
        found = await read_rendezvous(rank for rank in ranks if rank.pid in waiting)
        looks = [replace(look, rendezvous=found.get(look.pid)) for look in observations]
        if not waiting or len(waiting) < len(observations):
            self.forget(job)
            return looks
        pids, since = self._complete.get(job, (frozenset[int](), 0.0))
        if pids != waiting:
            since = self._clock() - (
                0.0 if any(o.moved for o in observations) else min(o.watched for o in observations)
            )
            self._complete[job] = frozenset(waiting), since
        together = self._clock() - since
        connected = await asyncio.to_thread(connected_processes, sorted(waiting))
        return [replace(look, together=together, is_connected=look.pid in connected) for look in looks]


async def read_rendezvous(ranks: Iterable[RankProcess]) -> dict[int, Rendezvous]:
    """The rendezvous of each rank by pid; ranks about which nothing is known are left out."""
    found: dict[int, Rendezvous] = {}
    for rank in list(ranks)[:_MAX_RANKS]:
        rendezvous = await asyncio.to_thread(_of_torchrun, rank.pid)
        if rendezvous is None:
            log = await asyncio.to_thread(untrusted.read_tail, str(rank.running_pod.log), _TAIL_BYTES)
            rendezvous = parse_rendezvous(await dump_variables(rank.pid), log.decode(errors="replace"))
        if rendezvous is not None:
            found[rank.pid] = rendezvous
    return found


def expects_others(pid: int) -> bool:
    """Whether the program of this process was told of other ranks: as a torchrun of several nodes, or by WORLD_SIZE or TF_CONFIG."""
    told = _of_torchrun(pid)
    return told.size > 1 if told is not None else expected_ranks(read_variables(pid)) > 1


def _of_torchrun(pid: int) -> Rendezvous | None:
    words = read_command_line(pid)
    return torchrun_rendezvous(words, read_variables(pid)) if _starts_ranks(words) else None


def agent_traffic(ranks: Sequence[RankProcess]) -> dict[int, float]:
    """By pid, for the ranks below a torchrun of several pods, how many bytes per second these torchruns send to each other. Runs in a thread."""
    below = [rank for rank in ranks if is_torchrun(rank.pid) or is_torchrun(_parent(rank.pid))]
    pods = len({uid(rank.running_pod.pod) for rank in below})
    traffic = min(_AGENT_BYTES * pods**2, _MOST_AGENT_BYTES) if pods > 1 else 0.0
    return {rank.pid: traffic for rank in below}


def _parent(pid: int) -> int:
    """The pid of the parent process; 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read(_STAT_BYTES).rpartition(b")")[2].split()[1])
    return 0


def is_torchrun(pid: int) -> bool:
    return _starts_ranks(read_command_line(pid))


def _starts_ranks(words: Sequence[str]) -> bool:
    return any(word.endswith(_TORCHRUNS) for word in words[:4])
