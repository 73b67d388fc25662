"""Finds the rank that slows the others down: over several stack dumps, it waits least while the others wait most.

In synchronous training every rank makes the same steps; the slow one never waits, and all others wait for it. So the
share of dumps in which each rank was in a collective reveals the straggler without support from the user's program.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from rowlock.diagnosis.observation import Verdict
from rowlock.diagnosis.stacks import Stack

MIN_SAMPLES = 8
"""Observations that are needed before a rank is named."""
_STRAGGLER_WAIT, _PEER_WAIT = 0.15, 0.4


def find_straggler(stacks_by_rank: Mapping[str, Sequence[Stack]], *, has_output: bool = False) -> Verdict | None:
    """The verdict that names the straggler. `has_output`: a rank wrote a line during the second half of the dumps.

    None when the ranks keep pace, when there are too few dumps, and when no rank moves any more: that is a hang."""
    sampled = {rank: seen for rank, seen in stacks_by_rank.items() if len(seen) >= MIN_SAMPLES}
    if len(sampled) < 2 or len(sampled) < len(stacks_by_rank):
        return None
    waits = {rank: sum(bool(stack.awaited_collective) for stack in seen) / len(seen) for rank, seen in sampled.items()}
    straggler = min(waits, key=lambda rank: waits[rank])
    others = statistics.median(share for rank, share in waits.items() if rank != straggler)
    is_moving = has_output or any(
        len({stack.frames for stack in seen[len(seen) // 2 :]}) > 1 for seen in sampled.values()
    )
    if waits[straggler] > _STRAGGLER_WAIT or others < _PEER_WAIT or not is_moving:
        return None
    (place, place_count), *_ = Counter(
        stack.place for stack in sampled[straggler] if not stack.awaited_collective
    ).most_common(1)
    share = place_count / len(sampled[straggler])
    others_text = "the other" if len(sampled) == 2 else f"the {len(sampled) - 1} others"
    text = (
        f"{straggler} is slower than its peers: it waits {waits[straggler]:.0%} of the time, {others_text} {others:.0%} "
        f"({len(sampled[straggler])} looks); it was at {place} in {share:.0%} of them"
    )
    return Verdict("slow", f"{text}.", (straggler,))
