"""How the command lines start a server once more: which of its former flags hold again. Begin with `former_flags.py`."""
