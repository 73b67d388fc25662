"""Who may do what: Kubernetes' RBAC (`rbac.py`) over Roles, ClusterRoles and their bindings, for every face of the cluster.

`bootstrap_policy.py` has the roles that a cluster is born with, `escalation.py` keeps people from granting more than they have.
`authorizer.py` is the question. Imports `authentication` (who asks) and `system`. Begin with `rbac.py`.
"""
