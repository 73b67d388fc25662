"""Completion of both command lines in bash, zsh and fish: the scripts, and what may come next (`command.py`).

May import: the rest of `cli`. Begin with `command.py`.
"""
