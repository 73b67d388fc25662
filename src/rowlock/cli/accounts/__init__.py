"""`rowlock user|role|access-rule|application`: accounts of people and programs, and their rights.

May import `cli` itself. Begin with `tree.py`.
"""
