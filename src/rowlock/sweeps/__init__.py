"""Sweeps: many runs of one command with different parameters, which the server keeps going. Pure.

A sweep is a ConfigMap that owns the jobs of its runs; what it has done is read from these jobs. May import: the words and `workloads`.
Begin with `sweep.py` (the object), then `reconcile.py` (which runs are made now). `docs/design/sweeps.md` has the reasons.
"""
