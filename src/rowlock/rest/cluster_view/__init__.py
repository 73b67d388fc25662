"""The cluster as a whole: every card and who is on it (`cards.py`), who waits and in which order (`queue.py`).

May import what `rest` may, and `workloads.py` beside it. Begin with `cards.py`.
"""
