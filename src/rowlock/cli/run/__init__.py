"""`rowlock run`: the command (`command.py`), its request, the shell's environment that goes along, and stdin."""
