"""The pod network: a network namespace per pod, or names and ports rewritten; hosts files; the way out (a proxy).

May import `pod`, `shim`. Begin with `pod_network.py`.
"""
