"""batch/v1 CronJobs: Jobs on a schedule, as kube-controller-manager's CronJob controller makes them. Pure.

It may import what `training` may. Begin with `reconcile.py`: one reconcile of one CronJob.
"""
