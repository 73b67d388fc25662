"""What Prometheus reads at `/metrics`: figures of the server and of its cluster, under Kubernetes' and KAI's names.

May import: the words, deciding rooms, `controllers`, `storage`, `apiserver`. Begin with `exposition.py`, which combines the metric families
of the other modules.
"""
