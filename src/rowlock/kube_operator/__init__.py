"""rowlock's job operators on a real cluster where its own are absent: what `rowlock up --kubeconfig … --operator own` adds.

Begin with `operator.py`. `presence.py` looks for the cluster's own, since two operators on one job would fight; `trainer_controllers.py`
does for JobSets and TrainJobs what their webhooks would; `sweeps.py` makes the runs of sweeps; `client.py` writes so that the next decision sees what the last one wrote.
"""
