"""batch/v1 Jobs: pods until enough of them have succeeded, as kube-controller-manager's Job controller runs them. Pure.

It may import what `training` may. Begin with `reconcile.py`: one reconcile of one Job.
"""
