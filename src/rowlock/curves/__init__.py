"""Curves of runs, from the lines that their programs printed: the one reader of them, for every face. Pure.

Begin with `lines.py`, which parses one piece of a log (position, metrics). `curves.py` turns pieces into points.
"""
