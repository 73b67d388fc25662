"""Run:ai's REST API over any cluster: it sees an `Api` and nothing of what is behind it.

May import: the words, deciding rooms, `controllers`. Begin with `routes.py`, then `workloads.py`.
"""
