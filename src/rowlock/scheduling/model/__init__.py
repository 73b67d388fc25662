"""The values a cycle works on: snapshot, session, node state, resources, pod requests, pending gangs. Pure.

Begin with `snapshot.py`, then `session.py`.
"""
