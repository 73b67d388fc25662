"""Curves of runs, from the lines that their programs printed: the one reader of them, for every face. Pure.

Begin with `lines.py`: what one piece of a log says (position, metrics). `curves.py` makes points of it.
"""
