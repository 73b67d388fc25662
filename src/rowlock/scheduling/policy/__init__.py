"""Opinions that actions ask: the order of queues and gangs, fair shares, usage, protection, topology, placement on nodes.

Begin with `order.py` and `fairshare.py`.
"""
