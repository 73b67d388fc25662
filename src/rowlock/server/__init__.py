"""Run:ai's REST API over any cluster: it sees an `Api` and nothing of what is behind it.

app.py        the route table, the shape of errors, `Face`
auth.py       who is asking
catalog.py    what the cluster holds, kept by watching: lists of 10,000 workloads answer from here
workloads.py  submit, list, show, suspend, resume, delete, wait
logs.py       logs of a pod; of all pods, merged, each line under its rank
projects.py   project ↔ Namespace + Queue; clusters
scheduler.py  the scheduler's snapshot; what would become of a job that nobody submitted
"""
