"""`rowlock notebook`: JupyterLab in a pod, with a port of this machine that leads to it. Begin with `command.py`."""
