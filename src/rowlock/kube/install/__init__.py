"""rowlock's server inside a real cluster: the objects that run it (`server_objects.py`), and its kubeconfig there (`in_cluster.py`)."""
