"""The ASGI application of the Kubernetes API: its routes, what it is told at its start, what it tells the audit log.

May import every other room of the API server; none imports it. How bytes come in is `http_server`'s. Begin with `application.py`.
"""
