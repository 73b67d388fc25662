"""Other users than the owner of the kubeconfig: who they are to the cluster, and requests that go out with their own tokens.

May import: the rest of `kube`. Begin with `cluster_users.py`.
"""
