"""The gang scheduler: which gang runs where, who yields, and a sentence for everybody who waits. Pure.

Knows pods, PodGroups, queues and nodes, not jobs. `model` holds the values, `policy` the rules and orders, `actions` the steps of a cycle
(allocate, consolidate, reclaim, preempt), `explain` the messages, as in KAI Scheduler. May import: the words.
Begin with `planner.py`, then `model/snapshot.py` and `actions/allocate.py`.
"""
