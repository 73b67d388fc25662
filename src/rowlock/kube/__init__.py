"""A real Kubernetes cluster behind the nine verbs: client, watch cache, credentials, rate limits. Implements `Api`.

May import: the words. Begin with `client.py` (the `Api`), then `cache.py` (the `View` that controllers decide on, as
client-go's shared informers). `rowlock up --kubeconfig` serves the REST API over the client (`kube_assembly.py`), which checks
first what the cluster lacks (`installation.py`). The tests run the client against a real kube-apiserver
(`tests/conformance`), the cache against a failing one and the commands against both (`tests/kube`).
"""
