"""One file per framework: replica types, environment of a rank, which replicas decide; `registry.py` lists all.

A new framework is one file that makes a `Framework`, and its line in `registry.py`. Begin with `pytorch.py`.
"""
