"""Run:ai's REST API over any cluster: it works on any `Api` and knows nothing of what is behind it.

May import: the words, deciding rooms, `controllers`. Begin with `routes.py`, then `workloads.py`.
"""
