"""Run:ai's workloads, in both directions, and nothing that touches the world.

    spec.py, compute.py, fields.py   the body of a submit → a `Submission`, or every mistake with field, rule and fix
    frameworks.py                    the table: PyTorch, TF, MPI, XGBoost, JAX ↔ kinds, replica roles, containers
    objects.py                       a `Submission` in a project → the job object
    phase.py                         job, pods, pod group → one of Run:ai's phases, with its sentence
    present.py, pods.py, story.py    objects → Run:ai's Workload, Pod, Event and history JSON
    projects.py                      project ↔ Namespace + Queue
    query.py                         filterBy, sortBy, search, offset, limit

Pure: times, ids and users are arguments. `server/` is the only caller.
"""
