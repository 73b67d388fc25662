"""`rowlock notebook`: JupyterLab in a pod, reachable through a local port. Begin with `command.py`."""
