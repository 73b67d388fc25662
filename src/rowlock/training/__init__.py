"""Kubeflow's training operator: v1 jobs become pods, services, pod groups, conditions and events. Pure.

Knows jobs, not nodes. `frameworks` holds one file per framework, `dependents` what a job owns, `admission` the webhooks.
May import: the words. Begin with `job.py`, then `reconcile_context.py` and `frameworks/pytorch.py`.
"""
