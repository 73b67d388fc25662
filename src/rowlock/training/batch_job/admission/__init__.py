"""What the API server says of a batch/v1 Job before it is stored: its selector, what is refused, what may not change. Pure.

It may import what `training` may. Begin with `spec_rules.py`; `apiserver/validation/batch_jobs.py` calls it.
"""
