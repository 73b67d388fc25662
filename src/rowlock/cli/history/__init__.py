"""`rowlock history` and `rowlock show`: runs that were, from the archive over HTTP. Begin with `runs.py`."""
