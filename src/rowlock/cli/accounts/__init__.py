"""`rowlock user|role|access-rule|application`: who may come in, and what he may do.

May import `cli` itself. Begin with `tree.py`.
"""
