"""Reads what ranks in a rendezvous wait for: from the variables of torch's calls, or from torchrun's command line."""

import asyncio
from collections.abc import Iterable

from rowlock.diagnosis.rendezvous import Rendezvous, parse_rendezvous, torchrun_rendezvous
from rowlock.diagnostics.rank_processes import RankProcess, read_command_line, read_variables
from rowlock.diagnostics.stack_dumps import dump_variables
from rowlock.kubelet.files import untrusted

_TAIL_BYTES = 16 * 1024
_MAX_RANKS = 64
"""The most ranks that are examined: enough to see what is wrong with a rendezvous."""


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


def _of_torchrun(pid: int) -> Rendezvous | None:
    words = read_command_line(pid)
    if not any(word.endswith(("/torchrun", "torch.distributed.run")) for word in words[:4]):
        return None
    return torchrun_rendezvous(words, read_variables(pid))
