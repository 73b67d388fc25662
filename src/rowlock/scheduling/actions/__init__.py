"""The actions of a cycle, in KAI's order: allocate, consolidate, reclaim, preempt, stale gang eviction; and node reservation.

Each works on a `Session` of `model`, by the rules of `policy`. Begin with `allocate.py`, then `solver.py`.
"""
