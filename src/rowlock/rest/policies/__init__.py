"""Policies at the REST API: written by admins, and enforced at every submit.

May import the rest of `rest` below the routes. Begin with `policies.py`.
"""
