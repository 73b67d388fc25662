"""JobSets: several Jobs that are one job, with names in a common domain. The set becomes a Service and Jobs. Pure.

It does what the JobSet controller does. Begin with `reconcile.py`, one reconcile of one set; `jobs.py` has the created objects.
"""
