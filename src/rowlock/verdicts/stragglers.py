"""Who slows the others down: over some looks at all ranks, who waits least while the others wait most.

In synchronous training every rank makes the same steps; the slow one never waits, and all others wait for it. So the
share of looks in which a rank stood in a collective tells the straggler without a word from the user's program.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from rowlock.verdicts.hang import Verdict
from rowlock.verdicts.stacks import Stack

LEAST = 8
"""Looks that are needed before anything is claimed."""
_NEVER, _OFTEN = 0.15, 0.4


def slowest(looks: Mapping[str, Sequence[Stack]], *, wrote: bool = False) -> Verdict | None:
    """`looks`: by rank; `wrote`: in the later half of them somebody wrote a line.

    None when the ranks keep pace, when there is too little to tell, and when nobody moves any more: that is a hang."""
    counted = {rank: seen for rank, seen in looks.items() if len(seen) >= LEAST}
    if len(counted) < 2 or len(counted) < len(looks):
        return None
    waits = {rank: sum(bool(stack.waits) for stack in seen) / len(seen) for rank, seen in counted.items()}
    slow = min(waits, key=lambda rank: waits[rank])
    others = statistics.median(share for rank, share in waits.items() if rank != slow)
    moves = wrote or any(len({stack.frames for stack in seen[len(seen) // 2 :]}) > 1 for seen in counted.values())
    if waits[slow] > _NEVER or others < _OFTEN or not moves:
        return None
    (place, times), *_ = Counter(stack.place for stack in counted[slow] if not stack.waits).most_common(1)
    share = times / len(counted[slow])
    rest = "the other" if len(counted) == 2 else f"the {len(counted) - 1} others"
    said = (
        f"{slow} is slower than its peers: it waits {waits[slow]:.0%} of the time, {rest} {others:.0%} "
        f"({len(counted[slow])} looks); it was at {place} in {share:.0%} of them"
    )
    return Verdict("slow", f"{said}.", (slow,))
