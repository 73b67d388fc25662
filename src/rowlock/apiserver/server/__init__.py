"""The HTTP server itself: TLS, connections, limits, certificates, and the ASGI application with its routes.

May import every other room of the API server; none imports it. Begin with `application.py`, then `http_protocol.py`.
"""
