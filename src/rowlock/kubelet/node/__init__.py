"""The node: what this machine has, Node objects and Leases, GPUs and shares of them, eviction, fake nodes.

May import `pod`, `shim`. Begin with `machine.py`.
"""
