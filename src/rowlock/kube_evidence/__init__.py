"""What pods of a real cluster leave behind, kept by us: their logs, taken before the pods go, and how their ranks failed.

May import: `archive`, `diagnosis`, `kube`, `rest`'s informer cache, the words. Begin with `log_collector.py`; `archive_leader.py` decides which server writes.
"""
