"""What kube-controller-manager does: garbage collection, TTLs, namespace defaults, node taints, volume claims, resource quotas. Pure.

Controllers that decide over a `View`; `cluster.py` runs them in the loop. May import: the words. Begin with `registry.py`.
"""
