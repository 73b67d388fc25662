"""Completion of both command lines in bash, zsh and fish: the scripts (`command.py`), and what may come next (`candidates.py`).

May import: the rest of `cli`. Begin with `command.py`.
"""
