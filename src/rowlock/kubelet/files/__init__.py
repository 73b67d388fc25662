"""Files that pods can write or name: opened below a directory that is held, read as an enemy's, never followed outside.

Imports the standard library only, because shims use it. Begin with `beneath.py`.
"""
