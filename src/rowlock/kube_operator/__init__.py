"""rowlock's job operators on a real cluster where Kubeflow's is absent: what `rowlock up --kubeconfig … --operator own` adds.

Begin with `operator.py`. `presence.py` looks for Kubeflow's own, since two operators on one job would fight; `client.py`
writes so that the next decision sees what the last one wrote.
"""
