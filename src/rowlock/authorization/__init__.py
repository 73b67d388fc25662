"""Who may do what: Kubernetes' RBAC (`rbac.py`) over Roles, ClusterRoles and their bindings, for every face of the cluster.

`bootstrap_policy.py` has the initial roles of a cluster; `user_rights.py` stops users from granting more rights than they have.
`authorizer.py` has the interface. Imports `authentication` (users) and `system`. Begin with `rbac.py`.
"""
