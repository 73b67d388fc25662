"""`rowlock history` and `rowlock show`: past runs, read from the archive over HTTP. Begin with `runs.py`."""
