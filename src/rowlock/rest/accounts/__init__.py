"""Users, roles and access rules over HTTP, as Run:ai's API has them: accounts are this server's, rights are Kubernetes' RBAC objects.

May import the words, `accounts`, `workloads`, and `rest` itself. Begin with `users.py`.
"""
