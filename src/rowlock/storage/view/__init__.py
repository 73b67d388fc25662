"""The objects of a cluster in memory, indexed: what is committed (`state.py`), and what is staged on top of it (`staged_view.py`).

May import the words. Begin with `state.py`.
"""
