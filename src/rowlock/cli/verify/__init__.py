"""`rowlock verify-resume`: the command (`command.py`), the ranks it starts, and what it says about two recordings.

May import: the rest of `cli`. Begin with `command.py`.
"""
