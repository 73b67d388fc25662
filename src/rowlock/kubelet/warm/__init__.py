"""Warm starts: programs that import torch are forked from an interpreter that has imported it already.

Standard library only: the parents run in the interpreters of images. May import nothing else of rowlock.
Begin with `eligibility.py`, then `warm_parents.py` (in the pod host) and `warm_parent.py` (in the image's Python).
"""
