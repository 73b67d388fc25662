"""JobSets: several Jobs that are one job, with names in a common domain. The set becomes a Service and Jobs. Pure.

It does what the JobSet controller does. Begin with `reconcile.py`, one look at one set; `jobs.py` has what is made.
"""
