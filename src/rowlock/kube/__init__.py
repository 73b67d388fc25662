"""A real Kubernetes cluster behind the nine verbs: client, watch cache, credentials, rate limits. Implements `Api`.

May import: the words. Begin with `client.py` (the `Api`), then `cache.py` (the `View` that controllers decide on, as
client-go's shared informers). No assembly uses the room yet: `rowlock up` serves the embedded cluster only. The tests
run the client against a real kube-apiserver (`tests/conformance`) and the cache against a failing one (`tests/kube`).
"""
