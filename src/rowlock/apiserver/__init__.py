"""The embedded cluster's kube-apiserver: the Kubernetes API over HTTPS, in the parts of k8s.io/apiserver.

A request comes from `http_server` to `server` (routes, users) and through `http` (parsing) to `endpoints`; what it writes goes through `schema`,
`admission`, `validation`, `patch` and `apply` to `storage`; `printers` and `discovery` answer kubectl; `streams` carries
exec, attach and port-forward. May import: the words, deciding rooms,
`controllers`, `authentication`, `authorization`, `http_server`, `storage`. Begin with `server/application.py`.
"""
