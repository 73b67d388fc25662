"""The cluster as a whole: every card and who is on it (`cards.py`), who waits and in which order (`queue.py`), and what the cluster does
not show to this server (`hidden_kinds.py`).

May import what `rest` may, and `workloads.py` beside it. Begin with `cards.py`.
"""
