"""The embedded cluster's etcd: objects in memory, a journal in SQLite, group commit, the watch cache.

Implements `Api`. May import: the words, deciding rooms, `controllers`. Begin with `store.py`, then `write_verbs.py` and `journal.py`.
"""
