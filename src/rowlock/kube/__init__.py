"""A real Kubernetes cluster behind the nine verbs: client, watch cache, credentials, rate limits. Implements `Api`.

May import: the words. Begin with `client.py`, then `cache.py`.
"""
